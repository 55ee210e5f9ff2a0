"""`events_from`: iterate anything that carries an answer, get neutral events.

>>> answer = [
...     b'data: {"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"Hi"}}]}\\n\\n',
...     b'data: {"object":"chat.completion.chunk","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\\n\\n',
... ]
>>> [type(event).__name__ for event in events_from(answer, dialect="openai_chat")]
['Start', 'TextDelta', 'Done']
>>> events_from(answer, dialect="openai_chat").read().text
'Hi'
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Mapping, Sequence
from inspect import isawaitable
from typing import Any, Protocol, TypeAlias

import msgspec

from athena.calls.builder import AnswerBuilder
from athena.dialects import dialect_names, get_dialect
from athena.dialects.base import AnswerDecoder, DecodeContext
from athena.errors import UsageError
from athena.formats.machine.detect import detect_format
from athena.formats.machine.policies import EchoRule, Policies
from athena.formats.machine.stage import FormatOptions, FormatStage
from athena.formats.machine.value_types import ToolBook
from athena.model.answer import Answer
from athena.model.events import Event, is_terminal
from athena.model.limits import DEFAULT_LIMITS, Limits
from athena.model.names import DialectName, FormatName
from athena.model.profile import Profile
from athena.model.request import Tool
from athena.parsing import read_tools, text_guard
from athena.profiles import profile_for
from athena.streams.sdk_objects import dialect_of, is_sdk_object, wire_json
from athena.wire.fields import as_bytes
from athena.wire.sse import beginning_of


class HttpResponse(Protocol):
    """A response of `httpx` or `httpx2`, of a synchronous or an asynchronous client, opened with `stream`."""

    @property
    def status_code(self) -> int: ...

    @property
    def headers(self) -> Any: ...

    def iter_bytes(self) -> Any: ...


AnswerSource: TypeAlias = bytes | str | Mapping[str, Any] | HttpResponse | Iterable[Any] | AsyncIterable[Any]
"""Bytes as they come or all at once, a body as JSON, an HTTP response, an SDK's stream, an SDK's whole answer."""


def events_from(
    source: AnswerSource,
    *,
    dialect: DialectName | str | None = None,
    format: FormatName | str | None = None,  # noqa: A002 - the word users know
    model: str | None = None,
    tools: Sequence[Tool | Mapping[str, Any]] | None = None,
    profile: str | Profile | None = None,
    limits: Limits = DEFAULT_LIMITS,
    untrusted: Sequence[str] = (),
    echo: EchoRule = "text",
    seed: str = "",
) -> EventStream:
    """The events of an answer, from any source: iterate the result by `for`, or by `async for` where the source is async.

    `source` is one of

    - an official SDK's stream: of `openai` (`chat.completions` and `responses`), `anthropic` or `google-genai`, made with
      `stream=True` or entered from the SDK's `stream(...)` helper, or an SDK's whole answer object;
    - an `httpx` or `httpx2` response opened with `client.stream(...)`; an error status becomes an `Error` event;
    - any iterable or async iterable of bytes, or all bytes at once, streamed or whole: give the `dialect` then.

    The events keep the grammar of `athena.model.events`: exactly one terminal, `Done` or a fatal `Error`. An answer that was
    cut ends with such an `Error`, and a call is `ToolCallComplete` only when it is whole. What the source itself raises
    (a lost connection, the SDK's own error classes) passes through as it is.

        for event in athena.events_from(client.messages.create(..., stream=True)):
            match event:
                case athena.TextDelta(text=text):
                    print(text, end="")
                case athena.ToolCallComplete(name=name, arguments=arguments):
                    run(name, arguments)
                case athena.Error(message=message, fatal=True):
                    raise SystemExit(message)

    Args:
        source: Where the answer comes from.
        dialect: What it is written in; needed for bytes, known of SDKs' objects.
        format: Also read calls that the model wrote as text: `auto`, or a format's id.
        model: The model, to look for its usual format first.
        tools: Which names are tools; without it, every name is.
        profile: The quirks of the server, by name (`vllm`, ...).
        limits: Bounds of what is held and of what a call may be.
        untrusted: The texts that the model was given and did not write; a call in its text that stands in one of them is a
            quotation.
        echo: What becomes of a quotation: it stays `text`, is an `error`, or is a call (`allow`).
        seed: Goes into the ids of calls that have none: give each answer another.

    Raises:
        UsageError: The source is none, or its dialect is not known.
    """
    if dialect is not None:
        get_dialect(dialect)
    return EventStream(source, _Reader(dialect, format, model, tools, profile, limits, untrusted, echo, seed))


class EventStream:
    """The events of one answer; made by `events_from`.

    It is iterated once, by `for` or by `async for`, and may be left and taken up again. `answer()` returns at any time what
    the events so far add up to.

        with athena.events_from(client.messages.create(..., stream=True)) as stream:
            answer = stream.read()

    Args:
        source: As in `events_from`.
        reader: What turns its pieces into events.
    """

    def __init__(self, source: Any, reader: _Reader) -> None:
        self._source = source
        self._reader = reader
        self._builder = AnswerBuilder()
        self._pieces = _pieces_of(source)
        is_async = not isinstance(self._pieces, tuple) and hasattr(self._pieces, "__aiter__")
        self._events = None if is_async else self._run()
        self._async_events = self._run_async() if is_async or isinstance(self._pieces, tuple) else None

    def __iter__(self) -> Iterator[Event]:
        if self._events is None:
            raise UsageError("the source is asynchronous: use `async for`")
        return self._events

    def __aiter__(self) -> AsyncIterator[Event]:
        if self._async_events is None:
            raise UsageError("the source is synchronous: use `for`")
        return self._async_events

    def read(self) -> Answer:
        """Everything that is left, folded with what came before."""
        for _ in self:
            pass
        return self.answer()

    async def aread(self) -> Answer:
        """The same for asynchronous sources."""
        async for _ in self:
            pass
        return self.answer()

    def answer(self) -> Answer:
        """What the events so far add up to; with an `error` set it is not whole."""
        return self._builder.answer()

    def close(self) -> None:
        """Close the source: the SDK's stream, the response, the generator. Ends the request if it still runs."""
        close = getattr(self._source, "close", None)
        if close is not None:
            close()

    async def aclose(self) -> None:
        """The same for asynchronous sources."""
        close = getattr(self._source, "aclose", None) or getattr(self._source, "close", None)
        if close is not None and isawaitable(closing := close()):
            await closing

    def __enter__(self) -> EventStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> EventStream:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _run(self) -> Iterator[Event]:
        for piece in self._pieces:
            yield from self._fold(self._reader.feed(piece))
        yield from self._fold(self._reader.close())

    async def _run_async(self) -> AsyncIterator[Event]:
        if isinstance(self._pieces, tuple):
            for event in self:
                yield event
            return
        async for piece in self._pieces:
            for event in self._fold(self._reader.feed(piece)):
                yield event
        for event in self._fold(self._reader.close()):
            yield event

    def _fold(self, events: list[Event]) -> list[Event]:
        if events:
            self._builder.feed(events)
        return events


class _ErrorAnswer(msgspec.Struct, frozen=True):
    """The body of an HTTP answer with an error status."""

    status: int
    headers: dict[str, str]
    body: bytes


def _pieces_of(source: Any) -> Any:
    """What to iterate: pieces of bytes or records. A tuple is all there is, without waiting."""
    if isinstance(source, bytearray | memoryview):
        return (bytes(source),)
    if isinstance(source, bytes | str | Mapping):
        return (as_bytes(source),)
    if is_sdk_object(source):
        return (wire_json(source) or b"",)
    if isawaitable(source):
        raise UsageError("the source is not there yet: `await` it first")
    if hasattr(source, "iter_bytes") and hasattr(source, "status_code"):
        return _response_pieces(source)
    if hasattr(source, "__iter__") or hasattr(source, "__aiter__"):
        return source
    if hasattr(source, "__enter__") or hasattr(source, "__aenter__"):
        raise UsageError("enter the SDK's stream first: with client.messages.stream(...) as stream: events_from(stream)")
    raise UsageError(f"{type(source).__name__} is no source of events: give bytes, a response or an SDK's stream")


def _response_pieces(response: Any) -> Any:
    """An HTTP response's body, as it comes or as it was read."""
    if response.status_code < 300:
        if getattr(response, "is_stream_consumed", False):
            return (response.content,)
        return response.aiter_bytes() if _is_async(response) else response.iter_bytes()
    if getattr(response, "is_stream_consumed", False):
        return (_ErrorAnswer(response.status_code, _lower(response.headers), response.content),)
    return _async_error(response) if _is_async(response) else _error(response)


def _is_async(response: Any) -> bool:
    stream = getattr(response, "stream", None)
    return hasattr(stream, "__aiter__") and not hasattr(stream, "__iter__")


def _error(response: Any) -> Iterator[_ErrorAnswer]:
    yield _ErrorAnswer(response.status_code, _lower(response.headers), response.read())


async def _async_error(response: Any) -> AsyncIterator[_ErrorAnswer]:
    yield _ErrorAnswer(response.status_code, _lower(response.headers), await response.aread())


def _lower(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


class _Reader:
    """Pieces of an answer to events: framing, dialect and text format, decided with the first piece that says something."""

    def __init__(
        self,
        dialect: str | None,
        format_id: str | None,
        model: str | None,
        tools: Sequence[Tool | Mapping[str, Any]] | None,
        profile: str | Profile | None,
        limits: Limits,
        untrusted: Sequence[str],
        echo: EchoRule,
        seed: str,
    ) -> None:
        self._seed = seed
        self._dialect = dialect
        self._model = model or ""
        self._profile = profile
        self._limits = limits
        self._decoder: AnswerDecoder | None = None
        self._first = b""
        self._formats: FormatStage | None = None
        self._ended = False
        if format_id is not None:
            if format_id == "auto" and model is not None:
                detected = detect_format(model)
                format_id = detected if detected != "standard" else "auto"
            declared = None if tools is None else read_tools(tools)
            options = FormatOptions(format_id, policies=Policies(echo=echo))
            guard = text_guard(untrusted, ToolBook(declared))
            self._formats = FormatStage(options, tools=declared, limits=limits, seed=seed, guard=guard)

    def feed(self, piece: Any) -> list[Event]:
        """The events of one piece: bytes, an SDK's object, or a record as JSON."""
        if isinstance(piece, bytes | str):
            return self._bytes(as_bytes(piece))
        if isinstance(piece, bytearray | memoryview):
            return self._bytes(bytes(piece))
        if isinstance(piece, _ErrorAnswer):
            dialect = get_dialect(self._needed(b""))
            return self._read([dialect.decode_error(piece.status, piece.headers, piece.body)])
        if isinstance(piece, Mapping):
            record: bytes | None = msgspec.json.encode(piece)
        elif is_sdk_object(piece):
            record = wire_json(piece)
        else:
            raise UsageError(f"{type(piece).__name__} is neither bytes nor an event of an SDK")
        if record is None:
            return []
        if self._decoder is None:
            self._decoder = self._open(record, stream=True)
        return self._read(self._decoder.feed(b"data: %b\n\n" % record))

    def close(self) -> list[Event]:
        if self._ended:
            return []
        if self._decoder is None:
            self._decoder = self._open(self._first, stream=True)
        return self._read(self._decoder.close())

    def _bytes(self, data: bytes) -> list[Event]:
        if self._decoder is None:
            data = self._first + data
            beginning = beginning_of(data)
            if beginning == "nothing":
                self._first = data
                return []
            # Some servers answer whole when a stream was asked for, and the other way round.
            self._decoder = self._open(data, stream=beginning not in ("object", "array"))
        return self._read(self._decoder.feed(data))

    def _open(self, first: bytes, *, stream: bool) -> AnswerDecoder:
        name = self._needed(first)
        profile = profile_for(self._profile, name, self._model)
        return get_dialect(name).decoder(DecodeContext(profile=profile, limits=self._limits, seed=self._seed), stream=stream)

    def _needed(self, first: bytes) -> str:
        name = self._dialect or dialect_of(first)
        if name is None:
            raise UsageError(f"say the dialect of the source: dialect={' | '.join(dialect_names())}")
        return name

    def _read(self, events: list[Event]) -> list[Event]:
        if not events or self._ended:
            return []
        if self._formats is not None:
            events = self._formats.feed(events)
        last = events[-1] if events else None
        self._ended = is_terminal(last)
        return events
