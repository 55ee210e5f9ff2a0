"""The two transports, for synchronous and asynchronous clients of `httpx` and `httpx2`: all the waiting, and nothing else.

Neither library is imported here: the request that comes in says which one made it, and its classes answer.
"""

from __future__ import annotations

import os
import ssl
import threading
from collections.abc import Callable
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from athena.exchange import Step
from athena.shells.config import Config
from athena.shells.upstream import Origin
from athena.transport.bodies import async_body, sync_body
from athena.transport.call import Call, Outgoing
from athena.transport.engine import Engine

if TYPE_CHECKING:
    import httpx
    import httpx2

    class _SyncBase(httpx2.BaseTransport, httpx.BaseTransport):  # type: ignore[misc]  # ours answers both libraries' requests
        pass

    class _AsyncBase(httpx2.AsyncBaseTransport, httpx.AsyncBaseTransport):  # type: ignore[misc]  # as above
        pass

else:
    # No base at run time: SDKs that use one library refuse objects whose class comes from the other.
    _SyncBase = _AsyncBase = object


class _Shared:
    """What both transports are: an engine, and connections by the way they are made."""

    def __init__(self, config: Config | str | os.PathLike[str] | None, inner: Any, settings: dict[str, Any]) -> None:
        self._engine = Engine(config, settings)
        self._given = inner
        self._inner: dict[tuple[Any, ...], Any] = {}
        self._lock = threading.Lock()

    def _open(self, request: Any, body: bytes) -> Call | Step:
        headers = {name.lower(): value for name, value in request.headers.items()}
        return self._engine.open(request.method, request.url.path, request.url.query.decode("latin-1"), headers, body)

    def _way(self, library: ModuleType, outgoing: Outgoing, make: Callable[..., Any]) -> Any:
        """The transport that reaches the network for this target."""
        if self._given is not None:
            return self._given
        origin = outgoing.target.origin
        key = (library, origin.tls, origin.proxy)
        way = self._inner.get(key)
        if way is None:
            with self._lock:
                way = self._inner.get(key)
                if way is None:
                    way = self._inner[key] = make(**_connection_settings(library, origin))
        return way


class Transport(_Shared, _SyncBase):
    """For synchronous clients: `openai.OpenAI(http_client=httpx2.Client(transport=Transport(...)))`.

    One transport may serve any number of clients, models and threads.

        with anthropic.Anthropic(http_client=httpx2.Client(transport=Transport("athena.yml"))) as client:
            client.messages.create(model="claude-haiku", ...)

    Args:
        config: A configuration file or an `athena.shells.config.Config`; without one, `athena.yml` is looked for as
            `athena serve` does: that of the current directory counts only when it is trusted (`athena config trust`).
        inner: The transport that reaches the network, if the library's own will not do.
        settings: The file's keys, short form (`base_url`, `api_key`, `api_key_env`, `model`, `dialect`, `profile`) or full
            (`upstreams`, `models`); they win over the file.

    Raises:
        ConfigError: The configuration is wrong, or names no upstream.
    """

    def __init__(self, config: Config | str | os.PathLike[str] | None = None, *, inner: Any = None, **settings: Any) -> None:
        super().__init__(config, inner, settings)

    def handle_request(self, request: Any) -> Any:
        """Answer one `request` of the client; its library calls this."""
        library = _library(request)
        call = self._open(request, request.read())
        if isinstance(call, Step):
            return _ready(library, call, request)
        while True:
            outgoing = call.request()
            try:
                answer = self._way(library, outgoing, library.HTTPTransport).handle_request(_sent(library, outgoing, request))
                body = sync_body(library)(call, answer)
                try:
                    step = body.until_decided()
                except BaseException:
                    answer.close()
                    raise
            except _lost(library):
                if call.unreachable():
                    continue
                raise
            shown = call.settled(step)
            if shown is None or shown.done:
                body.close()
            if shown is not None:
                return _response(library, call, shown, body, request)

    def close(self) -> None:
        """Close the connections to upstreams."""
        for way in (self._given, *self._inner.values()):
            if way is not None:
                way.close()

    def __enter__(self) -> Transport:
        return self

    def __exit__(self, *details: object) -> None:
        self.close()


class AsyncTransport(_Shared, _AsyncBase):
    """For asynchronous clients: `openai.AsyncOpenAI(http_client=httpx2.AsyncClient(transport=AsyncTransport(...)))`.

    The same as `Transport` in everything else; asyncio and trio where the client takes them.

    Args:
        config: As in `Transport`.
        inner: As in `Transport`, asynchronous.
        settings: As in `Transport`.

    Raises:
        ConfigError: The configuration is wrong, or names no upstream.
    """

    def __init__(self, config: Config | str | os.PathLike[str] | None = None, *, inner: Any = None, **settings: Any) -> None:
        super().__init__(config, inner, settings)

    async def handle_async_request(self, request: Any) -> Any:
        """Answer one `request` of the client; its library calls this."""
        library = _library(request)
        call = self._open(request, await request.aread())
        if isinstance(call, Step):
            return _ready(library, call, request)
        while True:
            outgoing = call.request()
            try:
                way = self._way(library, outgoing, library.AsyncHTTPTransport)
                answer = await way.handle_async_request(_sent(library, outgoing, request))
                body = async_body(library)(call, answer)
                try:
                    step = await body.until_decided()
                except BaseException:
                    await answer.aclose()
                    raise
            except _lost(library):
                if call.unreachable():
                    continue
                raise
            shown = call.settled(step)
            if shown is None or shown.done:
                await body.aclose()
            if shown is not None:
                return _response(library, call, shown, body, request)

    async def aclose(self) -> None:
        """Close the connections to upstreams."""
        for way in (self._given, *self._inner.values()):
            if way is not None:
                await way.aclose()

    async def __aenter__(self) -> AsyncTransport:
        return self

    async def __aexit__(self, *details: object) -> None:
        await self.aclose()


# -- the two libraries -------------------------------------------------------------------------------------------------------


def _library(request: Any) -> ModuleType:
    """httpx or httpx2: whichever made the request."""
    for parent in type(request).__mro__:
        name = parent.__module__.partition(".")[0]
        if name in ("httpx", "httpx2"):
            return import_module(name)
    raise TypeError(f"{type(request).__name__} is no request of httpx or httpx2")


@cache
def _lost(library: ModuleType) -> tuple[type[Exception], ...]:
    """The upstream is not there, or went away: what another target may make good. Timeouts are the SDK's to judge."""
    return library.NetworkError, library.RemoteProtocolError, library.ProxyError, library.ConnectTimeout


def _connection_settings(library: ModuleType, origin: Origin) -> dict[str, Any]:
    """How to connect, as the configuration says; as many connections as the SDKs' own clients allow."""
    settings: dict[str, Any] = {"limits": library.Limits(max_connections=1000, max_keepalive_connections=100)}
    if not origin.tls.verify:
        settings["verify"] = False
    elif origin.tls.ca_file is not None:
        context = ssl.create_default_context()
        context.load_verify_locations(origin.tls.ca_file)
        settings["verify"] = context
    if origin.proxy is not None:
        headers = {"proxy-authorization": origin.proxy.authorization} if origin.proxy.authorization else None
        settings["proxy"] = library.Proxy(f"http://{origin.proxy.host}:{origin.proxy.port}", headers=headers)
    return settings


def _sent(library: ModuleType, outgoing: Outgoing, request: Any) -> Any:
    """The upstream's request; the SDK's timeouts travel in its extensions."""
    return library.Request(
        "POST", outgoing.url, headers=outgoing.headers, content=outgoing.body, extensions=dict(request.extensions)
    )


def _ready(library: ModuleType, step: Step, request: Any) -> Any:
    """An answer that needs no upstream."""
    assert step.head is not None
    return library.Response(step.head.status, headers=step.head.headers, content=step.output, request=request)


def _response(library: ModuleType, call: Call, step: Step, body: Any, request: Any) -> Any:
    """The answer that begins with this step; `body` brings the rest of it."""
    status, headers = call.head(step)
    if step.done:
        return library.Response(status, headers=headers, content=step.output, request=request)
    body.first = step.output
    return library.Response(status, headers=headers, stream=body, request=request)
