"""The upstream client in callback mode: portions, turns of the loop, pauses, ends, callbacks that close or fail."""

from __future__ import annotations

import asyncio
import gzip
from collections import Counter

import pytest

from athena.errors import UpstreamClosed, UpstreamError, UsageError
from athena.shells.upstream import (
    ClientSettings,
    Timeouts,
    UpstreamClient,
)
from athena.shells.upstream.response import PORTION
from support.event_loops import Run, both_loops, by_hand_clock, hand_clock
from support.raw_server import (
    Hold,
    RawServer,
    Request,
    Step,
    answer,
    chunk,
    chunked_head,
)
from support.upstream_clients import ask, send, stats, until, with_client


class Collector:
    """A consumer that notes what it is told."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.ends: list[UpstreamError | None] = []

    def on_data(self, data: bytes) -> None:
        self.pieces.append(data)

    def on_end(self, failure: UpstreamError | None) -> None:
        self.ends.append(failure)


@pytest.mark.parametrize("encoding", ["identity", "gzip"])
@both_loops
def test_callbacks_get_everything_once(run: Run, encoding: str) -> None:
    text = b"0123456789" * 100
    wire = gzip.compress(text) if encoding == "gzip" else text
    parts: list[Step] = [chunk(wire[at : at + 100]) for at in range(0, len(wire), 100)]
    with RawServer([Request(), chunked_head(f"content-encoding: {encoding}"), *parts, chunk(b""), Hold()]) as server:

        async def main(client: UpstreamClient) -> None:
            collector = Collector()
            response = await send(client, server)
            response.deliver_to(collector.on_data, collector.on_end)
            await until(lambda: bool(collector.ends))
            assert b"".join(collector.pieces) == text
            assert collector.ends == [None]
            assert stats(client).idle == 1
            with pytest.raises(UsageError):
                await response.read()

        with_client(run, main)


@both_loops
def test_callbacks_learn_of_failures(run: Run) -> None:
    with RawServer([Request(), chunked_head(), chunk(b"half")]) as server:

        async def main(client: UpstreamClient) -> None:
            collector = Collector()
            (await send(client, server)).deliver_to(collector.on_data, collector.on_end)
            await until(lambda: bool(collector.ends))
            assert collector.pieces == [b"half"]
            assert isinstance(collector.ends[0], UpstreamClosed)

        with_client(run, main)


@by_hand_clock
def test_callbacks_can_pause_and_resume(run: Run) -> None:
    total = 8 << 20
    with RawServer([Request(), answer(b"x" * total), Hold()]) as server:

        async def main(client: UpstreamClient) -> None:
            collector = Collector()
            response = await send(client, server, timeouts=Timeouts(idle=10))
            response.pause()
            response.deliver_to(collector.on_data, collector.on_end)
            await hand_clock().pass_time(50)
            assert not collector.pieces
            response.resume()
            await until(lambda: bool(collector.ends))
            assert sum(map(len, collector.pieces)) == total
            assert collector.ends == [None]

        with_client(run, main)


class Turns:
    """Counts the turns of the loop."""

    def __init__(self) -> None:
        self.now = 0
        self._loop = asyncio.get_running_loop()
        self._count()

    def _count(self) -> None:
        self.now += 1
        self._handle = self._loop.call_soon(self._count)

    def stop(self) -> None:
        self._handle.cancel()


@pytest.mark.parametrize("encoding", ["identity", "gzip"])
@both_loops
def test_a_turn_of_the_loop_ends_behind_the_portion_that_used_up_its_time(run: Run, encoding: str) -> None:
    text = bytes(range(256)) * 4096
    wire = gzip.compress(text) if encoding == "gzip" else text
    head = b"HTTP/1.1 200 OK\r\ncontent-encoding: %b\r\ncontent-length: %d\r\n\r\n" % (encoding.encode(), len(wire))
    with RawServer([Request(), head + wire, Hold()]) as server:

        async def main(client: UpstreamClient) -> None:
            collector, turns_of_data = Collector(), []
            response = await send(client, server)
            turns = Turns()

            def on_data(data: bytes) -> None:
                turns_of_data.append(turns.now)
                collector.on_data(data)

            response.deliver_to(on_data, collector.on_end)
            await until(lambda: bool(collector.ends))
            turns.stop()
            assert b"".join(collector.pieces) == text
            assert collector.ends == [None]
            assert max(map(len, collector.pieces)) <= PORTION
            # One of what waits, and one of what the socket brings in the same turn.
            assert max(Counter(turns_of_data).values()) <= 2

        with_client(run, main, ClientSettings(turn_s=0))


@both_loops
def test_portions_that_wait_come_before_the_failure_behind_them(run: Run) -> None:
    text = b"0123456789abcdef" * 8192
    with RawServer([Request(), chunked_head() + chunk(text)]) as server:

        async def main(client: UpstreamClient) -> None:
            collector = Collector()
            (await send(client, server)).deliver_to(collector.on_data, collector.on_end)
            await until(lambda: bool(collector.ends))
            assert b"".join(collector.pieces) == text
            assert isinstance(collector.ends[0], UpstreamClosed)

        with_client(run, main)


@both_loops
def test_a_pause_holds_between_portions(run: Run) -> None:
    text = b"0123456789abcdef" * 8192
    with RawServer([Request(), answer(text), Hold()]) as server:

        async def main(client: UpstreamClient) -> None:
            collector = Collector()
            response = await send(client, server)

            def on_data(data: bytes) -> None:
                collector.on_data(data)
                response.pause()

            response.deliver_to(on_data, collector.on_end)
            seen = 0
            while not collector.ends:
                await until(lambda seen=seen: len(collector.pieces) > seen or bool(collector.ends))  # type: ignore[misc]  # bound now
                seen += 1
                await asyncio.sleep(0.002)
                assert len(collector.pieces) == seen or collector.ends
                response.resume()
            assert b"".join(collector.pieces) == text
            assert collector.ends == [None]

        with_client(run, main)


@both_loops
def test_no_portion_comes_behind_a_close(run: Run) -> None:
    with RawServer([Request(), answer(b"x" * (1 << 20)), Hold()]) as server:

        async def main(client: UpstreamClient) -> None:
            collector, seen = Collector(), []
            response = await send(client, server)
            loop = asyncio.get_running_loop()

            def close() -> None:
                seen.append(len(collector.pieces))
                response.close()

            def on_data(data: bytes) -> None:
                collector.on_data(data)
                if len(collector.pieces) == 2:
                    loop.call_soon(close)

            response.deliver_to(on_data, collector.on_end)
            await until(lambda: bool(seen))
            await asyncio.sleep(0.05)
            assert [len(collector.pieces)] == seen
            assert collector.ends == []

        with_client(run, main, ClientSettings(turn_s=0))


@both_loops
def test_a_callback_may_close(run: Run) -> None:
    with RawServer([Request(), chunked_head(), chunk(b"[DONE]"), Hold()], [Request(), answer(b"b"), Hold()]) as server:

        async def main(client: UpstreamClient) -> None:
            collector = Collector()
            response = await send(client, server)

            def on_data(data: bytes) -> None:
                collector.on_data(data)
                response.close()

            response.deliver_to(on_data, collector.on_end)
            await until(lambda: stats(client).open == 0)
            assert await ask(client, server) == b"b"
            assert collector.pieces == [b"[DONE]"]
            assert collector.ends == []

        with_client(run, main)


@both_loops
def test_a_failing_callback_is_reported_and_harms_no_other(run: Run) -> None:
    with RawServer([Request(), answer(b"a"), Request(), answer(b"b"), Hold()]) as server:

        async def main(client: UpstreamClient) -> None:
            reported: list[object] = []
            loop = asyncio.get_running_loop()
            loop.set_exception_handler(lambda _, context: reported.append(context["exception"]))
            response = await send(client, server)

            def on_data(data: bytes) -> None:
                raise ValueError("consumer")

            response.deliver_to(on_data, lambda failure: None)
            await until(lambda: bool(reported))
            assert isinstance(reported[0], ValueError)
            assert await ask(client, server) in (b"a", b"b")

        with_client(run, main)
