"""Many model texts at once: datasets, logs, and `athena parse --jsonl`.

One record in, one record out, in order, whatever is wrong with it: a record that can not be read comes out with the reason in
its `errors`. Nothing is shared between records but caches, so any tool that maps functions over batches can run this.

Record in: `{"id"?, "format"?, "model"?, "tools"?, "text" | "chunks": [...], "channel"?, "starts_in_thinking"?}`.
Record out: `{"id", "format", "text", "thinking", "tool_calls": [{"id", "name", "arguments"}], "incomplete", "errors"}`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Literal

import msgspec

from athena.errors import AthenaError
from athena.formats.policies import RepairLevel
from athena.formats.value_types import ToolBook
from athena.model.events import Event
from athena.parsing import Parsed, Parser, parse_pieces, read_tools


class Record(msgspec.Struct, gc=False):
    """One text to be parsed; unknown fields are ignored."""

    id: Any = None
    format: str | None = None
    model: str | None = None
    tools: msgspec.Raw = msgspec.Raw(b"null")
    text: str | None = None
    chunks: list[str] | None = None
    channel: Literal["text", "reasoning"] = "text"
    starts_in_thinking: bool = False


class FoundCall(msgspec.Struct, frozen=True, gc=False):
    """One call; `arguments` is JSON text."""

    id: str
    name: str
    arguments: str


class Problem(msgspec.Struct, frozen=True, gc=False):
    """What was wrong with a call or a record."""

    code: str
    message: str


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """What one record says."""

    id: Any
    format: str
    text: str
    thinking: str
    tool_calls: tuple[FoundCall, ...]
    incomplete: bool
    errors: tuple[Problem, ...]


class Options(msgspec.Struct, frozen=True):
    """What holds for records that do not say otherwise."""

    format: str = "auto"
    repair: RepairLevel = "syntax"
    events: bool = False
    """Write the list of events instead of the result."""


_RECORD = msgspec.json.Decoder(Record)
BAD_RECORD = "bad_record"


def parse_batch(records: Iterable[Mapping[str, Any]], **options: Any) -> Iterator[dict[str, Any]]:
    """Parse records one after another; `options` are the fields of `Options`.

    >>> [outcome["tool_calls"][0]["name"] for outcome in parse_batch([
    ...     {"text": '<tool_call>{"name": "get_time", "arguments": {}}</tool_call>'},
    ... ])]
    ['get_time']
    """
    settings = Options(**options)
    for record in records:
        yield msgspec.json.decode(parse_line(msgspec.json.encode(record), settings))


def parse_lines(lines: Iterable[bytes], options: Options) -> tuple[bytes, int]:
    """The outcomes of many JSON lines as one block of lines, and how many of them could not be read."""
    outcomes = [parse_line(line, options) for line in lines]
    bad = sum(1 for outcome in outcomes if _IS_BAD in outcome)
    return b"\n".join(outcomes) + b"\n" if outcomes else b"", bad


def parse_line(line: bytes, options: Options) -> bytes:
    """One JSON line to one JSON line."""
    try:
        record = _RECORD.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return _bad(None, f"the record can not be read: {error}")
    try:
        settings = {
            "format": record.format or options.format,
            "model": record.model,
            "tools": _tool_book(bytes(record.tools)),
            "starts_in_thinking": record.starts_in_thinking,
            "channel": record.channel,
            "repair": options.repair,
        }
        pieces = record.chunks if record.chunks is not None else [record.text or ""]
        if record.chunks is None and record.text is None:
            return _bad(record.id, 'the record has neither "text" nor "chunks"')
        if options.events:
            return msgspec.json.encode({"id": record.id, "events": _events(pieces, settings)})
        return msgspec.json.encode(_outcome(record.id, parse_pieces(pieces, **settings)))
    except AthenaError as error:
        return _bad(record.id, error.message)


def _outcome(record_id: Any, parsed: Parsed) -> Outcome:
    return Outcome(
        id=record_id,
        format=parsed.format,
        text=parsed.text,
        thinking=parsed.thinking,
        tool_calls=tuple(FoundCall(call.id, call.name, call.arguments) for call in parsed.calls),
        incomplete=parsed.incomplete,
        errors=tuple(Problem(error.code, error.message) for error in parsed.errors),
    )


def _events(pieces: Iterable[str], settings: dict[str, Any]) -> list[Event]:
    parser = Parser(**settings)
    found = [event for piece in pieces for event in parser.feed(piece)]
    return found + parser.close()


def _bad(record_id: Any, message: str) -> bytes:
    problem = Problem(BAD_RECORD, message)
    return msgspec.json.encode(Outcome(record_id, "", "", "", (), False, (problem,)))


_IS_BAD = b'"errors":[{"code":"bad_record"'


@lru_cache(maxsize=256)
def _tool_book(tools: bytes) -> ToolBook | None:
    """Records of one dataset repeat their tools: read each set once."""
    value = msgspec.json.decode(tools)
    if value is None:
        return None
    if not isinstance(value, list):
        value = [value]
    return ToolBook(read_tools(value))
