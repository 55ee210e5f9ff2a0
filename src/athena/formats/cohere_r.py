"""Cohere's Command R and R+ (2024): a word, then all calls as a JSON array in a code fence.

    Action:
    ```json
    [
        {
            "tool_name": "internet_search",
            "parameters": {"query": "x"}
        }
    ]```

`directly-answer` in the list says that no tool is needed. Origin: the tool-use template of Command R+. Everything is ordinary
text, so it is read only where the format is named.
"""

from __future__ import annotations

from collections.abc import Sequence

from athena.formats.bodies.json_block import json_block_reader
from athena.formats.bodies.json_text import quoted
from athena.formats.bodies.named import CallKeys
from athena.formats.bodies.near_misses import no_json
from athena.formats.machine.base import Format, Opener
from athena.formats.machine.render import TOOLS, ToolPrompt, function_blocks, result_text
from athena.model.parts import ToolCall, ToolResult

BEGIN = "Action:"
FIELDS = CallKeys(nothing=("directly-answer", "directly_answer"))
TURN_END = "<|END_OF_TURN_TOKEN|>"


def render_calls(calls: Sequence[ToolCall]) -> str:
    """One array, indented as the template does it."""
    lines = ",\n".join(
        f'    {{\n        "tool_name": {quoted(call.name)},\n        "parameters": {call.arguments.strip() or "{}"}\n    }}'
        for call in calls
    )
    return f"{BEGIN}\n```json\n[\n{lines}\n]```"


def render_results(results: Sequence[ToolResult]) -> str:
    """One system turn for all results of a turn."""
    return "<results>\n" + "\n\n".join(result_text(result) for result in results) + "</results>"


TOOL_PROMPT = ToolPrompt(
    f"## Available Tools\nThese tools can be called:\n\n{TOOLS}\n\n"
    f"To call tools, write '{BEGIN}' and a JSON list in a code fence, or directly-answer in it where no tool is needed:\n"
    "```json\n"
    '[\n    {\n        "tool_name": "NAME",\n        "parameters": {"KEY": "VALUE"}\n    }\n]```',
    function_blocks,
)
"""The part of the system turn that declares tools, and the form of a call."""


FORMAT = Format(
    id="cohere_r",
    openers=(Opener(BEGIN, json_block_reader(("```",), (), FIELDS), where="line", auto=False, never=no_json()),),
    turn_ends=(TURN_END,),
    render_calls=render_calls,
    render_results=render_results,
    render_tools=TOOL_PROMPT,
)
