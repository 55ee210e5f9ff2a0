"""The gateway as an ASGI application: doors, keys, decoding, then a `Driver` for every answer.

No framework: the application is one coroutine per request over `Exchange`. Configuration is a value that is swapped whole on
reload; requests under way keep the one they began with.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import os
import threading
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from athena.calls.names import check_model_name, check_names
from athena.dialects import get_dialect
from athena.dialects.base import Dialect
from athena.errors import AthenaError, ClientError, InvalidRequest
from athena.model.events import Error, error_event
from athena.model.request import Request
from athena.opaque import Envelope, OpaqueStore
from athena.serving.breaker import State
from athena.serving.budget import Budget
from athena.serving.clock import ClientLimits
from athena.serving.endpoints import (
    Door,
    asks_for_socket,
    credential,
    dialect_of_error,
    gateway_door,
    socket_refused,
    unknown_path,
)
from athena.serving.health import RetryBudget, UpstreamHealth
from athena.serving.holding import RequestMemory
from athena.serving.learning import Learnt
from athena.serving.record import MESSAGE_SHOWN, PATH_SHOWN, Record
from athena.serving.refusals import TOOLS
from athena.serving.serving import Serving
from athena.serving.shared import AnswerSettings, Shared
from athena.serving.targets import Target
from athena.serving.tokens import TokenCounter
from athena.serving.trace import new_trace
from athena.serving.weight import READING
from athena.shells import machine
from athena.shells.config import Config, Limits, Preflight, Router, Telemetry, WebAccess, WebRefusal, is_loopback, verify
from athena.shells.config.ready import KnownTargets
from athena.shells.envelope_key import kept_envelope_key
from athena.shells.gateway.asgi_client import AsgiClient, Receive, Send
from athena.shells.gateway.client import Client, ClientGone, Headers
from athena.shells.gateway.driver import Driver
from athena.shells.gateway.forgetting import Forgotten, wanted_lessons
from athena.shells.gateway.health_checks import HealthChecks
from athena.shells.gateway.incoming import read_request
from athena.shells.gateway.inspect_api import PREFIX as INSPECT
from athena.shells.gateway.inspect_api import InspectApi, is_foreign_page
from athena.shells.gateway.inspect_page import is_page, serve_page
from athena.shells.gateway.lanes import Lanes
from athena.shells.gateway.metrics import CONTENT_TYPE, Metrics
from athena.shells.gateway.model_lists import ModelLists
from athena.shells.gateway.numbers import Numbers
from athena.shells.gateway.passing import Passage, read_passage
from athena.shells.gateway.taps import DebugBodies, RequestLines, RequestNumbers, Transformations, write_line
from athena.shells.logs import log_forgotten, log_refusal, secrets_of
from athena.shells.recorder.recorder import Recorder, record_mode
from athena.shells.recorder.token import inspector_token
from athena.shells.upstream import ClientSettings, UpstreamClient

if TYPE_CHECKING:
    from athena.shells.gateway.telemetry import Traces

LOG = logging.getLogger("athena")
_UPGRADE_REQUIRED = 426
_NO_SOCKET = (b"upgrade", b"HTTP/1.1")
"""HTTP wants the protocols named that would do, wherever a status says that another one is needed."""
_MEMORY_SHARE = 4
"""Requests and answers may hold the memory of the machine divided by this."""
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
        self._drivers: set[Driver | Passage] = set()
        self.metrics.held_bytes.set_function(lambda: sum(driver.held for driver in tuple(self._drivers)))
        self._draining = False
        self._bound = bound
        self._checks: HealthChecks | None = None
        self.health = UpstreamHealth(config.health, time.monotonic, self._upstream_changed)
        self._lines = RequestLines()
        self._numbers = RequestNumbers(self.metrics, self._model_label)
        self._lists = ModelLists(lambda: self.client)
        self._recorder: Recorder | None = None
        self._inspect: InspectApi | None = None
        self._telemetry = Telemetry()
        self._traces: Traces | None = None
        self.use(config)
        self.metrics.watch("memory_bytes", lambda: self.memory.used, lambda: self.memory.limit)
        self.metrics.watch("requests", lambda: len(self._drivers), lambda: self.config.limits.requests)

    def use(self, config: Config) -> None:
        """Serve by this configuration from now on; requests under way are not touched. Raises ConfigError."""
        self._trace_by(config.telemetry)
        self.config = config
        self._web_access = WebAccess.of(config, self._bound)
        self._router = Router(config)
        self._secrets = tuple(secrets_of(config))
        self._targets = KnownTargets(self._router)
        self._lists.use(config, self._router)
        self.memory.set_limit(_memory_limit(config.limits, config.workers))
        self.lanes.use(config)
        if self.health.settings != config.health:
            self.health = UpstreamHealth(config.health, time.monotonic, self._upstream_changed)
        self.health.keep(config.upstreams)
        if self._checks is not None:
            self._checks.use(config)
        self.learnt = Learnt(
            time.monotonic,
            self._has_learnt,
            lambda upstream, feature: self.metrics.corrected.labels(upstream, feature.partition(":")[0]).inc(),
            keep_s=config.learning.keep_s,
            correct=config.learning.correct,
        )
        timeouts = config.timeouts
        recorder = self._record()
        self._shared = Shared(
            retries=config.retries,
            learnt=self.learnt,
            tokens=self.tokens,
            envelope=self._envelope,
            store=self._store,
            answers=AnswerSettings(
                stream_error_stop=config.stream_error_stop,
                reasoning_fields=config.reasoning_fields,
                hide_auth_errors=bool(config.keys),
                pass_junk=config.passthrough_invalid,
            ),
            memory=self.memory,
            health=self.health,
            retry_budget=RetryBudget(config.retries),
            client_limits=ClientLimits(timeouts.hold_head_s, timeouts.keep_alive_s, timeouts.client_write_s),
            watchers=(
                self._numbers,
                self._lines,
                DebugBodies(self._secrets),
                *((Transformations(),) if config.log.transformations else ()),
                *((recorder,) if recorder.mode != "off" or recorder.sse_dir else ()),
                *((self._traces,) if self._traces is not None else ()),
            ),
            wall_clock=time.time,
            tap_failed=_tap_failed,
        )
        for name in config.upstreams:
            self.metrics.upstream_up.set_function(partial(self._is_up, name), name)
            self.metrics.watch_upstream(name, self.lanes.of(name), partial(self._is_in, name))

    def _record(self) -> Recorder:
        """The recorder of the present configuration; what another one kept in memory goes with it."""
        settings, mode = record_mode(self.config, self._bound)
        recorder = self._recorder
        if recorder is None or (recorder.settings, recorder.mode) != (settings, mode):
            if recorder is not None:
                recorder.close()
            if self._inspect is not None:
                self._inspect.close()
                self._inspect = None
            recorder = Recorder(
                settings,
                mode,
                Path(self.config.state_dir).expanduser(),
                lambda: self._secrets,
                lambda result: self.metrics.recordings.labels(result).inc(),
            )
            self._recorder = recorder
        recorder.sse_dir = self.config.log.sse_dir
        return recorder

    @property
    def inspector(self) -> InspectApi | None:
        """What answers below /inspect/api; None where nothing is recorded, or the inspector is switched off."""
        recorder = self._recorder
        if recorder is None or not recorder.has_inspector:
            return None
        if self._inspect is None:
            token = inspector_token(Path(self.config.state_dir).expanduser())
            self._inspect = InspectApi(
                recorder,
                token,
                lambda key: bool(self.config.keys) and verify(key, self.config.keys) is not None,
                lambda: {name: self.health.is_up(name) for name in self.config.upstreams},
                lambda: self.learnt.lessons(),
            )
        return self._inspect

    def _trace_by(self, settings: Telemetry) -> None:
        """Export traces as these settings say. Raises ConfigError where the packages for it are missing."""
        if settings == self._telemetry:
            return
        traces = None
        if settings.endpoint:
            from athena.shells.gateway.telemetry import Traces  # its packages are an extra

            traces = Traces(settings)
        if self._traces is not None:
            # Aside: it waits for a collector that may be away.
            threading.Thread(target=self._traces.close, daemon=True).start()
        self._telemetry, self._traces = settings, traces

    def start(self) -> None:
        """Begin with what goes on beside requests. Call it inside of the event loop; without it nothing but that is missing."""
        self._checks = HealthChecks(lambda: self.client, lambda upstream: self.health.breaker(upstream))
        self._checks.use(self.config)

    def _has_learnt(self, upstream: str, model: str, feature: str) -> None:
        log_refusal(upstream, model, feature, self.config.learning.keep_s)
        # Names of parameters are the clients': they would make series without end.
        self.metrics.learnt.labels(upstream, feature.partition(":")[0]).inc()
        if feature == TOOLS:
            self.metrics.tool_switches.labels(upstream).inc()

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
        record = Record(request_id=_request_id(client.headers), path=path[:PATH_SHOWN])
        door = gateway_door(client.method, path, client.query, client.headers)
        dialect = get_dialect(door.dialect if door is not None else dialect_of_error(path, client.headers))
        record.dialect = dialect.name
        try:
            if refusal is not None:
                raise refusal
            if self._is_question(door, record, client):
                return
            if path.startswith(INSPECT + "/") and self.inspector is not None:
                await self.inspector.serve(client)
                return
            if is_page(path):
                serve_page(client, self.inspector)
                return
            if asks_for_socket(client.method, client.headers):
                raise socket_refused()
            if door is None or (door.action == "metrics" and not self.config.metrics.enabled):
                raise unknown_path(path)
            if client.method not in door.methods:
                allowed = " or ".join(door.methods)
                message = f"{client.method} is not allowed here; use {allowed}"
                raise ClientError(message, code="method_not_allowed", status=405)
            await self._enter(door, dialect, record, client)
        except ClientGone:
            record.outcome = "client_closed"
            write_line(record)
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
        if isinstance(verdict, WebRefusal):
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
        if door.action == "forget":
            await self._forget_lessons(record, client)
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
        if self._draining or len(self._drivers) >= self.config.limits.requests:
            if not self._draining:
                self.metrics.refusals.labels("requests").inc()
            reason = "is shutting down" if self._draining else "is serving as many requests as it may"
            raise AthenaError(f"the gateway {reason}", kind="overloaded", code="overloaded", retry_after=1)

    async def _pass(self, door: Door, dialect: Dialect, key: str | None, record: Record, client: Client) -> None:
        self._check_room()
        memory = RequestMemory(self.memory)
        try:
            passage, model = await read_passage(self, door, dialect, record, client, memory, key=key)
            passage.use(self.targets(model))
            await self._run(passage)
        finally:
            memory.close()

    async def _answer(self, door: Door, dialect: Dialect, key: str | None, record: Record, client: Client) -> None:
        self._check_room()
        memory = RequestMemory(self.memory)
        try:
            shared = self._shared
            request, body = await self._read(door, dialect, record, client, memory)
            record.model, record.stream, record.tools = request.model, request.stream, len(request.tools)
            if self._traces is not None:
                record.trace = new_trace(client.headers, os.urandom(24))
                record.trace_id = record.trace.trace_id
            serving = Serving(
                shared,
                request,
                self.targets(request.model),
                record,
                memory,
                headers=client.headers,
                key=key,
                array=door.array,
                now=asyncio.get_running_loop().time(),
                body=body,
                method=client.method,
                path=client.path,
                query=client.query,
            )
            headers = list(self._web_access.answer_headers(record.origin))
            await self._run(Driver(serving, client, self.client, self.lanes, headers))
        finally:
            memory.close()

    async def _run(self, driver: Driver | Passage) -> None:
        self._drivers.add(driver)
        self.metrics.open_streams.inc()
        try:
            await driver.run()
        finally:
            self._drivers.discard(driver)
            self.metrics.open_streams.dec()

    async def _read(
        self, door: Door, dialect: Dialect, record: Record, client: Client, memory: RequestMemory
    ) -> tuple[Request, bytes]:
        """The request, and its body where a tap wants to see it."""
        limits, timeouts = self.config.limits, self.config.timeouts
        decode = partial(_decode, door=door, dialect=dialect, limits=limits, version=client.headers.get("anthropic-version"))
        kept: list[bytes] = []
        keep = kept.append if self._shared.wants_bodies else _forget
        request, weight, record.large = await read_request(client, limits, timeouts.client_body_s, memory, decode, on_body=keep)
        memory.decoded(weight)
        return request, kept[0] if kept else b""

    def targets(self, model: str) -> tuple[Target, ...]:
        """The targets of a model name. Raises UnknownModel."""
        return self._targets.of(model)

    def answer_headers(self, record: Record) -> Headers:
        value = record.request_id.encode()
        return [(b"request-id", value), (b"x-request-id", value), *self._web_access.answer_headers(record.origin)]

    def over(self, record: Record) -> None:
        """A request is over that no `Serving` served: write its line, count it."""
        self._numbers.over(record)
        self._lines.over(record)

    def _model_label(self, record: Record) -> str:
        """The upstream's model as a metric label; names that come from clients are not counted one by one."""
        return record.upstream_model if self.config.metrics.per_model and self._is_configured(record) else "other"

    def _is_configured(self, record: Record) -> bool:
        return any(entry.model == record.upstream_model for entry in self._router.listed_models())

    # -- the smaller doors -----------------------------------------------------------------------------------------------------

    def _ready(self, record: Record, client: Client) -> None:
        """Whether requests are taken, for everybody; which upstreams there are, for those who may know."""
        ready = not self._draining and bool(self.config.upstreams)
        body: dict[str, Any] = {"status": "ok" if ready else "unavailable"}
        if self._may_know_upstreams(client):
            body["upstreams"] = {name: self.health.is_up(name) for name in self.config.upstreams}
            body["learnt"] = self.learnt.lessons()
        self._reply(client, record, body, 200 if ready else 503)

    def _may_know_upstreams(self, client: Client) -> bool:
        """With keys, whoever has one; without, programs of this machine, but not whoever a proxy on it speaks for."""
        if self.config.keys:
            key = credential(client.headers, client.query)
            return key is not None and verify(key, self.config.keys) is not None
        return is_loopback(client.peer) and not any(name in client.headers for name in _PROXY_HEADERS)

    async def _forget_lessons(self, record: Record, client: Client) -> None:
        """Forget what was learnt from refusals. It changes how every client is served, so none of their keys is enough."""
        self._check_operator(client)
        memory = RequestMemory(self.memory)
        try:
            wanted, _, _ = await read_request(
                client, self.config.limits, self.config.timeouts.client_body_s, memory, wanted_lessons
            )
        finally:
            memory.close()
        if wanted.upstream and wanted.upstream not in self.config.upstreams:
            raise InvalidRequest("upstream: there is none of this name", path="upstream")
        forgotten = self.learnt.forget(wanted.upstream, wanted.model)
        for lesson in forgotten:
            self.metrics.forgotten.labels(lesson.upstream).inc()
        log_forgotten(wanted.upstream, wanted.model, len(forgotten))
        self._reply(client, record, Forgotten(forgotten, self.config.workers))

    def _check_operator(self, client: Client) -> None:
        """Raises unless it is the person who runs this gateway: whoever has the inspector's token; without keys, programs of
        this machine, too."""
        if is_foreign_page(client.headers):
            message = "no other site's page does this"
            raise ClientError(message, kind="permission", code="origin_not_allowed", status=403)
        shown = credential(client.headers, "")
        if shown:
            inspector = self.inspector
            token = inspector.token if inspector else inspector_token(Path(self.config.state_dir).expanduser())
            if hmac.compare_digest(shown.encode(), token.encode()):
                return
        if self.config.keys or not self._may_know_upstreams(client):
            raise ClientError(
                "only the operator does this, with the inspector's token: `athena status --forget` on the gateway's machine",
                kind="permission",
                code="operator_only",
                status=403,
            )

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
        record.outcome, record.error, record.error_message = "error", error.code, error.message[:MESSAGE_SHOWN]
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
        write_line(record)

    # -- the end ---------------------------------------------------------------------------------------------------------------

    def begin_drain(self) -> None:
        """Take no new work; streams under way go on."""
        self._draining = True
        if self._inspect is not None:
            self._inspect.close()

    def stop_flows(self) -> None:
        """The drain time is over: end what is left, telling every client."""
        for driver in tuple(self._drivers):
            driver.stop("shutdown")

    @property
    def open_flows(self) -> int:
        return len(self._drivers)

    async def close(self) -> None:
        if self._checks is not None:
            await self._checks.close()
            self._checks = None
        await self._lists.close()
        if self._inspect is not None:
            self._inspect.close()
        if self._recorder is not None:
            await asyncio.to_thread(self._recorder.close)
        if self._traces is not None:
            await asyncio.to_thread(self._traces.close)
            self._traces = None
        if self._client is not None:
            await self._client.close()
            self._client = None


def _tap_failed(request_id: str, error: Exception) -> None:
    LOG.error("request %s is no longer watched by one of its taps, which failed", request_id, exc_info=error)


def _forget(body: bytes) -> None:
    """Stands for the taps' body hook when no tap wants bodies."""


def _memory_limit(limits: Limits, processes: int) -> int:
    """What one of several server processes may hold.

    Where nothing is configured it is never so little that one request of the largest size does not fit.
    """
    if limits.memory_bytes:
        return limits.memory_bytes // processes
    return max(machine.memory_bytes() // _MEMORY_SHARE // processes, (READING + 1) * limits.body_bytes)


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
