"""GigaChat 3 of Sber: a JSON call in a message of its own (3.0) or after a token (3.1).

    I will look.<|message_sep|>

    function call<|role_sep|>
    {"name": "f", "arguments": {"a": 1}}<|message_sep|>

    <|function_call|>{"name": "f", "arguments": {"a": 1}}

A turn holds one call; a second one is read all the same. Origin: the GigaChat3 templates, vLLM's gigachat3_tool_parser.
GigaChat 3.5 writes DSML (`deepseek_dsml`).
"""

from __future__ import annotations

from collections.abc import Sequence

from athena.formats.bodies.json_block import json_block_reader
from athena.formats.bodies.near_misses import no_json
from athena.formats.bodies.typescript import typescript
from athena.formats.machine.base import Format, Opener
from athena.formats.machine.render import json_calls, result_text
from athena.model.parts import ToolCall, ToolResult
from athena.model.request import Tool

TOKEN = "<|function_call|>"
ROLE, ROLE_SEPARATOR = "function call", "<|role_sep|>"
MESSAGE_SEPARATOR = "<|message_sep|>"
HEAD = ROLE + ROLE_SEPARATOR
HEADS = (f"{MESSAGE_SEPARATOR}\n\n{HEAD}", f"{MESSAGE_SEPARATOR}\n{HEAD}", f"{MESSAGE_SEPARATOR}{HEAD}", HEAD)
TURN_ENDS = (MESSAGE_SEPARATOR, "</s>")
_read = json_block_reader((), (TOKEN, *HEADS, *TURN_ENDS))


def render_calls(calls: Sequence[ToolCall]) -> str:
    """One message per call: the template takes one, more would be lost."""
    return "\n\n".join(f"{HEAD}\n{call}{MESSAGE_SEPARATOR}" for call in json_calls(calls))


def render_results(results: Sequence[ToolResult]) -> str:
    """One message per result."""
    return "".join(f"function result{ROLE_SEPARATOR}\n{result_text(result)}{MESSAGE_SEPARATOR}\n\n" for result in results)


def render_tools(tools: Sequence[Tool]) -> str:
    """The message that declares tools, as TypeScript; the models were trained on it."""
    declared = "\n".join(_declaration(tool) for tool in tools)
    return (
        f"function descriptions{ROLE_SEPARATOR}\nnamespace functions {{\n{declared}\n}} // namespace functions\n\n"
        f"{MESSAGE_SEPARATOR}\n\n"
    )


def _declaration(tool: Tool) -> str:
    comment = "".join(f"// {line}\n" for line in (tool.description or "").splitlines() if line.strip())
    properties = (tool.schema or {}).get("properties")
    given = f"_: {typescript(tool.schema)}" if properties else ""
    return f"{comment}type {tool.name} = ({given}) => any;\n"


FORMAT = Format(
    id="gigachat3",
    reserved=True,
    openers=tuple(Opener(marker, _read, never=no_json()) for marker in (TOKEN, *HEADS)),
    turn_ends=TURN_ENDS,
    render_calls=render_calls,
    render_results=render_results,
    render_tools=render_tools,
)
