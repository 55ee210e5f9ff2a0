"""Where in a rendered text the JSON of a call stands: all of the call in one object, or its arguments alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from athena.formats.declared.description import Json
from athena.learning.probes import ProbeCall

_decoder = json.JSONDecoder()


class Spot(NamedTuple):
    """Where in the text one call's own words stand."""

    start: int
    """The first of its words, or the bracket of its object."""
    end: int
    """Behind the last."""


def _decoded(text: str, at: int) -> tuple[Any, int] | None:
    try:
        return _decoder.raw_decode(text, at)
    except (ValueError, RecursionError):
        return None


def call_object(text: str, call: ProbeCall, calls: Sequence[ProbeCall]) -> tuple[Spot, Json] | None:
    """The largest object that holds this call and no other."""
    others = [other.name for other in calls if other is not call]
    at = text.find("{")
    while at >= 0:
        found = _decoded(text, at)
        if found is not None:
            value, end = found
            keys = _keys(value, call) if not any(name in text[at:end] for name in others) else None
            if keys is not None:
                return Spot(at, end), keys
        at = text.find("{", at + 1)
    return None


def _keys(value: Any, call: ProbeCall, wrapper: str = "") -> Json | None:
    if not isinstance(value, dict):
        return None
    names = [key for key, one in value.items() if one == call.name]
    ids = [key for key, one in value.items() if one == call.id and key not in names]
    if names:
        for key, one in value.items():
            encoded = isinstance(one, str) and _text_json(one) == call.arguments
            if one == call.arguments or encoded:
                return Json(name=names[0], arguments=key, id=ids[0] if ids else "", wrapper=wrapper, encoded=encoded)
        return None
    if value.get(call.name) == call.arguments:
        return Json(name_is_key=True)
    for key, one in value.items():
        found = _keys(one, call, key) if not wrapper else None
        if found is not None:
            return msgspec.structs.replace(found, id=found.id or (ids[0] if ids else ""))
    return None


def _text_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def arguments_span(text: str, call: ProbeCall) -> tuple[Spot, bool] | None:
    """The arguments as JSON, or as a JSON string that holds them."""
    for mark in "{", '"':
        at = text.find(mark)
        while at >= 0:
            found = _decoded(text, at)
            if found is not None:
                value, end = found
                if value == call.arguments:
                    return Spot(at, end), False
                if isinstance(value, str) and _text_json(value) == call.arguments:
                    return Spot(at, end), True
            at = text.find(mark, at + 1)
    return None
