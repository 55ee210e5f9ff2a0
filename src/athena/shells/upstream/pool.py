"""Connections to one origin: kept, shared, limited.

The set of connections is the count of them: a connection is in it from before its first attempt to connect until it is given
up, so no path (cancellation, failure, a waiter that left as its turn came) can lose a place.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import Any

import msgspec

from athena.errors import UpstreamClosed, UpstreamError, UpstreamTimeout
from athena.serving.network import Origin, PoolLimits
from athena.shells.upstream.connection import Connection
from athena.shells.upstream.dial import Dialer


class PoolStats(msgspec.Struct):
    """How the connections to one origin are, and what became of those before."""

    open: int = 0
    """Connections that exist or are being opened; `idle` and busy ones together."""
    idle: int = 0
    waiting: int = 0
    opened: int = 0
    reused: int = 0
    resent: int = 0
    stray: int = 0
    """Connections that died of unsolicited bytes."""


class _Waiter(msgspec.Struct, eq=False):
    future: asyncio.Future[Connection | None]
    """None: nothing came in time, or the pool was closed. Not an exception, which would tie the waiter to its frames."""
    fresh: bool


class OpenConnections:
    """How many connections all pools of one client have."""

    def __init__(self, most: int, pools: Mapping[Any, Pool]) -> None:
        self.count = 0
        self._most = most
        self._pools = pools

    def add(self) -> None:
        """One more. Raises UpstreamError where that is one too many and none of the others is idle."""
        if self._most and self.count >= self._most:
            idle = [pool for pool in self._pools.values() if pool.idle_since is not None]
            if not idle:
                raise descriptor_limit()
            min(idle, key=lambda pool: pool.idle_since or 0.0).drop_oldest()
        self.count += 1


def descriptor_limit() -> UpstreamError:
    """The process has no descriptor left for a connection; the upstream is not at fault."""
    return UpstreamError(
        "the gateway has as many connections open as it may have; ask again in a moment",
        kind="overloaded",
        code="descriptor_limit",
        retry_after=2,
    )


class Pool:
    """Hands out clean connections, the one used last first."""

    def __init__(
        self,
        origin: Origin,
        limits: PoolLimits,
        dialer: Dialer,
        opened: OpenConnections,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._loop = loop
        """The one that all its connections belong to."""
        self.origin = origin
        self.authority = origin.authority
        self.limits = limits
        self._dialer = dialer
        self._opened = opened
        self._connections: set[Connection] = set()
        self._idle: list[Connection] = []
        self._waiters: deque[_Waiter] = deque()
        self._sweeper: asyncio.TimerHandle | None = None
        self._closed = False
        self._counts = PoolStats()

    # -- taking ------------------------------------------------------------------------------------------------------------

    def take_idle(self) -> Connection | None:
        """A clean pooled connection, if there is one."""
        if not self._idle:
            return None
        now = self._loop.time()
        while self._idle:
            connection = self._idle.pop()
            if connection.expires_at > now and connection.is_clean():
                self._counts.reused += 1
                return connection
            connection.abort()
        return None

    async def acquire(self, *, fresh: bool, wait_seconds: float, connect_seconds: float) -> Connection:
        """A connection to write to; `fresh`: one that never carried a request."""
        while True:
            connection = None if fresh else self.take_idle()
            if connection is not None:
                return connection
            if fresh and self._idle and len(self._connections) >= self.limits.max_connections:
                self._idle.pop(0).abort()
            if len(self._connections) < self.limits.max_connections:
                connection = self._add()
            else:
                connection = await self._wait(fresh, wait_seconds)
            if not connection.is_open and not connection.dead:
                return await self._open(connection, connect_seconds)
            if connection.is_clean():
                self._counts.reused += 1
                return connection
            connection.abort()

    def _add(self) -> Connection:
        self._opened.add()
        connection = Connection(self)
        self._connections.add(connection)
        return connection

    async def _open(self, connection: Connection, seconds: float) -> Connection:
        try:
            await self._dialer.open(connection, self.origin, seconds)
        except BaseException:
            connection.abort()
            raise
        self._counts.opened += 1
        return connection

    async def _wait(self, fresh: bool, seconds: float) -> Connection:
        loop = self._loop
        waiter = _Waiter(loop.create_future(), fresh)
        self._waiters.append(waiter)
        timer = loop.call_later(seconds, self._expire, waiter)
        try:
            connection = await waiter.future
        except BaseException:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
            future = waiter.future
            if future.done() and not future.cancelled() and (given := future.result()) is not None:
                # Its turn came in the very moment it left: the next one gets it.
                self._put_back(given)
            raise
        finally:
            timer.cancel()
        if connection is not None:
            return connection
        if waiter in self._waiters:
            self._waiters.remove(waiter)
        if self._closed:
            raise UpstreamClosed("the client was closed", code="client_closed")
        limit = self.limits.max_connections
        raise UpstreamTimeout(f"all {limit} connections to {self.origin} are busy", code="pool_timeout")

    def _expire(self, waiter: _Waiter) -> None:
        if not waiter.future.done():
            waiter.future.set_result(None)

    # -- giving back -------------------------------------------------------------------------------------------------------

    def release(self, connection: Connection) -> None:
        """A connection whose response is complete."""
        waiter = self._next_waiter() if self._waiters else None
        if waiter is not None and not waiter.fresh:
            self._waiters.popleft()
            waiter.future.set_result(connection)
            return
        if waiter is not None or self._closed:
            connection.abort()
            return
        lifetime = self.limits.idle_lifetime
        if connection.server_lifetime is not None:
            lifetime = min(lifetime, connection.server_lifetime)
        now = self._loop.time()
        connection.idle_since, connection.expires_at = now, now + lifetime
        self._idle.append(connection)
        if len(self._idle) > self.limits.max_idle:
            self._idle.pop(0).abort()
        if self._sweeper is None and self._idle:
            self._sweeper = self._loop.call_later(self.limits.idle_lifetime, self._sweep)

    def discard(self, connection: Connection, *, stray: bool) -> None:
        """A connection that is gone; its place goes to the next waiting request."""
        if connection not in self._connections:
            return
        self._connections.remove(connection)
        self._opened.count -= 1
        if connection in self._idle:
            self._idle.remove(connection)
        self._counts.stray += stray
        waiter = self._next_waiter()
        if waiter is not None and not self._closed:
            self._waiters.popleft()
            waiter.future.set_result(self._add())

    @property
    def idle_since(self) -> float | None:
        """Since when the idle connection that was not used for longest is idle; None: there is none."""
        return self._idle[0].idle_since if self._idle else None

    def drop_oldest(self) -> None:
        self._idle.pop(0).abort()

    def _put_back(self, connection: Connection) -> None:
        if connection.is_open:
            self.release(connection)
        else:
            connection.abort()

    def _next_waiter(self) -> _Waiter | None:
        while self._waiters:
            if not self._waiters[0].future.done():
                return self._waiters[0]
            self._waiters.popleft()
        return None

    def _sweep(self) -> None:
        """Close what was not used for too long; one timer for all, only while something idles."""
        self._sweeper = None
        loop = self._loop
        now = loop.time()
        for connection in [connection for connection in self._idle if connection.expires_at <= now]:
            connection.abort()
        if self._idle:
            self._sweeper = loop.call_at(min(connection.expires_at for connection in self._idle), self._sweep)

    # -- the whole ---------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Give everything up: idle, busy, waiting."""
        self._closed = True
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        for waiter in self._waiters:
            if not waiter.future.done():
                waiter.future.set_result(None)
        for connection in list(self._connections):
            connection.shut_down()

    def count_resend(self) -> None:
        """One request went out a second time."""
        self._counts.resent += 1

    def stats(self) -> PoolStats:
        return msgspec.structs.replace(
            self._counts, open=len(self._connections), idle=len(self._idle), waiting=len(self._waiters)
        )
