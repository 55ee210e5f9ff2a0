"""Pieces of prompt text that several formats share: tool declarations as JSON, arguments as values, results as text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from athena.formats.bodies.json_text import quoted
from athena.model.parts import Text, ToolCall, ToolResult
from athena.model.request import Tool

__all__ = [
    "TOOLS", "ToolPrompt", "arguments_of", "function_array", "function_blocks", "json_calls", "plain_value", "python_value",
    "result_text", "spaced_json", "tagged_trouble", "tool_array", "tool_elements", "tool_json", "tool_lines",
]  # fmt: skip


def tool_json(tool: Tool) -> dict[str, Any]:
    """A tool as every template takes it: OpenAI's function object."""
    function: dict[str, Any] = {"name": tool.name}
    if tool.description:
        function["description"] = tool.description
    function["parameters"] = tool.schema if tool.schema is not None else {"type": "object", "properties": {}}
    return {"type": "function", "function": function}


def tool_lines(tools: Iterable[Tool]) -> str:
    """One tool per line, as JSON."""
    return "\n".join(spaced_json(tool_json(tool)) for tool in tools)


def tool_array(tools: Iterable[Tool]) -> str:
    """All tools as one JSON array."""
    return spaced_json([tool_json(tool) for tool in tools])


def function_array(tools: Iterable[Tool]) -> str:
    """All tools as one JSON array, each without the wrapper that says that it is a function."""
    return spaced_json([tool_json(tool)["function"] for tool in tools])


def function_blocks(tools: Iterable[Tool]) -> str:
    """One tool after the other, an empty line between them."""
    return "\n\n".join(spaced_json(tool_json(tool)["function"]) for tool in tools)


def tool_elements(tools: Iterable[Tool]) -> str:
    """One tool per line, each in a `tool` element."""
    return "".join(f"<tool>{spaced_json(tool_json(tool)['function'])}</tool>\n" for tool in tools)


TOOLS = "\0tools\0"
"""Where the declarations stand in the text of a `ToolPrompt`."""


class ToolPrompt(msgspec.Struct, frozen=True):
    """Declares tools and shows the form of a call: the `render_tools` of formats where only the list of tools varies."""

    text: str
    """All of it, with `TOOLS` once."""
    listing: Callable[[Iterable[Tool]], str] = tool_lines

    def __call__(self, tools: Sequence[Tool]) -> str:
        before, after = self.text.split(TOOLS)
        return f"{before}{self.listing(tools)}{after}"


def spaced_json(value: Any) -> str:
    """JSON with a blank behind commas and colons, as Jinja's `tojson` writes it; text in any script stays readable."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{quoted(str(key))}: {spaced_json(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(spaced_json, value)) + "]"
    if isinstance(value, str):
        return quoted(value)
    return msgspec.json.encode(value).decode()


def json_calls(calls: Sequence[ToolCall], *, name: str = "name", arguments: str = "arguments") -> list[str]:
    """Each call as an object that holds name and arguments; the arguments keep the model's own text."""
    return [f'{{"{name}": {quoted(call.name)}, "{arguments}": {call.arguments.strip() or "{}"}}}' for call in calls]


def arguments_of(call: ToolCall) -> dict[str, str]:
    """The arguments as JSON text by key, in order."""
    fields = msgspec.json.decode(call.arguments or "{}", type=dict[str, msgspec.Raw])
    return {key: bytes(raw).decode() for key, raw in fields.items()}


def plain_value(text: str) -> str:
    """A JSON value the way tagged templates write it: strings without quotes, everything else as JSON."""
    if text.startswith('"'):
        return msgspec.json.decode(text, type=str)
    return text


def result_text(result: ToolResult) -> str:
    """A result as one text: its text parts, else its structured value as JSON."""
    pieces = [part.text for part in result.parts if isinstance(part, Text)]
    if not pieces and result.structured is not None:
        return spaced_json(result.structured)
    return "\n".join(pieces)


def tagged_trouble(call: ToolCall, markers: tuple[str, ...]) -> str | None:
    """Tagged formats have no escape: a string that holds their own markers cannot be told from markup."""
    for key, value in arguments_of(call).items():
        if any(marker in key for marker in (*markers, ">", "<", '"', "\n")) or not key.strip() or key != key.strip():
            return f"the parameter name {key!r} does not fit into a tag"
        text = plain_value(value)
        if any(marker in text for marker in markers):
            return f"the value of {key} holds markup of the format itself"
    return None


def python_value(text: str) -> str:
    """A JSON value as a Python literal; numbers keep their spelling."""
    value = msgspec.json.decode(text)
    if isinstance(value, str):
        # A JSON string is a Python string, but for the escapes of control characters, which both have.
        return quoted(value)
    if isinstance(value, list):
        items = msgspec.json.decode(text, type=list[msgspec.Raw])
        return "[" + ", ".join(python_value(bytes(item).decode()) for item in items) + "]"
    if isinstance(value, dict):
        fields = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        return "{" + ", ".join(f"{quoted(key)}: {python_value(bytes(raw).decode())}" for key, raw in fields.items()) + "}"
    return {"true": "True", "false": "False", "null": "None"}.get(text, text)
