"""One connection: its lanes, what it remembers of their latest answers, and what is to be done next. Pure: time is handed in.

    actions = session.message(read_message(text))      what a message of the client leads to
    actions = session.created(turn)                    its response has an id and its input is taken
    actions = session.over(turn)                       its answer has ended

The driver carries the actions out in their order. The states of a connection:

| state | what is taken | what follows |
|---|---|---|
| OPEN | every message | ENDING when it is too old, or the gateway drains |
| ENDING | no new request: it gets an error; answers under way go on | CLOSED with the last of them |
| CLOSED | nothing | |

and of a turn, which is one request on its lane:

| state | what it does | what follows |
|---|---|---|
| WAITING | it stands behind others of its lane, or 16 are under way | RUNNING, in the order of arrival |
| RUNNING | the gateway answers it | OVER |
| OVER | its answer has ended | |

The rules:

- Turns of one lane run one after the other; those of different lanes side by side, at most 16 in all.
- A connection may name 32 lanes; the one without a name does not count.
- The latest complete answer of each lane is remembered with everything that led to it, so it can be continued whether or not
  it was stored. What it continues is looked up when a turn begins, not when it is sent.
- A turn that fails takes what it continued with it, if that is of its own lane: the client is to send its history again. What
  another lane remembers stays.
- Steering adds input to an answer that is under way. It takes effect in a successor, which begins by itself when the answer is
  complete, or with the client's next request where the answer waits for the client's tools.
"""

from __future__ import annotations

from collections import deque
from enum import Enum, auto
from typing import Any

import msgspec

from athena.errors import UsageError
from athena.model.events import error_event
from athena.websocket.answers import Ending, SocketAnswer, continued, required_inputs
from athena.websocket.frames import Create, LaneProblem, MessageFields, Steer, error_message, steer_message, wrapped_error

_GOING_AWAY = 1001
_NO_STEERING = ("conversation", "context_management")
"""MessageFields of a request whose answer cannot be steered."""


class SocketLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What one connection may do."""

    in_flight: int = 16
    """Answers under way."""
    lanes: int = 32
    """Lanes with a name, over the connection's whole life."""
    waiting: int = 64
    """Requests that wait for their turn."""
    steers: int = 16
    """Pieces of steering input that wait in one lane."""
    body_bytes: int = 32 * 1024 * 1024
    """One request with everything that it continues."""
    event_bytes: int = 16 * 1024 * 1024
    """One event of an answer."""


class SocketState(Enum):
    """Where a connection is; see the table of this module."""

    OPEN = auto()
    ENDING = auto()
    CLOSED = auto()


class TurnState(Enum):
    """Where a request is; see the table of this module."""

    WAITING = auto()
    RUNNING = auto()
    OVER = auto()


class Remembered(msgspec.Struct, frozen=True):
    """A complete answer that can be continued."""

    id: str
    history: tuple[bytes, ...]
    """All items up to its last one, each as JSON."""

    @property
    def size(self) -> int:
        return sum(map(len, self.history))


class _Steering(msgspec.Struct, frozen=True):
    """Input that was accepted and is not part of a response yet."""

    id: str
    steer: Steer


class SocketLane:
    """Requests that are answered one after the other."""

    __slots__ = ("_name", "ended", "kept", "owed", "running")

    def __init__(self, name: str | None) -> None:
        self._name = name
        self.running: SocketTurn | None = None
        self.kept: Remembered | None = None
        """Its latest complete answer."""
        self.owed: list[_Steering] = []
        """Steering for that answer, which waits for the client's next request."""
        self.ended = ""
        """The response that ended last, complete or not."""

    @property
    def name(self) -> str | None:
        return self._name


class SocketTurn:
    """One request of a connection."""

    __slots__ = ("answer", "carried", "create", "lane", "response_history", "state", "steered")

    def __init__(self, lane: SocketLane, create: Create, event_bytes: int) -> None:
        self.lane = lane
        self.create = create
        self.state = TurnState.WAITING
        self.answer = SocketAnswer(lane.name, event_bytes)
        self.steered: list[_Steering] = []
        """Steering that came while it ran."""
        self.carried: list[_Steering] = []
        """Steering that its own input holds; until its response exists it can still be handed back."""
        self.response_history: tuple[bytes, ...] | None = None
        """What its answer will be remembered with; None where a part of it is not known here."""


class Say(msgspec.Struct, frozen=True):
    """Send this message."""

    message: bytes


class Begin(msgspec.Struct, frozen=True):
    """Answer this request."""

    turn: SocketTurn
    body: bytes
    """As a plain request would have it."""
    continues: Remembered | None
    """What it continues, where this connection remembers it."""


class End(msgspec.Struct, frozen=True):
    """Close the connection."""

    code: int
    reason: str


SocketAction = Say | Begin | End


class SocketSession:
    """The requests of one connection."""

    def __init__(self, limits: SocketLimits, seed: str) -> None:
        """`seed` makes the ids of steering input unlike those of other connections."""
        self.limits = limits
        self.state = SocketState.OPEN
        self.ended_for = ""
        """Why it is ENDING: the code of the error that further requests get."""
        self._seed = seed
        self._lanes: dict[str | None, SocketLane] = {}
        self._waiting: deque[SocketTurn] = deque()
        self._running = 0
        self._steers = 0
        self._numbers = 0

    # -- what a driver may want to know ------------------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """Is nothing under way?"""
        return not self._running and not self._waiting

    @property
    def in_flight(self) -> int:
        return self._running

    @property
    def held(self) -> int:
        """Bytes of requests that wait and of answers that are remembered."""
        waiting = sum(turn.create.size for turn in self._waiting)
        return waiting + sum(lane.kept.size for lane in self._lanes.values() if lane.kept is not None)

    # -- messages ----------------------------------------------------------------------------------------------------------

    def message(self, message: Create | Steer) -> list[SocketAction]:
        """What a message leads to. Raises LaneProblem where it is answered by an error and nothing else."""
        if self.state is SocketState.CLOSED:
            return []
        if isinstance(message, Steer):
            return [Say(self._steer(message))]
        if self.state is SocketState.ENDING:
            raise _ending(self.ended_for, message.lane)
        lane = self._lane(message.lane)
        if len(self._waiting) >= self.limits.waiting:
            raise LaneProblem(
                f"{self.limits.waiting} requests of this connection wait for their turn; wait for an answer to finish",
                code="websocket_queue_full",
                path="",
                status=429,
                lane=message.lane,
            )
        self._waiting.append(SocketTurn(lane, message, self.limits.event_bytes))
        return self._begin()

    def _lane(self, name: str | None) -> SocketLane:
        lane = self._lanes.get(name)
        if lane is None:
            if name is not None and len(self._lanes) - (None in self._lanes) >= self.limits.lanes:
                raise LaneProblem(
                    f"This WebSocket connection has reached its maximum number of distinct stream IDs ({self.limits.lanes}). "
                    "Reuse an existing stream_id or open a new WebSocket connection.",
                    code="websocket_stream_limit_reached",
                    path="stream_id",
                    lane=name,
                )
            lane = self._lanes[name] = SocketLane(name)
        return lane

    def _begin(self) -> list[SocketAction]:
        """Begin what may begin, in the order of arrival."""
        actions: list[SocketAction] = []
        blocked: set[str | None] = set()
        for turn in tuple(self._waiting):
            if self._running >= self.limits.in_flight:
                break
            lane = turn.lane
            if lane.running is not None or lane.name in blocked:
                blocked.add(lane.name)
                continue
            self._waiting.remove(turn)
            actions += self._run(turn)
        return actions

    def _run(self, turn: SocketTurn) -> list[SocketAction]:
        create, lane = turn.create, turn.lane
        kept = self._kept(create.previous)
        own = create.input or ()
        actions: list[SocketAction] = []
        if lane.owed:
            if lane.kept is not None and create.previous == lane.kept.id:
                turn.carried = lane.owed
                own = tuple(item for steering in turn.carried for item in steering.steer.items) + own
            else:
                actions += self._give_back(lane.owed, lane, "response_not_active", "the conversation went on without it")
            lane.owed = []
        known = kept.history if kept is not None else ()
        if sum(map(len, known)) + sum(map(len, own)) > self.limits.body_bytes:
            lane.kept = None if kept is lane.kept else lane.kept
            actions += self._give_back(turn.carried, lane, "successor_creation_failed", "the conversation is too large")
            return [*actions, Say(wrapped_error(_TOO_LARGE, 413, lane.name))]
        if create.previous is None:
            # What was said before in a conversation is known to the store alone.
            is_whole = bytes(create.fields.get("conversation", b"null")) == b"null"
            turn.response_history = own if is_whole else None
        elif kept is not None:
            turn.response_history = kept.history + own
        turn.state = TurnState.RUNNING
        lane.running = turn
        self._running += 1
        has_input = create.input is not None or bool(turn.carried)
        body = _body(create.fields, own if has_input else None, create.previous)
        return [*actions, Begin(turn, body, kept)]

    def _kept(self, name: str | None) -> Remembered | None:
        if name is None:
            return None
        return next((lane.kept for lane in self._lanes.values() if lane.kept is not None and lane.kept.id == name), None)

    # -- answers -----------------------------------------------------------------------------------------------------------

    def created(self, turn: SocketTurn) -> None:
        """The response of a turn exists: what steered its parent is part of it now."""
        turn.carried = []

    def over(self, turn: SocketTurn) -> list[SocketAction]:
        """The answer of a turn has ended, as its `answer` says."""
        if turn.state is not TurnState.RUNNING:
            raise UsageError(f"over() while {turn.state.name}")
        turn.state = TurnState.OVER
        lane, answer = turn.lane, turn.answer
        lane.running = None
        lane.ended = answer.response_id
        self._running -= 1
        actions: list[SocketAction] = []
        if answer.ending is Ending.COMPLETE:
            actions += self._complete(turn)
        else:
            if lane.kept is not None and lane.kept.id == turn.create.previous:
                lane.kept = None
            actions += self._give_back(turn.carried, lane, "successor_creation_failed", "the successor could not be made")
            actions += self._give_back(turn.steered, lane, "response_not_active", "the response failed")
        turn.carried, turn.steered = [], []
        actions += self._begin()
        if self.state is SocketState.ENDING and self.is_idle:
            actions.append(self._close())
        return actions

    def _complete(self, turn: SocketTurn) -> list[SocketAction]:
        lane, answer = turn.lane, turn.answer
        known = turn.response_history
        if known is None or not answer.response_id:
            lane.kept = None
        else:
            lane.kept = Remembered(answer.response_id, continued(known, answer.output))
        if not turn.steered:
            return []
        required = required_inputs(answer.output)
        if required:
            lane.owed = turn.steered
            return [Say(self._pending(steering, lane, required)) for steering in turn.steered]
        items = tuple(item for steering in turn.steered for item in steering.steer.items)
        successor = Create(
            lane=lane.name,
            fields=turn.create.fields,
            input=items,
            previous=answer.response_id,
            generates=True,
            size=sum(map(len, items)),
        )
        follower = SocketTurn(lane, successor, self.limits.event_bytes)
        follower.carried = turn.steered
        self._waiting.appendleft(follower)
        return []

    # -- steering ----------------------------------------------------------------------------------------------------------

    def _steer(self, message: Steer) -> bytes:
        target = next(
            (
                lane.running
                for lane in self._lanes.values()
                if lane.running is not None and message.target and lane.running.answer.response_id == message.target
            ),
            None,
        )
        if message.problem:
            return self._failed(message, target, "invalid_input", message.problem)
        if target is None:
            ended = [lane for lane in self._lanes.values() if lane.ended == message.target]
            if any(lane.kept is not None and lane.kept.id == message.target for lane in ended):
                return self._failed(message, None, "response_already_completed", "the response is complete")
            if ended:
                return self._failed(message, None, "response_not_active", "the response is over")
            return self._failed(message, None, "response_not_found", "this connection has no such response under way")
        if any(bytes(target.create.fields.get(name, b"null")) != b"null" for name in _NO_STEERING):
            text = "responses of a conversation, or with automatic compaction, cannot be steered"
            return self._failed(message, target, "steering_not_supported", text)
        if len(target.steered) >= self.limits.steers:
            return self._failed(message, target, "too_many_pending_steers", "too much waits for this response already")
        self._steers += 1
        steering = _Steering(f"steer_{self._seed}{self._steers:x}", message)
        target.steered.append(steering)
        shown = {"id": steering.id, "previous_response_id": message.target}
        return steer_message("accepted", self._number(), target.lane.name, shown)

    def _pending(self, steering: _Steering, lane: SocketLane, required: list[dict[str, Any]]) -> bytes:
        shown = {"id": steering.id, "previous_response_id": steering.steer.target}
        fields = {"reason": "waiting_for_required_input", "required_input": required}
        return steer_message("pending", self._number(), lane.name, shown, fields)

    def _failed(self, steer: Steer, target: SocketTurn | None, code: str, text: str) -> bytes:
        shown = {"input": steer.input, "previous_response_id": steer.target}
        error = {"type": "invalid_request_error", "code": code, "message": text}
        return steer_message("failed", self._number(), target.lane.name if target else None, shown, {"error": error})

    def _give_back(self, steerings: list[_Steering], lane: SocketLane, code: str, text: str) -> list[SocketAction]:
        """Accepted input that will not become part of a response."""
        actions: list[SocketAction] = []
        for steering in steerings:
            shown = {"id": steering.id, "input": steering.steer.input, "previous_response_id": steering.steer.target}
            error = {"type": "invalid_request_error", "code": code, "message": text}
            actions.append(Say(steer_message("failed", self._number(), lane.name, shown, {"error": error})))
        return actions

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers - 1

    # -- the end -----------------------------------------------------------------------------------------------------------

    def expire(self) -> list[SocketAction]:
        """The connection is as old as it may be."""
        if self.state is not SocketState.OPEN:
            return []
        self.ended_for = "websocket_connection_limit_reached"
        self.state = SocketState.ENDING
        if not self.is_idle:
            return []  # the next request is told
        problem = _ending(self.ended_for, None)
        return [Say(error_message(error_event(problem), problem.status or 400)), self._close()]

    def drain(self) -> list[SocketAction]:
        """The gateway ends: answers under way go on."""
        if self.state is SocketState.CLOSED:
            return []
        self.state, self.ended_for = SocketState.ENDING, "shutting_down"
        return [self._close()] if self.is_idle else []

    def forget(self) -> None:
        """Memory is short: nothing is remembered any more."""
        for lane in self._lanes.values():
            lane.kept = None

    def closed(self) -> list[SocketTurn]:
        """The connection is gone: the turns that are under way."""
        self.state = SocketState.CLOSED
        self._waiting.clear()
        return [lane.running for lane in self._lanes.values() if lane.running is not None]

    def _close(self) -> End:
        self.state = SocketState.CLOSED
        return End(_GOING_AWAY, self.ended_for)


def _ending(reason: str, lane: str | None) -> LaneProblem:
    """What a request gets that comes when its connection is about to end."""
    if reason == "shutting_down":
        text = "the gateway is shutting down; open a new connection"
        return LaneProblem(text, code="shutting_down", path="", status=503, lane=lane)
    text = "Responses websocket connection limit reached. Create a new websocket connection to continue."
    return LaneProblem(text, code="websocket_connection_limit_reached", path="", lane=lane)


_TOO_LARGE = {
    "type": "invalid_request_error",
    "code": "request_too_large",
    "message": "the request with everything that it continues is larger than this gateway takes (limits.body_bytes)",
    "param": "input",
}


def _body(fields: MessageFields, items: tuple[bytes, ...] | None, previous: str | None) -> bytes:
    """The body of a plain request that asks for a stream."""
    body: dict[str, Any] = dict(fields)
    if previous is not None:
        body["previous_response_id"] = previous
    if items is not None:
        body["input"] = msgspec.Raw(b"[%b]" % b",".join(items))
    body["stream"] = True
    return msgspec.json.encode(body)
