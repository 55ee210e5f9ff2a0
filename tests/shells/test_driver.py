"""Answers that take long: what the driver hands to a thread, in which portions, and that nothing is lost by it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import pytest

from athena.errors import AthenaError
from athena.exchange import Exchange, Step
from athena.serving import serving as serving_module
from athena.shells.gateway import driver as driver_module
from athena.shells.gateway.client import Headers, Recent
from athena.shells.gateway.driver import Driver
from athena.shells.gateway.lanes import Lanes
from athena.shells.upstream import UpstreamClient
from support.event_loops import Run, both_loops
from support.patience import PATIENCE
from support.raw_server import Hold, RawServer, Request, answer, chunk, chunked_head
from support.serving_values import House

TOOL = {"name": "get_weather", "input_schema": {"type": "object"}}
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Tokyo"}}\n</tool_call>'
SSE = chunked_head("content-type: text/event-stream")


def question(*, stream: bool) -> dict[str, Any]:
    return {"model": "m", "max_tokens": 9, "stream": stream, "tools": [TOOL], "messages": [{"role": "user", "content": "hi"}]}


class Watched(Exchange):
    """An exchange that notes which thread fed it how much."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.fed: list[tuple[bool, int]] = []
        """In the loop's thread? How many bytes?"""
        self.ended_in_loop: bool | None = None
        self.before_end: Callable[[], object] = lambda: None
        # Where the first request of a format is made ready, this object is made in another thread.
        self._loop_thread = threading.main_thread().ident

    def upstream_data(self, data: bytes, now: float = 0.0) -> Step:
        self.fed.append((threading.get_ident() == self._loop_thread, len(data)))
        return super().upstream_data(data, now)

    def upstream_end(self, failure: AthenaError | None = None) -> Step:
        self.ended_in_loop = threading.get_ident() == self._loop_thread
        self.before_end()
        return super().upstream_end(failure)


class Reader:
    """A client that takes everything."""

    method, path, query, peer, blocked = "POST", "/", "", "127.0.0.1", False

    def __init__(self) -> None:
        self.headers: dict[str, str] = {}
        self.on_gone: Callable[[], None] | None = None
        self.on_drained: Callable[[], None] | None = None
        self.on_doubt: Callable[[], None] | None = None
        self.recent: Recent | None = None
        self.writes: list[bytes] = []
        self.finished = 0

    @property
    def output(self) -> bytes:
        return b"".join(self.writes)

    def take_body(self) -> tuple[bytes, bool]:
        return b"", True

    async def more_body(self, enough: int) -> None: ...

    def start(self, status: int, headers: list[tuple[bytes, bytes]], length: int | None) -> None: ...

    def write(self, data: bytes) -> None:
        self.writes.append(data)

    def finish(self, data: bytes = b"") -> None:
        self.finished += 1
        self.writes.append(data)

    def chunk_writer(self) -> Callable[[bytes], None] | None:
        return None

    def accept_socket(self, headers: Headers) -> bool:
        return False

    def cut_off(self) -> None: ...


Watch = Callable[[Watched, Reader, Driver, "asyncio.Task[None]"], Coroutine[Any, Any, None]]


def driven(
    run: Run, server: RawServer, monkeypatch: pytest.MonkeyPatch, *, stream: bool, watch: Watch | None = None
) -> tuple[Watched, Reader]:
    """The server's answer through a driver; `watch` runs beside it."""
    made: list[Watched] = []

    def make(*given: Any) -> Watched:
        made.append(Watched(*given))
        return made[-1]

    monkeypatch.setattr(serving_module, "Exchange", make)
    upstreams = {"up": {"base_url": f"{server.url}/v1"}}
    house = House({"upstreams": upstreams, "models": [{"match": "m", "use": "up"}], "retries": {"attempts": 0}})
    reader = Reader()

    async def main() -> None:
        client = UpstreamClient()
        lanes = Lanes()
        lanes.use(house.config)
        drivers: list[Driver] = []

        async def serve() -> None:
            now = asyncio.get_running_loop().time()
            serving = house.serve(question(stream=stream), dialect="anthropic_messages", now=now)
            drivers.append(Driver(serving, reader, client, lanes, []))
            await drivers[0].run()

        try:
            task = asyncio.ensure_future(serve())
            if watch is not None:
                while not made and not task.done():
                    await asyncio.sleep(0.001)
                await watch(made[0], reader, drivers[0], task)
            await task
        finally:
            await client.close()

    run(main)
    return made[0], reader


def whole(text: str) -> bytes:
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    return msgspec.json.encode({"id": "1", "object": "chat.completion", "model": "m", "choices": [choice]})


def delta(text: str, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish}
    record = {"id": "1", "object": "chat.completion.chunk", "model": "m", "choices": [choice]}
    return b"data: " + msgspec.json.encode(record) + b"\n\n"


def texts(output: bytes) -> str:
    """The text that a Messages client reads from a stream."""
    records = [msgspec.json.decode(line[6:]) for line in output.splitlines() if line.startswith(b"data: ")]
    return "".join(record["delta"].get("text", "") for record in records if record["type"] == "content_block_delta")


SLICE = 32 * 1024
PROSE = "so it goes. "


@both_loops
def test_a_large_whole_answer_is_worked_on_in_a_thread(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    body = whole(PROSE * 50_000 + CALL)
    with RawServer([Request(), answer(body, "content-type: application/json"), Hold()]) as server:
        exchange, reader = driven(run, server, monkeypatch, stream=False)
    assert exchange.ended_in_loop is False
    content = msgspec.json.decode(reader.output)["content"]
    assert [block["type"] for block in content] == ["text", "tool_use"]


@both_loops
def test_a_small_whole_answer_stays_in_the_loop(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with RawServer([Request(), answer(whole("hi"), "content-type: application/json"), Hold()]) as server:
        exchange, _ = driven(run, server, monkeypatch, stream=False)
    assert exchange.ended_in_loop is True


@both_loops
def test_a_large_event_is_worked_on_in_a_thread(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    large, small = delta(PROSE * 20_000), delta("a") + delta("b", "stop") + b"data: [DONE]\n\n"
    events = delta("first ") + large + small
    with RawServer([Request(), SSE, chunk(events), chunk(b""), Hold()]) as server:
        exchange, reader = driven(run, server, monkeypatch, stream=True)
    assert sum(size for _, size in exchange.fed) == len(events)
    assert any(not in_loop for in_loop, _ in exchange.fed)
    assert texts(reader.output) == "first " + PROSE * 20_000 + "ab"
    assert reader.finished == 1


@both_loops
def test_a_burst_is_fed_in_slices_and_written_in_one_go(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    words = [f"word {number} " for number in range(400)]
    events = b"".join(map(delta, words))
    assert 48 * 1024 < len(events) < 64 * 1024
    end = delta("", "stop") + b"data: [DONE]\n\n"
    with RawServer([Request(), SSE + chunk(events), chunk(end), chunk(b""), Hold()]) as server:
        exchange, reader = driven(run, server, monkeypatch, stream=True)
    assert max(size for in_loop, size in exchange.fed if in_loop) <= SLICE
    assert texts(reader.output) == "".join(words)
    # The head, the burst, the end: not a write for each slice of it.
    assert len(reader.writes) <= 4


@both_loops
def test_the_rest_of_a_burst_waits_for_the_next_turn_of_the_loop(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_module, "_TURN_S", 0.0)
    words = [f"word {number} " for number in range(2000)]
    events = b"".join(map(delta, [*words, CALL])) + delta("", "stop") + b"data: [DONE]\n\n"
    with RawServer([Request(), SSE + chunk(events), chunk(b""), Hold()]) as server:
        exchange, reader = driven(run, server, monkeypatch, stream=True)
    assert max(size for _, size in exchange.fed) <= SLICE
    assert len(reader.writes) >= len(events) // SLICE, "each slice was written in a turn of its own"
    assert texts(reader.output) == "".join(words)
    assert b'"stop_reason":"tool_use"' in reader.output


@both_loops
def test_a_request_ended_meanwhile_waits_for_the_thread_and_shows_its_answer(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    body = whole(PROSE * 50_000)
    begun, go_on = threading.Event(), threading.Event()

    def held() -> None:
        begun.set()
        assert go_on.wait(PATIENCE)

    async def watch(exchange: Watched, reader: Reader, driver: Driver, task: asyncio.Task[None]) -> None:
        exchange.before_end = held
        while not begun.is_set():
            await asyncio.sleep(0.001)
        driver.stop("client_closed")
        await asyncio.sleep(0.01)
        assert not task.done(), "the thread still works on the exchange"
        go_on.set()

    with RawServer([Request(), answer(body, "content-type: application/json"), Hold()]) as server:
        _, reader = driven(run, server, monkeypatch, stream=False, watch=watch)
    assert reader.finished == 1
    assert msgspec.json.decode(reader.output)["content"][0]["text"] == PROSE * 50_000
