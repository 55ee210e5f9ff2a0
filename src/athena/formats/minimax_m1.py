"""MiniMax M1 and Text-01: JSON calls in `<tool_calls>` tags, one per line.

    <tool_calls>
    {"name": "f", "arguments": {"x": 1}}
    </tool_calls>

Origin: the MiniMax-M1 template. `tool_calls_array` shares the tags; see there.
"""

from __future__ import annotations

from collections.abc import Sequence

from athena.formats.bodies.json_block import json_block_reader
from athena.formats.bodies.near_misses import no_json
from athena.formats.machine.base import Format, Opener
from athena.formats.machine.render import TOOLS, ToolPrompt, json_calls, result_text
from athena.model.parts import ToolCall, ToolResult

BEGIN, END = "<tool_calls>", "</tool_calls>"
_read_objects = json_block_reader((END,), (BEGIN,), heads="{")
_read_array = json_block_reader((END,), (BEGIN,), heads="[")


def render_calls(calls: Sequence[ToolCall]) -> str:
    """One block, one line per call."""
    return "\n".join((BEGIN, *json_calls(calls), END))


def render_results(results: Sequence[ToolResult]) -> str:
    """One tool turn for all results."""
    content = "".join(f"tool result: {result_text(result)}\n\n" for result in results)
    return f"<beginning_of_sentence>tool name=tools\n{content}<end_of_sentence>\n"


TOOL_PROMPT = ToolPrompt(
    f"These tools can be called, one per line:\n<tools>\n{TOOLS}\n</tools>\n\n"
    "To call tools, write their names and arguments as JSON objects, one per line, between these tags:\n"
    f'{BEGIN}\n{{"name": "NAME", "arguments": {{"KEY": "VALUE"}}}}\n{END}'
)


FORMAT = Format(
    id="minimax_m1",
    openers=(Opener(BEGIN, _read_objects, never=no_json("{")), Opener(BEGIN, _read_array, auto=False, never=no_json("["))),
    closers=(END,),
    turn_ends=("<end_of_sentence>",),
    render_calls=render_calls,
    render_results=render_results,
    render_tools=TOOL_PROMPT,
)
