"""The engine under the official SDKs, in process: no server, the SDK's own retries, timeouts and cancellation.

    client = anthropic.Anthropic(
        api_key="unused",
        http_client=httpx2.Client(transport=athena.transport.Transport(base_url="http://127.0.0.1:8000/v1")),
    )

The SDK thinks that it talks to its own API. The transport reads the request in the SDK's dialect, sends it to the upstream in
the upstream's, and hands the answer back as the SDK expects it, streamed as it comes. `httpx` and `httpx2` clients both work:
the answer is made of the classes of whichever library made the request. Nothing here knows an event loop, so asyncio and trio
clients work wherever their library does.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

import msgspec

from athena.dialects import get_dialect
from athena.dialects.base import Dialect, ModelEntry
from athena.errors import AthenaError, ClientError, ConfigError, UpstreamClosed
from athena.exchange import NOTHING, Exchange, Head, Options, Step, warnings_header
from athena.model.events import Error, error_event
from athena.opaque import Envelope, OpaqueStore
from athena.shells.config import Config, Router, Sources, load
from athena.shells.gateway.routes import Door, credential, dialect_of_error, find_door
from athena.shells.gateway.targets import Target, ready_targets
from athena.shells.gateway.tokens import TokenCounter
from athena.wire.fields import decode_json_object

if TYPE_CHECKING:
    from httpx2 import AsyncBaseTransport, BaseTransport
else:
    try:
        from httpx2 import AsyncBaseTransport, BaseTransport
    except ImportError:
        try:
            from httpx import AsyncBaseTransport, BaseTransport
        except ImportError as missing:
            raise ImportError("athena.transport needs the SDK's HTTP client: pip install httpx2 (or httpx)") from missing

__all__ = ["AsyncTransport", "Transport"]


class _Engine:
    """What both transports share: everything but the waiting."""

    def __init__(self, config: Config | str | os.PathLike[str] | None, settings: Mapping[str, Any]) -> None:
        if isinstance(config, Config):
            if settings:
                raise ConfigError("give a Config or keyword arguments, not both")
            self.config = config
        else:
            loaded = load(Sources.here(settings, None if config is None else os.fspath(config)))
            if loaded.is_empty:
                raise ConfigError("no upstream: give base_url=..., a configuration file, or set OPENROUTER_API_KEY")
            self.config = loaded.config
        self._router = Router(self.config)
        key = self.config.envelope_key
        self._envelope = Envelope(key.reveal().encode() if key is not None else secrets.token_bytes(32))
        self._store = OpaqueStore(self.config.reasoning_store) if self.config.reasoning_store else None
        self._tokens = TokenCounter()

    def open(self, request: Any) -> Call | Step:
        """The call to make for an SDK's request, or the answer when none is needed."""
        headers = {name.lower(): value for name, value in request.headers.items()}
        path, query = request.url.path, request.url.query.decode("latin-1")
        door = find_door(path, query, headers)
        dialect = get_dialect(door.dialect if door is not None else dialect_of_error(path))
        try:
            if door is None or request.method not in door.methods:
                raise ClientError(
                    f"{request.method} {path} has no counterpart behind this transport", kind="not_found", status=404
                )
            return self._enter(door, dialect, headers, query, request)
        except AthenaError as error:
            return failed(dialect, error_event(error))

    def _enter(self, door: Door, dialect: Dialect, headers: dict[str, str], query: str, request: Any) -> Call | Step:
        if door.action in ("models", "model"):
            entries = [ModelEntry(id=entry.id, owner=entry.upstream) for entry in self._router.listed_models()]
            return _whole(dialect.encode_models(entries))
        body = decode_json_object(request.content)
        if door.action == "count":
            counted = dialect.decode_count_request(body, model=door.model)
            target = ready_targets(self._router, counted.model)[0]
            return _whole(dialect.encode_count(self._tokens.count(counted, target.model)))
        if door.action != "answer":
            return _whole({"status": "ok"})
        asked = dialect.decode_request(body, model=door.model, stream=door.stream, version=headers.get("anthropic-version"))
        targets = ready_targets(self._router, asked.model)
        options = Options(
            seed="req_" + secrets.token_hex(12),
            created=int(time.time()),
            envelope=self._envelope,
            store=self._store,
            limits=targets[0].limits,
            input_tokens=self._tokens.count(asked, targets[0].model) if asked.stream else 0,
            stream_error_stop=self.config.stream_error_stop,
            reasoning_fields=self.config.reasoning_fields,
            array=door.array,
        )
        key = credential(headers, query)
        calls = tuple(Attempt(target, Exchange(asked, target.route, options), headers, key) for target in targets)
        return Call(calls, dialect)


class Attempt:
    """One target's exchange and the request to send for it."""

    def __init__(self, target: Target, exchange: Exchange, headers: Mapping[str, str], key: str | None) -> None:
        self.exchange = exchange
        call = exchange.call
        self.url = f"{target.origin}{target.path(call.path)}"
        self.headers = target.headers(call.headers, exchange.request, headers, key)


class Call(msgspec.Struct, frozen=True):
    """The attempts an SDK's request may take, in order."""

    attempts: tuple[Attempt, ...]
    dialect: Dialect


def _may_move_on(error: Error | None) -> bool:
    """Another target is asked when this one is not there or not able, never when the request itself is at fault."""
    return error is not None and error.kind in (
        "upstream",
        "overloaded",
        "timeout",
        "rate_limit",
        "auth",
        "not_found",
        "server",
    )


def failed(dialect: Dialect, error: Error) -> Step:
    """A failure as a whole answer."""
    answer = dialect.encode_error(error)
    return Step(Head(answer.status, {"content-type": "application/json", **answer.headers}), answer.body, True)


def _whole(body: dict[str, Any]) -> Step:
    return Step(Head(200, {"content-type": "application/json"}), msgspec.json.encode(body), True)


def _library(request: Any) -> ModuleType:
    """httpx or httpx2: whichever made the request."""
    return import_module(type(request).__module__.partition(".")[0])


def _headers(step: Step, exchange: Exchange | None) -> dict[str, str]:
    assert step.head is not None
    headers = dict(step.head.headers)
    if exchange is not None and exchange.losses:
        headers["x-athena-warnings"] = warnings_header(exchange.losses)
    return headers


def _outgoing(library: ModuleType, attempt: Attempt, request: Any) -> Any:
    """The upstream request; the SDK's timeouts travel in its extensions."""
    return library.Request(
        "POST", attempt.url, headers=attempt.headers, content=attempt.exchange.call.body, extensions=request.extensions
    )


class Transport(BaseTransport):
    """For synchronous clients: `openai.OpenAI(http_client=httpx2.Client(transport=Transport(...)))`.

    `config` is a configuration file or a `Config`; keyword arguments are those of `athena serve` (`base_url`, `api_key`,
    `api_key_env`, `model`, `dialect`, `profile`, ...). `inner` is the transport that reaches the network.
    """

    def __init__(self, config: Config | str | os.PathLike[str] | None = None, *, inner: Any = None, **settings: Any) -> None:
        self._engine = _Engine(config, settings)
        self._inner = inner

    def handle_request(self, request: Any) -> Any:
        """Answer one request of the client."""
        library = _library(request)
        request.read()
        call = self._engine.open(request)
        if isinstance(call, Step):
            return library.Response(_status(call), headers=_headers(call, None), content=call.output, request=request)
        if self._inner is None:
            self._inner = library.HTTPTransport()
        for position, attempt in enumerate(call.attempts):
            last = position + 1 == len(call.attempts)
            answer = self._inner.handle_request(_outgoing(library, attempt, request))
            steps = _Steps(attempt.exchange, answer, library)
            try:
                first = steps.until_head()
            except BaseException:
                answer.close()
                raise
            if not last and attempt.exchange.outcome == "error" and _may_move_on(attempt.exchange.error):
                answer.close()
                continue
            stream = _stream_class(library)(steps, first)
            return library.Response(_status(first), headers=_headers(first, attempt.exchange), stream=stream, request=request)
        raise AssertionError("a route has at least one target")

    def close(self) -> None:
        """Close the connections to upstreams."""
        if self._inner is not None:
            self._inner.close()

    def __enter__(self) -> Transport:
        return self

    def __exit__(self, *details: object) -> None:
        self.close()


class AsyncTransport(AsyncBaseTransport):
    """For asynchronous clients: `openai.AsyncOpenAI(http_client=httpx2.AsyncClient(transport=AsyncTransport(...)))`."""

    def __init__(self, config: Config | str | os.PathLike[str] | None = None, *, inner: Any = None, **settings: Any) -> None:
        self._engine = _Engine(config, settings)
        self._inner = inner

    async def handle_async_request(self, request: Any) -> Any:
        """Answer one request of the client."""
        library = _library(request)
        await request.aread()
        call = self._engine.open(request)
        if isinstance(call, Step):
            return library.Response(_status(call), headers=_headers(call, None), content=call.output, request=request)
        if self._inner is None:
            self._inner = library.AsyncHTTPTransport()
        for position, attempt in enumerate(call.attempts):
            last = position + 1 == len(call.attempts)
            answer = await self._inner.handle_async_request(_outgoing(library, attempt, request))
            steps = _AsyncSteps(attempt.exchange, answer, library)
            try:
                first = await steps.until_head()
            except BaseException:
                await answer.aclose()
                raise
            if not last and attempt.exchange.outcome == "error" and _may_move_on(attempt.exchange.error):
                await answer.aclose()
                continue
            stream = _async_stream_class(library)(steps, first)
            return library.Response(_status(first), headers=_headers(first, attempt.exchange), stream=stream, request=request)
        raise AssertionError("a route has at least one target")

    async def aclose(self) -> None:
        """Close the connections to upstreams."""
        if self._inner is not None:
            await self._inner.aclose()

    async def __aenter__(self) -> AsyncTransport:
        return self

    async def __aexit__(self, *details: object) -> None:
        await self.aclose()


# -- driving the exchange ---------------------------------------------------------------------------------------------------


def _status(step: Step) -> int:
    assert step.head is not None
    return step.head.status


def _broken(failure: Exception) -> UpstreamClosed:
    """The connection broke mid-answer. The client must learn it in its own words: an error frame, not a bare cut."""
    return UpstreamClosed(f"the connection to the upstream broke: {failure}", code="upstream_reset")


class _Steps:
    """The upstream's answer through the exchange, step by step."""

    def __init__(self, exchange: Exchange, answer: Any, library: ModuleType) -> None:
        self._exchange = exchange
        self.answer = answer
        self._transport_errors = (library.NetworkError, library.RemoteProtocolError)
        self._chunks: Iterator[bytes] = iter(answer.stream)
        exchange.upstream_head(answer.status_code, {name.lower(): value for name, value in answer.headers.items()})

    def until_head(self) -> Step:
        """Go on until the client's status is decided."""
        while True:
            step = self.next()
            if step.head is not None:
                return step

    def next(self) -> Step:
        """The next step; the last one says done."""
        try:
            chunk = next(self._chunks, None)
        except self._transport_errors as failure:
            return self._exchange.upstream_end(_broken(failure))
        return self._exchange.upstream_end() if chunk is None else self._exchange.upstream_data(chunk)


class _AsyncSteps:
    """The same for asynchronous clients."""

    def __init__(self, exchange: Exchange, answer: Any, library: ModuleType) -> None:
        self._exchange = exchange
        self.answer = answer
        self._transport_errors = (library.NetworkError, library.RemoteProtocolError)
        self._chunks: AsyncIterator[bytes] = aiter(answer.stream)
        exchange.upstream_head(answer.status_code, {name.lower(): value for name, value in answer.headers.items()})

    async def until_head(self) -> Step:
        """Go on until the client's status is decided."""
        while True:
            step = await self.next()
            if step.head is not None:
                return step

    async def next(self) -> Step:
        """The next step; the last one says done."""
        try:
            chunk = await anext(self._chunks, None)
        except self._transport_errors as failure:
            return self._exchange.upstream_end(_broken(failure))
        return self._exchange.upstream_end() if chunk is None else self._exchange.upstream_data(chunk)


def _stream_class(library: ModuleType) -> Any:
    class Stream(library.SyncByteStream):  # type: ignore[misc, name-defined]  # the library is chosen at run time
        """The client's bytes, made as the upstream's come."""

        def __init__(self, steps: _Steps, first: Step) -> None:
            self._steps = steps
            self._step: Step | None = first

        def __iter__(self) -> Iterator[bytes]:
            # Some clients iterate again to drain what is left: the next round goes on where this one stopped.
            while (step := self._step) is not None:
                self._step = None if step.done else NOTHING
                if step.output:
                    yield step.output
                if not step.done:
                    self._step = self._steps.next()

        def close(self) -> None:
            self._steps.answer.close()

    return Stream


def _async_stream_class(library: ModuleType) -> Any:
    class Stream(library.AsyncByteStream):  # type: ignore[misc, name-defined]  # the library is chosen at run time
        """The client's bytes, made as the upstream's come."""

        def __init__(self, steps: _AsyncSteps, first: Step) -> None:
            self._steps = steps
            self._step: Step | None = first

        async def __aiter__(self) -> AsyncIterator[bytes]:
            # Some clients iterate again to drain what is left: the next round goes on where this one stopped.
            while (step := self._step) is not None:
                self._step = None if step.done else NOTHING
                if step.output:
                    yield step.output
                if not step.done:
                    self._step = await self._steps.next()

        async def aclose(self) -> None:
            await self._steps.answer.aclose()

    return Stream
