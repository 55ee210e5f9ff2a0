"""The upstream client as tests use it: one request or many, and nothing left behind."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from athena.errors import UpstreamError
from athena.shells.upstream import (
    ClientSettings,
    PoolStats,
    Timeouts,
    UpstreamClient,
    UpstreamResponse,
    parse_base_url,
)
from support.event_loops import Run
from support.raw_server import (
    Hold,
    RawServer,
    Request,
    Step,
    answer,
)

HEADERS = [(b"authorization", b"Bearer key"), (b"content-type", b"application/json")]


async def send(
    client: UpstreamClient, server: RawServer, body: bytes = b"{}", timeouts: Timeouts | None = None
) -> UpstreamResponse:
    origin, prefix = parse_base_url(server.url)
    return await client.send("POST", origin, prefix + "/v1/chat", HEADERS, body, timeouts or Timeouts())


async def read_all(response: UpstreamResponse) -> bytes:
    pieces = []
    while data := await response.read():
        pieces.append(data)
    return b"".join(pieces)


async def drain(response: UpstreamResponse) -> tuple[list[bytes], UpstreamError | None]:
    """What came, and how it broke off."""
    pieces = []
    try:
        while data := await response.read():
            pieces.append(data)
    except UpstreamError as failure:
        return pieces, failure
    return pieces, None


async def ask(client: UpstreamClient, server: RawServer, body: bytes = b"{}", timeouts: Timeouts | None = None) -> bytes:
    return await read_all(await send(client, server, body, timeouts))


async def until(condition: Callable[[], bool]) -> None:
    """Give the loop rounds until the condition holds, whatever its clock does; the test's own limit ends it otherwise."""
    while not condition():
        await asyncio.to_thread(time.sleep, 0.001)


def same_answer(times: int) -> list[Step]:
    """So many requests, each answered with an `a`."""
    steps: list[Step] = [Request(), answer(b"a")]
    return [*steps * times, Hold()]


def stats(client: UpstreamClient) -> PoolStats:
    (found,) = client.stats().values()
    return found


def with_client(run: Run, main: Callable[[UpstreamClient], object], settings: ClientSettings | None = None) -> None:
    """Run `main` with a client; afterwards nothing of it may be left."""

    async def inner() -> None:
        client = UpstreamClient(settings)
        try:
            await main(client)  # type: ignore[misc]  # each caller passes a coroutine function
        finally:
            await client.close()
        for left in client.stats().values():
            assert (left.open, left.idle, left.waiting) == (0, 0, 0)

    run(inner)
