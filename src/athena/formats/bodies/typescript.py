"""Tools as TypeScript types, the way the templates of several families declare them (Apertus, GigaChat)."""

from __future__ import annotations

from typing import Any

import msgspec

_TYPES = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}
_DEPTH = 16
_PIECES = 20_000
"""Types and values written for one schema; behind that all is `any`."""


def typescript(schema: object) -> str:
    """A schema as a type; properties on lines of their own, descriptions as comments."""
    return _Writer().type(schema, "", 0)


class _Writer:
    """Writes the types of one schema."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = _PIECES

    def type(self, schema: object, indent: str, depth: int) -> str:
        self._left -= 1
        if not isinstance(schema, dict) or depth > _DEPTH or self._left < 0:
            return "any"
        if isinstance(schema.get("enum"), list):
            self._left -= len(schema["enum"])
            return " | ".join(msgspec.json.encode(one).decode() for one in schema["enum"])
        kind = schema.get("type")
        if isinstance(kind, list):
            # Each type once: the properties are written for the object among them only.
            return " | ".join(self._one(schema, one, indent, depth) for one in dict.fromkeys(map(str, kind)))
        return self._one(schema, "object" if isinstance(schema.get("properties"), dict) else str(kind), indent, depth)

    def _one(self, schema: dict[str, Any], kind: str, indent: str, depth: int) -> str:
        """A schema taken for one of its types."""
        if kind == "array":
            return f"{self.type(schema.get('items'), indent, depth + 1)}[]"
        return self._object(schema, indent, depth) if kind == "object" else _TYPES.get(kind, "any")

    def _object(self, schema: dict[str, Any], indent: str, depth: int) -> str:
        properties = schema.get("properties")
        if not isinstance(properties, dict) or not properties:
            return "object"
        required = schema.get("required")
        needed = {name for name in required if isinstance(name, str)} if isinstance(required, list) else set()
        inner = indent + "  "
        lines: list[str] = []
        for key, value in properties.items():
            if isinstance(value, dict) and isinstance(value.get("description"), str):
                comment = value["description"].splitlines()
                self._left -= len(comment)
                lines += [f"{inner}// {line}" for line in comment]
            lines.append(f"{inner}{key}{'' if key in needed else '?'}: {self.type(value, inner, depth + 1)},")
        return "{\n" + "\n".join(lines) + "\n" + indent + "}"
