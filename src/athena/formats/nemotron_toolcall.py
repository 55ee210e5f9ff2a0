"""Nemotron Nano 2 and Llama-Nemotron (Super, Ultra) of NVIDIA: a JSON array in `<TOOLCALL>` tags.

    <TOOLCALL>[{"name": "f", "arguments": {"a": 1}}]</TOOLCALL>

Origin: the Nemotron Nano 2 template, Dynamo's nemotron_deci fixtures.
"""

from __future__ import annotations

from collections.abc import Sequence

from athena.formats.bodies.json_block import json_block_reader
from athena.formats.bodies.near_misses import no_json
from athena.formats.machine.base import Format, Opener
from athena.formats.machine.render import TOOLS, ToolPrompt, function_array, json_calls, result_text
from athena.model.parts import ToolCall, ToolResult

BEGIN, END = "<TOOLCALL>", "</TOOLCALL>"


def render_calls(calls: Sequence[ToolCall]) -> str:
    """One array, also for one call."""
    return f"{BEGIN}[{', '.join(json_calls(calls))}]{END}"


def render_results(results: Sequence[ToolResult]) -> str:
    """The results of a turn as one list; the template puts their texts in as they are."""
    return f"<TOOL_RESPONSE>[{', '.join(result_text(result) for result in results)}]</TOOL_RESPONSE>"


TOOL_PROMPT = ToolPrompt(
    "These tools can be called:\n"
    f"<AVAILABLE_TOOLS>{TOOLS}</AVAILABLE_TOOLS>\n\n"
    "To call tools, write one JSON list between these tags; where none is needed, leave them out:\n"
    f'{BEGIN}[{{"name": "NAME", "arguments": {{"KEY": "VALUE"}}}}]{END}',
    function_array,
)


FORMAT = Format(
    id="nemotron_toolcall",
    openers=(Opener(BEGIN, json_block_reader((END,), (BEGIN,)), never=no_json()),),
    closers=(END,),
    turn_ends=("<SPECIAL_12>", "<|eot_id|>"),
    render_calls=render_calls,
    render_results=render_results,
    render_tools=TOOL_PROMPT,
)
