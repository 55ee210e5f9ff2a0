"""What a viewer reads of an exchange."""

from __future__ import annotations

import json

from athena.recording.show import view_of
from support.recorded import Recorded

KIMI = (
    "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>"
    '{"city":"Oslo"}<|tool_call_end|><|tool_calls_section_end|>'
)
HERMES = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Bergen"}}\n</tool_call>'


def said(text: str) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
    record = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return b"data: " + json.dumps(record).encode() + b"\n\n"


def test_every_call_is_named_after_the_format_in_which_it_was_written() -> None:
    """Whether its section has ended or not, and whatever format another call has."""
    both = f"Two. {KIMI}\n{HERMES}"
    pieces = [both[at : at + 20] for at in range(0, len(both), 20)]
    for reads in ([said(both)], [said(piece) for piece in pieces]):
        recording = Recorded().serve("openai_chat", "openai_chat/m", (200, [*reads, b"data: [DONE]\n\n"]))
        view = view_of(recording)
        assert [mark.rule for mark in view.marks if mark.kind == "text_call"] == ["kimi_k2", "hermes"]
        assert [call.came_as for call in view.calls] == ["text in text, kimi_k2", "text in text, hermes"]
        assert {mark.rule for mark in view.marks if mark.kind == "hold"} <= {"auto", "head"}
