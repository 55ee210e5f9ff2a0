"""How an upstream cuts its stream: server-sent events, or one JSON array when the request lacks `alt=sse`.

A plain object is read like an array of one: servers answer a stream with a bare error body.

Wire facts: docs/reference/wire-facts.md#gemini.
"""

from __future__ import annotations

import re

from athena.errors import LimitExceeded, UsageError
from athena.model.limits import DEFAULT_LIMITS
from athena.wire.json_span import JsonSpan
from athena.wire.sse import SseDecoder, WireRecord

_BETWEEN = re.compile(r"[\s,\[\]]*")


class ArrayDecoder:
    """The objects of a JSON array that arrives in pieces. Work per byte is constant however it is cut."""

    __slots__ = ("_closed", "_limit", "_pieces", "_size", "_span")

    def __init__(self, limit: int = DEFAULT_LIMITS.event_bytes) -> None:
        self._limit = limit
        self._pieces: list[str] = []
        self._size = 0
        self._span = JsonSpan()
        self._closed = False

    def feed(self, data: bytes) -> list[WireRecord]:
        if self._closed:
            raise UsageError("feed() after close()")
        # One character per byte: brackets and quotes are ASCII, and a character cut in two stays whole in the joined bytes.
        text = data.decode("latin-1")
        records: list[WireRecord] = []
        while text:
            if not self._span.started:
                text = text[_match_end(text) :]
                if not text:
                    break
            end = self._span.feed(text)
            if end < 0:
                self._hold(text)
                break
            self._pieces.append(text[:end])
            records.append(("", "".join(self._pieces).encode("latin-1")))
            text = text[end:]
            self._pieces.clear()
            self._size = 0
            self._span = JsonSpan()
        return records

    def close(self) -> list[WireRecord]:
        """An object that never ended is not a record."""
        self._closed = True
        return []

    def _hold(self, text: str) -> None:
        self._pieces.append(text)
        self._size += len(text)
        if self._size > self._limit:
            raise LimitExceeded(f"one element is larger than {self._limit} bytes", code="event_too_large")


def _match_end(text: str) -> int:
    found = _BETWEEN.match(text)
    return found.end() if found is not None else 0


class Framing(SseDecoder, eq=False):
    """Decides by the first byte which of the two it is."""

    _begun: bool = False
    _array: ArrayDecoder | None = None

    def feed(self, data: bytes) -> list[WireRecord]:
        if not self._begun:
            start = data.lstrip(b"\r\n \t")
            if start:
                self._begun = True
                if start[:1] in (b"[", b"{"):
                    self._array = ArrayDecoder(self._limit)
        if self._array is not None:
            return self._array.feed(data)
        if self._is_one_event(data):
            return [("", data[6:-4])]
        return super().feed(data)

    @property
    def at_rest(self) -> bool:
        return self._array is None and super().at_rest

    def _is_one_event(self, data: bytes) -> bool:
        """One read that is exactly one event, as this vendor's servers send nearly all of them."""
        return (
            data.startswith(b"data: ")
            and data.find(b"\r") == len(data) - 4
            and data.endswith(b"\r\n\r\n")
            and b"\n" not in data[:-4]
            and not self._pending
            and not self._skip_lf
            and not self._closed
            and len(data) <= self._limit
        )

    def close(self) -> list[WireRecord]:
        """The last record when its end never came."""
        return super().close() if self._array is None else self._array.close()
