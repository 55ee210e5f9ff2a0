"""Replay as a client of another dialect, and what counts as a difference then."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from athena.model.events import Done, Event, Finish, TextDelta, ToolCallComplete
from athena.recording.compare import differences, differences_of_settings, events_of
from athena.recording.lines import Recording
from athena.recording.replay import Changes, replay
from athena.recording.show import replayed_view
from support.recorded import DIALECTS, Recorded

LEAK = "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>"
LEAK_END = "<|tool_call_end|><|tool_calls_section_end|>"


def chunk(**delta: Any) -> bytes:
    finish = delta.pop("finish_reason", None)
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    record = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return b"data: " + json.dumps(record).encode() + b"\n\n"


def whole(**message: Any) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "stop"}
    return json.dumps({"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}).encode()


def leaked(client: str, *, stream: bool) -> Recording:
    """A thought, some words, and a call that stands in the text."""
    call = f'{LEAK}{{"city":"Oslo"}}{LEAK_END}'
    reads = (
        [chunk(reasoning_content="Let me see."), chunk(content="Now. "), chunk(content=call), chunk(finish_reason="stop"),
         b"data: [DONE]\n\n"]
        if stream
        else [whole(reasoning_content="Let me see.", content=f"Now. {call}")]
    )  # fmt: skip
    return Recorded().serve(client, "openai_chat/m", (200, reads), stream=stream)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("other", DIALECTS)
@pytest.mark.parametrize("client", DIALECTS)
def test_another_client_gets_the_same_call_and_no_difference(client: str, other: str, stream: bool) -> None:
    recording, changes = leaked(client, stream=stream), Changes(client=other)
    was, now = replay(recording), replay(recording, changes)
    assert differences_of_settings(was, now, changes) == []
    assert replayed_view(recording, changes).equal
    calls = [event for event in events_of(now.output, other, streamed=stream) if isinstance(event, ToolCallComplete)]
    assert [(call.name, json.loads(call.arguments)) for call in calls] == [("get_weather", {"city": "Oslo"})]


def test_what_another_client_would_lose_is_a_difference() -> None:
    recording, changes = leaked("anthropic_messages", stream=True), Changes(client="gemini", format="off")
    (apart,) = [
        each
        for each in differences_of_settings(replay(recording), replay(recording, changes), changes)
        if each.was is not None and each.was["event"] == "ToolCallComplete"
    ]
    assert apart.was["name"] == "get_weather"


def test_an_event_that_is_missing_at_the_end_of_many_is_a_difference() -> None:
    many: list[Event] = [TextDelta(text=str(number)) for number in range(6000)]
    call = ToolCallComplete(call=0, id="a", name="get_weather", arguments="{}")
    was: list[Event] = [*many, call, Done(finish=Finish(kind="tool"))]
    (first, second) = differences(was, many)
    assert (first.at, first.was, first.now) == (6000, msgspec.to_builtins(call), None)
    assert second.at == 6001
