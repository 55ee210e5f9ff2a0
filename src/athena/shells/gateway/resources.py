"""What a gateway has once, whatever its configuration: memory, connections to upstreams, their health, the numbers.

A new configuration changes limits here; requests under way go on with what they hold.
"""

from __future__ import annotations

import time
from functools import partial

from athena.opaque import Envelope, OpaqueStore
from athena.serving.breaker import BreakerState
from athena.serving.budget import Budget
from athena.serving.choosing import Chooser
from athena.serving.health import UpstreamHealth
from athena.serving.record import RequestRecord
from athena.serving.route_health import RouteHealth
from athena.serving.tokens import TokenCounter
from athena.serving.weight import READING
from athena.shells import machine
from athena.shells.config import Config, LimitSettings, Router
from athena.shells.gateway.changes import ChangeReports
from athena.shells.gateway.lanes import Lanes
from athena.shells.gateway.metrics import Metrics
from athena.shells.gateway.model_labels import ModelLabels
from athena.shells.gateway.model_lists import ModelLists
from athena.shells.gateway.numbers import Numbers
from athena.shells.gateway.taps import RequestLines, RequestNumbers
from athena.shells.sealing import Sealer
from athena.shells.upstream import ClientSettings, UpstreamClient
from athena.wire.fragments import Fragments

_MEMORY_SHARE = 4
"""Requests and answers may hold the memory of the machine divided by this."""
_CACHE_SHARE = 8
"""What is remembered of requests takes at most this part of what requests may hold."""


class Resources:
    """What all requests of one gateway share."""

    def __init__(self, config: Config, key: bytes, numbers: Numbers) -> None:
        """`key` seals what clients hold for the gateway."""
        self.metrics = Metrics(numbers)
        self.tokens = TokenCounter()
        self.memory = Budget(0, time.monotonic, lambda: self.metrics.refusals.labels("memory_bytes").inc())
        """What requests, answers and unsent output hold together."""
        self.fragments = Fragments(0)
        """Parts of requests that may come again."""
        self.lanes = Lanes(lambda upstream, reason: self.metrics.queue_refusals.labels(upstream, reason).inc())
        self.envelope = Envelope(key)
        self.sealer = Sealer(key)
        self.opaque_store = OpaqueStore(config.reasoning_store) if config.reasoning_store else None
        self.open_descriptors = 0
        """Connections to upstreams that may be open at once, over all of them; 0: no limit."""
        self.labels = ModelLabels()
        self.changes = ChangeReports(self.metrics, self.labels)
        self.health = UpstreamHealth(config.health, time.monotonic, self.changes.upstream_changed)
        self.routes = RouteHealth(config.health.tools, time.monotonic, self.changes.route_changed)
        self.chooser = Chooser(self.routes, lambda upstream: self.health.is_up(upstream))
        self.numbers = RequestNumbers(self.metrics, self.labels.label)
        self.lines = RequestLines()
        self.lists = ModelLists(lambda: self.client)
        self._limits = config.limits
        self._client: UpstreamClient | None = None
        self.metrics.watch("memory_bytes", lambda: self.memory.used, lambda: self.memory.limit)
        self.metrics.history_cache.set_function(lambda: self.fragments.used)

    def use(self, config: Config, router: Router) -> None:
        """Work by this configuration from now on."""
        self._limits = config.limits
        self.lists.use(config, router)
        self.memory.set_limit(_memory_limit(config.limits, config.workers))
        self.fragments.set_limit(min(config.limits.history_cache_bytes, self.memory.limit // _CACHE_SHARE))
        self.lanes.use(config)
        self.labels.use(config, router)
        if self.health.settings != config.health:
            self.health = UpstreamHealth(config.health, time.monotonic, self.changes.upstream_changed)
        self.health.keep(config.upstreams)
        if self.routes.settings != config.health.tools:
            self.routes = RouteHealth(config.health.tools, time.monotonic, self.changes.route_changed)
            self.chooser.routes = self.routes
        self.routes.keep(config.upstreams)
        for name in config.upstreams:
            self.metrics.upstream_up.set_function(partial(self._is_up, name), name)
            self.metrics.watch_upstream(name, self.lanes.of(name), partial(self._is_in, name))
        for upstream, model in router.named_targets() if config.metrics.per_model else ():
            self.metrics.route_up.set_function(partial(self._is_route_in, upstream, model), upstream, model)

    def over(self, record: RequestRecord) -> None:
        """A request is over that no `Serving` served: write its line, count it."""
        self.numbers.over(record)
        self.lines.over(record)

    @property
    def client(self) -> UpstreamClient:
        """The upstream client of this event loop, made on first use."""
        if self._client is None:
            limits = self._limits
            self._client = UpstreamClient(
                ClientSettings(
                    max_open=self.open_descriptors,
                    buffer_bytes=limits.stream_buffer_bytes,
                    max_decoded_bytes=limits.answer_bytes,
                    max_decoded_ratio=limits.decompress_ratio,
                )
            )
        return self._client

    @property
    def upstream_connections(self) -> int:
        return self._client.open_connections if self._client is not None else 0

    async def close(self) -> None:
        """End every connection to an upstream."""
        if self._client is not None:
            await self._client.close()
            self._client = None

    def _is_up(self, upstream: str) -> float:
        return float(self.health.is_up(upstream))

    def _is_in(self, upstream: str, state: BreakerState) -> float:
        return float(self.health.breaker(upstream).state is state)

    def _is_route_in(self, upstream: str, model: str) -> float:
        return float(not self.routes.is_out(upstream, model))


def _memory_limit(limits: LimitSettings, processes: int) -> int:
    """What one of several server processes may hold.

    Where nothing is configured it is never so little that one request of the largest size does not fit.
    """
    if limits.memory_bytes:
        return limits.memory_bytes // processes
    return max(machine.memory_bytes() // _MEMORY_SHARE // processes, (READING + 1) * limits.body_bytes)
