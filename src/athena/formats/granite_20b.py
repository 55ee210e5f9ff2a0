"""Granite 20B Function Calling of IBM: a marker before each JSON call.

    <function_call> {"name": "f", "arguments": {}}

`no_function` as the name says that nothing is called. Origin: vLLM's granite_20b_fc_tool_parser and template.
"""

from __future__ import annotations

from collections.abc import Sequence

from athena.formats.bodies.json_block import json_block_reader
from athena.formats.bodies.named import CallKeys
from athena.formats.bodies.near_misses import no_json
from athena.formats.machine.base import Format, Opener
from athena.formats.machine.render import TOOLS, ToolPrompt, json_calls, result_text
from athena.model.parts import ToolCall, ToolResult

BEGIN, END = "<function_call>", "</function_call>"
TURN_END = "<|endoftext|>"
FIELDS = CallKeys(nothing=("no_function",))


def render_calls(calls: Sequence[ToolCall]) -> str:
    """One marker per call."""
    return " ".join(f"{BEGIN} {call}" for call in json_calls(calls))


def render_results(results: Sequence[ToolResult]) -> str:
    """One marker per result."""
    return "\n".join(f"<function_response> {result_text(result)}" for result in results)


TOOL_PROMPT = ToolPrompt(
    f"These functions can be called, one per line:\n{TOOLS}\n\n"
    f'To call functions, write for each: {BEGIN} {{"name": "NAME", "arguments": {{"KEY": "VALUE"}}}}\n'
    f'Where none fits: {BEGIN} {{"name": "no_function", "arguments": {{}}}}'
)


FORMAT = Format(
    id="granite_20b",
    openers=(Opener(BEGIN, json_block_reader((END, TURN_END), (BEGIN,), FIELDS), never=no_json()),),
    closers=(END,),
    turn_ends=(TURN_END,),
    render_calls=render_calls,
    render_results=render_results,
    render_tools=TOOL_PROMPT,
)
