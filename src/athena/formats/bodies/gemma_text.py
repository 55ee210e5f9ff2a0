"""How Google's open models have tools, calls and results written: the opposite direction of `bodies/gemma_literals`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from athena.formats.machine.render import arguments_of, result_text
from athena.model.parts import ToolCall, ToolResult
from athena.model.request import Tool

_BARE_KEY = re.compile(r"[\w.$\-]+")
_LONGEST_KEY = 100
_DEPTH = 40
"""Every level of a value is read again with each level around it."""
_NAME = re.compile(r"[^\s{}<>\"']+")


def literal(text: str, quote: str, depth: int = 0) -> str:
    """A JSON value in the literal syntax; numbers keep their spelling. What is nested very deeply stays JSON."""
    head = text.lstrip()[:1]
    if head == '"':
        return quote + msgspec.json.decode(text, type=str) + quote
    if head == "[" and depth < _DEPTH:
        items = msgspec.json.decode(text, type=list[msgspec.Raw])
        return "[" + ",".join(literal(bytes(item).decode(), quote, depth + 1) for item in items) + "]"
    if head == "{" and depth < _DEPTH:
        fields = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        return _object({key: literal(bytes(raw).decode(), quote, depth + 1) for key, raw in fields.items()}, quote)
    return text


def _object(members: dict[str, str], quote: str) -> str:
    keys = {key: key if _BARE_KEY.fullmatch(key) else quote + key + quote for key in members}
    return "{" + ",".join(f"{keys[key]}:{value}" for key, value in members.items()) + "}"


def call_text(call: ToolCall, quote: str) -> str:
    """`call:NAME{...}`."""
    members = {key: literal(value, quote) for key, value in arguments_of(call).items()}
    return f"call:{call.name}{_object(members, quote)}"


def response_text(result: ToolResult, quote: str) -> str:
    """`response:NAME{...}`: an object's own members, or one member `value`."""
    structured = result.structured
    if isinstance(structured, dict):
        body = literal(msgspec.json.encode(structured).decode(), quote)
    else:
        body = "{value:" + quote + result_text(result) + quote + "}"
    return f"response:{result.name or 'tool'}{body}"


def declarations(tools: Sequence[Tool], quote: str, begin: str, end: str) -> str:
    """Each tool as `declaration:NAME{description:...,parameters:{...}}` between two tokens."""
    return "".join(f"{begin}declaration:{tool.name}{_declaration(tool, quote)}{end}" for tool in tools)


def _declaration(tool: Tool, quote: str) -> str:
    schema = tool.schema if tool.schema is not None else {"type": "object", "properties": {}}
    members = {"description": quote + (tool.description or "") + quote, "parameters": _schema(schema, quote)}
    return _object(members, quote)


def _schema(schema: Any, quote: str, depth: int = 0) -> str:
    """A schema with its keys in order and its types in capitals, as the templates write it."""
    if not isinstance(schema, dict) or depth > _DEPTH:
        return literal(msgspec.json.encode(schema).decode(), quote)
    members: dict[str, str] = {}
    for key in sorted(schema):
        value = schema[key]
        if key == "type" and isinstance(value, str):
            members[key] = quote + value.upper() + quote
        elif key == "properties" and isinstance(value, dict):
            members[key] = _object({name: _schema(inner, quote, depth + 1) for name, inner in value.items()}, quote)
        elif key == "items":
            members[key] = _schema(value, quote, depth + 1)
        else:
            members[key] = literal(msgspec.json.encode(value).decode(), quote)
    return _object(members, quote)


def literal_trouble(call: ToolCall, quote: str) -> str | None:
    """The quoting token can not be quoted, and a key must be near enough to be seen behind a comma."""
    if not _NAME.fullmatch(call.name):
        return "the name does not fit before a brace"
    keys: list[str] = []
    texts: list[str] = []
    _collect(msgspec.json.decode(call.arguments or "{}"), keys, texts)
    if any(len(key) > _LONGEST_KEY for key in keys):
        return "a key is too long"
    if any(quote in text for text in (*keys, *texts)):
        return "a text holds the token that quotes text"
    return None


def _collect(value: Any, keys: list[str], texts: list[str]) -> None:
    if isinstance(value, str):
        texts.append(value)
    elif isinstance(value, dict):
        keys.extend(value)
        for item in value.values():
            _collect(item, keys, texts)
    elif isinstance(value, list):
        for item in value:
            _collect(item, keys, texts)
