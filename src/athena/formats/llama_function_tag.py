"""Llama 3.1 under its custom-tool prompt, and Functionary 3.1: a tag with the name around JSON arguments.

    <function=get_time>{"tz": "UTC"}</function>

Llama-3-Groq-Tool-Use writes Hermes blocks instead, which are read here too. Origin: the template of Functionary medium 3.1.
The tags are ordinary text and shared with Qwen3-Coder: what follows the name decides.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from athena.formats.bodies.function_tags import BEGIN, END, NAMED_BEGIN, read_function_tags
from athena.formats.bodies.python_tag import TAG, TURN_ENDS, read_python_tag
from athena.formats.bodies.tool_call_blocks import END as BLOCK_END
from athena.formats.bodies.tool_call_blocks import JSON_OPENER, NO_TAG_NAME, read_bare_function, tag_name
from athena.formats.machine.base import Format, Opener
from athena.formats.machine.render import TOOLS, ToolPrompt, function_blocks, result_text
from athena.model.parts import ToolCall, ToolResult


def render_calls(calls: Sequence[ToolCall]) -> str:
    """One element per call, none between."""
    return "".join(f"{BEGIN}{call.name}>{call.arguments.strip() or '{}'}{END}" for call in calls)


def render_results(results: Sequence[ToolResult]) -> str:
    """One `ipython` turn per result."""
    return "".join(f"<|start_header_id|>ipython<|end_header_id|>\n\n{result_text(result)}<|eot_id|>" for result in results)


TOOL_PROMPT = ToolPrompt(
    f"These functions can be called:\n\n{TOOLS}\n\n"
    "A call is the function's name in a tag and its parameters as one JSON object, on one line:\n"
    f'{BEGIN}NAME>{{"PARAMETER": VALUE}}{END}',
    function_blocks,
)


def inexpressible(call: ToolCall) -> str | None:
    """Names stand bare in a tag."""
    return None if tag_name(call.name) == call.name else "the name does not fit into a tag"


FORMAT = Format(
    id="llama_function_tag",
    openers=(
        Opener(BEGIN, read_function_tags, rank=-1, never=NO_TAG_NAME),
        Opener(NAMED_BEGIN, read_function_tags, auto=False, rank=-1, never=NO_TAG_NAME),
        Opener(BEGIN, read_bare_function, auto=False, never=NO_TAG_NAME),
        Opener(TAG, read_python_tag, auto=False),
        msgspec.structs.replace(JSON_OPENER, auto=False),
    ),
    closers=(END, BLOCK_END),
    turn_ends=TURN_ENDS,
    render_calls=render_calls,
    render_results=render_results,
    render_tools=TOOL_PROMPT,
    inexpressible=inexpressible,
)
