"""Apertus of the Swiss AI Initiative: a JSON array between tokens whose objects have the tool's name as their key.

    <|tools_prefix|>[{"get_weather": {"city": "Paris"}}, {"get_time": {}}]<|tools_suffix|>

Origin: the template of Apertus-8B-Instruct-2509, vLLM's apertus_tool_parser, SGLang's apertus2509_detector. Results follow in
the same turn as a list.
"""

from __future__ import annotations

from collections.abc import Sequence

from athena.formats.bodies.json_block import json_block_reader
from athena.formats.bodies.json_text import quoted
from athena.formats.bodies.named import CallKeys
from athena.formats.bodies.near_misses import no_json
from athena.formats.bodies.typescript import typescript
from athena.formats.machine.base import THINK, Format, Opener
from athena.formats.machine.render import result_text
from athena.model.parts import ToolCall, ToolResult
from athena.model.request import Tool

BEGIN, END = "<|tools_prefix|>", "<|tools_suffix|>"
TURN_END = "<|assistant_end|>"
FIELDS = CallKeys(name=("name",), arguments=("arguments", "parameters"), id=("id",), wrappers=(), name_is_key=True)
_KEYS = (*FIELDS.name, *FIELDS.arguments)


def render_calls(calls: Sequence[ToolCall]) -> str:
    """One array, an object per call."""
    written = ", ".join(f"{{{quoted(call.name)}: {call.arguments.strip() or '{}'}}}" for call in calls)
    return f"{BEGIN}[{written}]{END}"


def render_results(results: Sequence[ToolResult]) -> str:
    """A list in the turn of the calls."""
    return "[" + ", ".join(result_text(result) for result in results) + "]"


def render_tools(tools: Sequence[Tool]) -> str:
    """The part of the developer turn that declares tools, as TypeScript, and the form of a call."""
    declared = "\n".join(_declaration(tool) for tool in tools)
    return f'Tool Capabilities:\n{declared}\n\nTo call tools: {BEGIN}[{{"NAME": {{"KEY": "VALUE"}}}}]{END}'


def _declaration(tool: Tool) -> str:
    comment = "".join(f"// {line}\n" for line in (tool.description or "").splitlines() if line.strip())
    properties = (tool.schema or {}).get("properties")
    given = f"_: {typescript(tool.schema)}" if properties else ""
    return f"{comment}type {tool.name} = ({given}) => any;"


def inexpressible(call: ToolCall) -> str | None:
    """A tool called like a field of a call cannot be told from one."""
    return "a key of that name means something else" if call.name in _KEYS else None


FORMAT = Format(
    id="apertus",
    reserved=True,
    openers=(Opener(BEGIN, json_block_reader((END,), (BEGIN, TURN_END), FIELDS), never=no_json()),),
    thinking=(("<|inner_prefix|>", "<|inner_suffix|>"), *THINK),
    closers=(END,),
    turn_ends=(TURN_END,),
    render_calls=render_calls,
    render_results=render_results,
    render_tools=render_tools,
    inexpressible=inexpressible,
)
