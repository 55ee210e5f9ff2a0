"""One connection without IO: lanes, order, limits, what is remembered, steering, and the end."""

from __future__ import annotations

import json
from typing import Any

import pytest

from athena.errors import UsageError
from athena.websocket.frames import LaneProblem, read_message
from athena.websocket.session import Begin, End, Say, SocketAction, SocketLimits, SocketSession, SocketState, SocketTurn

CALL = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "look", "arguments": "{}"}
TEXT = {"type": "message", "id": "msg_1", "role": "assistant", "content": [{"type": "output_text", "text": "Yes."}]}


class Connection:
    """A session, and a gateway that answers when it is told to."""

    def __init__(self, **limits: int) -> None:
        self.session = SocketSession(SocketLimits(**limits), "seed")
        self.running: dict[str, SocketTurn] = {}
        """By the text of their input."""
        self.bodies: dict[str, dict[str, Any]] = {}
        self.began: list[str] = []
        self.said: list[dict[str, Any]] = []
        self.end: End | None = None

    def do(self, actions: list[SocketAction]) -> None:
        for action in actions:
            match action:
                case Say(message=message):
                    self.said.append(json.loads(message))
                case Begin(turn=turn, body=body, continues=continues):
                    value = json.loads(body)
                    items = value.get("input", [])
                    name = items[-1].get("content", "") if items else ""
                    known = [json.loads(item) for item in continues.history] if continues is not None else None
                    self.running[name], self.bodies[name] = turn, {**value, "known": known}
                    self.began.append(name)
                case End():
                    self.end = action

    def create(self, text: str, lane: str | None = None, previous: str | None = None, **fields: Any) -> None:
        message = {"type": "response.create", "model": "m", "input": text, **fields}
        message |= {"stream_id": lane} if lane is not None else {}
        message |= {"previous_response_id": previous} if previous is not None else {}
        self.do(self.session.message(read_message(json.dumps(message).encode())))

    def steer(self, target: str, text: Any = "more", **fields: Any) -> dict[str, Any]:
        message = {"type": "response.steer", "previous_response_id": target, "input": text, **fields}
        self.do(self.session.message(read_message(json.dumps(message).encode())))
        return self.said[-1]

    def exists(self, text: str, name: str) -> None:
        """The response of that turn begins."""
        turn = self.running[text]
        turn.answer.feed(_event("response.created", {"id": name}))
        self.session.created(turn)

    def complete(self, text: str, name: str, *output: dict[str, Any]) -> None:
        turn = self.running.pop(text)
        turn.answer.feed(_event("response.completed", {"id": name, "output": list(output)}))
        self.do(self.session.over(turn))

    def fail(self, text: str) -> None:
        turn = self.running.pop(text)
        turn.answer.head(500, {})
        turn.answer.feed(b'{"error": {"message": "no"}}')
        turn.answer.end()
        self.do(self.session.over(turn))


def _event(kind: str, response: dict[str, Any]) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, 'response': response})}\n\n".encode()


# -- order ---------------------------------------------------------------------------------------------------------------------


def test_one_lane_runs_one_after_the_other_and_lanes_side_by_side() -> None:
    connection = Connection()
    for text, lane in (("a1", "a"), ("a2", "a"), ("b1", "b"), ("0", None), ("a3", "a")):
        connection.create(text, lane)
    assert connection.began == ["a1", "b1", "0"]
    connection.complete("a1", "resp_1")
    assert connection.began[3:] == ["a2"]
    connection.fail("a2")
    assert connection.began[4:] == ["a3"]
    assert not connection.session.is_idle
    for text in ("b1", "0", "a3"):
        connection.complete(text, "resp")
    assert connection.session.is_idle


def test_sixteen_are_under_way_and_the_next_begins_when_one_is_over() -> None:
    connection = Connection(lanes=40)
    for number in range(20):
        connection.create(str(number), f"lane-{number}")
    assert connection.began == [str(number) for number in range(16)]
    connection.complete("7", "resp_7")
    connection.complete("3", "resp_3")
    assert connection.began[16:] == ["16", "17"]
    assert connection.session.in_flight == 16


def test_names_of_lanes_are_counted_over_the_whole_life() -> None:
    connection = Connection(lanes=3)
    for number in range(3):
        connection.create(str(number), f"lane-{number}")
        connection.complete(str(number), "resp")
    connection.create("nameless")
    connection.create("again", "lane-0")
    with pytest.raises(LaneProblem) as refused:
        connection.create("one too many", "lane-3")
    assert (refused.value.code, refused.value.lane, refused.value.status) == ("websocket_stream_limit_reached", "lane-3", 400)


def test_only_so_many_wait() -> None:
    connection = Connection(waiting=2)
    for text in ("runs", "waits", "waits too"):
        connection.create(text)
    with pytest.raises(LaneProblem) as refused:
        connection.create("no room")
    assert (refused.value.code, refused.value.status) == ("websocket_queue_full", 429)
    connection.complete("runs", "resp_1")
    connection.create("room again")


def test_an_answer_is_over_once() -> None:
    connection = Connection()
    connection.create("one")
    turn = connection.running["one"]
    connection.complete("one", "resp_1")
    with pytest.raises(UsageError):
        connection.session.over(turn)


# -- what is remembered --------------------------------------------------------------------------------------------------------


def user(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": text}


def test_the_latest_answer_of_each_lane_is_known_with_all_before_it() -> None:
    connection = Connection()
    connection.create("one", "a", store=False)
    connection.complete("one", "resp_1", CALL)
    connection.create("two", "a", "resp_1")
    assert connection.bodies["two"]["known"] == [user("one"), CALL]
    assert connection.bodies["two"]["previous_response_id"] == "resp_1"
    assert connection.bodies["two"]["stream"] is True
    connection.complete("two", "resp_2", TEXT)
    connection.create("three", "a", "resp_2")
    assert connection.bodies["three"]["known"] == [user("one"), CALL, user("two"), TEXT]
    connection.complete("three", "resp_3")
    connection.create("an old one", "a", "resp_1")
    assert connection.bodies["an old one"]["known"] is None
    connection.complete("an old one", "resp_4")
    connection.create("whose history is not known", "a", "resp_4")
    assert connection.bodies["whose history is not known"]["known"] is None


def test_another_lane_forks_and_keeps_the_parent_when_it_fails() -> None:
    connection = Connection()
    connection.create("one", "a")
    connection.complete("one", "resp_1", TEXT)
    connection.create("fork", "b", "resp_1")
    assert connection.bodies["fork"]["known"] == [user("one"), TEXT]
    connection.fail("fork")
    connection.create("goes on", "a", "resp_1")
    assert connection.bodies["goes on"]["known"] == [user("one"), TEXT]


def test_a_failed_continuation_forgets_what_it_continued() -> None:
    connection = Connection()
    connection.create("one")
    connection.complete("one", "resp_1", TEXT)
    connection.create("unrelated", "b")
    connection.fail("unrelated")
    connection.create("fails", None, "resp_1")
    connection.fail("fails")
    connection.create("again", None, "resp_1")
    assert connection.bodies["again"]["known"] is None


def test_what_is_continued_is_looked_up_when_the_turn_begins() -> None:
    connection = Connection()
    connection.create("one", "a")
    connection.complete("one", "resp_1", TEXT)
    connection.create("two", "a", "resp_1")
    connection.create("busy", "b")
    connection.create("late fork", "b", "resp_1")
    connection.complete("two", "resp_2")
    connection.complete("busy", "resp_b")
    assert connection.bodies["late fork"]["known"] is None


def test_a_warm_up_can_be_continued() -> None:
    connection = Connection()
    connection.create("rules", None, generate=False)
    turn = connection.running["rules"]
    assert not turn.create.generates
    assert "generate" not in connection.bodies["rules"]
    connection.complete("rules", "resp_0")
    connection.create("go", None, "resp_0")
    assert connection.bodies["go"]["known"] == [user("rules")]


def test_memory_that_is_short_takes_what_is_remembered() -> None:
    connection = Connection()
    connection.create("one")
    connection.complete("one", "resp_1", TEXT)
    assert connection.session.held > 0
    connection.session.forget()
    assert connection.session.held == 0
    connection.create("two", None, "resp_1")
    assert connection.bodies["two"]["known"] is None


def test_a_history_that_has_grown_too_large_is_refused() -> None:
    connection = Connection(body_bytes=400)
    connection.create("one")
    connection.complete("one", "resp_1", {"type": "message", "content": "x" * 350})
    connection.create("two" * 20, None, "resp_1")
    assert connection.said[-1]["error"]["code"] == "request_too_large"
    assert connection.said[-1]["status"] == 413
    assert connection.session.is_idle
    connection.create("small", None, "resp_1")
    assert connection.bodies["small"]["known"] is None


# -- steering ------------------------------------------------------------------------------------------------------------------


def test_steering_begins_a_successor_of_its_own() -> None:
    connection = Connection()
    connection.create("one", "a", instructions="Be brief.", store=False)
    connection.exists("one", "resp_1")
    first, second = (
        connection.steer("resp_1", "also this"),
        connection.steer("resp_1", [{"role": "user", "content": "and that"}]),
    )
    assert [event["type"] for event in (first, second)] == ["response.steer.accepted"] * 2
    assert first["stream_id"] == "a"
    assert first["steer"]["id"] != second["steer"]["id"]
    assert second["sequence_number"] == first["sequence_number"] + 1
    connection.create("waits behind it", "a")
    connection.complete("one", "resp_1", TEXT)
    assert connection.began == ["one", "and that"]
    body = connection.bodies["and that"]
    assert body["instructions"] == "Be brief."
    assert body["previous_response_id"] == "resp_1"
    assert body["known"] == [user("one"), TEXT]
    assert [item["content"] for item in body["input"]] == ["also this", "and that"]
    connection.exists("and that", "resp_2")
    connection.complete("and that", "resp_2", TEXT)
    assert connection.began[2:] == ["waits behind it"]
    assert len(connection.said) == 2


def test_steering_waits_for_the_results_of_the_clients_tools() -> None:
    connection = Connection()
    connection.create("one")
    connection.exists("one", "resp_1")
    accepted = connection.steer("resp_1", "hurry")
    connection.complete("one", "resp_1", CALL, {"type": "custom_tool_call", "call_id": "call_2", "name": "patch"})
    pending = connection.said[-1]
    assert pending["type"] == "response.steer.pending"
    assert pending["steer"] == accepted["steer"]
    assert pending["reason"] == "waiting_for_required_input"
    assert pending["required_input"] == [
        {"type": "function_call_output", "call_id": "call_1", "name": "look"},
        {"type": "custom_tool_call_output", "call_id": "call_2"},
    ]
    connection.create("the result", None, "resp_1")
    assert [item["content"] for item in connection.bodies["the result"]["input"]] == ["hurry", "the result"]
    connection.fail("the result")
    failed = connection.said[-1]
    assert (failed["type"], failed["error"]["code"]) == ("response.steer.failed", "successor_creation_failed")
    assert failed["steer"] == {**accepted["steer"], "input": "hurry"}


def test_steering_that_the_conversation_left_behind_is_handed_back() -> None:
    connection = Connection()
    connection.create("one")
    connection.exists("one", "resp_1")
    connection.steer("resp_1", "hurry")
    connection.complete("one", "resp_1", CALL)
    connection.create("something else")
    assert connection.said[-1]["error"]["code"] == "response_not_active"
    connection.exists("something else", "resp_2")
    connection.steer("resp_2", "stop")
    connection.fail("something else")
    assert connection.said[-1]["error"]["code"] == "response_not_active"
    assert connection.said[-1]["steer"]["input"] == "stop"


UNSTEERABLE: dict[str, tuple[dict[str, Any], str]] = {
    "unknown response": ({"target": "resp_9"}, "response_not_found"),
    "no response": ({"target": ""}, "invalid_input"),
    "a field too many": ({"target": "resp_1", "stream_id": "a"}, "invalid_input"),
    "empty input": ({"target": "resp_1", "text": []}, "invalid_input"),
    "no input": ({"target": "resp_1", "text": None}, "invalid_input"),
    "a number": ({"target": "resp_1", "text": 7}, "invalid_input"),
    "a system message": ({"target": "resp_1", "text": [{"role": "system", "content": "x"}]}, "invalid_input"),
    "a result": ({"target": "resp_1", "text": [{"type": "function_call_output", "output": "x"}]}, "invalid_input"),
    "a message with more": ({"target": "resp_1", "text": [{"role": "user", "content": "x", "phase": "y"}]}, "invalid_input"),
    "an output part": ({"target": "resp_1", "text": [{"role": "user", "content": [{"type": "output_text"}]}]}, "invalid_input"),
    "a complete response": ({"target": "resp_0"}, "response_already_completed"),
}


@pytest.mark.parametrize("name", UNSTEERABLE)
def test_steering_is_refused(name: str) -> None:
    arguments, code = UNSTEERABLE[name]
    connection = Connection()
    connection.create("before", "other")
    connection.complete("before", "resp_0", TEXT)
    connection.create("one")
    connection.exists("one", "resp_1")
    event = connection.steer(**arguments)
    assert (event["type"], event["error"]["code"]) == ("response.steer.failed", code)
    assert event["steer"]["input"] == arguments.get("text", "more")
    assert "id" not in event["steer"]
    connection.complete("one", "resp_1", TEXT)
    assert len(connection.began) == 2


@pytest.mark.parametrize(
    ("fields", "limits", "code"),
    [
        ({"conversation": "conv_1"}, {}, "steering_not_supported"),
        ({"context_management": [{"type": "compaction"}]}, {}, "steering_not_supported"),
        ({}, {"steers": 0}, "too_many_pending_steers"),
    ],
)
def test_what_cannot_be_steered(fields: dict[str, Any], limits: dict[str, int], code: str) -> None:
    connection = Connection(**limits)
    connection.create("one", **fields)
    connection.exists("one", "resp_1")
    assert connection.steer("resp_1")["error"]["code"] == code


# -- the end -------------------------------------------------------------------------------------------------------------------


def test_an_old_connection_says_so_and_ends() -> None:
    connection = Connection()
    connection.do(connection.session.expire())
    assert connection.said[-1]["error"]["code"] == "websocket_connection_limit_reached"
    assert connection.end is not None
    assert connection.session.state is SocketState.CLOSED
    connection.create("too late")
    assert not connection.began


def test_an_old_connection_finishes_what_is_under_way() -> None:
    connection = Connection()
    for text in ("one", "two"):
        connection.create(text)
    connection.do(connection.session.expire())
    with pytest.raises(LaneProblem) as refused:
        connection.create("too late")
    assert refused.value.code == "websocket_connection_limit_reached"
    connection.complete("one", "resp_1")
    assert connection.end is None
    connection.complete("two", "resp_2")
    assert connection.end == End(1001, "websocket_connection_limit_reached")


def test_a_drain_ends_an_idle_connection_at_once_and_a_busy_one_after_its_answers() -> None:
    idle = Connection()
    idle.do(idle.session.drain())
    assert idle.end == End(1001, "shutting_down")
    busy = Connection()
    busy.create("one")
    busy.do(busy.session.drain())
    assert busy.end is None
    busy.fail("one")
    assert busy.end == End(1001, "shutting_down")


def test_a_connection_that_is_gone_forgets_what_waits() -> None:
    connection = Connection()
    for text in ("runs", "waits"):
        connection.create(text)
    turns = connection.session.closed()
    assert turns == [connection.running["runs"]]
    connection.fail("runs")
    assert connection.began == ["runs"]
    assert connection.end is None
