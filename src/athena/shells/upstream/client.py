"""The client: one request in, one response out, over pooled connections."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from athena.errors import UpstreamClosed, UpstreamTimeout, UsageError
from athena.serving.network import DEFAULT_TIMEOUTS, ClientSettings, Origin, PoolLimits, Timeouts
from athena.shells.upstream.connection import Connection
from athena.shells.upstream.dial import Dialer, Resolver, resolve
from athena.shells.upstream.pool import OpenConnections, Pool, PoolStats
from athena.shells.upstream.request import render_head
from athena.shells.upstream.response import UpstreamResponse


class UpstreamClient:
    """Sends requests from one event loop. Redirects are answers like any other: none is followed."""

    def __init__(self, settings: ClientSettings | None = None, *, resolver: Resolver = resolve) -> None:
        self._settings = settings or ClientSettings()
        self._dialer = Dialer(self._settings.stagger, self._settings.receive_bytes, resolver)
        self._pools: dict[tuple[Origin, str], Pool] = {}
        self._open = OpenConnections(self._settings.max_open, self._pools)
        self._limits = PoolLimits(
            max_connections=self._settings.max_connections,
            max_idle=self._settings.max_idle,
            idle_lifetime=self._settings.idle_lifetime,
        )
        self._closed = False

    async def send(
        self,
        method: str,
        origin: Origin,
        path: str,
        headers: Sequence[tuple[bytes, bytes]] = (),
        body: bytes = b"",
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
        limits: PoolLimits | None = None,
    ) -> UpstreamResponse:
        """Send one request; returns when the head of the answer has come.

        `limits` are those of the upstream whose request it is; left out, those of the client's settings hold.

        Host, framing and accept-encoding headers are the client's own. An UpstreamError says in `request_sent` and
        `response_started` how far it got. If the connection closes before any byte of an answer, the request is sent once
        more over a new connection; `resent` tells.
        """
        if self._closed:
            raise UsageError("send() after close()")
        limits = limits or self._limits
        loop = asyncio.get_running_loop()
        pool = self._pools.get((origin, limits.name))
        if pool is None:
            pool = self._pools[origin, limits.name] = Pool(origin, limits, self._dialer, self._open, loop)
        elif pool.limits is not limits:
            pool.limits = limits  # the configuration was loaded anew
        head = render_head(method, path, pool.authority, headers, len(body))
        deadline = loop.time() + timeouts.total
        connection = pool.take_idle() or await self._acquire(pool, timeouts, deadline, fresh=False)
        try:
            response = UpstreamResponse(loop, connection, self._settings, timeouts, deadline)
            await response.begin(head, body)
            return response
        except UpstreamClosed as failure:
            if failure.response_started or self._closed or not (connection.uses > 1 or self._settings.resend_when_fresh):
                raise
            # Only this of the failure is kept: a name for the failure itself would tie it to its own frames, body included.
            request_sent = failure.request_sent
        try:
            connection = await self._acquire(pool, timeouts, deadline, fresh=True)
        except (UpstreamClosed, UpstreamTimeout) as failure:
            failure.request_sent = request_sent
            raise
        pool.count_resend()
        response = UpstreamResponse(loop, connection, self._settings, timeouts, deadline)
        await response.begin(head, body)
        return response

    async def _acquire(self, pool: Pool, timeouts: Timeouts, deadline: float, *, fresh: bool) -> Connection:
        remaining = deadline - asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(remaining):
                return await pool.acquire(fresh=fresh, wait_seconds=timeouts.pool, connect_seconds=timeouts.connect)
        except TimeoutError as cause:
            raise UpstreamTimeout(f"{pool.origin} took too long (total limit)", code="total_timeout") from cause

    def stats(self) -> dict[Origin, PoolStats]:
        """Connections and counts by origin; of upstreams with limits of their own, the one asked last."""
        return {origin: pool.stats() for (origin, _), pool in self._pools.items()}

    @property
    def open_connections(self) -> int:
        return self._open.count

    async def close(self) -> None:
        """Drop all connections; responses under way fail with UpstreamClosed."""
        self._closed = True
        for pool in self._pools.values():
            pool.close()
        # The loop closes the sockets in its next round.
        await asyncio.sleep(0)
