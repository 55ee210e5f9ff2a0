"""LongCat of Meituan: JSON, or a name with keys and values, in tags of its own.

    <longcat_tool_call>f
    <longcat_arg_key>a</longcat_arg_key>
    <longcat_arg_value>1</longcat_arg_value>
    </longcat_tool_call>

Origin: vLLM's longcat_tool_parser, mlx-lm's longcat parser and client code in public repositories, which show both bodies; how
the template writes results is not known.
"""

from __future__ import annotations

from collections.abc import Sequence

from athena.formats.bodies.json_block import json_block_reader
from athena.formats.bodies.keyed import Keyed, KeyedCalls
from athena.formats.bodies.near_misses import no_json
from athena.formats.machine.base import Format, Opener
from athena.formats.machine.render import TOOLS, ToolPrompt, json_calls, result_text
from athena.model.parts import ToolCall, ToolResult

SHAPE = Keyed(
    call="<longcat_tool_call>",
    call_end="</longcat_tool_call>",
    key="<longcat_arg_key>",
    key_end="</longcat_arg_key>",
    value="<longcat_arg_value>",
    value_end="</longcat_arg_value>",
)
_CALLS = KeyedCalls(SHAPE)


def render_calls(calls: Sequence[ToolCall]) -> str:
    """One block per call, with the body that keeps types."""
    return "\n".join(f"{SHAPE.call}\n{call}\n{SHAPE.call_end}" for call in json_calls(calls))


def render_results(results: Sequence[ToolResult]) -> str:
    """One element per result."""
    return "\n".join(f"<longcat_tool_response>\n{result_text(result)}\n</longcat_tool_response>" for result in results)


TOOL_PROMPT = ToolPrompt(
    f"# Tools\n\nThese functions can be called, one per line:\n{TOOLS}\n\n"
    "To call a function, write one JSON object with its name and arguments between these tags, once per call:\n"
    f'{SHAPE.call}\n{{"name": <function-name>, "arguments": <object>}}\n{SHAPE.call_end}'
)


FORMAT = Format(
    id="longcat",
    openers=(
        Opener(SHAPE.call, json_block_reader((SHAPE.call_end,), (SHAPE.call,)), never=no_json()),
        Opener(SHAPE.call, _CALLS.read_call, rank=1, never=_CALLS.never_call),
    ),
    thinking=(("<think>", "</think>"), ("<longcat_think>", "</longcat_think>")),
    closers=(SHAPE.call_end, SHAPE.value_end),
    turn_ends=("<longcat_s>", "</longcat_s>"),
    streams="yes",
    render_calls=render_calls,
    render_results=render_results,
    render_tools=TOOL_PROMPT,
)
