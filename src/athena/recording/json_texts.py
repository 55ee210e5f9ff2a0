"""The strings and numbers of JSON values, where they stand in their bytes: what redaction replaces in place."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from enum import Enum, auto
from typing import Any

import msgspec

from athena.wire.surrogates import without_lone_surrogates

_INDEXES = ("type", "index", "output_index", "content_index", "summary_index", "item_id")
_LONG_NUMBER = 20
_TOKEN = re.compile(rb'["{}\[\]:,]|-?[0-9][0-9.eE+-]*')


class Kind(Enum):
    """What stands at a place of a JSON value."""

    KEY = auto()
    TEXT = auto()
    NUMBER = auto()


def decoded(data: bytes) -> Any:
    """The value, which is read as answers are: half of a character, or bytes that are none, do not make it another thing."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, ValueError, RecursionError):
        whole = without_lone_surrogates(data.decode("utf-8", "replace").encode())
    try:
        return json.loads(whole, parse_int=_number)
    except (ValueError, RecursionError):
        return None


def _number(digits: str) -> int | str:
    """A field that no decoder looks at may hold a number that is too large for one that reads every value."""
    return int(digits) if len(digits) < _LONG_NUMBER else digits


def places_of(value: Any) -> tuple[Any, ...]:
    """What tells the texts of one stream apart: which choice, item or block a record is about."""
    if not isinstance(value, dict):
        return ()
    found: list[Any] = [value.get(name) for name in _INDEXES]
    choices = value.get("choices")
    if isinstance(choices, list):
        found += [choice.get("index") if isinstance(choice, dict) else None for choice in choices[:16]]
        for choice in choices[:1]:
            delta = choice.get("delta") if isinstance(choice, dict) else None
            calls = delta.get("tool_calls") if isinstance(delta, dict) else None
            found += [call.get("index") for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
    # A list or an object in the place of a number is told apart by its text.
    return tuple(msgspec.json.encode(place) if isinstance(place, dict | list) else place for place in found)


def scalars_of(body: bytes, start: int, end: int) -> Iterator[tuple[int, int, tuple[Any, ...], Kind]]:
    """The strings and numbers of a JSON value: where they stand (strings without quotes), their paths and kinds."""
    path: list[Any] = []
    """For each open object its present key, for each open array its index."""
    in_object: list[bool] = []
    expects_key = False
    at = start
    while found := _TOKEN.search(body, at, end):
        token, at = found.group(), found.end()
        if token == b'"':
            close = _closing_quote(body, at, end)
            is_key = expects_key and bool(in_object) and in_object[-1]
            if is_key:
                path[-1] = body[at:close].decode("utf-8", "replace")
            yield at, close, tuple(path), Kind.KEY if is_key else Kind.TEXT
            at = close + 1
        elif token == b"{":
            in_object.append(True)
            path.append("")
            expects_key = True
        elif token == b"[":
            in_object.append(False)
            path.append(0)
            expects_key = False
        elif token in b"}]" and in_object:
            in_object.pop()
            path.pop()
            expects_key = False
        elif token == b"," and in_object:
            expects_key = in_object[-1]
            if not in_object[-1]:
                path[-1] += 1
        elif token == b":":
            expects_key = False
        elif token not in b"}],":
            yield found.start(), at, tuple(path), Kind.NUMBER


def _closing_quote(body: bytes, start: int, end: int) -> int:
    """Where the string ends that begins here."""
    at = body.find(b'"', start, end)
    while at >= 0:
        slashes = at
        while slashes > start and body[slashes - 1] == 0x5C:
            slashes -= 1
        if not (at - slashes) % 2:
            return at
        at = body.find(b'"', at + 1, end)
    return end
