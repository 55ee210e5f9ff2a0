"""Large bodies in which words were looked for: of the next one only what is new is searched.

Turn n of an agent holds turn n-1 but for a few places. A word that is not in the earlier body can be in the later one only
where it touches what is new.
"""

from __future__ import annotations

from collections import OrderedDict

from athena.recording.compare import common_prefix, common_suffix

LARGE = 32 * 1024
"""Bytes from which on it pays."""
_MOST = 32
_MOST_BYTES = 16 * 1024 * 1024
"""Bodies that are remembered, and bytes of them."""
_PART = 28 * 1024
"""In larger data Python looks for a word in a way that is safe from bad luck, and takes half as long again."""


class SearchedBody:
    """One body, and the words that are known not to be in it."""

    __slots__ = ("_base", "_begin", "_end", "absent", "body")

    def __init__(self, body: bytes, base: SearchedBody | None) -> None:
        """`base` is a body of which this one may have most."""
        self.body = body
        self.absent: set[bytes] = set()
        self._base: set[bytes] = set()
        """What is not in the body before this one."""
        self._begin, self._end = 0, len(body)
        """Where it differs from that one."""
        if base is not None:
            self._base = base.absent
            self._begin = common_prefix(base.body, body)
            self._end -= common_suffix(base.body, body, min(len(base.body), len(body)) - self._begin)

    def holds(self, word: bytes) -> bool:
        """Is the word in there?"""
        if word in self.absent:
            return False
        more = len(word) - 1
        begin, end = (max(0, self._begin - more), self._end + more) if word in self._base else (0, len(self.body))
        if is_in(word, self.body, begin, end):
            return True
        self.absent.add(word)
        return False


class SearchedBodies:
    """The last bodies, by what those of one conversation have in common."""

    def __init__(self) -> None:
        self._last: OrderedDict[tuple[object, ...], SearchedBody] = OrderedDict()
        self._bytes = 0

    def searched(self, place: tuple[object, ...], body: bytes) -> SearchedBody:
        """This body, which the next one at this place is compared to."""
        base = self._last.pop(place, None)
        found = self._last[place] = SearchedBody(body, base)
        self._bytes += len(body) - (len(base.body) if base is not None else 0)
        while len(self._last) > _MOST or self._bytes > _MOST_BYTES:
            _, oldest = self._last.popitem(last=False)
            self._bytes -= len(oldest.body)
        return found


def is_in(word: bytes, data: bytes, begin: int, end: int) -> bool:
    """Is the word in this part of the data?"""
    more = len(word) - 1
    return any(data.find(word, at, min(at + _PART + more, end)) >= 0 for at in range(begin, end, _PART))
