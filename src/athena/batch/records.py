"""One record to one outcome: what a record may hold, what comes out, and what holds for records that do not say.

The contract is that of `athena parse --jsonl`; JSON lines, Python mappings and Arrow rows all go through
`RecordParser`, so they all come out the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypedDict

import msgspec

from athena.bounded_cache import BoundedCache
from athena.errors import AthenaError, InvalidRequest
from athena.formats import get_format
from athena.formats.machine.policies import EchoRule, RepairLevel
from athena.formats.machine.value_types import ToolBook
from athena.model.events import Error, Event, TextDelta, ThinkingDelta, ToolCallComplete, ToolCallStart
from athena.model.names import FormatName
from athena.model.request import Tool
from athena.parsing import Parser, Tools, content_seed, quotations, read_tools
from athena.typed_values import reader
from athena.wire.surrogates import without_lone_surrogates

BAD_RECORD = "bad_record"
"""The code of the one error of a record that could not be read."""


class BatchRecord(msgspec.Struct, gc=False):
    """One text to be parsed. Unknown fields are ignored; null is the same as absent, as data frames write it."""

    id: Any = None
    format: str | None = None
    model: str | None = None
    tools: Any = None
    text: str | None = None
    chunks: list[str] | None = None
    channel: Literal["text", "reasoning"] | None = None
    starts_in_thinking: bool | None = None
    untrusted: list[str] | None = None


class LineRecord(BatchRecord, gc=False):
    """A record out of a line of JSON: its tools stay text until they turn out to be new."""

    tools: msgspec.Raw = msgspec.Raw(b"null")


class FoundCall(TypedDict):
    """One complete call of a record."""

    id: str
    """The call's id; made up where the model gives none."""
    name: str
    """The tool."""
    arguments: str
    """JSON text, as the model wrote it."""


class Problem(TypedDict):
    """What was wrong with a call, or, with the code `bad_record`, with the whole record."""

    code: str
    """The exact cause, such as `truncated_call`."""
    message: str
    """The same for people."""


class Outcome(TypedDict):
    """What parsing one record gave: its calls, its text, or its error."""

    id: Any
    """The record's own, whatever it is."""
    format: str
    """The format in which calls were found; else the one that was looked for."""
    text: str
    """The visible text, without calls and reasoning."""
    thinking: str
    """The reasoning."""
    tool_calls: list[FoundCall]
    """The calls, every one of them whole."""
    incomplete: bool
    """The text ended inside a call."""
    errors: list[Problem]
    """Calls that could not be used, and why; or why the record could not be read."""


def parse_batch(
    records: Iterable[Mapping[str, Any]],
    *,
    format: FormatName | str = "auto",  # noqa: A002 - the word users know
    model: str | None = None,
    tools: Tools | None = None,
    repair: RepairLevel = "syntax",
    echo: EchoRule = "text",
    seed: str = "",
) -> Iterator[Outcome]:
    """Parse the records of a dataset or a log, one after another, as they are asked for.

    A record is a mapping with the text as `text`, or its pieces as `chunks`, and as far as they are known `id`, `format`,
    `model`, `tools` (in any API's shape), `channel` ("reasoning" if the text came from a reasoning field),
    `starts_in_thinking` (the prompt opened the reasoning) and `untrusted` (a list of the texts that the model was given and did
    not write: calls that stand in them are quotations). Nothing is kept, so the input may be endless.

    A record that cannot be read does not stop the others: its outcome has one error with the code `bad_record` and a message
    that begins with the record's number, counted from 1.

    Args:
        records: The records.
        format: The format to look for in records that do not say, or `auto`.
        model: The model of records that do not say: its usual format is looked for first.
        tools: The tools of records that do not say, in any API's shape.
        repair: Repair of broken arguments, in all records: `off`, `syntax` or `schema`.
        echo: What becomes of quotations, in all records: they stay `text`, are an `error`, or are calls (`allow`).
        seed: Goes, with each record's text, into the ids of calls that have none.

    Returns:
        One outcome for each record, in order.

    Raises:
        UsageError: `format` is unknown.
        InvalidRequest: `tools` cannot be used.

    Examples:
        >>> outcomes = parse_batch([
        ...     {"id": 1, "text": 'Look.<tool_call>{"name": "get_time", "arguments": {}}</tool_call>'},
        ...     {"id": 2, "txet": "a slip"},
        ... ])
        >>> for outcome in outcomes:
        ...     print(outcome["id"], outcome["text"], [call["name"] for call in outcome["tool_calls"]], outcome["errors"])
        1 Look. ['get_time'] []
        2  [] [{'code': 'bad_record', 'message': 'record 2: there is neither "text" nor "chunks"'}]
    """
    parser = RecordParser(format=format, model=model, tools=tools, repair=repair, echo=echo, seed=seed)
    return (parser.mapping(record, f"record {number}: ") for number, record in enumerate(records, start=1))


_read_record = reader(BatchRecord)


class RecordParser:
    """Parses records one by one; what they do not say is given here. Holds nothing of any record."""

    __slots__ = ("_echo", "_format", "_model", "_repair", "_seed", "_tools")

    def __init__(
        self,
        *,
        format: str = "auto",  # noqa: A002 - the word users know
        model: str | None = None,
        tools: Tools | None = None,
        repair: RepairLevel = "syntax",
        echo: EchoRule = "text",
        seed: str = "",
    ) -> None:
        self._seed = seed
        self._format = format if format in ("auto", "standard") else get_format(format).id
        self._model = model
        self._tools = tool_book(tools)
        self._repair: RepairLevel = repair
        self._echo: EchoRule = echo

    def mapping(self, value: object, place: str = "") -> Outcome:
        """The outcome of a record as Python values; `place` begins the message if it cannot be read."""
        try:
            record = _read_record(value)
        except (msgspec.ValidationError, RecursionError) as error:
            given = value.get("id") if isinstance(value, Mapping) else None
            return bad_record(given, f"{place}the record cannot be read: {error}")
        return self.outcome(record, place)

    def outcome(self, record: BatchRecord, place: str = "") -> Outcome:
        """Parse one record; a bad record gives an outcome with an error and never raises."""
        try:
            parser, events = self._read(record)
        except AthenaError as error:
            return bad_record(record.id, f"{place}{error.message}")
        return _folded(record.id, parser.format, [*events, *quotations(parser.notes)])

    def events(self, record: BatchRecord, place: str = "") -> dict[str, Any]:
        """The id and the events of the record, or, if it cannot be read, its outcome."""
        try:
            parser, events = self._read(record)
            return {"id": record.id, "events": [*events, *quotations(parser.notes)]}
        except AthenaError as error:
            return {**bad_record(record.id, f"{place}{error.message}")}

    def _read(self, record: BatchRecord) -> tuple[Parser, list[Event]]:
        if record.chunks is None and record.text is None:
            raise AthenaError('there is neither "text" nor "chunks"')
        tools = tool_book(record.tools)
        pieces = record.chunks if record.chunks is not None else [record.text or ""]
        parser = Parser(
            record.format or self._format,
            model=record.model or self._model,
            tools=self._tools if tools is None else tools,
            starts_in_thinking=bool(record.starts_in_thinking),
            channel=record.channel or "text",
            repair=self._repair,
            untrusted=record.untrusted or (),
            echo=self._echo,
            seed=content_seed(pieces, self._seed),
        )
        events = [event for piece in pieces for event in parser.feed(piece)]
        events += parser.close()
        return parser, events


def bad_record(record_id: Any, message: str) -> Outcome:
    """The outcome of a record that could not be read."""
    problem = Problem(code=BAD_RECORD, message=message)
    return Outcome(id=record_id, format="", text="", thinking="", tool_calls=[], incomplete=False, errors=[problem])


def is_bad(outcome: Mapping[str, Any]) -> bool:
    """Could the record not be read?"""
    errors: Sequence[Mapping[str, str]] = outcome.get("errors") or ()
    return bool(errors) and errors[0]["code"] == BAD_RECORD


def _folded(record_id: Any, found_format: str, events: list[Event]) -> Outcome:
    """What `parsing.parse` folds out of the same events, without the parts of an answer that a text cannot have."""
    text: list[str] = []
    thinking: list[str] = []
    calls: dict[int, FoundCall | None] = {}
    errors: list[Problem] = []
    fatal: Problem | None = None
    for event in events:
        match event:
            case TextDelta():
                text.append(event.text)
            case ThinkingDelta():
                thinking.append(event.text)
            case ToolCallStart():
                # Calls stand in the order in which they began; one that never completes leaves its place empty.
                calls[event.call] = None
            case ToolCallComplete():
                calls[event.call] = FoundCall(id=event.id, name=event.name, arguments=event.arguments)
            case Error(fatal=True):
                fatal = Problem(code=event.code, message=event.message)
            case Error():
                errors.append(Problem(code=event.code, message=event.message))
    if fatal is not None:
        errors.append(fatal)
    return Outcome(
        id=record_id,
        format=found_format,
        text="".join(text),
        thinking="".join(thinking),
        tool_calls=[call for call in calls.values() if call is not None],
        incomplete=any(error["code"] == "truncated_call" for error in errors),
        errors=errors,
    )


# -- tools -----------------------------------------------------------------------------------------------------------------


def tool_book(tools: Any) -> ToolBook | None:
    """Tools as JSON text or as values, one or a list of them; None for null. Raises InvalidRequest naming what is wrong."""
    if tools is None:
        return None
    if isinstance(tools, msgspec.Raw):
        return _tool_book_of_json(bytes(tools))
    if isinstance(tools, str):
        return _tool_book_of_json(tools.encode("utf-8", "replace"))
    try:
        key = msgspec.json.encode(tools)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidRequest(f"tools: {error}", path="tools") from None
    # Values of ours have a JSON form of their own that `read_tools` would take for an API's.
    return _declared(tools) if isinstance(tools, Tool) or _has_tool_values(tools) else _tool_book_of_json(key)


_BOOKS: BoundedCache[bytes, ToolBook] = BoundedCache(32 * 1024 * 1024)
_MEMORY_PER_BYTE = 8


def _tool_book_of_json(tools: bytes) -> ToolBook | None:
    """Records of one dataset repeat their tools: read each set once."""
    known = _BOOKS.get(tools)
    if known is not None:
        return known
    try:
        book = _declared(msgspec.json.decode(without_lone_surrogates(tools)))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequest(f"tools: not JSON: {error}", path="tools") from None
    if book is not None:
        _BOOKS.put(tools, book, len(tools) * _MEMORY_PER_BYTE)
    return book


def _declared(tools: Any) -> ToolBook | None:
    if tools is None:
        return None
    return ToolBook(read_tools(tools if isinstance(tools, list | tuple) else [tools]))


def _has_tool_values(tools: Any) -> bool:
    return isinstance(tools, list | tuple) and any(isinstance(tool, Tool) for tool in tools)
