"""A request through its attempts, without sockets: which target is asked, when again, and what the client is told."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from athena.errors import UpstreamClosed, UpstreamError, UsageError
from athena.exchange import NOTHING, Head, UpstreamCall
from athena.formats.machine import stage
from athena.model.events import Event
from athena.model.request import Request
from athena.serving.actions import Build, Pause, Send, Tell
from athena.serving.clock import ClientLimits, says_something
from athena.serving.record import RequestRecord
from athena.serving.serving import Serving, ServingState
from athena.serving.tap import Tap
from athena.serving.targets import Target
from support.serving_values import House, next_send

NOW = 1000.0
CONFIG: dict[str, Any] = {
    "upstreams": {
        "first": {"base_url": "http://127.0.0.1:1/v1"},
        "second": {"base_url": "http://127.0.0.1:2", "dialect": "anthropic_messages"},
        "third": {"base_url": "http://127.0.0.1:3/v1"},
    },
    "models": [
        {"match": "one", "use": "first/one"},
        {"match": "two", "use": "first/two", "fallback": ["third/two"]},
        {"match": "strict", "use": "first/s", "fallback": [{"use": "second/s", "strict": True}, "third/s"]},
        {"match": "taught", "use": "first/t", "tools": "prompted"},
    ],
    "tool_adapter": {"reask": True},
    "retries": {"attempts": 2, "wait_s": 60, "share": 1},
}
TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}


def question(model: str, **more: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": "hi"}], "tools": [TOOL], **more}


def completion(text: str = "Hello") -> bytes:
    message = {"role": "assistant", "content": text}
    usage = {"prompt_tokens": 30, "completion_tokens": 2, "total_tokens": 32}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    return json.dumps({"id": "1", "object": "chat.completion", "model": "m", "choices": [choice], "usage": usage}).encode()


def chunk(text: str, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish}
    record = {"id": "1", "object": "chat.completion.chunk", "model": "m", "choices": [choice]}
    return b"data: " + json.dumps(record).encode() + b"\n\n"


def refuse(serving: Serving, status: int, message: str = "no", **headers: str) -> None:
    """The upstream answers with an error."""
    serving.sending(NOW)
    serving.head(status, {"content-type": "application/json", **headers}, NOW)
    serving.data(json.dumps({"error": {"message": message}}).encode(), NOW)
    assert serving.end(None, NOW).output == b""


def accept(serving: Serving, text: str = "Hello") -> bytes:
    """The upstream answers well, in one piece."""
    serving.sending(NOW)
    serving.head(200, {"content-type": "application/json"}, NOW)
    return serving.data(completion(text), NOW).output + serving.end(None, NOW).output


def sent_to(action: object) -> str:
    assert isinstance(action, Send)
    return action.target.upstream


def told(action: object) -> tuple[int, str]:
    assert isinstance(action, Tell)
    assert action.step.head is not None
    return action.step.head.status, action.step.output.decode()


# -- attempts ----------------------------------------------------------------------------------------------------------------


def test_the_first_answer_of_a_format_is_prepared_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage, "_READY", set())
    house = House(CONFIG)
    first, second = house.serve(question("one")), house.serve(question("one"))
    assert first.next(NOW) == Build(heavy=True)
    first.build()
    assert second.next(NOW) == Build(heavy=False)


def test_an_answer_at_once() -> None:
    house = House(CONFIG)
    before = house.serve(question("one"))
    before.next(NOW)
    before.build()
    serving = house.serve(question("one"))
    assert serving.next(NOW) == Build(heavy=False)
    serving.build()
    send = serving.next(NOW)
    assert isinstance(send, Send)
    assert (send.path, json.loads(send.body)["model"]) == ("/v1/chat/completions", "one")
    assert b"Hello" in accept(serving)
    assert serving.state is ServingState.OVER
    assert serving.keeps_connection
    serving.close(NOW + 1)
    record = serving.record
    assert (record.outcome, record.status, record.attempts, record.upstream) == ("ok", 200, 1, "first")
    assert (record.input_tokens, record.duration_ms) == (30, 1000)
    assert record.details.attempts == [("first", True)]


def test_what_may_be_repeated_is_repeated_and_then_told() -> None:
    serving = House(CONFIG).serve(question("one"))
    waits: list[float] = []
    now = NOW
    for _ in range(3):
        action = serving.next(now)
        if isinstance(action, Pause):
            waits.append(action.until - now)
            assert serving.next(now) == action, "it is not yet time"
            now = action.until
            action = serving.next(now)
        assert isinstance(action, Build)
        serving.build()
        assert sent_to(serving.next(now)) == "first"
        refuse(serving, 503)
    action = serving.next(now)
    assert told(action)[0] == 503
    assert isinstance(action, Tell)
    assert action.step.head is not None
    assert action.step.head.headers["x-should-retry"] == "false"
    assert serving.record.attempts == 3
    assert len(waits) == 2
    assert waits[1] > waits[0] > 0


@pytest.mark.parametrize(("status", "headers"), [(400, {}), (503, {"x-should-retry": "false"})])
def test_what_may_not_be_repeated_is_told_at_once(status: int, headers: dict[str, str]) -> None:
    serving = House(CONFIG).serve(question("one"))
    next_send(serving)
    refuse(serving, status, **headers)
    assert told(serving.next(NOW))[0] == status


def test_the_wait_that_an_upstream_asks_for_is_kept() -> None:
    serving = House(CONFIG).serve(question("one"))
    next_send(serving)
    refuse(serving, 429, **{"retry-after": "7"})
    assert serving.next(NOW) == Pause(NOW + 7)


def test_the_next_target_is_asked_instead_of_the_same_again() -> None:
    serving = House(CONFIG).serve(question("two"))
    assert sent_to(next_send(serving)) == "first"
    serving.sending(NOW)
    serving.failed(UpstreamClosed("gone"), NOW)
    assert sent_to(next_send(serving)) == "third"
    assert b"Hello" in accept(serving)
    assert serving.record.details.attempts == [("first", False), ("third", True)]


def test_a_fallback_that_cannot_be_asked_this_is_none() -> None:
    serving = House(CONFIG).serve(question("strict", logprobs=True, n=2))
    next_send(serving)
    refuse(serving, 503, "the true failure")
    assert sent_to(next_send(serving)) == "third", "the second one, strict, cannot say this"
    refuse(serving, 400, "the last failure")
    status, body = told(serving.next(NOW))
    assert (status, "the last failure" in body) == (400, True)


def test_a_request_that_cannot_be_put_to_its_target_is_refused() -> None:
    config = {**CONFIG, "models": [{"match": "strict", "use": "second/s", "strict": True, "fallback": ["third/s"]}]}
    serving = House(config).serve(question("strict", logprobs=True, n=2))
    status, _ = told(next_send(serving))
    assert (status, serving.record.attempts) == (400, 0)


def test_a_refusal_of_tools_is_answered_with_tools_in_the_prompt() -> None:
    house = House(CONFIG)
    serving = house.serve(question("one"))
    send = next_send(serving)
    assert isinstance(send, Send)
    assert b'"tools"' in send.body
    refuse(serving, 400, "this model does not support tools")
    send = next_send(serving)
    assert isinstance(send, Send)
    assert b'"tools"' not in send.body
    assert b"Hello" in accept(serving)
    assert (serving.record.tool_mode, serving.record.attempts) == ("prompted", 2)
    assert house.shared.learnt.lessons() == [], "one request is no evidence"


def test_where_it_was_not_the_tools_the_first_error_is_told() -> None:
    serving = House(CONFIG).serve(question("one"))
    next_send(serving)
    refuse(serving, 400, "this model does not support tools")
    next_send(serving)
    refuse(serving, 400, "something else entirely")
    status, body = told(serving.next(NOW))
    assert (status, "does not support tools" in body) == (400, True)
    assert serving.record.tool_mode == ""


def test_a_model_is_asked_once_more_when_its_call_cannot_be_used() -> None:
    serving = House(CONFIG).serve(question("taught"))
    first = next_send(serving)
    assert accept(serving, '```json\n[{"name": "get_weather", "parameters": {"city": }}]\n```') == b""
    second = next_send(serving)
    assert isinstance(first, Send)
    assert isinstance(second, Send)
    assert len(second.body) > len(first.body)
    assert b"Hello" in accept(serving)
    assert serving.record.attempts == 2


def test_no_place_at_an_upstream_says_nothing_about_it() -> None:
    house = House({**CONFIG, "health": {"failures": 1}})
    serving = house.serve(question("one"))
    next_send(serving)
    full = UpstreamError("all places are taken", kind="overloaded", code="queue_full", retry_after=2)
    serving.failed(full, NOW)
    action = serving.next(NOW)
    assert told(action)[0] == 503
    assert isinstance(action, Tell)
    assert action.step.head is not None
    assert "x-should-retry" not in action.step.head.headers
    assert house.health.is_up("first")
    assert serving.record.details.attempts == []


def test_an_upstream_that_fails_is_left_out() -> None:
    house = House({**CONFIG, "health": {"failures": 1, "error_rate": 0}})
    serving = house.serve(question("two"))
    next_send(serving)
    refuse(serving, 500)
    assert sent_to(next_send(serving)) == "third"
    assert sent_to(next_send(house.serve(question("two")))) == "third"


# -- the client's head, and time ---------------------------------------------------------------------------------------------


LIMITS = ClientLimits(hold_head=20, keep_alive=10, write=60)


def streamed(model: str = "one", **more: Any) -> tuple[House, Serving]:
    house = House({**CONFIG, **more}, limits=LIMITS)
    return house, house.serve(question(model, stream=True))


def test_the_head_waits_for_the_first_event_but_not_for_ever() -> None:
    _, serving = streamed()
    next_send(serving)
    serving.sending(NOW)
    assert serving.clock.deadline <= NOW + 20
    assert serving.tick(NOW + 10).output == b""
    step = serving.tick(NOW + 20)
    assert step.head is not None
    assert step.head.status == 200
    assert step.output.startswith(b":")
    serving.failed(UpstreamClosed("gone"), NOW + 21)
    assert serving.state is ServingState.OVER, "the client has a head: nothing is tried again"
    assert serving.record.status == 200


def test_the_error_of_a_stream_that_nobody_saw_has_its_own_status() -> None:
    _, serving = streamed(retries={"attempts": 0})
    next_send(serving)
    serving.sending(NOW)
    serving.head(200, {"content-type": "text/event-stream"}, NOW)
    serving.data(b": ping\n\n", NOW)
    serving.end(UpstreamClosed("gone"), NOW)
    assert told(serving.next(NOW))[0] == 502


@given(st.text(alphabet=": \t\r\n\v\fdx{", max_size=12).map(str.encode))
def test_comments_and_blank_lines_say_nothing(data: bytes) -> None:
    lines = [line for line in data.split(b"\n") if line.strip() and not line.startswith(b":")]
    assert says_something(data, ()) == bool(lines)


def test_a_read_that_completes_no_record_brings_nothing_at_all() -> None:
    _, serving = streamed()
    next_send(serving)
    serving.sending(NOW)
    serving.head(200, {"content-type": "text/event-stream"}, NOW)
    data = chunk("Hel") + chunk("lo")
    shown = [serving.data(data[at : at + 1], NOW) for at in range(len(data))]
    brought = [at for at, step in enumerate(shown) if step != NOTHING]
    assert brought == [len(chunk("Hel")) - 1, len(data) - 1]


@pytest.mark.parametrize(
    ("seen", "after", "code"),
    [(b"", 600, "first_byte_timeout"), (chunk("Hel"), 120, "idle_timeout"), (chunk("Hel"), 3600, "total_timeout")],
)
def test_silence_ends_an_answer(seen: bytes, after: float, code: str) -> None:
    _, serving = streamed(retries={"attempts": 0}, timeouts={"idle_s": 10_000} if code == "total_timeout" else {})
    next_send(serving)
    serving.sending(NOW)
    serving.head(200, {"content-type": "text/event-stream"}, NOW)
    if seen:
        serving.data(seen, NOW)
    now = NOW
    while serving.state is ServingState.READING:
        assert serving.clock.deadline > now
        now = serving.clock.deadline
        if code == "total_timeout":
            serving.data(chunk("."), now)
        else:
            serving.data(b": pings do not count\n\n", now)
        serving.tick(now)
        assert now <= NOW + after + 1
    if serving.state is ServingState.FAILED:
        serving.next(now)
    serving.close(now)
    assert serving.record.error == code
    assert after <= now - NOW <= after + 1


def test_what_waits_for_us_is_not_the_upstreams_silence() -> None:
    _, serving = streamed()
    next_send(serving)
    serving.sending(NOW)
    serving.head(200, {"content-type": "text/event-stream"}, NOW)
    serving.data(chunk("Hel"), NOW)
    for minute in range(1, 20):
        serving.tick(NOW + 60 * minute, waits_for_us=True)
    assert serving.state is ServingState.READING


def test_a_client_that_takes_nothing_is_given_up() -> None:
    _, serving = streamed()
    next_send(serving)
    serving.sending(NOW)
    serving.head(200, {"content-type": "text/event-stream"}, NOW)
    serving.data(chunk("Hel"), NOW)
    serving.clock.blocked(NOW)
    serving.tick(NOW + 59, waits_for_us=True)
    before = serving.state
    serving.tick(NOW + 60, waits_for_us=True)
    assert (before, serving.state) == (ServingState.READING, ServingState.OVER)
    serving.close(NOW + 60)
    assert serving.record.outcome == "client_stalled"


def test_the_end_that_is_missing_is_waited_for_only_a_moment() -> None:
    _, serving = streamed()
    next_send(serving)
    serving.sending(NOW)
    serving.head(200, {"content-type": "text/event-stream"}, NOW)
    serving.data(chunk("Hello", "stop"), NOW)
    assert serving.has_said_all
    assert serving.clock.deadline <= NOW + 1
    serving.tick(NOW + 1)
    assert serving.state is ServingState.OVER
    serving.close(NOW + 1)
    assert serving.record.outcome == "ok"


@pytest.mark.parametrize("begun", [False, True])
def test_a_shutdown_is_told(begun: bool) -> None:
    _, serving = streamed()
    next_send(serving)
    serving.sending(NOW)
    if begun:
        serving.head(200, {"content-type": "text/event-stream"}, NOW)
        serving.data(chunk("Hel"), NOW)
    step = serving.stop("shutdown", NOW)
    assert b"shutting down" in step.output
    assert (step.head is None) is begun
    assert step.done
    serving.close(NOW)
    assert serving.record.outcome == "shutdown"


# -- the table, and who watches ------------------------------------------------------------------------------------------------


def test_calls_out_of_their_state_are_refused() -> None:
    serving = House(CONFIG).serve(question("one"))
    for call in (
        serving.build,
        lambda: serving.sending(NOW),
        lambda: serving.head(200, {}, NOW),
        lambda: serving.data(b"x", NOW),
        lambda: serving.end(None, NOW),
        lambda: serving.failed(UpstreamClosed("x"), NOW),
    ):
        with pytest.raises(UsageError, match="CHOOSING"):
            call()
    next_send(serving)
    accept(serving)
    with pytest.raises(UsageError, match="OVER"):
        serving.next(NOW)


class Notes(Tap):
    """Writes down everything it sees."""

    sees_bytes = True

    def __init__(self) -> None:
        self.seen: list[tuple[str, object]] = []

    def wants_bodies(self) -> bool:
        return False

    def watch(self, record: RequestRecord, request: Request, key: str | None) -> Tap:
        return self

    def sent(self, target: Target, call: UpstreamCall, path: str, headers: list[tuple[bytes, bytes]], now: float) -> None:
        self.seen.append(("upstream request", target.upstream))

    def upstream_head(self, status: int, headers: Mapping[str, str], now: float) -> None:
        self.seen.append(("upstream head", status))

    def upstream_bytes(self, data: bytes, now: float) -> None:
        self.seen.append(("upstream bytes", data))

    def events(self, events: tuple[Event, ...]) -> None:
        self.seen.append(("events", tuple(type(event).__name__ for event in events)))

    def client_head(self, head: Head, now: float) -> None:
        self.seen.append(("client head", head.status))

    def client_bytes(self, data: bytes, now: float) -> None:
        self.seen.append(("client bytes", data))

    def answered(self) -> None:
        self.seen.append(("answered", None))

    def over(self, record: RequestRecord) -> None:
        self.seen.append(("over", record.outcome))


def test_a_tap_sees_every_attempt_and_both_sides() -> None:
    notes = Notes()
    house = House(CONFIG, notes)
    serving = house.serve(question("two", stream=True))
    next_send(serving)
    refuse(serving, 503)
    next_send(serving)
    serving.sending(NOW)
    serving.head(200, {"content-type": "text/event-stream"}, NOW)
    output = serving.data(chunk("Hello"), NOW).output
    output += serving.data(chunk("", "stop") + b"data: [DONE]\n\n", NOW).output
    serving.close(NOW)
    kinds = [kind for kind, _ in notes.seen]
    assert [what for kind, what in notes.seen if kind == "upstream request"] == ["first", "third"]
    assert [what for kind, what in notes.seen if kind == "upstream head"] == [503, 200]
    assert [what for kind, what in notes.seen if kind == "client head"] == [200], "the failure was never shown"
    assert b"".join(what for kind, what in notes.seen if kind == "client bytes" and isinstance(what, bytes)) == output
    assert kinds.count("answered") == 2
    assert notes.seen[-1] == ("over", "ok")
