"""Salesforce's xLAM, and Hammer: a JSON array of calls as the whole message.

    [{"name": "f", "arguments": {"a": 1}}]

Prompts put it in a code fence or after the markers of other families too. Origin: vLLM's xlam_tool_parser and templates,
gorilla's hammer. An array is ordinary text: it needs a declared name with arguments, and the format is read only where it is
named. `[]` (no call) stays text.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from athena.formats.bodies.bare_json import BARE_FIELDS, read_bare_array
from athena.formats.bodies.json_block import json_block_reader
from athena.formats.bodies.mistral_tokens import CALLS, CALLS_END, NO_ARRAY, read_array
from athena.formats.bodies.near_misses import NO_OBJECTS, no_json_block
from athena.formats.bodies.tool_call_blocks import END as BLOCK_END
from athena.formats.bodies.tool_call_blocks import JSON_OPENER
from athena.formats.machine.base import Format, Opener
from athena.formats.machine.render import TOOLS, ToolPrompt, function_array, json_calls, result_text
from athena.model.parts import ToolCall, ToolResult

FENCES = ("```json\n", "```\n")
_read_fence = json_block_reader(("```",), (), BARE_FIELDS)


def render_calls(calls: Sequence[ToolCall]) -> str:
    """One array, also for one call."""
    return f"[{', '.join(json_calls(calls))}]"


def render_results(results: Sequence[ToolResult]) -> str:
    """The content of a tool turn, one line per result."""
    return "\n".join(result_text(result) for result in results)


TOOL_PROMPT = ToolPrompt(
    f"These tools can be called:\n{TOOLS}\n\n"
    "To call tools, answer with nothing but a JSON array; where none is needed, answer in words:\n"
    '[{"name": "NAME", "arguments": {"KEY": "VALUE"}}]',
    function_array,
)


FORMAT = Format(
    id="xlam",
    openers=(
        Opener("[", read_bare_array, where="line", auto=False, never=NO_OBJECTS),
        *(Opener(fence, _read_fence, where="line", auto=False, never=no_json_block()) for fence in FENCES),
        Opener(CALLS, read_array, auto=False, never=NO_ARRAY),
        msgspec.structs.replace(JSON_OPENER, auto=False),
    ),
    closers=(BLOCK_END, CALLS_END),
    turn_ends=("<|im_end|>", "<|eot_id|>"),
    render_calls=render_calls,
    render_results=render_results,
    render_tools=TOOL_PROMPT,
)
