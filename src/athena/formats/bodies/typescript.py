"""Tools as TypeScript types, the way the templates of several families declare them (Apertus, GigaChat)."""

from __future__ import annotations

from typing import Any

import msgspec

_TYPES = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}
_DEPTH = 16


def typescript(schema: object, indent: str = "", depth: int = 0) -> str:
    """A schema as a type; properties on lines of their own, descriptions as comments."""
    if not isinstance(schema, dict) or depth > _DEPTH:
        return "any"
    if isinstance(schema.get("enum"), list):
        return " | ".join(msgspec.json.encode(one).decode() for one in schema["enum"])
    kind = schema.get("type")
    if isinstance(kind, list):
        return " | ".join(typescript({**schema, "type": one}, indent, depth + 1) for one in kind)
    if kind == "array":
        return f"{typescript(schema.get('items'), indent, depth + 1)}[]"
    if kind == "object" or isinstance(schema.get("properties"), dict):
        return _object(schema, indent, depth)
    return _TYPES.get(str(kind), "any")


def _object(schema: dict[str, Any], indent: str, depth: int) -> str:
    properties = schema.get("properties")
    if not isinstance(properties, dict) or not properties:
        return "object"
    required = schema.get("required")
    needed = required if isinstance(required, list) else []
    inner = indent + "  "
    lines: list[str] = []
    for key, value in properties.items():
        if isinstance(value, dict) and isinstance(value.get("description"), str):
            lines += [f"{inner}// {line}" for line in value["description"].splitlines()]
        lines.append(f"{inner}{key}{'' if key in needed else '?'}: {typescript(value, inner, depth + 1)},")
    return "{\n" + "\n".join(lines) + "\n" + indent + "}"
