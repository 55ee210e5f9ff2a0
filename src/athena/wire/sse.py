"""Server-sent events: bytes in any split to records, and records to bytes.

Follows the WHATWG event-stream grammar where upstreams do, and bends where they do: `data:` with or without the space, a last
event without its blank line, CR, LF and CRLF mixed, a byte-order mark, comments between events. Lines are split on CR and LF
only, never on U+2028, and the payload stays bytes, so a character cut between two reads is whole again before anyone decodes
it. `id:` and `retry:` are read and ignored: no dialect uses them.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from athena.errors import LimitExceeded, UsageError
from athena.model.limits import DEFAULT_LIMITS

WireRecord: TypeAlias = tuple[str, bytes]
"""(event name or "", payload)"""

_BOM = b"\xef\xbb\xbf"
_NAME_CHARS = 100

Beginning: TypeAlias = Literal["nothing", "object", "array", "events", "markup", "other"]
"""What the first bytes of an answer's body show it to be; "nothing": nothing but white space came yet."""


def beginning_of(body: bytes | bytearray) -> Beginning:
    """What kind of body begins so. Some servers answer in another form than was asked for, and some label it wrongly."""
    start = body.removeprefix(_BOM).lstrip()[:1]
    if not start:
        return "nothing"
    if start == b"{":
        return "object"
    if start == b"<":
        return "markup"  # a web page, where the address is that of none of the APIs
    # The first letters of `data`, `event`, `id` and `retry`, and the colon of a comment.
    return "array" if start == b"[" else "events" if start in b"de:ir" else "other"


class SseDecoder(msgspec.Struct, eq=False):
    """Feed bytes, get the events that are complete. Work per byte is constant however the bytes are cut."""

    _limit: int = DEFAULT_LIMITS.event_bytes
    _pending: bytearray = msgspec.field(default_factory=bytearray)
    _scanned: int = 0
    _started: bool = False
    _skip_lf: bool = False
    _closed: bool = False
    idle: bool = False
    """Nothing is held and no line end is open: a read that is one whole event needs no decoder."""

    def feed(self, data: bytes) -> list[WireRecord]:
        """The records completed by `data`; raises LimitExceeded when one event outgrows the limit."""
        if self._closed:
            raise UsageError("feed() after close()")
        self.idle = False
        records = self._records(data)
        self.idle = self._started and not self._pending and not self._skip_lf
        return records

    def _records(self, data: bytes) -> list[WireRecord]:
        if not self._started:
            data = self._skip_bom(data)
        if self._skip_lf and data:
            # The previous read ended in CR, which already ended the line: a LF right after it belongs to it.
            self._skip_lf = False
            if data[0] == 0x0A:
                data = data[1:]
        if b"\r" in data:
            self._skip_lf = data[-1] == 0x0D
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        pending = self._pending
        if not pending:
            end = data.rfind(b"\n\n")
            if end < 0:
                self._hold(data)
                return []
            blocks = data[:end]
            if end + 2 < len(data):
                self._hold(data[end + 2 :])
        else:
            pending += data
            end = pending.rfind(b"\n\n", max(0, self._scanned - 1))
            if end < 0:
                self._check(len(pending))
                self._scanned = len(pending)
                return []
            blocks = bytes(pending[:end])
            del pending[: end + 2]
            self._scanned = len(pending)
            self._check(self._scanned)
        records: list[WireRecord] = []
        oversize = len(blocks) > self._limit
        for block in blocks.split(b"\n\n"):
            if oversize:
                self._check(len(block))
            if block.startswith(b"data: ") and b"\n" not in block:
                records.append(("", block[6:]))
            elif block:
                record = _read_named(block) if block.startswith(b"event: ") else _read_block(block)
                if record is not None:
                    records.append(record)
        return records

    def close(self) -> list[WireRecord]:
        """The last event when its blank line never came. Idempotent."""
        self._closed = True
        rest = bytes(self._pending)
        self._pending.clear()
        record = _read_block(rest) if rest else None
        return [] if record is None else [record]

    @property
    def at_rest(self) -> bool:
        """Did the last read end with an event, so that the next one begins with another?"""
        return not self._pending and not self._skip_lf and not self._closed

    @property
    def held(self) -> int:
        """Bytes of an event that is not complete yet."""
        return len(self._pending)

    def _skip_bom(self, data: bytes) -> bytes:
        start = data
        if self._pending:
            start = bytes(self._pending) + data
            self._pending.clear()
        if len(start) < len(_BOM) and _BOM.startswith(start):
            self._pending += start
            return b""
        self._started = True
        return start.removeprefix(_BOM)

    def _hold(self, data: bytes) -> None:
        self._check(len(data))
        self._pending += data
        self._scanned = len(self._pending)

    def _check(self, size: int) -> None:
        if size > self._limit:
            raise LimitExceeded(f"one event is larger than {self._limit} bytes", code="event_too_large")


def _read_named(block: bytes) -> WireRecord | None:
    """The usual event of the dialects that name theirs: one name, one line of data."""
    end = block.find(b"\n")
    if end < 0 or not block.startswith(b"data: ", end + 1) or block.find(b"\n", end + 7) >= 0:
        return _read_block(block)
    return block[7:end].strip().decode("utf-8", "replace"), block[end + 7 :]


def _read_block(block: bytes) -> WireRecord | None:
    """One event from its lines; None when it carries no data."""
    event = ""
    payload: list[bytes] = []
    for line in block.split(b"\n"):
        if line.startswith(b"data:"):
            payload.append(line[6:] if line[5:6] == b" " else line[5:])
        elif line.startswith(b"event:"):
            event = line[6:].strip().decode("utf-8", "replace")
        elif line == b"data":
            payload.append(b"")
    if not payload:
        return None
    return event, payload[0] if len(payload) == 1 else b"\n".join(payload)


def encode_event(payload: bytes, event: str = "") -> bytes:
    """One event. The payload is JSON without raw line ends, so one data line always suffices."""
    if event:
        return b"event: %b\ndata: %b\n\n" % (event.encode(), payload)
    return b"data: %b\n\n" % payload


def is_event_name(text: str) -> bool:
    """May an upstream's own name for an event stand on an event line? A line end in it would begin another one."""
    return 0 < len(text) <= _NAME_CHARS and text.isascii() and text.isprintable()


def encode_comment(text: str) -> bytes:
    """A comment: the keep-alive of the dialects that allow one."""
    return b": %b\n\n" % text.encode()
