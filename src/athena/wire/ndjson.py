"""Newline-delimited JSON: bytes in any split to lines. Ollama's native API streams this way."""

from __future__ import annotations

from athena.errors import LimitExceeded, UsageError
from athena.model.limits import DEFAULT_LIMITS


class NdjsonDecoder:
    """Feed bytes, get the lines that are complete, without their line ends and without empty ones."""

    __slots__ = ("_closed", "_limit", "_pending")

    def __init__(self, limit: int = DEFAULT_LIMITS.event_bytes) -> None:
        self._limit = limit
        self._pending = bytearray()
        self._closed = False

    def feed(self, data: bytes) -> list[bytes]:
        """The lines completed by `data`; raises LimitExceeded when one line outgrows the limit."""
        if self._closed:
            raise UsageError("feed() after close()")
        end = data.rfind(b"\n")
        if end < 0:
            self._pending += data
            lines: list[bytes] = []
        else:
            complete = bytes(self._pending) + data[:end]
            self._pending = bytearray(data[end + 1 :])
            lines = [line for line in (raw.strip() for raw in complete.split(b"\n")) if line]
        if len(self._pending) > self._limit or any(len(line) > self._limit for line in lines):
            raise LimitExceeded(f"one line is larger than {self._limit} bytes", code="event_too_large")
        return lines

    def close(self) -> list[bytes]:
        """The last line when its line end never came. Idempotent."""
        self._closed = True
        rest = bytes(self._pending).strip()
        self._pending.clear()
        return [rest] if rest else []


def encode_line(payload: bytes) -> bytes:
    """One line."""
    return payload + b"\n"
