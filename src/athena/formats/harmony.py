"""Harmony, the channels of gpt-oss: every answer is a row of messages with a header, and a recipient makes one a call.

    <|channel|>analysis<|message|>Need weather.<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"location":"SF"}<|call|>

`analysis` without a recipient is reasoning, `commentary` without one is a visible preamble, `final` is the answer. Headers
come damaged in many ways, so the reader looks for the first legal channel word and the first recipient, wherever they stand. An
answer may begin with its recipient, because the prompt ends with `<|start|>assistant`. Beam sends the same messages with
arguments in tags (`<rfl:parameter name="k">`), which are read here too; `beam` writes them.
Origin: openai/harmony docs/format.md and its tests, the gpt-oss template.
"""  # noqa: E501 - the sample is one line for the model

from __future__ import annotations

from collections.abc import Sequence

from athena.formats.bodies.harmony_messages import CHANNEL, CONSTRAIN, ENDS, MESSAGE, OPENERS, START, render_results
from athena.formats.machine.base import Format
from athena.formats.machine.name_rules import BareNameRule
from athena.formats.machine.render import spaced_json
from athena.model.parts import ToolCall
from athena.model.request import Tool


def render_calls(calls: Sequence[ToolCall]) -> str:
    """One message per call, as the model itself writes them."""
    return "".join(
        f"{START}assistant{CHANNEL}commentary to=functions.{call.name} {CONSTRAIN}json{MESSAGE}{call.arguments or '{}'}<|call|>"
        for call in calls
    )


def render_tools(tools: Sequence[Tool]) -> str:
    """The namespace of the developer message, each tool as a TypeScript function type."""
    types = "\n\n".join(_tool_type(tool) for tool in tools)
    return f"# Tools\n\n## functions\n\nnamespace functions {{\n\n{types}\n\n}} // namespace functions"


def _tool_type(tool: Tool) -> str:
    comment = "".join(f"// {line}\n" for line in (tool.description or "").splitlines())
    properties = (tool.schema or {}).get("properties")
    if not isinstance(properties, dict) or not properties:
        return f"{comment}type {tool.name} = () => any;"
    listed = (tool.schema or {}).get("required")
    required = {name for name in listed if isinstance(name, str)} if isinstance(listed, list) else set()
    fields = "".join(_field(name, schema, name in required) for name, schema in properties.items())
    return f"{comment}type {tool.name} = (_: {{\n{fields}}}) => any;"


def _field(name: str, schema: object, required: bool) -> str:
    fields = schema if isinstance(schema, dict) else {}
    described = fields.get("description")
    comment = f"// {described.splitlines()[0]}\n" if isinstance(described, str) and described.strip() else ""
    return f"{comment}{name}{'' if required else '?'}: {_type(fields)},\n"


def _type(schema: dict[str, object], depth: int = 0) -> str:
    enum = schema.get("enum")
    if isinstance(enum, list) and enum:
        return " | ".join(spaced_json(member) for member in enum)
    kind = schema.get("type")
    if kind == "array":
        items = schema.get("items")
        return (_type(items, depth + 1) if isinstance(items, dict) and depth < _DEPTH else "any") + "[]"
    if isinstance(kind, list):
        return " | ".join(_TYPES.get(str(one), "any") for one in kind)
    return _TYPES.get(str(kind), "any")


_DEPTH = 16
_TYPES = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "object": "object", "null": "null"}


FORMAT = Format(
    id="harmony",
    reserved=True,
    openers=OPENERS,
    thinking=(),
    closers=ENDS,
    turn_ends=ENDS,
    render_calls=render_calls,
    render_results=render_results,
    render_tools=render_tools,
    inexpressible=BareNameRule(reason="the name does not fit into a header", characters=" \n\t<{="),
)
