"""Which of several targets is asked first: weights, preferences, sessions and canaries. No sockets, a clock by hand."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from athena.quality import Finding, Found
from athena.serving.actions import Send
from athena.serving.choosing import TargetChoice, TargetWish
from athena.serving.record import Judged
from athena.serving.serving import Serving, ServingState
from support.serving_values import House, next_send

UPSTREAMS = {name: {"base_url": f"http://127.0.0.1:{port}/v1"} for port, name in enumerate("abcd", start=1)}
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def house(use: Any, **rule: Any) -> House:
    health = rule.pop("health", {})
    return House({"upstreams": UPSTREAMS, "models": [{"match": "*", "use": use, **rule}], "health": health})


def wish(session: str = "", request: str = "r", **more: Any) -> TargetWish:
    fields = {"model": "m", "client": "", "has_tools": True, "streamed": True, **more}
    return TargetWish(request_id=request, session=session, **fields)


def chosen(made: House, wanted: TargetWish) -> TargetChoice:
    assert made.shared.chooser is not None
    return made.shared.chooser.choose(made.targets.of("m"), wanted)


def first(made: House, wanted: TargetWish) -> str:
    return chosen(made, wanted).targets[0].upstream


def names(choice: TargetChoice) -> str:
    return "".join(target.upstream for target in choice.targets)


def note(made: House, upstream: str, *found: Found, first_byte_s: float = 0.5, times: int = 1) -> None:
    for _ in range(times):
        turn = made.routes.turn(upstream, "m")
        judged = Judged(
            upstream=upstream, model="m", found=found, has_tools=True, streamed=True, first_byte_s=first_byte_s, turn=turn
        )  # fmt: skip
        made.routes.note(judged, "")


BAD = Found(Finding.CUT)


def test_one_target_and_fallbacks_stay_as_they_were() -> None:
    made = house("a", fallback=["b", "c"])
    assert names(chosen(made, wish())) == "abc"
    note(made, "a", BAD, times=4)
    assert names(chosen(made, wish())) == "bca", "left out means: asked last"
    made.now += 10
    choice = chosen(made, wish())
    assert (names(choice), choice.why) == ("abc", "canary")
    assert names(chosen(made, wish())) == "bca", "the next canary has to wait"


def test_a_fallback_that_is_left_out_gets_no_canary_while_nobody_would_ask_it() -> None:
    made = house("a", fallback=["b"])
    note(made, "b", BAD, times=4)
    made.now += 100
    assert [chosen(made, wish()).why for _ in range(3)] == ["order"] * 3


def test_where_all_are_left_out_none_is() -> None:
    made = house(["a", "b"])
    for name in "ab":
        note(made, name, BAD, times=4)
    made.now += 100
    choice = chosen(made, wish())
    assert (names(choice), choice.why) == ("ab", "order")


def test_weights_divide_sessions_and_every_replica_agrees() -> None:
    use = [{"use": "a", "weight": 3}, {"use": "b", "weight": 1}, {"use": "c", "weight": 0}]
    one, other = house(use, fallback=["d"]), house(use, fallback=["d"])
    sessions = [f"session-{number}" for number in range(2000)]
    placed = [first(one, wish(session)) for session in sessions]
    assert placed == [first(other, wish(session)) for session in sessions]
    counted = Counter(placed)
    assert counted["c"] == 0
    assert 0.72 < counted["a"] / 2000 < 0.78
    assert names(chosen(one, wish("x")))[-2:] == "cd"
    spread = Counter(first(one, wish(request=f"r{number}")) for number in range(2000))
    assert 0.72 < spread["a"] / 2000 < 0.78, "requests without a session, by their id"
    # Only the sessions of a target that is left out move.
    note(one, "b", BAD, times=4)
    moved = [(before, first(one, wish(session))) for before, session in zip(placed, sessions, strict=True)]
    assert {pair for pair in moved if pair[0] != pair[1]} == {("b", "a")}


def test_without_weights_the_first_takes_all() -> None:
    made = house(["a", "b"])
    assert {first(made, wish(f"s{number}")) for number in range(50)} == {"a"}


def test_preferences() -> None:
    slow = house(["a", "b", "c"], prefer="latency")
    note(slow, "a", first_byte_s=2.0)
    assert first(slow, wish()) == "a", "the first of those without a figure"
    note(slow, "b", first_byte_s=1.0)
    assert names(chosen(slow, wish())) == "bca", "what is not known is tried"
    note(slow, "c", first_byte_s=1.1)
    assert names(chosen(slow, wish())) == "bca", "as good as equal: as written"

    bad = house(["a", "b"], prefer="health", health={"tools": {"bad_share": 0.5}})
    assert first(bad, wish()) == "a"
    note(bad, "a", times=30)
    note(bad, "a", BAD, times=3)
    assert first(bad, wish()) == "b"
    assert chosen(bad, wish()).why == "health"

    dear = house([{"use": "a", "cost": 3}, {"use": "b", "cost": 0.5}, "c"], prefer="cost")
    assert names(chosen(dear, wish())) == "bac"


def test_a_session_stays_where_it_was_answered() -> None:
    made = house(["a", "b"], prefer="latency")
    chooser = made.shared.chooser
    assert chooser is not None
    note(made, "a", first_byte_s=1.0)
    note(made, "b", first_byte_s=2.0)
    chooser.served(chosen(made, wish("s")).targets[0], chosen(made, wish("s")), wish("s"))
    note(made, "a", first_byte_s=9.0, times=20)
    assert first(made, wish("new")) == "b"
    choice = chosen(made, wish("s"))
    assert (choice.targets[0].upstream, choice.why) == ("a", "session")
    assert first(made, wish("s", client="another key")) == "b", "sessions of another key are other sessions"
    note(made, "a", BAD, times=4)
    assert first(made, wish("s")) == "b", "not where its target is left out"
    loose = house(["a", "b"], prefer="latency", sticky=False)
    assert loose.shared.chooser is not None
    target = loose.targets.of("m")[1]
    loose.shared.chooser.served(target, chosen(loose, wish("s")), wish("s"))
    assert first(loose, wish("s")) == "a"


# -- whole requests ------------------------------------------------------------------------------------------------------------


def question(**more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": "hi"}], "tools": [TOOL], **more}


def record(*, arguments: str | None, finish: str | None, text: str = "", delta: bool = True) -> bytes:
    call = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": arguments}}
    spoken = {"content": text, **({"tool_calls": [call]} if arguments is not None else {})}
    choice = {"index": 0, "delta" if delta else "message": {"role": "assistant", **spoken}, "finish_reason": finish}
    return json.dumps({"id": "1", "object": "chat.completion", "model": "m", "choices": [choice]}).encode()


def begin(made: House, **body: Any) -> Serving:
    serving = made.serve(question(**body), now=made.now)
    assert isinstance(next_send(serving, made.now), Send)
    serving.sending(made.now)
    return serving


def answer(made: House, arguments: str = '{"city":"Oslo"}', **body: Any) -> tuple[str, dict[str, str]]:
    """One whole request: who answered it, and the headers of the answer."""
    serving = begin(made, **body)
    serving.head(200, {"content-type": "application/json"}, made.now)
    step = serving.data(record(arguments=arguments, finish="tool_calls", delta=False), made.now)
    if step.head is None:
        step = serving.end(None, made.now)
    assert step.head is not None
    serving.close(made.now)
    return serving.record.upstream, dict(step.head.headers)


def test_requests_leave_a_model_that_turns_bad_and_come_back() -> None:
    """Every fifth call of `a` is off its schema: it is out within 50 requests, and back after 10 good canaries."""
    made = house(["a", "b"])
    for _ in range(100):
        who, headers = answer(made)
        assert (who, headers["x-athena-served-by"]) == ("a", "a/m")
    asked = 0
    while not made.decisions:
        made.now += 1
        asked += 1
        assert answer(made, '{"town":1}' if asked % 5 == 0 else '{"city":"Oslo"}')[0] == "a"
    assert asked <= 50
    report, why = made.decisions[0]
    assert report.found == {"off_schema": 4}
    assert why == "4 of the last 40 answers were bad (4 off_schema); 10% of 40 is the limit"
    who, headers = answer(made)
    assert (who, headers["x-athena-served-by"]) == ("b", "b/m")
    canaries = 0
    for _ in range(200):
        made.now += 2
        who, _ = answer(made)
        canaries += who == "a" and len(made.decisions) == 1
    assert len(made.decisions) == 2
    assert canaries + 1 == 10, "the last one brought it back"
    assert answer(made)[0] == "a"


def test_a_stream_under_way_is_not_cut_when_its_model_is_left_out() -> None:
    made = house(["a", "b"])
    serving = begin(made, stream=True)
    serving.head(200, {"content-type": "text/event-stream"}, made.now)
    shown = serving.data(b"data: " + record(arguments=None, text="Hello", finish=None) + b"\n\n", made.now).output
    for _ in range(4):
        answer(made, '{"town":1}')
    assert made.routes.is_out("a", "m")
    shown += serving.data(b"data: " + record(arguments=None, text=" world", finish="stop") + b"\n\n", made.now).output
    shown += serving.data(b"data: [DONE]\n\n", made.now).output
    shown += serving.end(None, made.now).output if serving.state is ServingState.READING else b""
    serving.close(made.now)
    assert b"Hello" in shown
    assert b" world" in shown
    assert shown.endswith(b"data: [DONE]\n\n")
    assert (serving.record.outcome, serving.record.upstream) == ("ok", "a")
    assert made.routes.report()[0].good_canaries == 0, "it was sent before, so it is no canary"


def test_a_canary_that_fails_unseen_is_answered_by_another_target() -> None:
    made = house(["a", "b"])
    for _ in range(4):
        answer(made, '{"town":1}')
    made.now += 10
    serving = begin(made)
    assert (serving.target.upstream, serving.record.chosen_by) == ("a", "canary")
    serving.head(500, {"content-type": "application/json"}, made.now)
    serving.data(b'{"error":{"message":"no"}}', made.now)
    serving.end(None, made.now)
    send = next_send(serving, made.now)
    assert isinstance(send, Send)
    assert send.target.upstream == "b"


def test_judged_attempts() -> None:
    """A failed attempt is its own upstream's, the answer the other's; a client that left says nothing."""
    made = house(["a", "b"])
    serving = begin(made)
    serving.head(503, {"content-type": "application/json"}, made.now)
    serving.data(b'{"error":{"message":"no"}}', made.now)
    serving.end(None, made.now)
    next_send(serving, made.now)
    serving.sending(made.now)
    serving.head(200, {"content-type": "application/json"}, made.now)
    serving.data(record(arguments=None, text=" ", finish="stop", delta=False), made.now)
    if serving.state is ServingState.READING:
        serving.end(None, made.now)
    serving.close(made.now)
    labels = [(one.upstream, [found.label for found in one.found]) for one in serving.record.details.judged]
    assert labels == [("a", ["error:overloaded"]), ("b", ["empty"])]
    left = begin(made)
    left.stop("client_closed", made.now)
    left.close(made.now)
    assert left.record.details.judged == []


def test_text_that_takes_the_short_way_is_text() -> None:
    """A first piece of nothing but white space, then pieces that the gateway does not look into any further."""
    made = house("a")
    serving = begin(made, stream=True)
    serving.head(200, {"content-type": "text/event-stream"}, made.now)
    pieces = [("assistant", ""), (None, "\n"), (None, "Hello"), (None, " world"), (None, "!")]
    for role, text in pieces:
        choice = {"index": 0, "delta": {"content": text, **({"role": role} if role else {})}, "finish_reason": None}
        value = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
        data = b"data: " + json.dumps(value).encode() + b"\n\n"
        if serving.plain(data, made.now) is None:
            serving.data(data, made.now)
    serving.data(b"data: " + record(arguments=None, finish="stop") + b"\n\n" + b"data: [DONE]\n\n", made.now)
    if serving.state is ServingState.READING:
        serving.end(None, made.now)
    serving.close(made.now)
    assert serving.record.outcome == "ok"
    assert [judged.found for judged in serving.record.details.judged] == [()]


def test_a_session_keeps_its_target_through_serving() -> None:
    made = house([{"use": "a", "weight": 1}, {"use": "b", "weight": 1}])
    by_key = {answer(made, prompt_cache_key="k1")[0] for _ in range(5)}
    assert len(by_key) == 1
    homes = {key: answer(made, prompt_cache_key=key)[0] for key in map(str, range(20))}
    assert set(homes.values()) == {"a", "b"}
    serving = begin(made, prompt_cache_key="0")
    assert (serving.record.chosen_by, serving.target.upstream) == ("session", homes["0"])
    by_header = made.serve(question(), x_session_id="0")
    next_send(by_header)
    assert (by_header.record.chosen_by, by_header.target.upstream) == ("session", homes["0"])
