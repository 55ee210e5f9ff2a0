"""Where a JSON object ends that cannot be read, so that what follows it can be: brackets and strings are followed, no more.

A quote too many turns strings inside out: what is outside looks quoted. A string that holds nothing but the brackets and the
comma between two objects shows that, and there the broken object ends.
"""

from __future__ import annotations

import re

from athena.formats.machine.scanner import Lexer, Run

_OUTSIDE = re.compile(r"[\"{}\[\]]")
_INSIDE = Run(r'[^"\\]', r"\\[\s\S]")
_MOST = 256
_BETWEEN = re.compile(rf"[ \t\r\n}}\]]{{0,{_MOST}}}\}}[ \t\r\n]*+,[ \t\r\n]*+(?=\{{[ \t\r\n]*+\Z)")
_MAY_BE_BETWEEN = re.compile(rf"[ \t\r\n}}\],{{]{{0,{_MOST}}}+\Z")


class BrokenJson:
    """The rest of an object of which `depth` brackets are open; in a string if `in_string`."""

    __slots__ = ("_depth", "_fresh", "_in_string", "_markers", "done")

    def __init__(self, markers: Lexer, depth: int, *, in_string: bool) -> None:
        self._markers = markers
        self._depth = depth
        self._in_string = in_string
        self._fresh = False
        """Does the open string begin where the next text does?"""
        self.done = False

    def feed(self, text: str, at: int, final: bool) -> int:
        """Read from `at`; the answer is where the unread text begins: behind the object or before a marker when `done`."""
        start, marker = self._markers.find(text, at, final)
        stop = len(text) if start < 0 else start
        waits = not final and start < 0
        while at < stop and not self.done:
            before = at
            at = self._string(text, at, stop, waits) if self._in_string else self._outside(text, at, stop)
            if at == before:
                return at
        self.done = self.done or (marker is not None and start >= 0 and at == stop)
        return at

    def _outside(self, text: str, at: int, stop: int) -> int:
        found = _OUTSIDE.search(text, at, stop)
        if found is None:
            return stop
        character = found.group()
        if character == '"':
            self._in_string = self._fresh = True
        elif character in "{[":
            self._depth += 1
        else:
            self._depth -= 1
            self.done = self._depth <= 0
        return found.end()

    def _string(self, text: str, at: int, stop: int, waits: bool) -> int:
        end = _INSIDE.end(text, at)
        if end >= stop or text[end] != '"':
            # The string goes on, or a marker stands in it, or it ends in half an escape.
            end = min(end, stop)
            if waits and self._fresh and end == stop and _MAY_BE_BETWEEN.match(text, at) is not None:
                return at
            self._fresh = self._fresh and end == at
            return end if waits else stop
        between = _BETWEEN.match(text[at:end]) if self._fresh else None
        self._in_string = self._fresh = False
        if between is not None:
            self.done = True
            return at + between.end()
        return end + 1
