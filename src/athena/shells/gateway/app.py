"""The gateway: its parts put together, its life from configuration to shutdown, and its face as an ASGI application.

No framework: a request is one coroutine, which `entrance` hands to the endpoint that its path names. Read on there:

    entrance         paths, web pages, keys, errors      answer_endpoint   requests that a model answers
    reading          a request off the wire, decoded     answers           those under way, each with a `Driver`
    configured       one configuration made ready        resources         what outlives configurations
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import Any

from athena.dialects import get_dialect
from athena.errors import AthenaError
from athena.model.events import error_event
from athena.serving.budget import Budget
from athena.serving.endpoints import Endpoint, EndpointAction, socket_refused
from athena.serving.route_health import RouteHealth
from athena.serving.tap import Watcher
from athena.shells.config import Config, Router, WebAccess
from athena.shells.envelope_key import kept_envelope_key
from athena.shells.gateway.answer_endpoint import AnswerEndpoint
from athena.shells.gateway.answers import OpenAnswers
from athena.shells.gateway.asgi_client import AsgiClient, AsgiReceive, AsgiSend
from athena.shells.gateway.background_jobs import BackgroundJobs
from athena.shells.gateway.batch_work import BatchWork
from athena.shells.gateway.client import Client
from athena.shells.gateway.configured import Configured
from athena.shells.gateway.entrance import NO_SOCKET, UPGRADE_REQUIRED, Entrance, Handler
from athena.shells.gateway.health_checks import HealthChecks
from athena.shells.gateway.inspect_api import InspectApi
from athena.shells.gateway.inspection import Inspection
from athena.shells.gateway.metrics import Metrics
from athena.shells.gateway.model_endpoints import ModelEndpoints
from athena.shells.gateway.numbers import Numbers
from athena.shells.gateway.operator_api import OperatorApi
from athena.shells.gateway.reading import RequestReader
from athena.shells.gateway.resources import Resources
from athena.shells.gateway.response_stores import ResponseStores
from athena.shells.gateway.route_exchange import RouteExchange
from athena.shells.gateway.shortening import Shortening
from athena.shells.gateway.stored_endpoint import StoredEndpoint
from athena.shells.gateway.trace_export import TraceExport
from athena.shells.logs.redactor import secrets_of
from athena.shells.store import Store


class Gateway:
    """One running gateway. Call it as an ASGI application."""

    def __init__(
        self,
        config: Config,
        *,
        envelope_key: bytes | None = None,
        numbers: Numbers | None = None,
        bound: tuple[str, ...] | None = None,
        watchers: tuple[Watcher, ...] = (),
    ) -> None:
        """`bound` are the addresses that our own server listens on; None: another server's application, which then decides
        under which host names it may be reached. `watchers` watch every request besides those of the configuration."""
        self._bound = bound
        self._watchers = watchers
        resources = self.resources = Resources(config, envelope_key or kept_envelope_key(config), numbers or Numbers())
        self._traces = TraceExport()
        self._inspection = Inspection(resources, bound, lambda: self.configured)
        self._stores = ResponseStores(resources)
        self._checks: HealthChecks | None = None
        answers = self._answers = OpenAnswers(resources)
        reader = RequestReader(resources.fragments, resources.metrics)
        shortening = Shortening(answers, resources.tokens, resources.lists)
        jobs = self.jobs = BackgroundJobs(answers, shortening)
        self._batches = BatchWork(resources, self._serve_batched)
        self._route_exchange = RouteExchange(self._shared_routes)
        models = ModelEndpoints(resources, reader, answers)
        answering = AnswerEndpoint(resources, reader, answers, shortening, jobs)
        operator = OperatorApi(resources, lambda: answers.is_draining, lambda: self.inspector)
        open_handlers: dict[EndpointAction, Handler] = {
            "root": operator.health,
            "health": operator.health,
            "ready": operator.ready,
            "forget": operator.forget_lessons,
        }
        handlers: dict[EndpointAction, Handler] = {
            "answer": answering.answer,
            "compact": answering.answer,
            "pass": answering.pass_through,
            "models": models.models,
            "model": models.models,
            "count": models.count,
            "prepare": models.prepare,
            "stored": StoredEndpoint(resources, jobs).answer,
            "batches": self._batches.answer,
            "metrics": operator.metrics,
        }
        self._entrance = Entrance(
            handlers, open_handlers, answers=answers, inspection=self._inspection, metrics=resources.metrics
        )
        self.use(config)
        resources.metrics.held_bytes.set_function(lambda: answers.held)
        resources.metrics.watch("requests", lambda: len(answers), lambda: self.config.limits.requests)

    # -- configuration -------------------------------------------------------------------------------------------------------

    def use(self, config: Config) -> None:
        """Serve by this configuration from now on; requests under way are not touched. Raises ConfigError."""
        self._traces.use(config.telemetry, secrets_of(config))
        web_access, router = WebAccess.of(config, self._bound), Router(config)
        self.resources.use(config, router)
        if self._checks is not None:
            self._checks.use(config)
        recorder = self._inspection.use(config)
        self._stores.use(config)
        self.configured = Configured(
            config,
            router,
            web_access,
            self.resources,
            recorder=recorder,
            responses=self._stores.responses,
            natives=self._stores.natives,
            traces=self._traces.traces,
            watchers=self._watchers,
        )
        self._batches.use(self.configured)

    @property
    def config(self) -> Config:
        """The configuration that holds for new requests."""
        return self.configured.config

    @property
    def metrics(self) -> Metrics:
        return self.resources.metrics

    @property
    def memory(self) -> Budget:
        """What requests, answers and unsent output hold together."""
        return self.resources.memory

    @property
    def inspector(self) -> InspectApi | None:
        """What answers below /inspect/api; None where nothing is recorded, or the inspector is switched off."""
        return self._inspection.api

    # -- requests ------------------------------------------------------------------------------------------------------------

    def serve(
        self, client: Client, refusal: AthenaError | None = None, *, endpoint: Endpoint | None = None, owner: str | None = None
    ) -> Coroutine[Any, Any, None]:
        """One request of a client, answered to its end; with a `refusal`, by that error in the client's dialect. `endpoint` is
        what it asks for where its path does not say so; `owner` is the name of the key whose request it is, shown before."""
        return self._entrance.serve(client, self.configured, refusal, endpoint=endpoint, owner=owner)

    async def _serve_batched(self, client: Client, owner: str) -> None:
        await self.serve(client, owner=owner)

    # -- ASGI ----------------------------------------------------------------------------------------------------------------

    async def __call__(self, scope: Mapping[str, Any], receive: AsgiReceive, send: AsgiSend) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            async with AsgiClient(scope, receive, send) as client:
                await self.serve(client)
        elif scope["type"] == "websocket":
            await _refuse_socket(scope, send)

    async def _lifespan(self, receive: AsgiReceive, send: AsgiSend) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                self.start()
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                await self.close()
                await send({"type": "lifespan.shutdown.complete"})
                return

    # -- life ----------------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin with what goes on beside requests. Call it inside of the event loop; without it nothing but that is missing."""
        resources = self.resources
        self._checks = HealthChecks(lambda: resources.client, lambda upstream: resources.health.breaker(upstream))
        self._checks.use(self.config)
        self._batches.start(self.configured)
        self._route_exchange.start()

    def _shared_routes(self) -> tuple[RouteHealth, Store] | None:
        """The routes whose health other processes have a part in, and the store that is between them."""
        kept, routes = self.configured.responses, self.resources.routes
        is_shared = kept is not None and (kept.settings.url is not None or self.config.workers > 1)
        return (routes, kept.store) if kept is not None and is_shared and routes.settings.bad_share else None

    def begin_drain(self) -> None:
        """Take no new work; streams under way go on."""
        self._answers.is_draining = True
        self._batches.stop()
        self._inspection.stop()

    def stop_flows(self) -> None:
        """The drain time is over: end what is left, telling every client."""
        self._answers.stop()

    @property
    def open_flows(self) -> int:
        return len(self._answers)

    async def close(self) -> None:
        """End everything, in the order in which the parts need each other."""
        await self._route_exchange.close()
        await self._batches.close()
        if self._checks is not None:
            await self._checks.close()
            self._checks = None
        await self.resources.lists.close()
        await self._inspection.close()
        await self._traces.close()
        await self.jobs.close()
        await self._stores.close()
        await self.resources.close()


async def _refuse_socket(scope: Mapping[str, Any], send: AsgiSend) -> None:
    """Under a server that let a WebSocket through to us: clients that try one first fall back to plain requests."""
    if "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": 1002})
        return
    body = get_dialect("openai_responses").encode_error(error_event(socket_refused())).body
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)), NO_SOCKET]
    await send({"type": "websocket.http.response.start", "status": UPGRADE_REQUIRED, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": body})
