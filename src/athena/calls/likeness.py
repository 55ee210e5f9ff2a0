"""When are the arguments of two calls the same, however each of them was written?

Order of keys, white space, escapes, the spelling of numbers, a value as text or as JSON, an empty value or none: nothing of it
matters here. The point of view is that of somebody who looks for a copy, so what may be one counts as one.
"""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from athena.wire.escapes import plain

_NUMBER = re.compile(r"[+-]?\d{1,15}(?:\.\d{0,15})?(?:[eE][+-]?\d{1,3})?")
_PYTHON = re.compile(r"\b(?:True|False|None)\b")
_EMPTY = ("", "{}", "[]", "null")
_CONSTANTS = {"true": "true", "false": "false", "null": "null", "none": "null"}
_DEPTH = 64


class Likeness(msgspec.Struct, frozen=True):
    """The arguments of a call in a spelling that all copies share."""

    whole: str
    beginning: str
    """The same with only the first line of every text: for text that has no end mark of its own."""


def likeness(arguments: str) -> Likeness:
    """The likeness of a call's arguments; of text that is not JSON, the text itself."""
    value = _decoded(arguments)
    try:
        return Likeness(_spelled(value, 0, first_line=False), _spelled(value, 0, first_line=True))
    except RecursionError:
        text = squeezed(arguments)
        return Likeness(text, text)


def _decoded(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        pass
    try:
        return json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return text


def _spelled(value: Any, depth: int, *, first_line: bool) -> str:
    if depth > _DEPTH:
        return squeezed(repr(value))
    if isinstance(value, dict):
        # Two keys may be alike; each of them counts, whichever comes first.
        members = [(squeezed(key), _spelled(item, depth + 1, first_line=first_line)) for key, item in value.items()]
        return "{" + ",".join(f"{key}:{item}" for key, item in sorted(members) if item not in _EMPTY) + "}"
    if isinstance(value, list):
        return "[" + ",".join([_spelled(item, depth + 1, first_line=first_line) for item in value]) + "]"
    if isinstance(value, str):
        return _spelled_text(value, depth, first_line=first_line)
    if value is None or isinstance(value, bool):
        return "null" if value is None else "true" if value else "false"
    return _number(value)


def _spelled_text(text: str, depth: int, *, first_line: bool) -> str:
    if text.lstrip()[:1] in ("{", "["):
        inner = _decoded(text)
        if isinstance(inner, str):
            inner = _decoded(_PYTHON.sub(lambda found: _CONSTANTS[found.group().lower()], text).replace("'", '"'))
        if isinstance(inner, dict | list):
            return _spelled(inner, depth + 1, first_line=first_line)
    text = plain(text).strip()
    if first_line:
        text = text.partition("\n")[0]
    text = squeezed(text)
    if len(text) <= 5 and text.lower() in _CONSTANTS:
        return _CONSTANTS[text.lower()]
    if len(text) <= 40 and _NUMBER.fullmatch(text) is not None:
        return _number(float(text))
    return text


def _number(value: float) -> str:
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return str(value)


def squeezed(text: str) -> str:
    """The text without escapes and white space."""
    return "".join(plain(text).split())
