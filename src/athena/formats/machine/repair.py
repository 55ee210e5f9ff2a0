"""Repairs of a call's whole arguments. Syntax is put right while it streams
(`bodies/json_text`); this room holds what needs the whole object: a wrapper key to unwrap, strings to coerce to the types the
schema declares.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from athena.formats.machine.value_types import ToolBook, ValueType, structured_json, typed_json
from athena.wire.json_span import is_json_object

WRAPPER_KEYS = ("arguments", "input", "parameters", "properties")

_BLANKS = 256
"""Behind more white space no wrapper key is looked for: what is looked at again with every piece stays short."""
_FIRST_KEY = re.compile(rf'\{{\s{{0,{_BLANKS}}}+"')


def may_be_wrapped(beginning: str, book: ToolBook, name: str) -> bool | None:
    """Do these arguments begin with a wrapper key the schema does not declare? None: not enough text yet."""
    found = _FIRST_KEY.match(beginning)
    if found is None:
        return None if len(beginning) <= _BLANKS + 1 and beginning.rstrip() == "{" else False
    rest = beginning[found.end() :]
    undecided = False
    for key in WRAPPER_KEYS:
        if book.declares(name, key):
            continue
        if rest.startswith(key + '"'):
            return True
        undecided = undecided or (key + '"').startswith(rest)
    return None if undecided else False


def unwrapped(arguments: str, book: ToolBook, name: str) -> str | None:
    """The object under an undeclared wrapper key, when it is the only key and its own keys are declared."""
    try:
        fields = msgspec.json.decode(arguments, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None
    if len(fields) != 1 or not book.parameters(name):
        return None
    key, raw = next(iter(fields.items()))
    if key not in WRAPPER_KEYS or book.declares(name, key):
        return None
    inner = bytes(raw).decode("utf-8", "replace").strip()
    if inner.startswith('"'):
        inner = msgspec.json.decode(inner, type=str)
    if not is_json_object(inner):
        # What Python's `str` makes of a dictionary.
        inner = structured_json(inner, "{") or ""
    try:
        keys = msgspec.json.decode(inner, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None
    return inner if all(book.declares(name, inner_key) for inner_key in keys) else None


def coerced(arguments: str, book: ToolBook, name: str) -> str | None:
    """The arguments with strings turned into the declared types where nothing is lost; None when nothing changes."""
    schema = book.schema(name)
    if schema is None:
        return None
    try:
        value = msgspec.json.decode(arguments, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None
    changed = False
    parts: list[str] = []
    for key, raw in value.items():
        text = bytes(raw).decode("utf-8", "replace").strip()
        better = _coerced_value(text, book.value_type(name, key))
        changed = changed or better is not None
        parts.append(f"{msgspec.json.encode(key).decode()}:{better or text}")
    return "{" + ",".join(parts) + "}" if changed else None


def _coerced_value(text: str, wanted: ValueType) -> str | None:
    """Another spelling of one value that fits the schema better, if it does not fit as it is."""
    if wanted.types is None or not text.startswith('"') or "string" in wanted.types:
        return None
    inner: Any = msgspec.json.decode(text)
    found = typed_json(inner, wanted)
    return found if found is not None and not found.startswith('"') else None
