"""Where a JSON value ends in text that arrives in pieces.

`JsonSpan` follows strings, escapes and brackets, nothing else: it finds the end, it does not validate. Code that needs valid
JSON checks the finished text once with `is_json_object`. Both run in time linear in the text however it is cut.
"""

from __future__ import annotations

import json
import re

import msgspec

_OUTSIDE = re.compile(r'["{}\[\]]')
_INSIDE = re.compile(r'["\\]')


class JsonSpan:
    """Feed text, learn where the first object or array that starts in it ends.

    Text before the first bracket is skipped. After the end, `feed` keeps answering 0: nothing more belongs to the value.
    """

    __slots__ = ("_depth_limit", "_escaped", "closed", "depth", "in_string", "started", "too_deep")

    def __init__(self, depth_limit: int = 512) -> None:
        self.depth = 0
        self.in_string = False
        self.started = False
        self.closed = False
        self.too_deep = False
        self._escaped = False
        self._depth_limit = depth_limit

    def feed(self, text: str) -> int:
        """How many characters of `text` belong to the value when it ends inside `text`, else -1."""
        if self.closed:
            return 0
        position = 0
        if self._escaped and text:
            self._escaped = False
            position = 1
        while True:
            if self.in_string:
                found = _INSIDE.search(text, position)
                if found is None:
                    return -1
                position = found.end()
                if found.group() == '"':
                    self.in_string = False
                elif position < len(text):
                    position += 1
                else:
                    self._escaped = True
                    return -1
                continue
            found = _OUTSIDE.search(text, position)
            if found is None:
                return -1
            position = found.end()
            mark = found.group()
            if mark == '"':
                self.in_string = self.started
            elif mark in "{[":
                self.started = True
                self.depth += 1
                if self.depth > self._depth_limit:
                    self.too_deep = True
            elif self.started:
                self.depth -= 1
                if self.depth == 0:
                    self.closed = True
                    return position


def is_json_object(text: str) -> bool:
    """Is `text` exactly one valid JSON object?"""
    if not text.lstrip(" \t\r\n").startswith("{"):
        return False
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        # An escaped lone surrogate is legal JSON that every client's parser takes, but not msgspec's.
        return "\\ud" in text.lower() and _stdlib_reads(text)
    return True


def _stdlib_reads(text: str) -> bool:
    try:
        json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return False
    return True


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
