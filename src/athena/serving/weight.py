"""What a request's body costs in memory, from its bytes alone. Pure.

The factors are measured (`python -m benchmarks memory`): the peak of each step in bytes for one byte of the body, over all
dialects. Plain ASCII text costs one byte for one, as the decoded string and again as the request to the upstream, whose buffer
is up to half as large again. A string with one character beyond U+FFFF costs four bytes for every character of it. Each value
of the JSON is an object or two besides.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import chain, compress, filterfalse
from typing import Any

import msgspec

READING = 3
"""For one byte that a client announces: the pieces that came and the body made of them; later, the body and its text; later,
the text and the request to the upstream. A body of ASCII text needs no more than that at any time."""
_WIDE = 9
"""The same for text that is not ASCII, at its worst: the string, its copy in UTF-8 and the request's buffer while it grows."""
_WIDE_TEXT = 5
_NARROW_TEXT = 3
"""What the decoded text takes of that: as a string and in UTF-8. No character up to U+FFFF takes more than two bytes."""
_WIDE_BYTES = tuple(bytes((byte,)) for byte in range(0xF0, 0xF5))
_UNSEARCHED = 256 * 1024
"""Bytes of a body in which no escapes are looked for: the search would cost more than what it could tell."""
_LOOKS = 64
"""Harmless escapes after which the rest is taken for wide."""
_HEADER = sys.getsizeof("\U00010000") - 2 * 4
"""What a string takes besides its characters and the zero at their end, where they are wide."""
_is_text = frozenset((str,)).__contains__
_is_mapping = frozenset((dict,)).__contains__
_is_list = frozenset((list,)).__contains__
_CALL = 1.5
_VALUE_WORK = 320
_VALUE_TEXT = 192
"""For one value of the JSON: while it is decoded and encoded, and for as long as the request lives."""


class Weight(msgspec.Struct, frozen=True):
    """What one body costs while it is worked on, and what stays of it."""

    work: int
    """At the most, while it is decoded and while the request to the upstream is made of it."""
    text: int
    """What the decoded request holds."""
    call: int
    """What the request to the upstream holds."""


def is_narrow(body: bytes) -> bool:
    """Does every character of the decoded text take one byte? Characters may be spelled as escapes."""
    return body.isascii() and (len(body) <= _UNSEARCHED or not _has_wide_escape(body))


def _has_wide_escape(body: bytes) -> bool:
    """Is there an escape of a character beyond U+00FF?"""
    at = body.find(b"\\u")
    for _ in range(_LOOKS):
        if at < 0:
            return False
        if body[at + 2 : at + 4] != b"00":
            return True
        at = body.find(b"\\u", at + 6)
    return True


def weigh(size: int, *, narrow: bool, values: int) -> Weight:
    """The weight of a body of that many bytes and values; `narrow` is what `is_narrow` says of it."""
    return Weight(
        work=size * (READING if narrow else _WIDE) + values * _VALUE_WORK,
        text=size * (1 if narrow else _WIDE_TEXT) + values * _VALUE_TEXT,
        call=int(size * _CALL),
    )


def has_wide_text(body: bytes) -> bool:
    """May a character beyond U+FFFF stand in these bytes, as it is or as a pair of escapes?"""
    return any(byte in body for byte in _WIDE_BYTES) or b"\\ud" in body or b"\\uD" in body


def with_narrow_text(weight: Weight, size: int, values: int) -> Weight:
    """The weight of a body without wide text: what its strings take is known without a look at them."""
    return msgspec.structs.replace(weight, text=size * _NARROW_TEXT + values * _VALUE_TEXT)


def with_measured_text(weight: Weight, value: Any, size: int, values: int) -> Weight:
    """The weight with what the strings of the decoded value really take: most text is far from the worst case."""
    return msgspec.structs.replace(weight, text=text_bytes(value) + size + values * _VALUE_TEXT)


def has_wide_strings(value: Any) -> bool:
    """May a string of a decoded value hold a character beyond U+FFFF? Then it takes four bytes for each of its characters."""
    return any(
        sys.getsizeof(text) > _HEADER + 4 * len(text) for texts in _strings(value) for text in filterfalse(str.isascii, texts)
    )


def text_bytes(value: Any) -> int:
    """The memory of all strings in a decoded value."""
    return sum(sum(map(sys.getsizeof, texts)) for texts in _strings(value))


def _strings(value: Any) -> Iterator[list[str]]:
    """The strings of a decoded value, level by level: depth costs no stack."""
    level: list[Any] = [value]
    while level:
        kinds = list(map(type, level))
        mappings: list[Any] = list(compress(level, map(_is_mapping, kinds)))
        yield [*compress(level, map(_is_text, kinds)), *chain.from_iterable(mappings)]
        lists = compress(level, map(_is_list, kinds))
        level = [*chain.from_iterable(map(dict.values, mappings)), *chain.from_iterable(lists)]
