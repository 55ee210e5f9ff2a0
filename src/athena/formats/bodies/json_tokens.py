"""Strict JSON (RFC 8259) as a table: what may stand where a reader waits, and what it means there.

Every repeat in the patterns is possessive: what was matched is never tried again, so a text is read once, however it is nested.
"""

from __future__ import annotations

import re

from athena.formats.scanner import Run

_PLAIN = r"""(?:[^"\\\x00-\x1f]++|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})*+"""
STRING = Run(_PLAIN)
"""The inside of a string: plain text and whole escapes."""

NUMBER_LIMIT = 1024
"""Numbers are shorter than this: one that arrives in pieces is read again with each."""
NUMBER = r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][+-]?[0-9]++)?+"
_SCALAR = rf"(?:true|false|null|(?![-+.0-9eE]{{{NUMBER_LIMIT}}}){NUMBER})(?=[ \t\r\n,\]}}])"
SCALAR = re.compile(_SCALAR).match
"""A number or a word, whole only where something stands behind it that can not belong to it."""

VALUE, FIRST_ITEM, ITEM, FIRST_KEY, KEY, COLON, AFTER_ITEM, AFTER_MEMBER, NOTHING = range(9)
"""What a reader waits for."""

SPACE, QUOTE, SCALAR_BEGINS, COMMA, CLOSES, IS_COLON, OPENS = range(7)
"""What a character means there."""

_ALWAYS = dict.fromkeys(" \t\r\n", SPACE)
_VALUE = {**_ALWAYS, '"': QUOTE, **dict.fromkeys("-0123456789tfn", SCALAR_BEGINS), "{": OPENS, "[": OPENS}
_KEY = {**_ALWAYS, '"': QUOTE}

MEANINGS: tuple[dict[str, int], ...] = (
    _VALUE,
    {**_VALUE, "]": CLOSES},
    _VALUE,
    {**_KEY, "}": CLOSES},
    _KEY,
    {**_ALWAYS, ":": IS_COLON},
    {**_ALWAYS, ",": COMMA, "]": CLOSES},
    {**_ALWAYS, ",": COMMA, "}": CLOSES},
    _ALWAYS,
)
"""By what is waited for: the characters that strict JSON may have there."""

_S = r"[ \t\r\n]*+"
_SIMPLE = rf'(?:"{_PLAIN}"|{_SCALAR})'
SIMPLE = {
    AFTER_ITEM: re.compile(rf"(?:,{_S}{_SIMPLE}{_S})++").match,
    AFTER_MEMBER: re.compile(rf'(?:,{_S}"{_PLAIN}"{_S}:{_S}{_SIMPLE}{_S})++').match,
}
"""Many items or members at once, as long as they are simple ones."""
