"""The library's functions over the exchange: translate a request, a whole answer, a stream; write events in any dialect.

For requests `source` is the client's dialect and `target` the upstream's; for answers `source` is the upstream's and `target`
the client's. All of them take and return plain JSON values or bytes and do no IO.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from athena.calls.builder import unfold
from athena.dialects import get_dialect
from athena.dialects.base import AnswerEncoder, EncodeContext, Encoded, EncodeTarget
from athena.dialects.decoders import closed_error
from athena.errors import AthenaError, UpstreamClosed, UpstreamProtocol, UpstreamStatus, UsageError
from athena.exchange import AnswerPath, Options, Route, quotation_losses
from athena.formats.machine.policies import EchoRule, Policies
from athena.formats.machine.stage import FormatOptions
from athena.model.answer import Answer
from athena.model.events import Done, Error, Event, TextDelta, is_failure, is_terminal
from athena.model.names import DialectName, FormatName
from athena.model.profile import Profile
from athena.model.request import Loss, Request, by_weight
from athena.opaque import Envelope
from athena.prepare import Prepared, prepare
from athena.profiles import profile_for
from athena.restore import Restore
from athena.wire.fields import Body, as_bytes, as_object


class Translated(msgspec.Struct, frozen=True):
    """A translated body and what did not survive as it was."""

    body: dict[str, Any]
    """The body in the target's dialect."""
    warnings: tuple[Loss, ...] = ()
    """What was dropped, emulated or repaired, the most important first: each has `action`, `path` and `reason`."""
    path: str = ""
    """Requests: the path below the upstream's base URL."""
    headers: dict[str, str] = {}
    """Requests: headers that belong to the dialect, such as anthropic-version."""


def translate_request(
    body: Body,
    *,
    source: DialectName | str,
    target: DialectName | str,
    model: str | None = None,
    profile: str | Profile | None = None,
    stream: bool | None = None,
    strict: bool = False,
    envelope_key: bytes | None = None,
) -> Translated:
    """A client's request in another dialect.

    Args:
        body: The request, as JSON text or as a value.
        source: The client's dialect: `anthropic_messages`, `openai_chat`, `openai_responses` or `gemini`.
        target: The upstream's dialect.
        model: Replaces the model's name. Gemini bodies hold none: give it.
        profile: The upstream's quirks by name (`openrouter`, `vllm`, ...); without one the plain dialect is assumed.
        stream: Ask for a stream or not; None: as the body says. Gemini bodies do not say it.
        strict: Refuse what the target cannot say, instead of dropping it with a warning.
        envelope_key: Opens reasoning state that an earlier answer sealed with this key.

    Raises:
        InvalidRequest: A field is missing or malformed; `path` names it.
        UnsupportedFeature: The target has no way to say a field; `path` names it.
        UsageError: There is no such dialect.

    Examples:
        >>> translate_request(
        ...     {"model": "m", "max_tokens": 50, "messages": [{"role": "user", "content": "Hi"}]},
        ...     source="anthropic_messages",
        ...     target="openai_chat",
        ... ).body["messages"]
        [{'role': 'user', 'content': 'Hi'}]
    """
    request = _decoded(body, source, model, stream)
    prepared, encoded = _encoded(request, target, model or request.model, profile, strict, envelope_key)
    return Translated(
        body=encoded.body,
        warnings=by_weight(prepared.losses + encoded.losses),
        path=encoded.path,
        headers=encoded.headers,
    )


def translate_response(
    body: Body,
    *,
    source: DialectName | str,
    target: DialectName | str,
    request: Body | None = None,
    profile: str | Profile | None = None,
    format: FormatName | str | None = None,  # noqa: A002 - the word users know
    envelope_key: bytes | None = None,
    seed: str = "",
    created: int = 0,
    echo: EchoRule = "text",
) -> Translated:
    """A whole answer of an upstream, as a client of another dialect expects it.

    Args:
        body: The answer, as JSON text or as a value.
        source: The upstream's dialect.
        target: The client's dialect.
        request: The client's own request body: it restores tool names and echoes what the dialect echoes.
        profile: The upstream's quirks by name, as in `translate_request`.
        format: Also look for calls in the model's text: `auto`, or a format's id.
        envelope_key: Seals reasoning state of another family so that the client can carry it.
        seed: Goes into ids that have to be made.
        created: The time to show, in seconds since 1970, where the upstream gives none.
        echo: With a `format`: what becomes of a call in the model's text that it quotes from the `request`: it stays `text`
            with a warning, is an `error`, or is a call (`allow`).

    Raises:
        UpstreamStatus: The answer is an error.
        UsageError: There is no such dialect, or the request does not fit it.

    Examples:
        >>> answer = {
        ...     "object": "chat.completion",
        ...     "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}],
        ... }
        >>> translate_response(answer, source="openai_chat", target="anthropic_messages").body["stop_reason"]
        'end_turn'
    """
    path = _answer_path(source, target, request, profile, format, envelope_key, seed, created, echo, stream=False)
    events, output = path.feed(as_bytes(body))
    more, rest = path.close()
    for event in (*events, *more):
        if is_failure(event):
            raise _status_error(event)
    try:
        warnings = quotation_losses(path.formats.notes) if path.formats is not None else ()
        return Translated(body=msgspec.json.decode(output + rest, type=dict[str, Any]), warnings=path.losses + warnings)
    except msgspec.DecodeError as error:  # pragma: no cover - our own encoder writes JSON
        raise UpstreamProtocol(f"the answer could not be written: {error}") from error


class StreamTranslator:
    """A streamed answer of one dialect as a stream of another: feed bytes as they come, write what it returns.

    Args:
        source: The upstream's dialect.
        target: The client's dialect.
        request: The client's own request body: it restores tool names and echoes what the dialect echoes.
        profile: The upstream's quirks by name, as in `translate_request`.
        format: Also look for calls in the model's text: `auto`, or a format's id.
        envelope_key: Seals reasoning state of another family so that the client can carry it.
        seed: Goes into ids that have to be made.
        created: The time to show, in seconds since 1970, where the upstream gives none.
        echo: With a `format`: what becomes of a call in the model's text that it quotes from the `request`: it stays `text`,
            is an `error`, or is a call (`allow`).

    Raises:
        UsageError: There is no such dialect, or the request does not fit it.

    Examples:
        >>> translator = StreamTranslator(source="openai_chat", target="anthropic_messages")
        >>> b"text_delta" in translator.feed(b'data: {"choices":[{"index":0,"delta":{"content":"Hi"}}]}\\n\\n')
        True
        >>> b"event: error" in translator.close()
        True
        >>> translator.error.code
        'upstream_closed'
    """

    def __init__(
        self,
        *,
        source: DialectName | str,
        target: DialectName | str,
        request: Body | None = None,
        profile: str | Profile | None = None,
        format: FormatName | str | None = None,  # noqa: A002 - the word users know
        envelope_key: bytes | None = None,
        seed: str = "",
        created: int = 0,
        echo: EchoRule = "text",
    ) -> None:
        self._path = _answer_path(source, target, request, profile, format, envelope_key, seed, created, echo, stream=True)
        self._closed = False
        self.error: Error | None = None
        """The failure that ended the stream, if one did; the client's bytes already say so."""
        self.done: Done | None = None
        """The end, with its reason and the usage, once it came."""

    def feed(self, data: bytes | bytearray | memoryview) -> bytes:
        """Bytes for the client, made of `data`, the upstream's next bytes. Raises `UsageError` after `close()`."""
        if self._closed:
            raise UsageError("feed() after close(): make a new StreamTranslator for the next answer")
        if not isinstance(data, bytes | bytearray | memoryview):
            raise TypeError(f"data must be bytes, not {type(data).__name__}")
        if type(data) is not bytes:
            data = bytes(data)
        path = self._path
        if path.has_short_way:
            plain = path.plain(data)
            if plain is not None:
                return plain
        events, output = path.feed(data)
        return output if events and type(events[-1]) is TextDelta else self._shown(events, output)

    @property
    def warnings(self) -> tuple[Loss, ...]:
        """What of the answer so far the client does not get, and calls in its text that are quoted from the request.

        Each has `action`, `path` and `reason`.
        """
        quoted = quotation_losses(self._path.formats.notes) if self._path.formats is not None else ()
        return self._path.losses + quoted

    def close(self) -> bytes:
        """The upstream ended: the rest, with an error frame if it ended too early. Idempotent."""
        if self._closed:
            return b""
        self._closed = True
        return self._shown(*self._path.close())

    def _shown(self, events: list[Event], output: bytes) -> bytes:
        if events:
            last = events[-1]
            if isinstance(last, Done):
                self.done = last
            elif is_failure(last):
                self.error = last
        return output


class StreamEncoder:
    """Events as the stream of any dialect, for those who serve a client themselves: feed events, write what it returns.

    Args:
        dialect: The client's dialect.
        request: The client's own request body: what the dialect echoes comes from it.
        model: The model's name to show where there is no request.
        envelope_key: Seals reasoning state of another family so that the client can carry it; without it, it is left out.
        seed: Goes into ids that have to be made; call ids come out in a form that the dialect takes.
        created: The time to show, in seconds since 1970.

    Raises:
        UsageError: There is no such dialect.
        InvalidRequest: The request cannot be read.

    Examples:
        >>> encoder = StreamEncoder("openai_chat", model="m")
        >>> encoder.feed([TextDelta("Hi")]).count(b"data: ")
        2
        >>> encoder.close().startswith(b'data: {"error":')
        True
    """

    def __init__(
        self,
        dialect: DialectName | str,
        *,
        request: Body | None = None,
        model: str = "",
        envelope_key: bytes | None = None,
        seed: str = "",
        created: int = 0,
    ) -> None:
        self._restore, self._encoder = _writer(dialect, request, model, envelope_key, seed, created, stream=True)
        self._ended = False

    def feed(self, events: Iterable[Event]) -> bytes:
        """Bytes for the client, made of `events`. Nothing follows a terminal event."""
        if self._ended:
            return b""
        shown = self._restore.feed(list(events))
        self._ended = bool(shown) and is_terminal(shown[-1])
        return self._encoder.feed(shown) if shown else b""

    def close(self) -> bytes:
        """The events ended: an error frame if none of them was the end. Idempotent."""
        return self.feed([closed_error()])


def encode_answer(
    answer: Answer | Iterable[Event],
    dialect: DialectName | str,
    *,
    request: Body | None = None,
    model: str = "",
    envelope_key: bytes | None = None,
    seed: str = "",
    created: int = 0,
) -> dict[str, Any]:
    """An answer as the body of a whole answer in any dialect.

    Args:
        answer: What `fold` made, or the events themselves.
        dialect: The client's dialect.
        request: The client's own request body: what the dialect echoes comes from it.
        model: The model's name to show where there is no request.
        envelope_key: Seals reasoning state of another family; without it, it is left out.
        seed: Goes into ids that have to be made.
        created: The time to show, in seconds since 1970.

    Raises:
        UpstreamStatus: The answer is an error.
        UpstreamClosed: The answer never ended.
        UsageError: There is no such dialect.

    Examples:
        >>> from athena import Finish, fold
        >>> answer = fold([TextDelta("Hi"), Done(Finish("stop"))])
        >>> encode_answer(answer, "openai_chat")["choices"][0]["message"]["content"]
        'Hi'
    """
    events = unfold(answer) if isinstance(answer, Answer) else list(answer)
    last = events[-1] if events else None
    if is_failure(last):
        raise _status_error(last)
    if not is_terminal(last):
        raise UpstreamClosed("the answer has no end: its last event must be Done")
    restore, encoder = _writer(dialect, request, model, envelope_key, seed, created, stream=False)
    return msgspec.json.decode(encoder.feed(restore.feed(events)), type=dict[str, Any])


# -- inside ----------------------------------------------------------------------------------------------------------------


def _decoded(body: Body, source: str, model: str | None, stream: bool | None) -> Request:
    return get_dialect(source).decode_request(as_object(body), model=model if source == "gemini" else None, stream=stream)


def _encoded(
    request: Request, target: str, model: str, profile: str | Profile | None, strict: bool, envelope_key: bytes | None
) -> tuple[Prepared, Encoded]:
    where = EncodeTarget(model, profile_for(profile, target, model), strict)
    upstream_dialect = get_dialect(target)
    prepared = prepare(
        request,
        where,
        get_dialect(request.dialect),
        upstream_dialect,
        envelope=Envelope(envelope_key) if envelope_key else None,
        pairing="repair",
    )
    return prepared, upstream_dialect.encode_request(prepared.request, where)


def _answer_path(
    source: str,
    target: str,
    request: Body | None,
    profile: str | Profile | None,
    format_id: str | None,
    envelope_key: bytes | None,
    seed: str,
    created: int,
    echo: EchoRule,
    *,
    stream: bool,
) -> AnswerPath:
    get_dialect(source)
    prepared = None
    if request is None:
        client = Request(dialect=get_dialect(target).name, model="", stream=stream, include_usage=True)
    else:
        client = msgspec.structs.replace(_decoded(request, target, None, stream), stream=stream)
        try:
            prepared = _encoded(client, source, client.model, profile, False, envelope_key)[0]
        except AthenaError as error:
            raise UsageError(f"the request does not fit the upstream dialect: {error}") from error
    route = Route(
        dialect=source,
        model=client.model,
        profile=profile_for(profile, source, client.model),
        format=FormatOptions(format_id, policies=Policies(echo=echo)) if format_id else None,
    )
    options = Options(seed=seed, created=created, envelope=Envelope(envelope_key) if envelope_key else None, passthrough=False)
    return AnswerPath(client, route, options, prepared=prepared, upstream_stream=stream)


def _writer(
    dialect: str, request: Body | None, model: str, envelope_key: bytes | None, seed: str, created: int, *, stream: bool
) -> tuple[Restore, AnswerEncoder]:
    """What stands between events and a client of that dialect."""
    client = get_dialect(dialect)
    if request is None:
        asked = Request(dialect=client.name, model=model, stream=stream, include_usage=True)
    else:
        asked = msgspec.structs.replace(_decoded(request, dialect, model or None, stream), stream=stream)
    envelope = Envelope(envelope_key) if envelope_key else None
    restore = Restore(
        id_style=client.id_style,
        native_families=(client.family,),
        sign_thinking=client.signs_thinking,
        signs_calls=client.signs_calls,
        custom_calls=client.custom_calls,
        envelope=envelope,
        seed=seed,
    )
    context = EncodeContext(request=asked, seed=seed, created=created, envelope=envelope)
    return restore, client.encoder(context, stream=stream)


def _status_error(event: Error) -> UpstreamStatus:
    return UpstreamStatus(event.message, kind=event.kind, code=event.code, status=event.status, raw=event.raw)
