"""The library's doors to the exchange: translate a request, a whole answer, a stream.

For requests `source` is the client's dialect and `target` the upstream's; for answers `source` is the upstream's and `target`
the client's. All of them take and return plain JSON values or bytes and do no IO.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from athena.dialects import get_dialect
from athena.dialects.base import Encoded, Target
from athena.errors import AthenaError, UpstreamProtocol, UpstreamStatus, UsageError
from athena.exchange import AnswerPath, Options, Route
from athena.formats.stage import FormatOptions
from athena.model.events import Done, Error, Event, TextDelta
from athena.model.profile import Profile
from athena.model.request import Loss, Request
from athena.opaque import Envelope
from athena.prepare import Prepared, prepare
from athena.profiles import default_profiles
from athena.wire.fields import decode_json_object

Body = Mapping[str, Any] | bytes | str


class Translated(msgspec.Struct, frozen=True):
    """A translated body and what did not survive as it was."""

    body: dict[str, Any]
    warnings: tuple[Loss, ...] = ()
    path: str = ""
    """Requests: the path below the upstream's base URL."""
    headers: dict[str, str] = {}
    """Requests: headers that belong to the dialect, such as anthropic-version."""


def translate_request(
    body: Body,
    *,
    source: str,
    target: str,
    model: str | None = None,
    profile: str | Profile | None = None,
    stream: bool | None = None,
    strict: bool = False,
    envelope_key: bytes | None = None,
) -> Translated:
    """A client's request in another dialect.

    `model` replaces the model name (Gemini bodies hold none: give it). `profile` names the upstream's quirks
    (`openrouter`, `vllm`, ...); without one the plain dialect is assumed. Raises `InvalidRequest` or `UnsupportedFeature`,
    both naming the field.

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
        warnings=prepared.losses + encoded.losses,
        path=encoded.path,
        headers=encoded.headers,
    )


def translate_response(
    body: Body,
    *,
    source: str,
    target: str,
    request: Body | None = None,
    profile: str | Profile | None = None,
    format: str | None = None,  # noqa: A002 - the word users know
    envelope_key: bytes | None = None,
    seed: str = "",
    created: int = 0,
) -> Translated:
    """A whole answer of an upstream, as a client of dialect `target` expects it.

    `request` is the client's own request body: it restores tool names and echoes what the dialect echoes. `format` also looks
    for calls in the model's text (`auto` or a format id). Raises `UpstreamStatus` when the answer is an error.
    """
    path = _answer_path(source, target, request, profile, format, envelope_key, seed, created, stream=False)
    events, output = path.feed(_as_bytes(body))
    more, rest = path.close()
    for event in (*events, *more):
        if isinstance(event, Error) and event.fatal:
            raise UpstreamStatus(event.message, kind=event.kind, code=event.code, status=event.status, raw=event.raw)
    try:
        return Translated(body=msgspec.json.decode(output + rest, type=dict[str, Any]))
    except msgspec.DecodeError as error:  # pragma: no cover - our own encoder writes JSON
        raise UpstreamProtocol(f"the answer could not be written: {error}") from error


class StreamTranslator:
    """A streamed answer of one dialect as a stream of another. Feed bytes as they come, write what it returns.

    After `close()`, `error` holds the failure that ended the stream, if one did; the client's bytes already say so.
    """

    def __init__(
        self,
        *,
        source: str,
        target: str,
        request: Body | None = None,
        profile: str | Profile | None = None,
        format: str | None = None,  # noqa: A002 - the word users know
        envelope_key: bytes | None = None,
        seed: str = "",
        created: int = 0,
    ) -> None:
        self._path = _answer_path(source, target, request, profile, format, envelope_key, seed, created, stream=True)
        self._closed = False
        self.error: Error | None = None
        self.done: Done | None = None

    def feed(self, data: bytes) -> bytes:
        """Bytes for the client."""
        if self._closed:
            raise UsageError("feed() after close()")
        events, output = self._path.feed(data)
        return output if events and type(events[-1]) is TextDelta else self._shown(events, output)

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
            elif isinstance(last, Error) and last.fatal:
                self.error = last
        return output


# -- inside ----------------------------------------------------------------------------------------------------------------


def _decoded(body: Body, source: str, model: str | None, stream: bool | None) -> Request:
    value = decode_json_object(_as_bytes(body)) if isinstance(body, bytes | str) else body
    return get_dialect(source).decode_request(value, model=model if source == "gemini" else None, stream=stream)


def _encoded(
    request: Request, target: str, model: str, profile: str | Profile | None, strict: bool, envelope_key: bytes | None
) -> tuple[Prepared, Encoded]:
    where = Target(model, _profile(profile, target, model), strict)
    abroad = get_dialect(target)
    prepared = prepare(
        request,
        where,
        get_dialect(request.dialect),
        abroad,
        envelope=Envelope(envelope_key) if envelope_key else None,
        pairing="repair",
    )
    return prepared, abroad.encode_request(prepared.request, where)


def _answer_path(
    source: str,
    target: str,
    request: Body | None,
    profile: str | Profile | None,
    format_id: str | None,
    envelope_key: bytes | None,
    seed: str,
    created: int,
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
        profile=_profile(profile, source, client.model),
        format=FormatOptions(format_id) if format_id else None,
    )
    options = Options(seed=seed, created=created, envelope=Envelope(envelope_key) if envelope_key else None, passthrough=False)
    return AnswerPath(client, route, options, prepared=prepared, upstream_stream=stream)


def _profile(profile: str | Profile | None, dialect: str, model: str) -> Profile:
    if isinstance(profile, Profile):
        return profile
    table = default_profiles()
    return table.get(profile, model) if profile else table.for_dialect(dialect, model)


def _as_bytes(body: Body) -> bytes:
    if isinstance(body, bytes):
        return body
    return body.encode() if isinstance(body, str) else msgspec.json.encode(body)
