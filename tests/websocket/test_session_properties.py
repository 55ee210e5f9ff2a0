"""Any order of messages and answers on one connection: the rules of lanes and of steering hold."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from athena.websocket.frames import LaneProblem, read_message
from athena.websocket.session import Begin, End, Say, SocketAction, SocketLimits, SocketSession, SocketState, SocketTurn

LANES = ("a", "b", "c", None)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("create"), st.sampled_from(LANES), st.integers(0, 3)),
        st.tuples(st.just("complete"), st.integers(0, 9), st.booleans()),
        st.tuples(st.just("fail"), st.integers(0, 9), st.booleans()),
        st.tuples(st.just("exists"), st.integers(0, 9), st.booleans()),
        st.tuples(st.just("steer"), st.integers(0, 9), st.booleans()),
        st.tuples(st.sampled_from(["drain", "expire", "forget"]), st.just(0), st.just(False)),
    ),
    max_size=40,
)


class World:
    def __init__(self) -> None:
        self.limits = SocketLimits(in_flight=2, lanes=2, waiting=3, steers=2)
        self.session = SocketSession(self.limits, "s")
        self.running: list[SocketTurn] = []
        self.asked: dict[str | None, list[str]] = {lane: [] for lane in LANES}
        self.begun: dict[str | None, list[str]] = {lane: [] for lane in LANES}
        self.ids: list[str] = []
        self.accepted: set[str] = set()
        self.settled: Counter[str] = Counter()
        self.ended = False

    def do(self, actions: list[SocketAction]) -> None:
        for action in actions:
            assert not self.ended, "nothing follows the end"
            match action:
                case Begin(turn=turn, body=body):
                    self.running.append(turn)
                    texts = [item["content"] for item in json.loads(body)["input"]]
                    self.begun[turn.lane.name] += [text for text in texts if text.startswith("turn")]
                    assert sum(each.lane is turn.lane for each in self.running) == 1, "one of a lane at a time"
                    assert len(self.running) <= self.limits.in_flight
                case Say(message=message):
                    self.heard(json.loads(message))
                case End():
                    assert not self.running, "answers under way are not cut"
                    self.ended = True

    def heard(self, message: dict[str, Any]) -> None:
        kind, name = message["type"], message.get("steer", {}).get("id")
        if kind == "response.steer.accepted":
            self.accepted.add(name)
        elif kind == "response.steer.failed" and name is not None:
            self.settled[name] += 1

    def create(self, text: str, lane: str | None, back: int) -> None:
        message: dict[str, Any] = {"type": "response.create", "input": text}
        if lane is not None:
            message["stream_id"] = lane
        if back and self.ids:
            message["previous_response_id"] = self.ids[-min(back, len(self.ids))]
        with contextlib.suppress(LaneProblem):
            actions = self.session.message(read_message(json.dumps(message).encode()))
            if self.session.state is not SocketState.CLOSED:
                self.asked[lane].append(text)
            self.do(actions)

    def answer(self, turn: SocketTurn, kind: str, **fields: Any) -> None:
        event = {"type": kind, "response": {"id": f"resp_{id(turn)}", **fields}}
        turn.answer.feed(f"event: {kind}\ndata: {json.dumps(event)}\n\n".encode())
        if turn.carried:
            for steering in turn.carried:
                self.settled[steering.id] += 1
            self.session.created(turn)


@given(STEPS)
def test_the_rules_hold_whatever_happens(steps: list[tuple[Any, ...]]) -> None:
    world = World()
    for number, (kind, first, second) in enumerate(steps):
        match kind:
            case "create":
                world.create(f"turn {number}", first, second)
            case "steer" if world.running:
                turn = world.running[first % len(world.running)]
                target = turn.answer.response_id or "resp_none"
                message = {"type": "response.steer", "previous_response_id": target, "input": "more"}
                world.do(world.session.message(read_message(json.dumps(message).encode())))
            case "exists" if world.running:
                turn = world.running[first % len(world.running)]
                if not turn.answer.response_id:
                    world.answer(turn, "response.created")
            case "complete" if world.running:
                turn = world.running.pop(first % len(world.running))
                calls = [{"type": "function_call", "call_id": "c", "name": "f"}] if second else []
                world.answer(turn, "response.completed", output=calls)
                world.ids.append(turn.answer.response_id)
                world.do(world.session.over(turn))
            case "fail" if world.running:
                turn = world.running.pop(first % len(world.running))
                turn.answer.head(500, {})
                turn.answer.end()
                world.do(world.session.over(turn))
            case "drain":
                world.do(world.session.drain())
            case "expire":
                world.do(world.session.expire())
            case "forget":
                world.session.forget()
            case _:
                pass
    while world.running:
        turn = world.running.pop()
        world.answer(turn, "response.completed", output=[])
        world.do(world.session.over(turn))
    assert world.session.is_idle
    assert world.begun == world.asked, "every request that was taken began once, in the order of its lane"
    owed = {steering.id for lane in world.session._lanes.values() for steering in lane.owed}
    assert set(world.settled) | owed == world.accepted, "accepted input became part of a response, came back, or waits"
    assert not set(world.settled) & owed
    assert set(world.settled.values()) <= {1}
    if world.session.state is not SocketState.OPEN:
        assert world.ended
