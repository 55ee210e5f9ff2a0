"""The least a Python gateway can do: pass the bytes of HTTP messages on. A floor to measure against, not a product.

One uvloop protocol on each side, httptools to find the ends of messages, pooled upstream connections, one write per read.

    python -m benchmarks.gateway.relay PORT UPSTREAM_PORT
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from typing import cast

import httptools
import uvloop


class Upstream(asyncio.Protocol):
    """A connection to the upstream; it serves one client at a time."""

    def __init__(self, pool: deque[Upstream]) -> None:
        self._pool = pool
        self._parser = httptools.HttpResponseParser(self)
        self._complete = False
        self.client: Client | None = None
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ready."""
        self.transport = cast(asyncio.Transport, transport)

    def ask(self, client: Client, data: bytes) -> None:
        """Send a request whose answer goes to this client."""
        assert self.transport is not None
        self.client, self._complete = client, False
        self._parser = httptools.HttpResponseParser(self)
        self.transport.write(data)

    def data_received(self, data: bytes) -> None:
        """Pass on what came, in one write."""
        self._parser.feed_data(data)
        client = self.client
        if client is not None and client.transport is not None:
            client.transport.write(data)
        if self._complete:
            self.client = None
            self._pool.append(self)

    def on_message_complete(self) -> None:
        """The answer is whole."""
        self._complete = True

    def connection_lost(self, error: Exception | None) -> None:
        """An answer cut short is cut short for the client too."""
        self.transport = None
        if self.client is not None and self.client.transport is not None:
            self.client.transport.close()


class Client(asyncio.Protocol):
    """A connection from a client."""

    def __init__(self, pool: deque[Upstream], upstream_port: int) -> None:
        self._pool = pool
        self._upstream_port = upstream_port
        self._parser = httptools.HttpRequestParser(self)
        self._held: list[bytes] = []
        self._complete = False
        self._dialling: asyncio.Task[None] | None = None
        self._upstream: Upstream | None = None
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ready."""
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """A whole request goes to a free connection, or to a new one."""
        self._held.append(data)
        self._parser.feed_data(data)
        if not self._complete:
            return
        request = b"".join(self._held)
        self._held.clear()
        self._complete = False
        while self._pool:
            upstream = self._pool.popleft()
            if upstream.transport is not None:
                self._upstream = upstream
                upstream.ask(self, request)
                return
        self._dialling = asyncio.get_running_loop().create_task(self._dial(request))

    def on_message_complete(self) -> None:
        """The request is whole."""
        self._complete = True

    async def _dial(self, request: bytes) -> None:
        loop = asyncio.get_running_loop()
        _, upstream = await loop.create_connection(lambda: Upstream(self._pool), "127.0.0.1", self._upstream_port)
        self._upstream = upstream
        upstream.ask(self, request)

    def _serving(self) -> asyncio.Transport | None:
        upstream = self._upstream
        return upstream.transport if upstream is not None and upstream.client is self else None

    def pause_writing(self) -> None:
        """A slow client slows its upstream."""
        if (transport := self._serving()) is not None:
            transport.pause_reading()

    def resume_writing(self) -> None:
        """On again."""
        if (transport := self._serving()) is not None:
            transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        """The client has gone."""
        self.transport = None
        if (transport := self._serving()) is not None:
            transport.close()


async def serve(port: int, upstream_port: int) -> None:
    """Until killed."""
    pool: deque[Upstream] = deque()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Client(pool, upstream_port), "127.0.0.1", port, backlog=4096)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), int(sys.argv[2])))
