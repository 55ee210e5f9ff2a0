"""A gateway with a relay between its sockets is the gateway without one: what clients get, what is counted, what is kept."""

from __future__ import annotations

import asyncio
import json
import re
import tempfile
from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from athena.serving.network import ClientSettings
from athena.serving.record import RequestRecord
from athena.shells.gateway import driver as driver_module
from athena.shells.gateway.app import Gateway
from athena.shells.server.front import Front, front_limits
from athena.shells.server.http import HttpConnection
from athena.shells.upstream.connection import Connection
from athena.shells.upstream.response import UpstreamResponse
from support.config_file import load_config
from support.examples import examples
from support.raw_server import chunk

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
PATHS = {"openai_chat": "/v1/chat/completions", "anthropic_messages": "/v1/messages"}
TOOL = {"name": "get_weather", "description": "d", "input_schema": {"type": "object", "properties": {}}}


class Transport:
    """Keeps what is written. `full`: it wants no more until that is taken back."""

    def __init__(self) -> None:
        self.written = b""
        self.paused = self.closed = False

    def write(self, data: bytes) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return self.closed

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 1) if name == "peername" else default

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def close(self) -> None:
        self.closed = True

    abort = write_eof = close

    def can_write_eof(self) -> bool:
        return False


class Owner:
    """A pool that forgets."""

    def release(self, connection: Connection) -> None: ...

    def discard(self, connection: Connection, *, stray: bool) -> None: ...


class Upstreams:
    """Gives every request a connection of its own, which the test feeds."""

    def __init__(self) -> None:
        self.connections: list[tuple[Connection, Transport]] = []

    async def send(self, method: str, origin: Any, path: str, headers: Any, body: bytes, timeouts: Any, *more: Any) -> Any:
        connection, transport = Connection(Owner()), Transport()
        connection.connection_made(transport)  # type: ignore[arg-type]
        response = UpstreamResponse(asyncio.get_running_loop(), connection, ClientSettings(), timeouts, inf)
        connection.begin(response, b"", b"")
        connection.data_received(HEAD)
        self.connections.append((connection, transport))
        return response


class Stage:
    """One stream of one gateway: the upstream's side, the client's side and the record."""

    def __init__(self, source: Connection, upstream: Transport, client: HttpConnection, written: Transport) -> None:
        self.source, self.upstream, self.client, self.written = source, upstream, client, written


Play = Callable[[Stage], Any]


def record(text: str, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": {"content": text} if finish is None else {}, "finish_reason": finish}
    payload = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return b"data: " + json.dumps(payload, separators=(",", ":"), ensure_ascii=False).encode() + b"\n\n"


END = record("", "stop") + b"data: [DONE]\n\n"


async def _streamed(directory: Path, client: str, play: Play) -> tuple[bytes, list[Any], dict[str, Any]]:
    upstream = {"base_url": "http://127.0.0.1:1/v1", "dialect": "openai_chat"}
    value = {"upstreams": {"up": upstream}, "models": [{"match": "*", "use": "up"}], "retries": {"attempts": 0}}
    config = load_config(value, directory)
    gateway = Gateway(config, envelope_key=b"k" * 32, bound=("127.0.0.1",))
    upstreams = Upstreams()
    gateway.resources._client = upstreams  # type: ignore[assignment]
    front = Front(front_limits(config), gateway.memory)
    records: list[RequestRecord] = []
    close = driver_module.Driver._close

    def closed(driver: driver_module.Driver) -> None:
        close(driver)
        records.append(driver._serving.record)

    patch = pytest.MonkeyPatch()
    patch.setattr(driver_module.Driver, "_close", closed)
    try:
        tools = [TOOL] if client == "anthropic_messages" else [{"type": "function", "function": {"name": "get_weather"}}]
        asked = {"model": "m", "stream": True, "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}], "tools": tools}
        body = json.dumps(asked).encode()
        connection, written = HttpConnection(gateway, front, asyncio.get_running_loop()), Transport()
        connection.connection_made(written)  # type: ignore[arg-type]
        head = f"POST {PATHS[client]} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
        connection.data_received(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        while not upstreams.connections:
            await asyncio.sleep(0)
        for _ in range(5):
            await asyncio.sleep(0)
        played = play(Stage(*upstreams.connections[0], connection, written))
        if asyncio.iscoroutine(played):
            await played
        while front.tasks:
            await asyncio.sleep(0)
        connection.connection_lost(None)
        (counted,) = records
        numbers = {name: getattr(counted, name) for name in ("chunks", "outcome", "status", "error", "attempts", "stream")}
        pieces = [tap.parted(()).streams.pieces() for tap in gateway_recordings(gateway)]
        kept = [[*reads, *map(without_ids, writes)] for reads, writes in pieces]
        return without_ids(written.written), kept, numbers
    finally:
        patch.undo()
        gateway.resources._client = None
        await gateway.close()


def gateway_recordings(gateway: Gateway) -> list[Any]:
    """What the recorder keeps in memory."""
    return [tap for _, tap in gateway._inspection.recorder._ring.exchanges()]


_ID = re.compile(rb"(request-id|date): [^\r]*|(msg_|req_|toolu_|call_|chatcmpl-)[0-9A-Za-z]+")


def without_ids(data: bytes) -> bytes:
    """Every request has ids of its own."""
    return _ID.sub(b"*", data)


def both(directory: Path, client: str, play: Play) -> tuple[bytes, list[Any], dict[str, Any]]:
    """The same without a relay and with one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver_module.Driver, "_enter_relay", lambda driver: None)
        usual = asyncio.run(_streamed(directory, client, play))
    passed: list[int] = []
    leave = driver_module.Driver._leave_relay

    def left(driver: driver_module.Driver) -> None:
        before = driver._chunks
        leave(driver)
        passed.append(driver._chunks - before)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver_module.Driver, "_leave_relay", left)
        found = asyncio.run(_streamed(directory, client, play))
    for first, second in zip(found, usual, strict=True):
        assert first == second
    found[2]["passed"] = sum(passed)
    return found


@pytest.mark.parametrize("client", sorted(PATHS))
def test_a_stream_of_words_passes(client: str, tmp_path: Path) -> None:
    def play(stage: Stage) -> None:
        for number in range(300):
            stage.source.data_received(chunk(record(f"word {number} é\n.")))
        stage.source.data_received(chunk(END) + chunk(b"")[:5])

    written, kept, numbers = both(tmp_path, client, play)
    assert b"word 299 " in written
    assert (numbers["chunks"], numbers["outcome"]) == (301, "ok")
    assert numbers["passed"] > 280
    assert len(kept) == 1


def test_a_marker_in_the_middle_ends_the_relay(tmp_path: Path) -> None:
    texts = [
        "a ",
        "b ",
        "c ",
        "<tool",
        '_call>{"name": "get_weather", ',
        '"arguments": {}}',
        "</tool_call>",
        "d ",
        "e ",
        "a < b",
        "f",
    ]

    def play(stage: Stage) -> None:
        for text in texts:
            stage.source.data_received(chunk(record(text)))
        stage.source.data_received(chunk(END) + b"0\r\n\r\n")

    written, _, numbers = both(tmp_path, "anthropic_messages", play)
    assert b"tool_use" in written
    assert b"<tool" not in written
    assert numbers["passed"] > 0


def is_paused(stage: Stage) -> bool:
    """Is the upstream not read?"""
    return stage.upstream.paused


def test_a_client_that_reads_slowly_stops_the_upstream(tmp_path: Path) -> None:
    def play(stage: Stage) -> None:
        for number in range(10):
            stage.source.data_received(chunk(record(f"word {number} ")))
        assert not is_paused(stage)
        stage.client.pause_writing()
        stage.source.data_received(chunk(record("one more ")))
        assert is_paused(stage)
        stage.client.resume_writing()
        assert not is_paused(stage)
        for number in range(10):
            stage.source.data_received(chunk(record(f"word {number} ")))
        stage.source.data_received(chunk(END) + b"0\r\n\r\n")

    assert both(tmp_path, "openai_chat", play)[2]["passed"] > 10


@pytest.mark.parametrize("how", ["eof", "lost", "client", "broken", "stray"])
def test_an_end_at_any_moment_is_the_same_end(how: str, tmp_path: Path) -> None:
    async def play(stage: Stage) -> None:
        for number in range(10):
            stage.source.data_received(chunk(record(f"word {number} ")))
        if how == "eof":
            stage.source.eof_received()
        elif how == "lost":
            stage.source.connection_lost(ConnectionResetError())
        elif how == "client":
            stage.client.connection_lost(None)
            stage.source.data_received(chunk(record("one more")))
            await asyncio.sleep(0)
            stage.source.data_received(chunk(record("and another")))
        elif how == "broken":
            stage.source.data_received(b"zz\r\n" + record("x"))
        else:
            stage.source.data_received(chunk(END) + b"0\r\n\r\n" + chunk(record("y")))
        stage.source.data_received(chunk(record("late")))

    _, _, numbers = both(tmp_path, "anthropic_messages", play)
    assert numbers["passed"] > 5
    assert (numbers["outcome"] == "ok") == (how == "stray")


@given(
    texts=st.lists(
        st.sampled_from(("a", " word", "\n", "<", "<tool_call>", "fu", "`", "é", '"', "\\", "", "x" * 900)), max_size=24
    ),
    sizes=st.lists(st.integers(1, 90), min_size=1, max_size=6),
    together=st.lists(st.integers(1, 4), min_size=1, max_size=6),
    client=st.sampled_from(sorted(PATHS)),
)
@examples(25)
def test_any_reads_come_out_the_same(texts: list[str], sizes: list[int], together: list[int], client: str) -> None:
    """Records in chunks of several, chunks in reads of several, and now and then a read that ends anywhere."""

    def play(stage: Stage) -> None:
        records = [record("so "), record("it "), *map(record, texts), END]
        chunks: list[bytes] = []
        while records:
            count = together[len(records) % len(together)]
            chunks.append(chunk(b"".join(records[:count])))
            del records[:count]
        chunks.append(b"0\r\n\r\n")
        while chunks:
            count = sizes[len(chunks) % len(sizes)]
            read = b"".join(chunks[: 1 + count % 3])
            del chunks[: 1 + count % 3]
            if count > 60:
                stage.source.data_received(read[:count])
                read = read[count:]
            if read:
                stage.source.data_received(read)

    with tempfile.TemporaryDirectory() as directory:
        both(Path(directory), client, play)
