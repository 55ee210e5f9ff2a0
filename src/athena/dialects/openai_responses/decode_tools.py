"""Tools and tool choice of a Responses request. Flat function tools, namespaces of them, free-form custom
tools with a grammar; every other type runs at the provider or is typed by it and is kept as a hosted tool.

Wire facts: docs/reference/wire-facts.md#responses-items.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from athena.model.request import Tool, ToolChoice
from athena.wire.fields import Fields


def decode_tools(entries: Iterable[Fields]) -> tuple[Tool, ...]:
    """Every tool of the list; a namespace becomes its members."""
    tools: list[Tool] = []
    for fields in entries:
        if fields.needed_text("type", allow_empty=False) == "namespace":
            space = fields.needed_text("name", allow_empty=False)
            description = fields.text("description")
            tools.extend(_tool(member, space, description) for member in fields.children("tools"))
        else:
            tools.append(_tool(fields, None, None))
    return tuple(tools)


def _tool(fields: Fields, namespace: str | None, namespace_description: str | None) -> Tool:
    kind = fields.needed_text("type", allow_empty=False)
    raw = fields.value
    if kind == "function":
        # Chat's nested form reaches this endpoint too; what it says is the same.
        inner = fields.child("function") or fields
        return Tool(
            name=inner.needed_text("name", allow_empty=False),
            description=inner.text("description"),
            schema=inner.mapping("parameters"),
            strict=inner.flag("strict"),
            deferred=bool(inner.flag("defer_loading")),
            namespace=namespace,
            namespace_description=namespace_description,
            raw=raw,
            extras=inner.rest() if inner is not fields else fields.rest(),
        )
    if kind == "custom":
        return Tool(
            name=fields.needed_text("name", allow_empty=False),
            kind="custom",
            description=fields.text("description"),
            grammar=_grammar(fields.child("format")),
            deferred=bool(fields.flag("defer_loading")),
            namespace=namespace,
            namespace_description=namespace_description,
            raw=raw,
            extras=fields.rest(),
        )
    fields.whole()
    return Tool(
        name=fields.text("name") or kind,
        kind="hosted",
        hosted=kind,
        description=fields.text("description"),
        config={key: value for key, value in raw.items() if key != "type"},
        namespace=namespace,
        namespace_description=namespace_description,
        raw=raw,
    )


def _grammar(fields: Fields | None) -> dict[str, str] | None:
    if fields is None or fields.text("type") != "grammar":
        return None
    return {"syntax": fields.needed_text("syntax"), "definition": fields.needed_text("definition")}


def decode_tool_choice(fields: Fields) -> ToolChoice | None:
    """The `tool_choice` of a request body."""
    value: Any = fields.any("tool_choice")
    if value is None:
        return None
    if isinstance(value, str):
        if value == "auto":
            return ToolChoice("auto")
        if value == "none":
            return ToolChoice("none")
        if value == "required":
            return ToolChoice("required")
        fields.forget("tool_choice")
        return None
    choice = fields.inner(value, fields.at("tool_choice"))
    kind = choice.needed_text("type", allow_empty=False)
    if kind == "function":
        inner = choice.child("function") or choice
        return ToolChoice("named", (inner.needed_text("name", allow_empty=False),))
    if kind == "custom":
        return ToolChoice("named", (choice.needed_text("name", allow_empty=False),), "custom")
    if kind == "allowed_tools":
        mode = choice.text("mode") or "auto"
        if mode not in ("auto", "required"):
            choice.forget("mode")
        names = choice.each("tools", _allowed_name)
        return ToolChoice("allowed", names, required=mode == "required")
    return ToolChoice("named", (choice.text("name") or kind,), "hosted")


def _allowed_name(fields: Fields) -> str:
    kind = fields.needed_text("type", allow_empty=False)
    return fields.text("name") or kind
