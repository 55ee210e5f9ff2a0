"""Records as JSON lines: a block of lines in, a block of lines out.

A block is what one message to a worker process holds, so that lines are cut, numbered and joined where they are parsed and the
process that reads and writes files only moves bytes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from athena.batch.records import LineRecord, Outcome, RecordParser, bad_record, is_bad
from athena.formats.machine.policies import EchoRule, RepairLevel
from athena.wire.surrogates import lossless_json, without_lone_surrogates

LINE_LIMIT = 64 * 1024 * 1024
"""Bytes of one line; a longer one is a bad record."""

_RECORD = msgspec.json.Decoder(LineRecord)
_encode = msgspec.json.encode


class LineBlock(NamedTuple):
    """Whole lines as they came, the last one maybe without its end."""

    lines: bytes
    first: int
    """The number of the first line, counted from 1."""


class BlockCutter:
    """Bytes of any size in, blocks of whole lines out. A line that is too long is cut, so that what is held is bounded."""

    __slots__ = ("_first", "_held", "_size")

    def __init__(self) -> None:
        self._held: list[bytes] = []
        self._size = 0
        self._first = 1

    def feed(self, data: bytes) -> LineBlock | None:
        """The lines that `data` ended, if there are any."""
        end = data.rfind(b"\n") + 1
        if not end:
            self._hold(data)
            return None
        block = LineBlock(b"".join((*self._held, data[:end])), self._first)
        self._first += data.count(b"\n")
        self._held, self._size = [], 0
        self._hold(data[end:])
        return block

    def close(self) -> LineBlock | None:
        """What was left without an end of line."""
        block = LineBlock(b"".join(self._held), self._first) if self._size else None
        self._held, self._size = [], 0
        return block

    def _hold(self, data: bytes) -> None:
        # One byte more than the limit is enough to see that the line is too long.
        kept = data[: LINE_LIMIT + 1 - self._size]
        if kept:
            self._held.append(kept)
            self._size += len(kept)


class BadLine(NamedTuple):
    """A line that could not be read, by its number in the input, and why."""

    number: int
    message: str


class ParsedBlock(NamedTuple):
    """What became of a block of lines."""

    output: bytes
    """One line of JSON for each line that was not empty."""
    records: int
    bad: tuple[BadLine, ...]
    calls: int = 0
    """Whole calls in the outcomes; not counted where events are written."""


class LineParser:
    """Parses blocks of JSON lines. With `writes_events` a record's events are written instead of its outcome."""

    __slots__ = ("_parser", "_writes_events")

    def __init__(
        self,
        *,
        format: str = "auto",  # noqa: A002 - the word users know
        repair: RepairLevel = "syntax",
        echo: EchoRule = "text",
        writes_events: bool = False,
    ) -> None:
        self._parser = RecordParser(format=format, repair=repair, echo=echo)
        self._writes_events = writes_events

    def parse(self, block: LineBlock) -> ParsedBlock:
        """What the lines say. Empty lines have a number, but nothing is written for them."""
        written: list[bytes] = []
        bad: list[BadLine] = []
        calls = 0
        for number, line in enumerate(block.lines.split(b"\n"), start=block.first):
            if not line or line.isspace():
                continue
            outcome = self._outcome(line, f"line {number}: ")
            if is_bad(outcome):
                bad.append(BadLine(number, outcome["errors"][0]["message"]))
            calls += len(outcome.get("tool_calls", ()))
            written.append(encode_outcome(outcome))
        written.append(b"")
        return ParsedBlock(b"\n".join(written), len(written) - 1, tuple(bad), calls)

    def _outcome(self, line: bytes, place: str) -> Outcome | dict[str, Any]:
        if len(line) > LINE_LIMIT:
            return bad_record(None, f"{place}longer than {LINE_LIMIT // 2**20} MiB")
        try:
            record = _decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            return bad_record(_id_of(line), f"{place}the record cannot be read: {error}")
        return self._parser.events(record, place) if self._writes_events else self._parser.outcome(record, place)


def encode_outcome(outcome: Outcome | dict[str, Any]) -> bytes:
    """The outcome as one line of JSON, without the line's end. Half characters, which UTF-8 has not, become escapes."""
    return lossless_json(outcome)


class _OnlyId(msgspec.Struct, gc=False):
    id: Any = None


_read_id = msgspec.json.Decoder(_OnlyId).decode


def _id_of(line: bytes) -> Any:
    """The id of a record whose other fields are wrong; None if the line is not JSON at all."""
    try:
        return _read_id(line).id
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _decode(line: bytes) -> LineRecord:
    try:
        return _RECORD.decode(line)
    except msgspec.DecodeError:
        mended = without_lone_surrogates(line)
        if mended is line:
            raise
        return _RECORD.decode(mended)
