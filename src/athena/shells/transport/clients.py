"""The two transports, for synchronous and asynchronous clients of `httpx` and `httpx2`: all the waiting, and nothing else.

Neither library is imported here: the request that comes in says which one made it, and its classes answer.
"""

from __future__ import annotations

import os
import ssl
import threading
import time
from collections.abc import Callable
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, Unpack, overload

from athena.errors import UsageError
from athena.exchange import Step
from athena.serving.actions import Build, Keep, Pause, Send, Tell
from athena.serving.network import Origin
from athena.serving.serving import Serving, ServingState
from athena.shells.config import Config
from athena.shells.transport.bodies import async_body, broken_connection, sync_body
from athena.shells.transport.engine import Engine
from athena.shells.transport.settings import TransportSettings

_PASSED_ON = ("request-id", "x-request-id")
"""Headers of the upstream's answer that the SDK gets."""

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

    def _open(self, request: Any, body: bytes) -> Serving | Step:
        headers = {name.lower(): value for name, value in request.headers.items()}
        return self._engine.open(request.method, request.url.path, request.url.query.decode("latin-1"), headers, body)

    def _way(self, library: ModuleType, origin: Origin, make: Callable[..., Any]) -> Any:
        """The transport that reaches the network for this target."""
        if self._given is not None:
            return self._given
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
        TypeError: There is no setting of that name.
    """

    @overload
    def __init__(
        self, config: Config | str | os.PathLike[str] | None = None, *, inner: Any = None, **settings: Unpack[TransportSettings]
    ) -> None: ...

    @overload
    def __init__(
        self, config: Config | str | os.PathLike[str] | None = None, *, inner: Any = None, **settings: Any
    ) -> None: ...

    def __init__(self, config: Config | str | os.PathLike[str] | None = None, *, inner: Any = None, **settings: Any) -> None:
        super().__init__(config, inner, settings)

    def handle_request(self, request: Any) -> Any:
        """Answer one `request` of the client; its library calls this."""
        library = _library(request)
        serving = self._open(request, request.read())
        if isinstance(serving, Step):
            return _ready(library, serving, request)
        action = _next(serving)
        while isinstance(action, Send):
            body: Any = None
            serving.sending(time.monotonic())
            try:
                way = self._way(library, action.target.origin, library.HTTPTransport)
                body = sync_body(library)(serving, way.handle_request(_sent(library, action, request)))
                step = body.until_decided()
            except _lost(library) as failure:
                following = _after_loss(serving, str(failure))
                if body is not None:
                    body.close()
                if following is None:
                    raise
                action = following
                continue
            except BaseException:
                if body is not None:
                    body.close()
                serving.close(time.monotonic())
                raise
            if serving.state is not ServingState.READING:
                body.close()
            if step.head is not None:
                return _response(library, serving, step, body, request)
            action = _next(serving)
        return _told(library, serving, action, request)

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
        TypeError: There is no setting of that name.
    """

    @overload
    def __init__(
        self, config: Config | str | os.PathLike[str] | None = None, *, inner: Any = None, **settings: Unpack[TransportSettings]
    ) -> None: ...

    @overload
    def __init__(
        self, config: Config | str | os.PathLike[str] | None = None, *, inner: Any = None, **settings: Any
    ) -> None: ...

    def __init__(self, config: Config | str | os.PathLike[str] | None = None, *, inner: Any = None, **settings: Any) -> None:
        super().__init__(config, inner, settings)

    async def handle_async_request(self, request: Any) -> Any:
        """Answer one `request` of the client; its library calls this."""
        library = _library(request)
        serving = self._open(request, await request.aread())
        if isinstance(serving, Step):
            return _ready(library, serving, request)
        action = _next(serving)
        while isinstance(action, Send):
            body: Any = None
            serving.sending(time.monotonic())
            try:
                way = self._way(library, action.target.origin, library.AsyncHTTPTransport)
                body = async_body(library)(serving, await way.handle_async_request(_sent(library, action, request)))
                step = await body.until_decided()
            except _lost(library) as failure:
                following = _after_loss(serving, str(failure))
                if body is not None:
                    await body.aclose()
                if following is None:
                    raise
                action = following
                continue
            except BaseException:
                if body is not None:
                    await body.aclose()
                serving.close(time.monotonic())
                raise
            if serving.state is not ServingState.READING:
                await body.aclose()
            if step.head is not None:
                return _response(library, serving, step, body, request)
            action = _next(serving)
        return _told(library, serving, action, request)

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
        settings["verify"] = ssl.create_default_context(cafile=origin.tls.ca_file)
    if origin.proxy is not None:
        headers = {"proxy-authorization": origin.proxy.authorization} if origin.proxy.authorization else None
        settings["proxy"] = library.Proxy(f"http://{origin.proxy.host}:{origin.proxy.port}", headers=headers)
    return settings


def _next(serving: Serving) -> Send | Tell:
    """The next request to send or answer to give; requests are built on the way."""
    while True:
        match serving.next(time.monotonic()):
            case Build():
                serving.build()
            case Pause():
                raise UsageError("retries are the SDK's")
            case Keep():
                raise UsageError("nothing is kept in the process of an SDK")
            case action:
                return action


def _after_loss(serving: Serving, failure: str) -> Send | Tell | None:
    """The network failed before the SDK had seen anything. None: no other target is to be asked, so the library's error is
    raised."""
    now = time.monotonic()
    if serving.state is ServingState.SENDING:
        serving.failed(broken_connection(failure), now)
    elif serving.state is ServingState.READING:
        serving.end(broken_connection(failure), now)
    action = _next(serving)
    if isinstance(action, Tell) and action.is_lost:
        serving.close(now)
        return None
    return action


def _told(library: ModuleType, serving: Serving, action: Tell, request: Any) -> Any:
    """An answer that is an error."""
    response = _response(library, serving, action.step, None, request)
    serving.close(time.monotonic())
    return response


def _sent(library: ModuleType, outgoing: Send, request: Any) -> Any:
    """The upstream's request; the SDK's timeouts travel in its extensions."""
    url = f"{outgoing.target.origin}{outgoing.path}"
    extensions = dict(request.extensions)
    return library.Request("POST", url, headers=outgoing.headers, content=outgoing.body, extensions=extensions)


def _ready(library: ModuleType, step: Step, request: Any) -> Any:
    """An answer that needs no upstream."""
    assert step.head is not None
    return library.Response(step.head.status, headers=step.head.headers, content=step.output, request=request)


def _response(library: ModuleType, serving: Serving, step: Step, body: Any, request: Any) -> Any:
    """The answer that begins with this step; `body` brings the rest of it."""
    assert step.head is not None
    given = serving.upstream_headers
    headers = {**step.head.headers, **{name: given[name] for name in _PASSED_ON if name in given}}
    if step.head.status >= 400 and "x-should-retry" in given:
        headers["x-should-retry"] = given["x-should-retry"]
    if step.done:
        return library.Response(step.head.status, headers=headers, content=step.output, request=request)
    body.first = step.output
    return library.Response(step.head.status, headers=headers, stream=body, request=request)
