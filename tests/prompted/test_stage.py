"""Time, choices, cancelling and asking again: what a text alone does not show."""

from __future__ import annotations

import json
from typing import Any

import pytest

from athena.dialects import get_dialect
from athena.exchange import Exchange, Options, Route, Step
from athena.model.events import Done, Error, Event, Finish, TextDelta, ThinkingDelta, ToolCallComplete, Usage
from athena.prompted import PromptedOptions, PromptedStage, PromptPlan
from prompted.prompted_cases import TOOLS
from support.grammar import check_grammar

CALL = '{"name": "f", "parameters": {"n": 1}}'
OTHER = '{"name": "f", "parameters": {"n": 2}}'


def calls(events: list[Event]) -> list[str]:
    return [event.arguments for event in events if isinstance(event, ToolCallComplete)]


def test_the_window_closes_by_the_clock() -> None:
    stage = PromptedStage(PromptedOptions(window_ms=200), PromptPlan(TOOLS))
    events = stage.feed([TextDelta(CALL)], 10.0)
    assert stage.deadline == pytest.approx(10.2)
    assert stage.tick(10.1) == []
    events += stage.tick(10.2)
    assert calls(events) == ['{"n": 1}']
    assert isinstance(events[-1], Done)
    assert events[-1].finish.kind == "tool"
    assert events[-1].usage is not None
    assert events[-1].usage.estimated
    assert stage.feed([TextDelta(OTHER)], 10.3) == []
    check_grammar(events)


def test_the_window_waits_for_a_call_that_has_begun() -> None:
    stage = PromptedStage(PromptedOptions(window_ms=200), PromptPlan(TOOLS))
    events = stage.feed([TextDelta(CALL)], 10.0)
    events += stage.feed([TextDelta(' {"name": "f", ')], 10.1)
    assert stage.deadline is None
    assert stage.tick(99.0) == []
    events += stage.feed([TextDelta('"parameters": {"n": 2}}')], 20.0)
    assert stage.deadline == pytest.approx(20.2)
    events += stage.tick(20.3)
    assert calls(events) == ['{"n": 1}', '{"n": 2}']


def test_a_late_chunk_finds_the_window_closed() -> None:
    stage = PromptedStage(PromptedOptions(window_ms=200), PromptPlan(TOOLS))
    events = stage.feed([TextDelta(CALL)], 10.0)
    events += stage.feed([TextDelta(OTHER)], 11.0)
    assert calls(events) == ['{"n": 1}']
    check_grammar(events)


def test_no_window_without_time_or_other_policies() -> None:
    for options in (PromptedOptions(window_ms=0), PromptedOptions(policy="drain_all"), PromptedOptions(policy="allow_mixed")):
        stage = PromptedStage(options, PromptPlan(TOOLS))
        stage.feed([TextDelta(CALL)], 10.0)
        assert stage.deadline is None


def test_what_is_not_text_passes() -> None:
    stage = PromptedStage(PromptedOptions(), PromptPlan(TOOLS))
    thought = ThinkingDelta(f"maybe {CALL}")
    events = stage.feed([thought, TextDelta("hello"), Done(Finish(), usage=Usage(1, 2))])
    assert events == [thought, TextDelta("hello"), Done(Finish(), usage=Usage(1, 2))]


def test_an_upstream_error_keeps_the_words_before_it() -> None:
    stage = PromptedStage(PromptedOptions(policy="drain_all"), PromptPlan(TOOLS))
    events = stage.feed([TextDelta("so far "), TextDelta('{"name": "f", '), Error("gone")])
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == 'so far {"name": "f", '
    assert isinstance(events[-1], Error)
    check_grammar(events)


def test_a_second_choice_goes_on_when_the_first_has_enough() -> None:
    stage = PromptedStage(PromptedOptions(policy="stop_on_first"), PromptPlan(TOOLS), choices=2)
    events = stage.feed([TextDelta(CALL, 0), TextDelta("still ", 1), TextDelta("ignored", 0), TextDelta("talking", 1)])
    events += stage.feed([Done(Finish(), 0, last=False), Done(Finish(), 1, usage=Usage(3, 4))])
    check_grammar(events)
    ends = {event.choice: event.finish.kind for event in events if isinstance(event, Done)}
    assert ends == {0: "tool", 1: "stop"}
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "still talking"


# -- through the exchange --------------------------------------------------------------------------------------------------


def exchange(options: PromptedOptions, *, stream: bool, **fields: Any) -> Exchange:
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "required": ["n"],
            "properties": {"n": {"type": "integer"}}}}}  # fmt: skip
    body = {"model": "m", "stream": stream, "messages": [{"role": "user", "content": "Hi"}], "tools": [tool], **fields}
    request = get_dialect("openai_chat").decode_request(body)
    return Exchange(request, Route(dialect="openai_chat", model="m", prompted=options), Options(seed="s"))


def answer(content: str, *, stream: bool) -> bytes:
    usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
    head: dict[str, Any] = {"id": "1", "created": 1, "model": "m"}
    if not stream:
        choice = {"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": "stop"}
        return json.dumps({**head, "object": "chat.completion", "choices": [choice], "usage": usage}).encode()
    chunks: list[dict[str, Any]] = [
        {"choices": [{"index": 0, "delta": {"content": piece}, "finish_reason": None}]} for piece in content
    ]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    chunks.append({"choices": [], "usage": usage})
    records = [f"data: {json.dumps({**head, 'object': 'chat.completion.chunk', **chunk})}\n\n" for chunk in chunks]
    return "".join([*records, "data: [DONE]\n\n"]).encode()


def run(one: Exchange, content: str, *, stream: bool) -> list[Step]:
    one.upstream_head(200, {"content-type": "text/event-stream" if stream else "application/json"})
    data = answer(content, stream=stream)
    steps = []
    for start in range(0, len(data), 50):
        steps.append(one.upstream_data(data[start : start + 50]))
        if steps[-1].again is not None or steps[-1].done:
            return steps
    return [*steps, one.upstream_end()]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ('{"name": "f", "parameters": {"n": "x"}}', "do not fit its schema"),
        ('{"name": "f", "parameters": {"n": 1}, "why": 1}', "that calls do not have"),
        ("I would rather talk.", "a tool call was required"),
    ],
)
def test_an_unusable_answer_is_asked_for_once_more(stream: bool, bad: str, reason: str) -> None:
    one = exchange(
        PromptedOptions(reask=True), stream=stream, tool_choice="required", stream_options={"include_usage": True}
    )  # fmt: skip
    first = run(one, bad, stream=stream)
    assert first[-1].again is not None
    assert not any(step.output or step.head for step in first)
    messages = json.loads(first[-1].again.body)["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "user"]
    assert messages[1]["content"] == bad
    assert reason in messages[2]["content"]
    steps = run(one, f"[{CALL}]", stream=stream)
    assert one.outcome == "ok"
    assert one.usage is not None
    if stream:
        # The second answer was not read to its end, but the first one's tokens are in the sum.
        assert one.usage.input_total >= 100
    else:
        assert (one.usage.input_total, one.usage.output_total) == (200, 20)
    assert b'"f"' in b"".join(step.output for step in steps)
    assert any("asked once more" in loss.reason for loss in one.losses)


@pytest.mark.parametrize("stream", [False, True])
def test_nobody_is_asked_twice_more(stream: bool) -> None:
    one = exchange(PromptedOptions(reask=True), stream=stream, tool_choice="required")
    assert run(one, "No.", stream=stream)[-1].again is not None
    steps = run(one, "No!", stream=stream)
    assert steps[-1].done
    assert one.error is not None
    assert one.error.code == "tool_choice_unmet"


def test_nothing_is_taken_back_once_it_was_shown() -> None:
    one = exchange(PromptedOptions(reask=True), stream=True)
    steps = run(one, 'Look: {"name": "f", "parameters": {"n": "x"}}', stream=True)
    assert all(step.again is None for step in steps)
    assert one.outcome == "ok"
    assert b'"content":"L"' in b"".join(step.output for step in steps)
    assert one.text_calls == 1
    committed = exchange(PromptedOptions(reask=True), stream=True)
    committed.upstream_head(200, {"content-type": "text/event-stream"})
    data = answer('{"name": "f", "parameters": {"n": "x"}}', stream=True)
    committed.upstream_data(data[:200])
    committed.commit()
    step = committed.upstream_data(data[200:])
    assert step.again is None
    assert committed.text_calls == 1


def test_cancelling_ends_the_stream_properly() -> None:
    one = exchange(PromptedOptions(policy="stop_on_first"), stream=True, stream_options={"include_usage": True})
    steps = run(one, f"{CALL} and much more text that is left unread", stream=True)
    assert steps[-1].done
    output = b"".join(step.output for step in steps)
    assert output.endswith(b"data: [DONE]\n\n")
    assert output.count(b'"finish_reason":"tool_calls"') == 1
    assert b"much more" not in output
