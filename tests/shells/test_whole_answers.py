"""An answer that has come to its end when it is looked at is the same answer that comes by callbacks: what clients get, what is
counted, what is kept."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
from math import inf
from pathlib import Path
from typing import Any

import pytest

from athena.serving.network import ClientSettings
from athena.serving.record import RequestRecord, as_fields
from athena.shells.gateway import driver as driver_module
from athena.shells.gateway.app import Gateway
from athena.shells.server.front import Front, front_limits
from athena.shells.server.http import HttpConnection
from athena.shells.upstream.connection import Connection
from athena.shells.upstream.response import UpstreamResponse
from support.config_file import load_config
from support.raw_server import chunk

PATHS = {"openai_chat": "/v1/chat/completions", "anthropic_messages": "/v1/messages"}
TOOL = {"name": "get_weather", "description": "d", "input_schema": {"type": "object", "properties": {}}}
CALL = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}
_ID = re.compile(rb"(request-id|date): [^\r]*|(msg_|req_|toolu_|call_|chatcmpl-)[0-9A-Za-z]+|(?<=\"created\":)\d+")


def answer(finish: str = "stop", **message: Any) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    usage = {"prompt_tokens": 11, "completion_tokens": 3, "total_tokens": 14}
    return json.dumps({"id": "1", "object": "chat.completion", "model": "m", "choices": [choice], "usage": usage}).encode()


def response(body: bytes, status: str = "200 OK", *fields: str) -> bytes:
    lines = "".join(f"{field}\r\n" for field in ("content-type: application/json", *fields))
    return f"HTTP/1.1 {status}\r\n{lines}content-length: {len(body)}\r\n\r\n".encode() + body


def chunked(*pieces: bytes) -> bytes:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
    return head + b"".join(map(chunk, pieces)) + b"0\r\n\r\n"


PLAIN = answer(content="Hello there.")
FORMAT = '<tool_call>{"name": "get_weather", "arguments": {}}</tool_call>'
FRAME = b'data: {"id":"1","choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'

ANSWERS = {
    "plain": response(PLAIN),
    "long": response(answer(content="word " * 3000)),
    "call": response(answer("tool_calls", content=None, tool_calls=[CALL])),
    "call in the text": response(answer(content=FORMAT)),
    "chunks": chunked(PLAIN[:7], PLAIN[7:20], PLAIN[20:]),
    "empty chunks": chunked(),
    "stray bytes": response(PLAIN) + b"HTTP/1.1 200 OK\r\n\r\n",
    "closing": response(PLAIN, "200 OK", "connection: close"),
    "empty": response(b""),
    "nothing": b"HTTP/1.1 204 No Content\r\n\r\n",
    "blanks": response(b" \n\t "),
    "cut JSON": response(PLAIN[:-9]),
    "no answer": response(b'{"object":"list","data":[]}'),
    "markup": response(b"<html>hi</html>"),
    "events": response(FRAME),
    "error in a good answer": response(b'{"error":{"message":"no","type":"server_error","code":"x"}}'),
    "packed": response(gzip.compress(PLAIN), "200 OK", "content-encoding: gzip"),
    "refused": response(b'{"error":{"message":"bad","type":"invalid_request_error"}}', "400 Bad Request"),
    "overloaded": response(b'{"error":{"message":"later"}}', "503 Service Unavailable", "retry-after: 1"),
    "tools refused": response(b'{"error":{"message":"this model does not support tools"}}', "400 Bad Request"),
}
TAKEN = {name for name in ANSWERS if name not in ("empty", "empty chunks", "nothing", "packed")}
"""Those that are there in one piece, as it came."""


class Transport:
    """Keeps what is written."""

    def __init__(self) -> None:
        self.written = b""
        self.closed = False

    def write(self, data: bytes) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return self.closed

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 1) if name == "peername" else default

    def close(self) -> None:
        self.closed = True

    abort = pause_reading = resume_reading = close


class Owner:
    """A pool that notes what becomes of its connections."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def release(self, connection: Connection) -> None:
        self.seen.append("kept")

    def discard(self, connection: Connection, *, stray: bool) -> None:
        self.seen.append("stray" if stray else "dropped")


class Upstreams:
    """Answers every request with the same bytes, which have come when it is looked at them."""

    def __init__(self, data: bytes) -> None:
        self.owner = Owner()
        self._data = data

    async def send(self, method: str, origin: Any, path: str, headers: Any, body: bytes, timeouts: Any, *more: Any) -> Any:
        connection = Connection(self.owner)
        connection.connection_made(Transport())  # type: ignore[arg-type]
        response = UpstreamResponse(asyncio.get_running_loop(), connection, ClientSettings(), timeouts, inf)
        connection.begin(response, b"", b"")
        connection.data_received(self._data)
        return response


async def _answered(directory: Path, client: str, data: bytes) -> dict[str, Any]:
    upstream = {"base_url": "http://127.0.0.1:1/v1", "dialect": "openai_chat"}
    value = {"upstreams": {"up": upstream}, "models": [{"match": "*", "use": "up"}], "retries": {"attempts": 0}}
    config = load_config(value, directory)
    gateway = Gateway(config, envelope_key=b"k" * 32, bound=("127.0.0.1",))
    upstreams = Upstreams(data)
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
        asked = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}], "tools": tools}
        body = json.dumps(asked).encode()
        connection, written = HttpConnection(gateway, front, asyncio.get_running_loop()), Transport()
        connection.connection_made(written)  # type: ignore[arg-type]
        head = f"POST {PATHS[client]} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
        connection.data_received(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        while front.tasks:
            await asyncio.sleep(0)
        connection.connection_lost(None)
        (counted,) = records
        kept = [tap.parted(()).streams.pieces() for _, tap in gateway._inspection.recorder._ring.exchanges()]
        times = ("request_id", "first_byte_ms", "duration_ms", "own_us_per_chunk")
        return {
            "written": _ID.sub(b"*", written.written),
            "kept": [[*reads, *(_ID.sub(b"*", piece) for piece in writes)] for reads, writes in kept],
            "record": {name: field for name, field in as_fields(counted).items() if name not in times},
            "attempts": counted.details.attempts,
            "judged": [(judged.found, judged.first_byte_s is None) for judged in counted.details.judged],
            "connections": upstreams.owner.seen,
            "memory": gateway.memory.used,
        }
    finally:
        patch.undo()
        gateway.resources._client = None
        await gateway.close()


@pytest.mark.parametrize("client", sorted(PATHS))
@pytest.mark.parametrize("name", sorted(ANSWERS))
def test_it_is_the_same_answer(name: str, client: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[bytes] = []
    take = driver_module.Driver._take_whole

    def took(driver: driver_module.Driver, body: bytes) -> None:
        taken.append(body)
        take(driver, body)

    monkeypatch.setattr(driver_module.Driver, "_take_whole", took)
    found = asyncio.run(_answered(tmp_path, client, ANSWERS[name]))
    assert bool(taken) == (name in TAKEN)
    monkeypatch.setattr(UpstreamResponse, "take_whole", lambda response, most: None)
    assert found == asyncio.run(_answered(tmp_path, client, ANSWERS[name]))


@pytest.mark.parametrize(("size", "taken"), [(1, True), (100, True), (101, False)])
def test_only_short_bodies_are_taken_whole(size: int, taken: bool) -> None:
    async def main() -> None:
        body = b"x" * size
        came = await Upstreams(response(body)).send("POST", None, "/", (), b"", ClientSettings())
        assert came.take_whole(100) == (body if taken else None)
        if not taken:
            assert await came.read() == body

    asyncio.run(main())
