"""Answers that take long: what the relay hands to a thread, in which portions, and that nothing is lost by it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import pytest

from athena.dialects import get_dialect
from athena.errors import AthenaError
from athena.exchange import Exchange, Options, Route, Step
from athena.formats.stage import FormatOptions
from athena.shells.gateway import relay as relay_module
from athena.shells.gateway.budget import Budget
from athena.shells.gateway.holding import AnswerMemory
from athena.shells.gateway.recorder import NO_RECORDER
from athena.shells.gateway.relay import Relay
from athena.shells.upstream import Timeouts, UpstreamClient, parse_base_url
from support.event_loops import Run, both_loops
from support.patience import PATIENCE
from support.raw_server import Hold, RawServer, Request, answer, chunk, chunked_head

TOOL = {"name": "get_weather", "input_schema": {"type": "object"}}
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Tokyo"}}\n</tool_call>'
SSE = chunked_head("content-type: text/event-stream")


class Watched(Exchange):
    """An exchange that notes which thread fed it how much."""

    def __init__(self, *, stream: bool) -> None:
        body = {
            "model": "m", "max_tokens": 9, "stream": stream, "tools": [TOOL], "messages": [{"role": "user", "content": "hi"}],
        }  # fmt: skip
        request = get_dialect("anthropic_messages").decode_request(body, model=None, stream=None, version=None)
        super().__init__(request, Route(dialect="openai_chat", model="m", format=FormatOptions("auto")), Options(seed="s"))
        self.fed: list[tuple[bool, int]] = []
        """In the loop's thread? How many bytes?"""
        self.ended_in_loop: bool | None = None
        self.before_end: Callable[[], object] = lambda: None
        self._loop_thread = threading.get_ident()

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
        self.steps: list[Step] = []

    def show(self, step: Step) -> None:
        self.steps.append(step)

    @property
    def output(self) -> bytes:
        return b"".join(step.output for step in self.steps)

    def take_body(self) -> tuple[bytes, bool]:
        return b"", True

    async def more_body(self, enough: int) -> None: ...

    def start(self, status: int, headers: list[tuple[bytes, bytes]], length: int | None) -> None: ...

    def write(self, data: bytes) -> None: ...

    def finish(self, data: bytes = b"") -> None: ...

    def cut_off(self) -> None: ...


Watch = Callable[[Watched, Reader, "asyncio.Task[Step | None]"], Coroutine[Any, Any, None]]


def relayed(run: Run, server: RawServer, *, stream: bool, watch: Watch | None = None) -> tuple[Watched, Reader]:
    """The server's answer through a relay; `watch` runs beside it."""

    async def main() -> tuple[Watched, Reader]:
        client, reader, exchange = UpstreamClient(), Reader(), Watched(stream=stream)
        try:
            origin, prefix = parse_base_url(server.url)
            response = await client.send("POST", origin, prefix + "/v1/chat", [], b"{}", Timeouts())
            exchange.upstream_head(response.status, response.headers)
            relay = Relay(
                asyncio.get_running_loop(),
                exchange,
                response,
                reader,
                memory=AnswerMemory(Budget(1 << 30, time.monotonic), streamed=stream),
                recorder=NO_RECORDER,
                show=reader.show,
                note=lambda events: None,
            )
            task = asyncio.ensure_future(relay.run(Timeouts()))
            if watch is not None:
                await watch(exchange, reader, task)
            else:
                assert await task is None
            assert not relay.is_working
            response.close()
        finally:
            await client.close()
        return exchange, reader

    found: list[tuple[Watched, Reader]] = []

    async def outer() -> None:
        found.append(await main())

    run(outer)
    return found[0]


def whole(text: str) -> bytes:
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    return msgspec.json.encode({"id": "1", "object": "chat.completion", "model": "m", "choices": [choice]})


def delta(text: str, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish}
    record = {"id": "1", "object": "chat.completion.chunk", "model": "m", "choices": [choice]}
    return b"data: " + msgspec.json.encode(record) + b"\n\n"


def directly(data: bytes, *, stream: bool, kind: str) -> bytes:
    """What the exchange makes of the same bytes when they come one record at a time."""
    exchange = Watched(stream=stream)
    exchange.upstream_head(200, {"content-type": kind})
    steps = [exchange.upstream_data(record) for record in data.splitlines(keepends=True)]
    return b"".join(step.output for step in (*steps, exchange.upstream_end()))


def texts(output: bytes) -> str:
    """The text that a Messages client reads from a stream."""
    records = [msgspec.json.decode(line[6:]) for line in output.splitlines() if line.startswith(b"data: ")]
    return "".join(record["delta"].get("text", "") for record in records if record["type"] == "content_block_delta")


SLICE = 32 * 1024
PROSE = "so it goes. "


@both_loops
def test_a_large_whole_answer_is_worked_on_in_a_thread(run: Run) -> None:
    body = whole(PROSE * 50_000 + CALL)
    with RawServer([Request(), answer(body, "content-type: application/json"), Hold()]) as server:
        exchange, reader = relayed(run, server, stream=False)
    assert exchange.ended_in_loop is False
    assert reader.output == directly(body, stream=False, kind="application/json")
    content = msgspec.json.decode(reader.output)["content"]
    assert [block["type"] for block in content] == ["text", "tool_use"]


@both_loops
def test_a_small_whole_answer_stays_in_the_loop(run: Run) -> None:
    with RawServer([Request(), answer(whole("hi"), "content-type: application/json"), Hold()]) as server:
        exchange, _ = relayed(run, server, stream=False)
    assert exchange.ended_in_loop is True


@both_loops
def test_a_large_event_is_worked_on_in_a_thread(run: Run) -> None:
    large, small = delta(PROSE * 20_000), delta("a") + delta("b", "stop") + b"data: [DONE]\n\n"
    events = delta("first ") + large + small
    with RawServer([Request(), SSE, chunk(events), chunk(b""), Hold()]) as server:
        exchange, reader = relayed(run, server, stream=True)
    assert sum(size for _, size in exchange.fed) == len(events)
    assert any(not in_loop for in_loop, _ in exchange.fed)
    assert texts(reader.output) == "first " + PROSE * 20_000 + "ab"
    assert reader.steps[-1].done


@both_loops
def test_a_burst_is_fed_in_slices_and_written_in_one_go(run: Run) -> None:
    words = [f"word {number} " for number in range(400)]
    events = b"".join(map(delta, words))
    assert 48 * 1024 < len(events) < 64 * 1024
    end = delta("", "stop") + b"data: [DONE]\n\n"
    with RawServer([Request(), SSE + chunk(events), chunk(end), chunk(b""), Hold()]) as server:
        exchange, reader = relayed(run, server, stream=True)
    assert max(size for in_loop, size in exchange.fed if in_loop) <= SLICE
    assert texts(reader.output) == "".join(words)
    # The head, the burst, the end: not a write for each slice of it.
    assert len(reader.steps) <= 4


@both_loops
def test_the_rest_of_a_burst_waits_for_the_next_turn_of_the_loop(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_module, "_TURN_S", 0.0)
    words = [f"word {number} " for number in range(2000)]
    events = b"".join(map(delta, [*words, CALL])) + delta("", "stop") + b"data: [DONE]\n\n"
    with RawServer([Request(), SSE + chunk(events), chunk(b""), Hold()]) as server:
        exchange, reader = relayed(run, server, stream=True)
    assert max(size for _, size in exchange.fed) <= SLICE
    assert len(reader.steps) >= len(events) // SLICE, "each slice was written in a turn of its own"
    assert texts(reader.output) == "".join(words)
    assert b'"stop_reason":"tool_use"' in reader.output


@both_loops
def test_a_request_ended_meanwhile_waits_for_the_thread_and_shows_its_answer(run: Run) -> None:
    body = whole(PROSE * 50_000)
    begun, go_on = threading.Event(), threading.Event()

    def held() -> None:
        begun.set()
        assert go_on.wait(PATIENCE)

    async def watch(exchange: Watched, reader: Reader, task: asyncio.Task[Step | None]) -> None:
        exchange.before_end = held
        while not begun.is_set():
            await asyncio.sleep(0.001)
        task.cancel()
        await asyncio.sleep(0.01)
        assert not task.done(), "the thread still works on the exchange"
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    with RawServer([Request(), answer(body, "content-type: application/json"), Hold()]) as server:
        _, reader = relayed(run, server, stream=False, watch=watch)
    assert [step.done for step in reader.steps] == [True]
    assert msgspec.json.decode(reader.output)["content"][0]["text"] == PROSE * 50_000
