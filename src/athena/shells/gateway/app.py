"""The gateway as an ASGI application: doors, keys, decoding, then a `Flow` for every answer.

No framework: the application is one coroutine per request over `Exchange`. Configuration is a value that is swapped whole on
reload; requests under way keep the one they began with.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import secrets
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from athena.dialects import get_dialect
from athena.dialects.base import Dialect, ModelEntry
from athena.errors import AthenaError, ClientError, InvalidRequest
from athena.exchange import Exchange, Options
from athena.model.events import Error, error_event
from athena.model.request import Request
from athena.opaque import Envelope, OpaqueStore
from athena.shells.config import Config, Limits, Router, verify
from athena.shells.gateway import record as records
from athena.shells.gateway.asgi_client import AsgiClient, Receive, Send
from athena.shells.gateway.client import Client, ClientGone, Headers
from athena.shells.gateway.flow import Flow
from athena.shells.gateway.health import RetryBudget, UpstreamHealth
from athena.shells.gateway.incoming import read_body, read_json
from athena.shells.gateway.metrics import CONTENT_TYPE, Metrics
from athena.shells.gateway.numbers import Numbers
from athena.shells.gateway.record import Record
from athena.shells.gateway.recorder import NO_RECORDER, StreamRecorder
from athena.shells.gateway.routes import Door, credential, dialect_of_error, find_door, hint
from athena.shells.gateway.targets import KnownTargets, Target
from athena.shells.gateway.tokens import TokenCounter
from athena.shells.gateway.tool_modes import ToolModes
from athena.shells.logs import log_body
from athena.shells.upstream import ClientSettings, UpstreamClient

LOG = logging.getLogger("athena")
LARGE_BODY = 256 * 1024
"""Bytes of a request above which it is read and written in a thread: other streams go on meanwhile."""
_CREATED = 1_700_000_000


class Gateway:
    """One running gateway. Call it as an ASGI application."""

    def __init__(self, config: Config, *, envelope_key: bytes | None = None, numbers: Numbers | None = None) -> None:
        self.metrics = Metrics(numbers or Numbers())
        self.tokens = TokenCounter()
        self._envelope = Envelope(envelope_key or kept_envelope_key(config))
        self._store = OpaqueStore(config.reasoning_store) if config.reasoning_store else None
        self._client: UpstreamClient | None = None
        self._flows: set[Flow] = set()
        self.metrics.held_bytes.set_function(lambda: sum(flow.held for flow in tuple(self._flows)))
        self._draining = False
        self.use(config)

    def use(self, config: Config) -> None:
        """Serve by this configuration from now on; requests under way are not touched."""
        self.config = config
        self._router = Router(config)
        self._targets = KnownTargets(self._router)
        self.health = UpstreamHealth(config.health, time.monotonic)
        self.budget = RetryBudget(config.retries)
        self.tool_modes = ToolModes(lambda upstream: self.metrics.tool_switches.labels(upstream).inc())
        for name in config.upstreams:
            self.metrics.upstream_up.set_function(partial(self._is_up, name), name)

    def _is_up(self, upstream: str) -> float:
        return float(self.health.is_up(upstream))

    @property
    def client(self) -> UpstreamClient:
        """The upstream client of this event loop, made on first use."""
        if self._client is None:
            limits = self.config.limits
            connections = [upstream.max_connections for upstream in self.config.upstreams.values()]
            self._client = UpstreamClient(
                ClientSettings(
                    max_connections=max(connections, default=1024),
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
            # Clients that try a socket first fall back to plain requests.
            await send({"type": "websocket.close", "code": 1002})

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                await self.close()
                await send({"type": "lifespan.shutdown.complete"})
                return

    # -- requests --------------------------------------------------------------------------------------------------------------

    async def serve(self, client: Client) -> None:
        """One request of a client, answered to its end."""
        path = client.path
        record = Record(request_id=_request_id(client.headers))
        door = find_door(path, client.query, client.headers)
        dialect = get_dialect(door.dialect if door is not None else dialect_of_error(path, client.headers))
        record.dialect = dialect.name
        try:
            if door is None:
                raise ClientError(f"no such path: {path}{hint(path)}", kind="not_found", code="unknown_path", status=404)
            if client.method not in door.methods:
                if door.unknown_verb:
                    message = f"models have no {door.unknown_verb} here"
                    raise ClientError(message, kind="not_found", code="unknown_path", status=404)
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

    async def _enter(self, door: Door, dialect: Dialect, record: Record, client: Client) -> None:
        if door.action in ("root", "health", "ready"):
            self._status(door, record, client)
            return
        key = credential(client.headers, client.query)
        record.key = self._admit(key, door)
        if door.action == "metrics":
            _reply(client, 200, self.metrics.render(), CONTENT_TYPE, self.answer_headers(record.request_id))
        elif door.action in ("models", "model"):
            self._models(door, dialect, record, client)
        elif door.action == "count":
            await self._count(door, dialect, record, client)
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

    async def _answer(self, door: Door, dialect: Dialect, key: str | None, record: Record, client: Client) -> None:
        if self._draining or len(self._flows) >= self.config.limits.requests:
            reason = "is shutting down" if self._draining else "is serving as many requests as it may"
            raise AthenaError(f"the gateway {reason}", kind="overloaded", code="overloaded", retry_after=1)
        request = await self._read(door, dialect, record, client)
        record.model, record.stream, record.tools = request.model, request.stream, len(request.tools)
        targets = self.targets(request.model)
        flow = Flow(self, request, record, client, key=key, array=door.array)
        self._flows.add(flow)
        self.metrics.open_streams.inc()
        client.on_gone = partial(flow.stop, "client_closed")
        try:
            await flow.run(targets)
        finally:
            client.on_gone = None
            self._flows.discard(flow)
            self.metrics.open_streams.dec()

    async def _read(self, door: Door, dialect: Dialect, record: Record, client: Client) -> Request:
        limits = self.config.limits
        body = await read_body(client, limits.body_bytes, self.config.timeouts.client_body_s)
        log_body("client request", record.request_id, body)
        decode = partial(_decode, body, door, dialect, limits, client.headers.get("anthropic-version"))
        if len(body) <= LARGE_BODY:
            return decode()
        record.large = True
        request = await asyncio.to_thread(decode)
        client.take_body()  # it may have left meanwhile
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

    def recorder(self, record: Record, request: Request) -> StreamRecorder:
        """Where raw frames of this answer are kept, if anywhere."""
        directory = self.config.log.sse_dir
        return StreamRecorder(directory, record.request_id) if directory and request.stream else NO_RECORDER

    def dialect_of(self, request: Request) -> Dialect:
        return get_dialect(request.dialect)

    def answer_headers(self, request_id: str) -> Headers:
        """Headers of every answer."""
        value = request_id.encode()
        return [(b"request-id", value), (b"x-request-id", value)]

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
        if record.repairs:
            metrics.repairs.labels(record.format or "standard").inc(record.repairs)
        if exchange is not None:
            if exchange.prompted is not None:
                metrics.prompted.labels(record.upstream, exchange.prompted.style).inc()
            for loss in exchange.request_losses:
                metrics.losses.labels(loss.action).inc()
            for loss in exchange.answer_losses:
                metrics.answer_losses.labels(loss.action).inc()
            for note in exchange.notes:
                metrics.format_errors.labels(record.format or "standard", note.code).inc()
        records.write(record)

    # -- the smaller doors -----------------------------------------------------------------------------------------------------

    def _status(self, door: Door, record: Record, client: Client) -> None:
        if door.action == "ready":
            ready = not self._draining and bool(self.config.upstreams)
            up = {name: self.health.is_up(name) for name in self.config.upstreams}
            body = {"status": "ok" if ready else "unavailable", "upstreams": up}
            status = 200 if ready else 503
        else:
            body, status = {"status": "ok"}, 200
        _reply(client, status, msgspec.json.encode(body), "application/json", self.answer_headers(record.request_id))

    def _models(self, door: Door, dialect: Dialect, record: Record, client: Client) -> None:
        entries = [
            ModelEntry(id=entry.id, created=_CREATED, owner=entry.upstream, display_name=entry.id)
            for entry in self._router.listed_models()
        ]
        if door.action == "model":
            self.targets(door.model or "")
            known = [entry for entry in entries if entry.id == door.model]
            listing = dialect.encode_models(known or [ModelEntry(id=door.model or "", created=_CREATED)])
            body: Any = next(iter(listing.get("data") or listing.get("models") or [{}]))
        else:
            body = dialect.encode_models(entries)
        _reply(client, 200, msgspec.json.encode(body), "application/json", self.answer_headers(record.request_id))

    async def _count(self, door: Door, dialect: Dialect, record: Record, client: Client) -> None:
        limits = self.config.limits
        body = await read_body(client, limits.body_bytes, self.config.timeouts.client_body_s)
        decode = partial(_decode_count, body, door, dialect, limits)
        request = decode() if len(body) <= LARGE_BODY else await asyncio.to_thread(decode)
        target = self.targets(request.model)[0]
        tokens = self.tokens.count(request, target.model)
        extra = [*self.answer_headers(record.request_id), (b"x-athena-token-count", b"estimated")]
        _reply(client, 200, msgspec.json.encode(dialect.encode_count(tokens)), "application/json", extra)

    def _error(self, dialect: Dialect, error: Error, record: Record, client: Client, *, status: int | None = None) -> None:
        answer = dialect.encode_error(error, record.request_id)
        status = status or answer.status
        record.status, record.outcome, record.error = status, "error", error.code
        headers = self.answer_headers(record.request_id)
        headers += [(name.encode(), value.encode()) for name, value in answer.headers.items()]
        _reply(client, status, answer.body, "application/json", headers)
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
        if self._client is not None:
            await self._client.close()
            self._client = None


def _decode(body: bytes, door: Door, dialect: Dialect, limits: Limits, version: str | None) -> Request:
    value = read_json(body, limits.request_depth, limits.request_keys)
    request = dialect.decode_request(value, model=door.model, stream=door.stream, version=version)
    if len(request.tools) > limits.tools:
        raise InvalidRequest(f"tools: more than {limits.tools} tools", path="tools", code="too_many_tools")
    return request


def _decode_count(body: bytes, door: Door, dialect: Dialect, limits: Limits) -> Request:
    value = read_json(body, limits.request_depth, limits.request_keys)
    return dialect.decode_count_request(value, model=door.model)


def _reply(client: Client, status: int, body: bytes, kind: str, headers: Headers) -> None:
    client.start(status, [*headers, (b"content-type", kind.encode())], len(body))
    client.finish(body)


def _request_id(headers: Mapping[str, str]) -> str:
    """The caller's own id when it is harmless to repeat, else a new one."""
    given = headers.get("x-request-id", "")
    if 0 < len(given) <= 128 and given.isascii() and all(letter.isalnum() or letter in "-_." for letter in given):
        return given
    return "req_" + os.urandom(12).hex()


def kept_envelope_key(config: Config) -> bytes:
    """The configured secret, or one made once and kept: state a client holds must survive a restart."""
    if config.envelope_key is not None:
        return config.envelope_key.reveal().encode()
    path = Path(config.state_dir).expanduser() / "envelope.key"
    try:
        return bytes.fromhex(path.read_text().strip())
    except (OSError, ValueError):
        pass
    key = secrets.token_bytes(32)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(key.hex())
    except OSError as error:
        digest = hashlib.sha256(key).hexdigest()[:8]
        LOG.warning("the envelope key can not be kept (%s); reasoning state ends with this process (%s)", error, digest)
    return key


def create_app(config: Config) -> Gateway:
    """The gateway for a configuration, to be mounted in any ASGI server or application."""
    return Gateway(config)
