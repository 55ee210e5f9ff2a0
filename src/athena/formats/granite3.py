"""Granite 3 of IBM: a marker, then all calls as one JSON array.

    <|tool_call|>[{"name": "get_time", "arguments": {"tz": "UTC"}}]

The marker is a token in 3.0 and 3.3, the text `<tool_call>` in 3.1 and 3.2; the end of the turn is the end. Reasoning stands
between sentences (3.2, 3.3) or tags, then the answer may stand in `<response>`. Origin: vLLM's granite_tool_parser and
template, the template of Granite 3.3, gorilla's granite_3.
"""

from __future__ import annotations

from collections.abc import Sequence

from athena.formats.bodies.bare_json import read_bare_array
from athena.formats.bodies.json_block import json_block_reader
from athena.formats.bodies.near_misses import NO_OBJECTS, no_json
from athena.formats.machine.base import THINK, Format, Opener
from athena.formats.machine.render import TOOLS, ToolPrompt, json_calls, result_text, tool_array
from athena.model.parts import ToolCall, ToolResult

TOKEN, WORD = "<|tool_call|>", "<tool_call>"
CLOSERS = ("</tool_call>", "<|/tool_call|>")
TURN_END = "<|end_of_text|>"
_read = json_block_reader((*CLOSERS, TURN_END), (TOKEN, WORD))


def render_calls(calls: Sequence[ToolCall]) -> str:
    """One array behind the token."""
    return f"{TOKEN}[{', '.join(json_calls(calls))}]"


def render_results(results: Sequence[ToolResult]) -> str:
    """One turn per result."""
    return "".join(f"<|start_of_role|>tool_response<|end_of_role|>{result_text(result)}{TURN_END}\n" for result in results)


TOOL_PROMPT = ToolPrompt(
    f"<|start_of_role|>available_tools<|end_of_role|>{TOOLS}{TURN_END}\n",
    tool_array,
)
"""The turn that declares tools; the models were trained on it."""


FORMAT = Format(
    id="granite3",
    reserved=True,
    openers=(
        Opener(TOKEN, _read, never=no_json()),
        Opener(WORD, _read, auto=False, plain=True, never=no_json()),
        Opener("[", read_bare_array, where="line", auto=False, plain=True, never=NO_OBJECTS),
    ),
    thinking=(
        *THINK,
        ("Here is my thought process:", "Here is my response:"),
        ("Here's my thought process:", "Here's my response:"),
    ),
    answer=(("<response>", "</response>"),),
    closers=CLOSERS,
    turn_ends=(TURN_END,),
    render_calls=render_calls,
    render_results=render_results,
    render_tools=TOOL_PROMPT,
)
