"""Reads of plain text from the upstream's socket to the client's, past everything that has nothing to do with them.

While an answer is one text, every read of it is a chunk of HTTP that holds records of one shape, and all that becomes of it is
a chunk of HTTP for the client. `PlainRelay.take` does that and nothing else: it reads the chunk, looks for markers, writes the
client's chunk and tells those taps that must know at once. What else is to be known of such reads (their texts, and when they
came) is kept until `settle`, which the driver calls before it does anything else with the answer.

What `take` does not know it does not take: it returns False, nothing has changed, and the read goes the usual way.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

import msgspec

from athena.dialects.plain_reads import PLAIN_BYTES, UNREADABLE_TEXT, PlainSplice
from athena.serving.request_taps import ReadsNoted

MOST_BYTES = 32 * 1024
"""What is read before everything is settled, by a read that goes the usual way: its texts are kept until then."""
_text = msgspec.json.Decoder(str).decode
_escaped = msgspec.json.encode
Settled = tuple[list[bytes], list[float], float, bytes]
"""The text of each read as it came, a JSON string, when it came, seconds spent on all of them, and the last read (only where
records go out as they came)."""


class Taker(Protocol):
    """The client, as far as it is looked at here."""

    @property
    def blocked(self) -> bool:
        """Does it take its bytes too slowly?"""


class PlainRelay:
    """One stream's relay, while its text goes on. It takes reads of one chunk with one record."""

    __slots__ = (
        "_before", "_behind", "_client", "_clock", "_head", "_last", "_on_blocked", "_own_time", "_passed", "_room", "_search",
        "_stays", "_strings", "_tail", "_times", "_write",
    )  # fmt: skip

    def __init__(
        self,
        splice: PlainSplice,
        clock: Callable[[], float],
        write: Callable[[bytes], None],
        client: Taker,
        on_blocked: Callable[[], None],
    ) -> None:
        """`clock` tells the time; `write` takes chunks for the client, and `on_blocked` is called when that is blocked by them.

        `tell` is to be called before reads are taken."""
        self._head, self._tail = splice.head, splice.tail + b"\r\n"
        self._before, self._behind, self._stays = splice.before, splice.behind, splice.stays
        self._search = splice.search
        self._clock, self._write, self._client = clock, write, client
        self._passed: ReadsNoted = None
        self._on_blocked = on_blocked
        self._strings: list[bytes] = []
        self._times: list[float] = []
        self._room = MOST_BYTES
        self._own_time = 0.0
        self._last = b""

    def tell(self, passed: ReadsNoted) -> None:
        """Tell it of each read: what came, what left for it, and when. None: nobody has to know before `settle`."""
        self._passed = passed

    def take(self, data: bytes) -> bool:
        """Pass this read on; False: it is not plain, and nothing was done."""
        began = time.perf_counter()
        head, tail = self._head, self._tail
        line = data.find(b"\r\n", 1, 9)
        size = len(data) - line - 4
        if (
            line < 0
            or not data.startswith(head, line + 2)
            or not data.endswith(tail)
            or size > PLAIN_BYTES
            or data[:line] != b"%x" % size
            or self._room < 0
        ):
            return False
        try:
            # With its quotes, so that what stands between them is one JSON string or is refused.
            came = data[line + 1 + len(head) : 1 - len(tail)]
            text = _text(came)
        except UNREADABLE_TEXT:
            return False
        search = self._search
        if not text or (search is not None and search(text) is not None):
            return False
        if self._stays:
            self._last = output = data[line + 2 : -2]
        else:
            output = b"%b%b%b" % (self._before, _escaped(text), self._behind)
        self._room -= size
        self._times.append(self._clock())
        self._strings.append(came)
        if self._passed is not None:
            self._passed(data[line + 2 : -2], output, self._times[-1])
        self._write(b"%x\r\n%b\r\n" % (len(output), output))
        self._own_time += time.perf_counter() - began
        if self._client.blocked:
            self._on_blocked()
        return True

    def settle(self) -> Settled:
        """What was passed on since the last call."""
        settled = self._strings, self._times, self._own_time, self._last
        self._strings, self._times, self._room, self._own_time, self._last = [], [], MOST_BYTES, 0.0, b""
        return settled
