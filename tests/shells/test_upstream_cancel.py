"""Cancellation at any moment loses no place in the pool, leaves no task, and harms no other request."""

from __future__ import annotations

import asyncio
import random

import pytest

from athena.errors import UpstreamError
from athena.shells.upstream import ClientSettings, Timeouts, UpstreamClient, parse_base_url
from support.event_loops import Run, both_loops
from support.patience import FOR_EVER

TIMEOUTS = Timeouts(pool=FOR_EVER, connect=FOR_EVER, first_byte=FOR_EVER, idle=FOR_EVER)


class EchoServer:
    """Answers each request with its own body, in a way that the first byte of the body selects, at random speed."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.url = ""

    async def __aenter__(self) -> EchoServer:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                body = await reader.readexactly(int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]))
                await self._answer(body, writer)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        except RuntimeError:
            # uvloop's word for writing to a client that has gone.
            assert writer.transport.is_closing()
        finally:
            writer.transport.abort()

    async def _answer(self, body: bytes, writer: asyncio.StreamWriter) -> None:
        await self._breath()
        kind = body[:1]
        if kind == b"d":
            raise ConnectionError
        if kind == b"c":
            writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
            for at in range(0, len(body), 3):
                await self._breath()
                piece = body[at : at + 3]
                writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            writer.write(b"0\r\n\r\n")
        elif kind == b"s":
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nstray")
        else:
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body))
            await self._breath()
            writer.write(body)

    async def _breath(self) -> None:
        if self._chance.random() < 0.5:
            await asyncio.sleep(self._chance.random() * 0.004)


@pytest.mark.parametrize("seed", [1, 2])
@both_loops
def test_random_cancellation_loses_nothing(run: Run, seed: int) -> None:
    chance = random.Random(seed)

    async def main() -> None:
        async with EchoServer(chance) as server:
            await against(server)

    async def against(server: EchoServer) -> None:
        client = UpstreamClient(ClientSettings(max_connections=4, max_idle=3))
        origin, _ = parse_base_url(server.url)
        completed = 0

        async def exchange(body: bytes) -> None:
            nonlocal completed
            response = await client.send("POST", origin, "/", [], body, TIMEOUTS)
            try:
                received = b""
                while data := await response.read():
                    received += data
                    if chance.random() < 0.05:
                        return
                assert received == body
                completed += 1
            finally:
                response.close()

        async def one(number: int) -> None:
            body = b"%b%d" % (chance.choice([b"c", b"l", b"l", b"s", b"d"]), number) * 5
            task = asyncio.ensure_future(exchange(body))
            if chance.random() < 0.5:
                await asyncio.sleep(chance.random() * 0.02)
                task.cancel()
                if chance.random() < 0.2:
                    await asyncio.sleep(0)
                    task.cancel()
            (outcome,) = await asyncio.gather(task, return_exceptions=True)
            assert outcome is None or isinstance(outcome, asyncio.CancelledError | UpstreamError), repr(outcome)

        for start in range(0, 400, 20):
            await asyncio.gather(*[one(number) for number in range(start, start + 20)])
        found = client.stats()[origin]
        assert found.open == found.idle <= 3
        assert found.waiting == 0
        assert completed > 50
        # Every place is still there: as many at once as are allowed.
        await asyncio.gather(*[exchange(b"l%d" % number) for number in range(8)])
        await client.close()
        assert client.stats()[origin].open == 0

    run(main)


@both_loops
def test_cancelled_at_every_round_of_the_loop(run: Run) -> None:
    """One request over a new connection, cancelled after 0, 1, 2, ... rounds, until one comes through."""
    chance = random.Random(3)

    async def main() -> None:
        async with EchoServer(chance) as server:
            await against(server)

    async def against(server: EchoServer) -> None:
        origin, _ = parse_base_url(server.url.replace("127.0.0.1", "localhost"))
        rounds = 0
        while True:
            client = UpstreamClient()

            async def exchange(client: UpstreamClient = client) -> bytes:
                response = await client.send("POST", origin, "/", [], b"l", TIMEOUTS)
                try:
                    return await response.read()
                finally:
                    response.close()

            task = asyncio.ensure_future(exchange())
            for _ in range(rounds):
                await asyncio.sleep(0)
            finished = task.done()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            found = client.stats()
            assert all(pool.open == pool.idle for pool in found.values())
            await client.close()
            if finished:
                assert task.result() == b"l"
                break
            rounds += 1 + rounds // 8

    run(main)
