"""Strict JSON (RFC 8259) as a table: by where a reader stands, what each character leads to.

Reading is linear: characters are repeated possessively, and where a group is repeated no shorter reading of it can be followed
by what must follow, so that giving rounds back fails at once. Groups are repeated a bounded number of times, because every
round is remembered, and never possessively, which CPython reads wrong before 3.11.5.
"""

from __future__ import annotations

import re

from athena.formats.machine.scanner import Run

STRING = Run(r'[^"\\\x00-\x1f]', r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})')
"""The inside of a string: plain text and whole escapes."""

NUMBER_LIMIT = 1024
"""Numbers are shorter than this: one that arrives in pieces is read again with each."""
NUMBER = r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?"
_SCALAR = rf"(?:true|false|null|(?![-+.0-9eE]{{{NUMBER_LIMIT}}}){NUMBER})(?=[ \t\r\n,\]}}])"
SCALAR = re.compile(_SCALAR).match
"""A number or a word, whole only where something stands behind it that can not belong to it."""
SCALAR_CHARACTERS = "+-.0123456789Eaeflnrstu"
"""What numbers and words are made of; nothing that may stand before them is."""

SPACE = " \t\r\n"
_DIGITS = "0123456789"

TOP, FIRST_ITEM, ITEM, FIRST_KEY, KEY, COLON, MEMBER, AFTER_ITEM, AFTER_MEMBER, AFTER_TOP, NOTHING, INSIDE = range(12)
"""Where a reader stands: what it waits for, or what it is behind. From INSIDE on: in a number or a word."""

OPENS, CLOSES, MORE, BEGINS, QUOTE = range(1000, 1005)
"""What a character does where it leads nowhere by itself. To QUOTE is added where the string's end leads."""

_ENDS = "$"
# Inside a number or a word: the part behind the sign, and so on. `_ENDS`: the value may end there.
_PARTS: dict[str, dict[str, str]] = {
    "-": {"0": "0", "123456789": "1"},
    "0": {".": ".", "eE": "e", _ENDS: ""},
    "1": {_DIGITS: "1", ".": ".", "eE": "e", _ENDS: ""},
    ".": {_DIGITS: ".5"},
    ".5": {_DIGITS: ".5", "eE": "e", _ENDS: ""},
    "e": {"+-": "e+", _DIGITS: "e5"},
    "e+": {_DIGITS: "e5"},
    "e5": {_DIGITS: "e5", _ENDS: ""},
}
for _word in ("true", "false", "null"):
    for _length in range(1, len(_word)):
        _PARTS[_word[:_length]] = {_word[_length]: _word[: _length + 1]}
    _PARTS[_word] = {_ENDS: ""}
_FIRST = {"-": "-", "0": "0", **dict.fromkeys("123456789", "1"), "t": "t", "f": "f", "n": "n"}


def _inside(first: int, after: int, following: int, closer: str) -> list[dict[str, int]]:
    """The rows of numbers and words in one kind of container, the first of them being row `first`."""
    number = {part: first + index for index, part in enumerate(_PARTS)}
    rows = []
    for ways in _PARTS.values():
        row = {character: number[way] for characters, way in ways.items() if way for character in characters}
        if _ENDS in ways:
            row |= {**dict.fromkeys(SPACE, after), ",": following, closer: CLOSES}
        rows.append(row)
    return rows


def _row(state: int, more: dict[str, int]) -> dict[str, int]:
    return {**dict.fromkeys(SPACE, state), **more}


_ITEMS = {part: INSIDE + index for index, part in enumerate(_PARTS)}
IN_MEMBER = INSIDE + len(_PARTS)


def _value(first: int, after: int) -> dict[str, int]:
    begins = {character: first + _ITEMS[part] - INSIDE for character, part in _FIRST.items()}
    return {'"': QUOTE + after, "{": OPENS, "[": OPENS, **begins}


ROWS: tuple[dict[str, int], ...] = (
    _row(TOP, {'"': QUOTE + AFTER_TOP, "{": OPENS, "[": OPENS}),
    _row(FIRST_ITEM, {**_value(INSIDE, AFTER_ITEM), "]": CLOSES}),
    _row(ITEM, _value(INSIDE, AFTER_ITEM)),
    _row(FIRST_KEY, {'"': QUOTE + COLON, "}": CLOSES}),
    _row(KEY, {'"': QUOTE + COLON}),
    _row(COLON, {":": MEMBER}),
    _row(MEMBER, _value(IN_MEMBER, AFTER_MEMBER)),
    _row(AFTER_ITEM, {",": ITEM, "]": CLOSES}),
    _row(AFTER_MEMBER, {",": KEY, "}": CLOSES}),
    {},
    _row(NOTHING, {}),
    *_inside(INSIDE, AFTER_ITEM, ITEM, "]"),
    *_inside(IN_MEMBER, AFTER_MEMBER, KEY, "}"),
)
"""By where the reader stands: the characters that strict JSON may have there, and where each leads or what it does."""


def _widened(row: dict[str, int]) -> dict[str, int]:
    begins = dict.fromkeys((character for character in _FIRST if character in row), BEGINS)
    return {**row, **begins, **({",": MORE} if "," in row else {})}


WIDE = (*map(_widened, ROWS[:INSIDE]), *ROWS[INSIDE:])
"""The same for a text that is long enough to look for whole values in, and for many of them at once."""

_S = r"[ \t\r\n]*+"
_QUOTED = f'"{STRING.pattern}"'
_SIMPLE = f"(?:{_QUOTED}|{_SCALAR})"
_AT_ONCE = 64
MORE_ITEMS = re.compile(f"(?:,{_S}{_SIMPLE}{_S}){{1,{_AT_ONCE}}}").match
MORE_MEMBERS = re.compile(f"(?:,{_S}{_QUOTED}{_S}:{_S}{_SIMPLE}{_S}){{1,{_AT_ONCE}}}").match
"""Many items or members at once, as long as they are simple ones."""
