"""How much a value holds: keys, values, objects, and how deep they are nested."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import chain, compress
from typing import Any

import msgspec

_DEPTH = 64
"""A value that is nested deeper is not measured unless it is asked for."""
_SHORT = 2048
_FEW_BRACKETS = 32
_FEW_NODES = 8
"""Nodes of a level that are looked at one by one sooner than together."""
_NO_MARKS = bytes(byte for byte in range(256) if byte not in b",:[{")

_is_mapping = frozenset((dict,)).__contains__
_is_container = frozenset({dict, list}).__contains__


class Shape(msgspec.Struct, frozen=True, gc=False):
    """How much a value holds, at the most."""

    keys: int
    values: int
    depth: int
    objects: int


def _containers(values: Collection[Any]) -> Iterator[Any]:
    """Those of them that hold others, found without a step of Python's for each."""
    return compress(values, map(_is_container, map(type, values)))


def shape_of(value: Any, most: int = _DEPTH) -> Shape | None:
    """Level by level, so that depth costs no stack; None for a value that is nested deeper than `most`."""
    keys, items, depth, objects = 0, 0, 0, 0
    level = [value] if type(value) is dict or type(value) is list else []
    while level:
        depth += 1
        if depth > most:
            return None
        if len(level) <= _FEW_NODES:
            below: list[Any] = []
            for node in level:
                if type(node) is dict:
                    keys += len(node)
                    objects += 1
                    below.extend(_containers(node.values()))
                else:
                    items += len(node)
                    below.extend(_containers(node))
            level = below
            continue
        # A whole level at once, without a step of Python's for each node.
        mappings: list[Any] = list(compress(level, map(_is_mapping, map(type, level))))
        children: list[Any] = list(chain.from_iterable(map(dict.values, mappings)))
        keys += len(children)
        objects += len(mappings)
        if len(mappings) < len(level):
            children.extend(chain.from_iterable(node for node in level if type(node) is list))
            items += len(children) - sum(map(len, mappings))
        level = list(_containers(children))
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
