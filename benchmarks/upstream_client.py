"""What one request and one streamed chunk cost in the upstream client, beside ready-made clients, as ratios.

A server in a process of its own answers over loopback; each client asks it over one warm connection at a time, in turn with
the others, so that a busy machine hurts all alike. Figures are CPU microseconds of the client's process (the best of the
rounds), and requests per second; trust the ratios.

    python -m benchmarks.upstream_client
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import multiprocessing
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from multiprocessing.connection import Connection
from typing import Any, cast

import uvloop

from athena.shells.upstream import UpstreamClient, parse_base_url

REQUESTS = 1000
STREAMS = 20
CHUNKS = 500
ROUNDS = 5
BODY = b'{"model":"m","messages":[{"role":"user","content":"' + b"x" * 1000 + b'"}]}'
ANSWER = b'{"choices":[{"message":{"content":"' + b"y" * 1900 + b'"}}]}'
EVENT = b'data: {"choices":[{"delta":{"content":"' + b"z" * 200 + b'"}}]}\n\n'
HEADERS = {"authorization": "Bearer key", "content-type": "application/json", "user-agent": "benchmark"}

Ask = Callable[[str], Awaitable[int]]
"""Send BODY to the path, read the whole answer, return its length."""
Subject = Callable[[str], contextlib.AbstractAsyncContextManager[Ask]]


class _Server(asyncio.Protocol):
    """Answers as soon as a request is whole: `/plain` at once, `/burst` chunks together, `/paced` one chunk per round."""

    def __init__(self) -> None:
        self._held = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._held += data
        if not self._held.endswith(BODY):
            return
        path = self._held.split(b" ", 2)[1]
        self._held = b""
        assert self._transport is not None
        if path == b"/plain":
            head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nserver: b\r\ncontent-length: %d\r\n\r\n" % len(ANSWER)
            self._transport.write(head + ANSWER)
            return
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nserver: b\r\ntransfer-encoding: chunked\r\n\r\n"
        self._transport.write(head)
        chunk = b"%x\r\n%b\r\n" % (len(EVENT), EVENT)
        if path == b"/burst":
            self._transport.write(chunk * CHUNKS + b"0\r\n\r\n")
        else:
            self._pace(chunk, CHUNKS)

    def _pace(self, chunk: bytes, left: int) -> None:
        assert self._transport is not None
        self._transport.write(chunk if left else b"0\r\n\r\n")
        if left:
            asyncio.get_running_loop().call_later(0.001, self._pace, chunk, left - 1)


def serve(pipe: Connection) -> None:
    """The server's process."""

    async def main() -> None:
        server = await asyncio.get_running_loop().create_server(_Server, "127.0.0.1", 0)
        pipe.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    uvloop.run(main())


@contextlib.asynccontextmanager
async def athena(base: str) -> AsyncIterator[Ask]:
    """Our client, by `read`."""
    client = UpstreamClient()
    origin, _ = parse_base_url(base)
    headers = [(name.encode(), value.encode()) for name, value in HEADERS.items()]

    async def ask(path: str) -> int:
        response = await client.send("POST", origin, path, headers, BODY)
        size = 0
        while data := await response.read():
            size += len(data)
        return size

    yield ask
    await client.close()


@contextlib.asynccontextmanager
async def athena_callback(base: str) -> AsyncIterator[Ask]:
    """Our client, by callback."""
    client = UpstreamClient()
    origin, _ = parse_base_url(base)
    headers = [(name.encode(), value.encode()) for name, value in HEADERS.items()]

    async def ask(path: str) -> int:
        response = await client.send("POST", origin, path, headers, BODY)
        sizes: list[int] = []
        ended = asyncio.get_running_loop().create_future()
        response.deliver_to(lambda data: sizes.append(len(data)), ended.set_result)
        if (failure := await ended) is not None:
            raise failure
        return sum(sizes)

    yield ask
    await client.close()


def with_httpx(module: str) -> Subject:
    """httpx, or httpx2, as the official OpenAI SDK uses it."""

    @contextlib.asynccontextmanager
    async def subject(base: str) -> AsyncIterator[Ask]:
        httpx: Any = importlib.import_module(module)
        async with httpx.AsyncClient(base_url=base, headers=HEADERS) as client:

            async def ask(path: str) -> int:
                size = 0
                async with client.stream("POST", path, content=BODY) as response:
                    async for data in response.aiter_raw():
                        size += len(data)
                return size

            yield ask

    return subject


@contextlib.asynccontextmanager
async def with_aiohttp(base: str) -> AsyncIterator[Ask]:
    """aiohttp, the fastest ready-made client that was measured."""
    # Not among the requirements of this checkout: measured where it happens to be.
    aiohttp: Any = importlib.import_module("aiohttp")
    async with aiohttp.ClientSession(headers=HEADERS) as session:

        async def ask(path: str) -> int:
            size = 0
            async with session.post(base + path, data=BODY) as response:
                async for data in response.content.iter_any():
                    size += len(data)
            return size

        yield ask


def installed(module: str) -> bool:
    """Can it be measured here?"""
    try:
        __import__(module)
    except ImportError:
        return False
    return True


def measure(subject: Subject, base: str, path: str, times: int) -> tuple[float, float]:
    """CPU and wall seconds for so many requests, after one to warm up."""

    async def main() -> tuple[float, float]:
        async with subject(base) as ask:
            wanted = await ask(path)
            cpu, wall = time.process_time(), time.perf_counter()
            for _ in range(times):
                assert await ask(path) == wanted
            return time.process_time() - cpu, time.perf_counter() - wall

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main())


def main() -> None:
    """Measure and print."""
    subjects: dict[str, Subject] = {"athena": athena, "athena, callback": athena_callback}
    if installed("aiohttp"):
        subjects["aiohttp"] = with_aiohttp
    subjects |= {module: with_httpx(module) for module in ("httpx", "httpx2") if installed(module)}
    cases = {"plain": (REQUESTS, 1), "burst": (STREAMS, CHUNKS), "paced": (2, CHUNKS)}
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(theirs,), daemon=True)
    server.start()
    base = f"http://127.0.0.1:{ours.recv()}"
    print(f"{'case':8}{'client':20}{'cpu us':>10}{'ratio':>8}{'per s':>12}   (per request, or per chunk)")
    try:
        for case, (times, units) in cases.items():
            best = dict.fromkeys(subjects, (float("inf"), float("inf")))
            for _ in range(ROUNDS):
                for name, subject in subjects.items():
                    best[name] = min(best[name], measure(subject, base, f"/{case}", times))
            for name, (cpu, wall) in best.items():
                each = cpu / times / units
                ratio = cpu / best["athena"][0]
                print(f"{case:8}{name:20}{each * 1e6:10.2f}{ratio:8.2f}{times * units / wall:12.0f}")
    finally:
        server.terminate()
        server.join()


if __name__ == "__main__":
    main()
