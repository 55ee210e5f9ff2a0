"""Gemini's `Schema` (an OpenAPI 3.0 subset with upper-case types) as plain JSON Schema.

Only schema positions are read: a property may be called `type`. `parametersJsonSchema` is JSON Schema already, but clients
write upper-case types there too, so it goes the same way.

Wire facts: docs/reference/wire-facts.md#gemini-requests.
"""

from __future__ import annotations

from typing import Any

from athena.dialects.gemini.spelling import camel
from athena.errors import InvalidRequest

_TYPES = frozenset({"string", "number", "integer", "boolean", "array", "object", "null"})
_WHOLE_NUMBERS = frozenset({"minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties"})
_MAPS = frozenset({"properties", "$defs", "definitions", "patternProperties"})
_LISTS = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
_SINGLES = frozenset({"items", "additionalProperties", "not"})
_SPELLINGS = frozenset({
    "any_of", "one_of", "all_of", "min_items", "max_items", "min_length", "max_length", "min_properties", "max_properties",
    "property_ordering", "additional_properties", "prefix_items",
})  # fmt: skip
_RENAMED = {"defs": "$defs", "ref": "$ref"}
_DEPTH = 100
_PATH = 120


def json_schema(value: Any, path: str, depth: int = 0) -> dict[str, Any]:
    """The schema in lower case, with JSON Schema's spelling of null."""
    if len(path) > _PATH:
        # Names are the client's and may be of any length: each level would repeat them.
        path = f"{path[:40]}...{path[43 - _PATH :]}"
    if not isinstance(value, dict):
        raise InvalidRequest(f"{path}: expected a schema object", path=path)
    if depth > _DEPTH:
        raise InvalidRequest(f"{path}: the schema is nested too deeply", path=path)
    schema: dict[str, Any] = {}
    nullable = False
    for spelling, inner in value.items():
        key = _keyword(spelling, value)
        if key == "nullable":
            nullable = inner is True
        elif key == "propertyOrdering" or (key == "type" and inner == "TYPE_UNSPECIFIED"):
            continue
        else:
            schema[key] = _read(key, inner, f"{path}.{spelling[:_PATH]}", depth)
    if nullable:
        _allow_null(schema)
    return schema


def _keyword(spelling: str, schema: dict[str, Any]) -> str:
    if spelling in _SPELLINGS:
        return camel(spelling)
    renamed = _RENAMED.get(spelling)
    return renamed if renamed is not None and renamed not in schema else spelling


def _read(key: str, value: Any, path: str, depth: int) -> Any:
    if key == "type":
        return _type(value)
    if key in _WHOLE_NUMBERS and isinstance(value, str) and value.isdecimal() and len(value) <= 20:
        return int(value)
    if key in _MAPS and isinstance(value, dict):
        return {name: _subschema(inner, f"{path}.{name[:_PATH]}", depth) for name, inner in value.items()}
    if key in _LISTS | _SINGLES and isinstance(value, list):
        return [_subschema(inner, f"{path}[{index}]", depth) for index, inner in enumerate(value)]
    if key in _SINGLES:
        return _subschema(value, path, depth)
    return value


def _subschema(value: Any, path: str, depth: int) -> Any:
    return value if isinstance(value, bool) else json_schema(value, path, depth + 1)


def _type(value: Any) -> Any:
    if isinstance(value, str) and value.lower() in _TYPES:
        return value.lower()
    if isinstance(value, list):
        return [_type(item) for item in value]
    return value


def _allow_null(schema: dict[str, Any]) -> None:
    kind = schema.get("type")
    if isinstance(kind, str) and kind != "null":
        schema["type"] = [kind, "null"]
    elif isinstance(kind, list) and "null" not in kind:
        schema["type"] = [*kind, "null"]
    elif isinstance(schema.get("anyOf"), list):
        schema["anyOf"] = [*schema["anyOf"], {"type": "null"}]
    if isinstance(schema.get("enum"), list) and None not in schema["enum"]:
        schema["enum"] = [*schema["enum"], None]
