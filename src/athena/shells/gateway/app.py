"""The gateway as an ASGI application: doors, keys, decoding, then a `Flow` for every answer.

No framework: the application is one coroutine per request over `Exchange`. Configuration is a value that is swapped whole on
reload; requests under way keep the one they began with.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

import msgspec

from athena.calls.names import check_model_name, check_names
from athena.dialects import get_dialect
from athena.dialects.base import Dialect
from athena.errors import AthenaError, ClientError, InvalidRequest
from athena.exchange import Exchange, Options
from athena.model.events import Error, error_event
from athena.model.request import Request
from athena.opaque import Envelope, OpaqueStore
from athena.shells import machine
from athena.shells.config import Config, Limits, Preflight, Refusal, Router, WebAccess, is_loopback, verify
from athena.shells.envelope_key import kept_envelope_key
from athena.shells.gateway import record as records
from athena.shells.gateway.asgi_client import AsgiClient, Receive, Send
from athena.shells.gateway.breaker import State
from athena.shells.gateway.budget import Budget
from athena.shells.gateway.client import Client, ClientGone, Headers
from athena.shells.gateway.flow import Flow
from athena.shells.gateway.health import RetryBudget, UpstreamHealth
from athena.shells.gateway.health_checks import HealthChecks
from athena.shells.gateway.holding import RequestMemory, memory_limit
from athena.shells.gateway.incoming import read_request
from athena.shells.gateway.lanes import Lanes
from athena.shells.gateway.metrics import CONTENT_TYPE, Metrics
from athena.shells.gateway.model_lists import ModelLists
from athena.shells.gateway.numbers import Numbers
from athena.shells.gateway.passing import Passage, read_passage
from athena.shells.gateway.record import Record
from athena.shells.gateway.recorder import StreamRecorder, recorder
from athena.shells.gateway.routes import (
    Door,
    asks_for_socket,
    credential,
    dialect_of_error,
    gateway_door,
    socket_refused,
    unknown_path,
)
from athena.shells.gateway.targets import KnownTargets, Target
from athena.shells.gateway.tokens import TokenCounter
from athena.shells.gateway.tool_modes import ToolModes
from athena.shells.logs import log_body, secrets_of
from athena.shells.upstream import ClientSettings, UpstreamClient

LOG = logging.getLogger("athena")
_UPGRADE_REQUIRED = 426
_NO_SOCKET = (b"upgrade", b"HTTP/1.1")
"""HTTP wants the protocols named that would do, wherever a status says that another one is needed."""
_PROXY_HEADERS = ("forwarded", "x-forwarded-for", "x-real-ip", "via")
"""What a proxy adds to a request that it passes on."""


class Gateway:
    """One running gateway. Call it as an ASGI application."""

    def __init__(
        self,
        config: Config,
        *,
        envelope_key: bytes | None = None,
        numbers: Numbers | None = None,
        bound: tuple[str, ...] | None = None,
    ) -> None:
        """`bound` are the addresses that our own server listens on; None: another server's application, which then decides
        under which host names it may be reached."""
        self.metrics = Metrics(numbers or Numbers())
        self.tokens = TokenCounter()
        self.memory = Budget(0, time.monotonic, lambda: self.metrics.refusals.labels("memory_bytes").inc())
        """What requests, answers and unsent output hold together."""
        self.lanes = Lanes(lambda upstream, reason: self.metrics.queue_refusals.labels(upstream, reason).inc())
        self.open_descriptors = 0
        """Connections to upstreams that may be open at once, over all of them; 0: no limit."""
        self._envelope = Envelope(envelope_key or kept_envelope_key(config))
        self._store = OpaqueStore(config.reasoning_store) if config.reasoning_store else None
        self._client: UpstreamClient | None = None
        self._flows: set[Flow | Passage] = set()
        self.metrics.held_bytes.set_function(lambda: sum(flow.held for flow in tuple(self._flows)))
        self._draining = False
        self._bound = bound
        self._checks: HealthChecks | None = None
        self.health = UpstreamHealth(config.health, time.monotonic, self._upstream_changed)
        self._unchecked_said: set[str] = set()
        self._lists = ModelLists(lambda: self.client)
        self.use(config)
        self.metrics.watch("memory_bytes", lambda: self.memory.used, lambda: self.memory.limit)
        self.metrics.watch("requests", lambda: len(self._flows), lambda: self.config.limits.requests)

    def use(self, config: Config) -> None:
        """Serve by this configuration from now on; requests under way are not touched."""
        self.config = config
        self._web_access = WebAccess.of(config, self._bound)
        self._router = Router(config)
        self._secrets = tuple(secrets_of(config))
        self._targets = KnownTargets(self._router)
        self._lists.use(config, self._router)
        self.memory.set_limit(memory_limit(config.limits, config.workers, machine.memory_bytes()))
        self.lanes.use(config)
        if self.health.settings != config.health:
            self.health = UpstreamHealth(config.health, time.monotonic, self._upstream_changed)
        self.health.keep(config.upstreams)
        if self._checks is not None:
            self._checks.use(config)
        self.budget = RetryBudget(config.retries)
        self.tool_modes = ToolModes(
            time.monotonic,
            lambda upstream: self.metrics.tool_switches.labels(upstream).inc(),
            keep_s=config.learning.keep_s,
        )
        for name in config.upstreams:
            self.metrics.upstream_up.set_function(partial(self._is_up, name), name)
            self.metrics.watch_upstream(name, self.lanes.of(name), partial(self._is_in, name))

    def start(self) -> None:
        """Begin with what goes on beside requests. Call it inside of the event loop; without it nothing but that is missing."""
        self._checks = HealthChecks(lambda: self.client, lambda upstream: self.health.breaker(upstream))
        self._checks.use(self.config)

    def _is_up(self, upstream: str) -> float:
        return float(self.health.is_up(upstream))

    def _is_in(self, upstream: str, state: State) -> float:
        return float(self.health.breaker(upstream).state is state)

    def _upstream_changed(self, upstream: str, state: State, why: str) -> None:
        self.metrics.transitions.labels(upstream, state.value).inc()
        level = logging.WARNING if state is State.OPEN else logging.INFO
        words = {State.OPEN: "is left out", State.HALF_OPEN: "is tried again", State.CLOSED: "is back"}[state]
        fields = {"upstream": upstream, "state": state.value, "reason": why}
        LOG.log(level, "upstream %s %s: %s", upstream, words, why, extra={"fields": fields})

    @property
    def upstream_connections(self) -> int:
        """Connections to all upstreams."""
        return self._client.open_connections if self._client is not None else 0

    @property
    def client(self) -> UpstreamClient:
        """The upstream client of this event loop, made on first use."""
        if self._client is None:
            limits = self.config.limits
            self._client = UpstreamClient(
                ClientSettings(
                    max_open=self.open_descriptors,
                    buffer_bytes=limits.stream_buffer_bytes,
                    max_decoded_bytes=limits.answer_bytes,
                    max_decoded_ratio=limits.decompress_ratio,
                )
            )
        return self._client

    # -- ASGI ----------------------------------------------------------------------------------------------------------------

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """The ASGI entry."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            async with AsgiClient(scope, receive, send) as client:
                await self.serve(client)
        elif scope["type"] == "websocket":
            await self._refuse_socket(scope, send)

    async def _refuse_socket(self, scope: Mapping[str, Any], send: Send) -> None:
        """Under a server that let a WebSocket through to us: clients that try one first fall back to plain requests."""
        if "websocket.http.response" not in scope.get("extensions", {}):
            await send({"type": "websocket.close", "code": 1002})
            return
        body = get_dialect("openai_responses").encode_error(error_event(socket_refused())).body
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)), _NO_SOCKET]
        await send({"type": "websocket.http.response.start", "status": 426, "headers": headers})
        await send({"type": "websocket.http.response.body", "body": body})

    async def turn_away(self, refusal: AthenaError, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """As an ASGI application that answers nothing but this error, in the client's dialect."""
        async with AsgiClient(scope, receive, send) as client:
            await self.serve(client, refusal)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                self.start()
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                await self.close()
                await send({"type": "lifespan.shutdown.complete"})
                return

    # -- requests --------------------------------------------------------------------------------------------------------------

    async def serve(self, client: Client, refusal: AthenaError | None = None) -> None:
        """One request of a client, answered to its end; with a `refusal`, by that error in the client's dialect."""
        path = client.path
        record = Record(request_id=_request_id(client.headers))
        door = gateway_door(client.method, path, client.query, client.headers)
        dialect = get_dialect(door.dialect if door is not None else dialect_of_error(path, client.headers))
        record.dialect = dialect.name
        try:
            if refusal is not None:
                raise refusal
            if self._is_question(door, record, client):
                return
            if asks_for_socket(client.method, client.headers):
                raise socket_refused()
            if door is None:
                raise unknown_path(path, dialect.name)
            if client.method not in door.methods:
                allowed = " or ".join(door.methods)
                message = f"{client.method} is not allowed here; use {allowed}"
                raise ClientError(message, code="method_not_allowed", status=405)
            await self._enter(door, dialect, record, client)
        except ClientGone:
            record.outcome = "client_closed"
            records.write(record)
        except AthenaError as error:
            # A status that we ourselves chose (405, 408, 415) is ours, whatever row of the dialect's table the words come from.
            own = error.status if isinstance(error, ClientError) else None
            self._error(dialect, error_event(error), record, client, status=own)
        except Exception:
            # The outermost edge: whatever is wrong with us, the client gets an answer in its dialect and the log the reason.
            LOG.exception("request %s failed inside the gateway", record.request_id)
            failure = Error("the gateway failed; its log says why", kind="server", code="internal_error")
            self._error(dialect, failure, record, client)

    def _is_question(self, door: Door | None, record: Record, client: Client) -> bool:
        """Did the client only ask what it may send? Then it is answered. Raises where its host name or web page is refused."""
        methods = door.methods if door is not None else ()
        verdict = self._web_access.judge(client.method, client.headers, methods)
        if isinstance(verdict, Refusal):
            LOG.info("request refused: %s", verdict.message)
            raise ClientError(verdict.message, kind=verdict.kind, code=verdict.code, status=verdict.status)
        if isinstance(verdict, Preflight):
            headers = verdict.headers
        else:
            record.origin = verdict.origin
            if client.method != "OPTIONS" or (door is None and client.path != "*"):
                return False
            headers = ((b"allow", ", ".join(("OPTIONS", *(methods or ("GET", "HEAD", "POST")))).encode()),)
        value = record.request_id.encode()
        client.start(200, [(b"request-id", value), (b"x-request-id", value), *headers], 0)
        client.finish()
        return True

    async def _enter(self, door: Door, dialect: Dialect, record: Record, client: Client) -> None:
        if door.action in ("root", "health"):
            self._reply(client, record, {"status": "ok"})
            return
        if door.action == "ready":
            self._ready(record, client)
            return
        key = credential(client.headers, client.query)
        record.key = self._admit(key, door)
        if door.action == "metrics":
            _reply(client, 200, self.metrics.render(), CONTENT_TYPE, self.answer_headers(record))
        elif door.action in ("models", "model"):
            await self._models(door, dialect, key, record, client)
        elif door.action == "count":
            await self._count(door, dialect, record, client)
        elif door.action == "pass":
            await self._pass(door, dialect, key, record, client)
        else:
            await self._answer(door, dialect, key, record, client)

    def _admit(self, key: str | None, door: Door) -> str:
        """The name of the presented gateway key. Raises where one is asked for and none fits."""
        keys = self.config.keys
        if not keys or (door.action == "metrics" and not self.config.metrics.needs_key):
            return ""
        found = verify(key, keys) if key else None
        if found is None:
            raise ClientError(
                "this gateway asks for a key: send it as a bearer token or x-api-key"
                if key is None
                else "the key is not one of this gateway",
                kind="auth",
                code="invalid_api_key",
                status=401,
            )
        return found.name or found.hash[7:15]

    # -- answers -------------------------------------------------------------------------------------------------------------

    def _check_room(self) -> None:
        """Raises where no further request is taken."""
        if self._draining or len(self._flows) >= self.config.limits.requests:
            if not self._draining:
                self.metrics.refusals.labels("requests").inc()
            reason = "is shutting down" if self._draining else "is serving as many requests as it may"
            raise AthenaError(f"the gateway {reason}", kind="overloaded", code="overloaded", retry_after=1)

    async def _pass(self, door: Door, dialect: Dialect, key: str | None, record: Record, client: Client) -> None:
        self._check_room()
        memory = RequestMemory(self.memory)
        try:
            passage, model = await read_passage(self, door, dialect, record, client, memory, key=key)
            await self._run(passage, self.targets(model), client)
        finally:
            memory.close()

    async def _answer(self, door: Door, dialect: Dialect, key: str | None, record: Record, client: Client) -> None:
        self._check_room()
        memory = RequestMemory(self.memory)
        try:
            request = await self._read(door, dialect, record, client, memory)
            record.model, record.stream, record.tools = request.model, request.stream, len(request.tools)
            targets = self.targets(request.model)
            flow = Flow(self, request, record, client, memory, key=key, array=door.array)
            await self._run(flow, targets, client)
        finally:
            memory.close()

    async def _run(self, flow: Flow | Passage, targets: tuple[Target, ...], client: Client) -> None:
        self._flows.add(flow)
        self.metrics.open_streams.inc()
        client.on_gone, client.on_doubt = partial(flow.stop, "client_closed"), flow.probe
        try:
            await flow.run(targets)
        finally:
            client.on_gone = client.on_doubt = None
            self._flows.discard(flow)
            self.metrics.open_streams.dec()

    async def _read(self, door: Door, dialect: Dialect, record: Record, client: Client, memory: RequestMemory) -> Request:
        limits, timeouts = self.config.limits, self.config.timeouts
        decode = partial(_decode, door=door, dialect=dialect, limits=limits, version=client.headers.get("anthropic-version"))
        show = partial(log_body, "client request", record.request_id)
        request, weight, record.large = await read_request(client, limits, timeouts.client_body_s, memory, decode, on_body=show)
        memory.decoded(weight)
        return request

    def targets(self, model: str) -> tuple[Target, ...]:
        """The targets of a model name. Raises UnknownModel."""
        return self._targets.of(model)

    def options(self, record: Record, request: Request, target: Target, *, array: bool) -> Options:
        """What the exchange is told about this gateway."""
        config = self.config
        return Options(
            seed=record.request_id,
            created=int(time.time()),
            envelope=self._envelope,
            store=self._store,
            tenant=record.key,
            limits=target.limits,
            input_tokens=self.tokens.count(request, target.model) if request.stream else 0,
            stream_error_stop=config.stream_error_stop,
            reasoning_fields=config.reasoning_fields,
            hide_auth_errors=bool(config.keys),
            pass_junk=config.passthrough_invalid,
            upstream=target.upstream,
            secrets=target.secrets,
            retry_after_max=config.retries.retry_after_max_s,
            array=array,
        )

    def recorder(self, record: Record, request: Request, key: str | None) -> StreamRecorder:
        """Where raw frames of this answer are kept, if anywhere; the client's `key` may have gone to the upstream."""
        directory = self.config.log.sse_dir if request.stream else ""
        return recorder(directory, record.request_id, (*self._secrets, key or ""))

    def dialect_of(self, request: Request) -> Dialect:
        return get_dialect(request.dialect)

    def answer_headers(self, record: Record) -> Headers:
        """Headers of every answer."""
        value = record.request_id.encode()
        return [(b"request-id", value), (b"x-request-id", value), *self._web_access.answer_headers(record.origin)]

    def note_unchecked(self, record: Record, reason: str) -> None:
        """Count a call that was not held against its whole schema; the first of each kind is said in the log."""
        self.metrics.unchecked_calls.labels(record.upstream, reason).inc()
        if reason not in self._unchecked_said:
            self._unchecked_said.add(reason)
            LOG.warning(
                "calls are passed on without a check of their schema (%s; first in request %s): it would take too much work",
                reason,
                record.request_id,
            )

    def model_label(self, record: Record) -> str:
        """The upstream's model as a metric label; names that come from clients are not counted one by one."""
        return record.upstream_model if self.config.metrics.per_model and self._is_configured(record) else "other"

    def _is_configured(self, record: Record) -> bool:
        return any(entry.model == record.upstream_model for entry in self._router.listed_models())

    def settle(self, record: Record, exchange: Exchange | None) -> None:
        """A request is over: write its line, count it."""
        metrics = self.metrics
        metrics.requests.labels(record.dialect, record.upstream, record.upstream_dialect, record.outcome).inc()
        metrics.first_byte.labels(record.dialect, record.upstream).observe(record.first_byte_ms / 1000)
        metrics.duration.labels(record.dialect, record.upstream).observe(record.duration_ms / 1000)
        if record.chunks:
            metrics.chunk_overhead.labels(record.dialect, record.upstream).observe(record.own_us_per_chunk)
        if record.input_tokens:
            metrics.tokens.labels(record.upstream, "input").inc(record.input_tokens)
        if record.output_tokens:
            metrics.tokens.labels(record.upstream, "output").inc(record.output_tokens)
        if record.calls:
            model = self.model_label(record)
            native = record.calls - record.text_calls
            if native > 0:
                metrics.calls.labels(record.upstream, model, "native").inc(native)
            if record.text_calls:
                metrics.calls.labels(record.upstream, model, "text").inc(record.text_calls)
                if not record.tool_mode:
                    metrics.leaks.labels(record.upstream, model).inc()
                metrics.detections.labels(record.format).inc()
        if record.echoes and exchange is not None:
            metrics.echoes.labels(record.upstream, self.model_label(record), exchange.echo_rule).inc(record.echoes)
        if record.repairs:
            metrics.repairs.labels(record.format or "standard").inc(record.repairs)
        if exchange is not None:
            if exchange.prompted is not None:
                metrics.prompted.labels(record.upstream, exchange.prompted.style).inc()
            for loss in exchange.losses:
                metrics.losses.labels(loss.action).inc()
            for note in exchange.notes:
                metrics.format_errors.labels(record.format or "standard", note.code).inc()
        records.write(record)

    # -- the smaller doors -----------------------------------------------------------------------------------------------------

    def _ready(self, record: Record, client: Client) -> None:
        """Whether requests are taken, for everybody; which upstreams there are, for those who may know."""
        ready = not self._draining and bool(self.config.upstreams)
        body: dict[str, Any] = {"status": "ok" if ready else "unavailable"}
        if self._may_know_upstreams(client):
            body["upstreams"] = {name: self.health.is_up(name) for name in self.config.upstreams}
        self._reply(client, record, body, 200 if ready else 503)

    def _may_know_upstreams(self, client: Client) -> bool:
        """With keys, whoever has one; without, programs of this machine, but not whoever a proxy on it speaks for."""
        if self.config.keys:
            key = credential(client.headers, client.query)
            return key is not None and verify(key, self.config.keys) is not None
        return is_loopback(client.peer) and not any(name in client.headers for name in _PROXY_HEADERS)

    def _reply(self, client: Client, record: Record, body: Any, status: int = 200, *more: tuple[bytes, bytes]) -> None:
        _reply(client, status, msgspec.json.encode(body), "application/json", [*self.answer_headers(record), *more])

    async def _models(self, door: Door, dialect: Dialect, key: str | None, record: Record, client: Client) -> None:
        if door.action == "model":
            check_model_name(door.model or "")
            listing = await self._lists.one(door.model or "", key)
            shown = dialect.encode_models(list(listing.models))
            body: Any = next(iter(shown.get("data") or shown.get("models") or [{}]))
        else:
            listing = await self._lists.listing(key)
            body = dialect.encode_models(list(listing.models))
        self._reply(client, record, body, 200, *listing.headers())

    async def _count(self, door: Door, dialect: Dialect, record: Record, client: Client) -> None:
        memory = RequestMemory(self.memory)
        decode = partial(_decode_count, door=door, dialect=dialect)
        try:
            request, _, _ = await read_request(client, self.config.limits, self.config.timeouts.client_body_s, memory, decode)
        finally:
            memory.close()
        target = self.targets(request.model)[0]
        tokens = self.tokens.count(request, target.model)
        self._reply(client, record, dialect.encode_count(tokens), 200, (b"x-athena-token-count", b"estimated"))

    def _error(self, dialect: Dialect, error: Error, record: Record, client: Client, *, status: int | None = None) -> None:
        answer = dialect.encode_error(error, record.request_id)
        record.outcome, record.error = "error", error.code
        if record.status:
            # A head is out already: a second one inside its body would be read as the answer's own text.
            client.cut_off()
        else:
            record.status = status or answer.status
            headers = self.answer_headers(record)
            headers += [(name.encode(), value.encode()) for name, value in answer.headers.items()]
            if record.status == _UPGRADE_REQUIRED:
                headers.append(_NO_SOCKET)
            _reply(client, record.status, answer.body, "application/json", headers)
        self.metrics.requests.labels(record.dialect, record.upstream, record.upstream_dialect, "error").inc()
        records.write(record)

    # -- the end ---------------------------------------------------------------------------------------------------------------

    def begin_drain(self) -> None:
        """Take no new work; streams under way go on."""
        self._draining = True

    def stop_flows(self) -> None:
        """The drain time is over: end what is left, telling every client."""
        for flow in tuple(self._flows):
            flow.stop("shutdown")

    @property
    def open_flows(self) -> int:
        """Requests under way."""
        return len(self._flows)

    async def close(self) -> None:
        """Drop all upstream connections."""
        if self._checks is not None:
            await self._checks.close()
            self._checks = None
        await self._lists.close()
        if self._client is not None:
            await self._client.close()
            self._client = None


def _decode(value: dict[str, Any], door: Door, dialect: Dialect, limits: Limits, version: str | None) -> Request:
    request = dialect.decode_request(value, model=door.model, stream=door.stream, version=version)
    check_names(request)
    if len(request.tools) > limits.tools:
        raise InvalidRequest(f"tools: more than {limits.tools} tools", path="tools", code="too_many_tools")
    return request


def _decode_count(value: dict[str, Any], door: Door, dialect: Dialect) -> Request:
    request = dialect.decode_count_request(value, model=door.model)
    check_names(request)
    return request


def _reply(client: Client, status: int, body: bytes, kind: str, headers: Headers) -> None:
    client.start(status, [*headers, (b"content-type", kind.encode())], len(body))
    client.finish(body)


def _request_id(headers: Mapping[str, str]) -> str:
    """The caller's own id when it is harmless to repeat, else a new one."""
    given = headers.get("x-request-id", "")
    if 0 < len(given) <= 128 and given.isascii() and all(letter.isalnum() or letter in "-_." for letter in given):
        return given
    return "req_" + os.urandom(12).hex()


def create_app(config: Config) -> Gateway:
    """The gateway for a configuration, to be mounted in any ASGI server or application."""
    return Gateway(config)
