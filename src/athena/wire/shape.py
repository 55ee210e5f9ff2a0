"""How much a value holds: keys, values, objects, and how deep they are nested."""

from __future__ import annotations

from itertools import chain, compress
from typing import Any

import msgspec

_DEPTH = 64
"""A value that is nested deeper is not measured unless it is asked for."""
_SHORT = 2048
_FEW_BRACKETS = 32
_NO_MARKS = bytes(byte for byte in range(256) if byte not in b",:[{")

_is_mapping = frozenset((dict,)).__contains__
_is_list = frozenset((list,)).__contains__
_is_container = frozenset({dict, list}).__contains__


class Shape(msgspec.Struct, frozen=True, gc=False):
    """How much a value holds, at the most."""

    keys: int
    values: int
    depth: int
    objects: int


def shape_of(value: Any, most: int = _DEPTH) -> Shape | None:
    """Level by level, so that depth costs no stack; None for a value that is nested deeper than `most`."""
    keys, items, depth, objects = 0, 0, 0, 0
    level: list[Any] = [value] if type(value) is dict or type(value) is list else []
    while level:
        depth += 1
        if depth > most:
            return None
        # A whole level at once, without a step of Python's for each node.
        kinds = list(map(type, level))
        children: list[Any] = list(chain.from_iterable(map(dict.values, compress(level, map(_is_mapping, kinds)))))
        keys += len(children)
        mappings = kinds.count(dict)
        objects += mappings
        if mappings < len(level):
            named = len(children)
            children.extend(chain.from_iterable(compress(level, map(_is_list, kinds))))
            items += len(children) - named
        level = list(compress(children, map(_is_container, map(type, children))))
    return Shape(keys, keys + items, depth, objects)


def shape_at_most(raw: bytes, value: Any) -> Shape | None:
    """What a short text can hold at the most, by its marks, which are counted sooner than its value is walked."""
    if len(raw) <= _SHORT:
        marks = raw.translate(None, _NO_MARKS)
        keys, objects = marks.count(b":"), marks.count(b"{")
        brackets = objects + marks.count(b"[")
        if brackets <= _FEW_BRACKETS:
            return Shape(keys, len(marks), brackets, objects)
    return shape_of(value)
