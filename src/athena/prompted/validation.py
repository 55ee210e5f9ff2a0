"""Do arguments fit a tool's schema? The one place that asks a schema library, and it is asked only when it is installed.

`jsonschema-rs` comes with the default install; the bare core checks the structure by hand: types of declared properties and
what is required. A schema that is no schema accepts everything: it is the client's, not the model's fault.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import msgspec

from athena.formats.value_types import ToolBook, resolve_type

Check = Callable[[Any], str]
"""Why a value does not fit; empty when it does."""


class ArgumentCheck:
    """Checks by tool name; a schema is compiled once."""

    def __init__(self, book: ToolBook) -> None:
        self._book = book
        self._checks: dict[str, Check] = {}

    def problem(self, name: str, arguments: str) -> str:
        """Why these arguments break the tool's schema; empty when they do not."""
        schema = self._book.schema(name)
        if not schema:
            return ""
        try:
            value = msgspec.json.decode(arguments)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            # Legal JSON that msgspec does not read (a lone surrogate): the structure can not be judged.
            return ""
        check = self._checks.get(name)
        if check is None:
            check = self._checks[name] = compiled(schema)
        reason = check(value)
        return f"the parameters of {name} do not fit its schema: {reason}" if reason else ""


def compiled(schema: dict[str, Any]) -> Check:
    """A check for one schema. Requests repeat their tools, so what was compiled is kept for a while."""
    try:
        return _compiled(msgspec.json.encode(schema))
    except (msgspec.EncodeError, TypeError, UnicodeEncodeError, RecursionError):
        return lambda value: structural_problem(schema, value)


def _refuse_reference(address: str) -> Any:
    """Schemas come from clients: nothing they point at is ever fetched, from the network or from a disk."""
    raise ValueError(f"references to other documents are not followed: {address}")


@lru_cache(maxsize=512)
def _compiled(text: bytes) -> Check:
    schema: dict[str, Any] = msgspec.json.decode(text)
    try:
        import jsonschema_rs
    except ImportError:
        return lambda value: structural_problem(schema, value)
    try:
        validator: Any = jsonschema_rs.validator_for(schema, retriever=_refuse_reference)
    except (ValueError, TypeError, RecursionError, jsonschema_rs.ReferencingError):
        return lambda value: structural_problem(schema, value)

    def check(value: Any) -> str:
        try:
            error = next(iter(validator.iter_errors(value)), None)
        except (ValueError, TypeError, RecursionError):
            return ""
        if error is None:
            return ""
        where = "/".join(map(str, error.instance_path))
        return f"{where}: {error.message}"[:500] if where else str(error.message)[:500]

    return check


def structural_problem(schema: dict[str, Any], value: Any) -> str:
    """Required properties are there and declared ones have their type."""
    if not isinstance(value, dict):
        return "not an object"
    required = schema.get("required")
    for name in required if isinstance(required, list) else ():
        if isinstance(name, str) and name not in value:
            return f"{name!r} is a required property"
    properties = schema.get("properties")
    for name, item in value.items():
        wanted = properties.get(name) if isinstance(properties, dict) else None
        if wanted is None:
            if schema.get("additionalProperties") is False:
                return f"{name!r} is not a declared property"
            continue
        types = resolve_type(wanted, schema).types
        if types is not None and not _types_of(item) & types:
            return f"{name}: is not of type {' or '.join(sorted(types))}"
    return ""


def _types_of(value: Any) -> frozenset[str]:
    if value is None:
        return frozenset({"null"})
    if isinstance(value, bool):
        return frozenset({"boolean"})
    if isinstance(value, int):
        return frozenset({"integer", "number"})
    if isinstance(value, float):
        return frozenset({"number", "integer"} if value.is_integer() else {"number"})
    if isinstance(value, str):
        return frozenset({"string"})
    return frozenset({"array"} if isinstance(value, list) else {"object"})
