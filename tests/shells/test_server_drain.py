"""The end of a serving process and its reload, with streams open (`reliability.md` rows 56 and 63)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from support.athena_process import Serving, serving
from support.held_upstream import HeldUpstream

PATIENCE = 20.0


class Stream:
    """One client stream on a raw connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.text = b""

    @classmethod
    async def open(cls, port: int, dialect: str = "chat") -> Stream:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        body = json.dumps(
            {"model": "m", "stream": True, "max_tokens": 9, "messages": [{"role": "user", "content": "x"}]}
        ).encode()
        path = "/v1/chat/completions" if dialect == "chat" else "/v1/messages"
        writer.write(
            f"POST {path} HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode()
            + body
        )
        return cls(reader, writer)

    async def until(self, word: bytes) -> None:
        """Read until a word came."""
        async with asyncio.timeout(PATIENCE):
            while word not in self.text:
                data = await self._reader.read(65536)
                assert data, self.text
                self.text += data

    async def rest(self) -> bytes:
        """Read to the end of the connection."""
        async with asyncio.timeout(PATIENCE):
            while data := await self._reader.read(65536):
                self.text += data
        self._writer.close()
        return self.text

    def close(self) -> None:
        self._writer.close()


async def open_streams(port: int, count: int) -> list[Stream]:
    streams = [await Stream.open(port, "chat" if number % 2 else "messages") for number in range(count)]
    await asyncio.gather(*(stream.until(b"one") for stream in streams))
    return streams


def settings(upstream: HeldUpstream, **timeouts: float) -> dict[str, Any]:
    return {"upstreams": {"held": {"base_url": upstream.url}}, "models": [{"match": "*", "use": "held"}], "timeouts": timeouts}


def refuses_connections(port: int) -> bool:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            return True
        time.sleep(0.01)
    return False


def test_streams_finish_during_the_drain(tmp_path: Path) -> None:
    with HeldUpstream() as upstream, serving(tmp_path, config=settings(upstream, drain_s=30)) as server:

        async def run() -> list[bytes]:
            streams = await open_streams(server.port, 200)
            server.signal(signal.SIGTERM)
            assert await asyncio.to_thread(refuses_connections, server.port)
            upstream.say("two")
            await asyncio.gather(*(stream.until(b"two") for stream in streams))
            upstream.finish()
            return await asyncio.gather(*(stream.rest() for stream in streams))

        answers = asyncio.run(run())
        assert all(b"[DONE]" in answer or b"message_stop" in answer for answer in answers)
        assert all(answer.endswith(b"0\r\n\r\n") for answer in answers)
        assert server.wait() == 0


def test_what_is_left_after_the_drain_is_told(tmp_path: Path) -> None:
    with HeldUpstream() as upstream, serving(tmp_path, config=settings(upstream, drain_s=1.5)) as server:

        async def run() -> tuple[list[bytes], float]:
            streams = await open_streams(server.port, 200)
            began = time.monotonic()
            server.signal(signal.SIGTERM)
            first = min(await asyncio.gather(*(_told(stream) for stream in streams)))
            return await asyncio.gather(*(stream.rest() for stream in streams)), first - began

        async def _told(stream: Stream) -> float:
            await stream.until(b"shutting down")
            return time.monotonic()

        answers, earliest = asyncio.run(run())
        assert earliest >= 1.5
        for answer in answers:
            assert b"event: error" in answer or b'data: {"error"' in answer
            assert b"message_stop" not in answer
            assert b'"finish_reason":"' not in answer
        assert server.wait() == 0
        assert "ending open answers open=200" in server.log()


def test_a_second_signal_ends_at_once_but_not_silently(tmp_path: Path) -> None:
    with HeldUpstream() as upstream, serving(tmp_path, config=settings(upstream, drain_s=60)) as server:

        async def run() -> list[bytes]:
            streams = await open_streams(server.port, 4)
            server.signal(signal.SIGINT)
            assert await asyncio.to_thread(refuses_connections, server.port)
            server.signal(signal.SIGINT)
            return await asyncio.gather(*(stream.rest() for stream in streams))

        began = time.monotonic()
        assert all(b"shutting down" in answer for answer in asyncio.run(run()))
        assert server.wait() == 1
        assert time.monotonic() - began < 10


def test_an_idle_server_ends_at_once(tmp_path: Path) -> None:
    with serving(tmp_path) as server, socket.create_connection(("127.0.0.1", server.port)) as idle:
        idle.sendall(b"GET /health HTTP/1.1\r\nhost: a\r\n\r\n")
        answer = b""
        while b'{"status":"ok"}' not in answer:
            answer += idle.recv(65536)
        began = time.monotonic()
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
        assert time.monotonic() - began < 5
        assert idle.recv(1) == b""


def log_says(server: Serving, text: str) -> bool:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if text in server.log():
            return True
        time.sleep(0.02)
    return False


@pytest.mark.parametrize("with_signal", [True, False])
def test_reload_keeps_streams(tmp_path: Path, with_signal: bool) -> None:
    with HeldUpstream() as upstream, serving(tmp_path, config=settings(upstream)) as server:

        def write(text: str) -> None:
            (tmp_path / "athena.yml").write_text(text)
            if with_signal:
                server.signal(signal.SIGHUP)

        async def run() -> bytes:
            stream = await Stream.open(server.port)
            await stream.until(b"one")
            write(json.dumps({**settings(upstream), "keys": ["sha256:" + "0" * 64], "workers": 2}))
            assert await asyncio.to_thread(log_says, server, "configuration reloaded")
            refused = await Stream.open(server.port)
            await refused.until(b"401")
            refused.close()
            write("upstreams: [this is wrong]")
            assert await asyncio.to_thread(log_says, server, "refused, the old one stays")
            refused = await Stream.open(server.port)
            await refused.until(b"401")
            refused.close()
            upstream.say("two")
            await stream.until(b"two")
            upstream.finish()
            await stream.until(b"[DONE]")
            stream.close()
            return stream.text

        asyncio.run(run())
        assert "workers changed; it takes effect at the next start" in server.log()
        server.signal(signal.SIGTERM)
        assert server.wait() == 0


def test_reload_can_not_open_a_public_port_without_a_key(tmp_path: Path) -> None:
    key = "sha256:" + "1" * 64
    with HeldUpstream() as upstream:
        config = {**settings(upstream), "host": "0.0.0.0", "keys": [key]}
        with serving(tmp_path, config=config) as server:
            (tmp_path / "athena.yml").write_text(json.dumps({**settings(upstream), "host": "127.0.0.1"}))
            server.signal(signal.SIGHUP)
            assert log_says(server, "no gateway key is set")


def children(pid: int) -> list[int]:
    return [int(text) for text in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_workers_share_the_port_and_are_replaced(tmp_path: Path) -> None:
    with HeldUpstream() as upstream, serving(tmp_path, "--workers", "2", config=settings(upstream, drain_s=20)) as server:
        first = children(server.process.pid)
        assert len(first) == 2
        os.kill(first[0], signal.SIGKILL)
        deadline = time.monotonic() + PATIENCE
        while len(now := children(server.process.pid)) < 2 or first[0] in now:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert log_says(server, "a serving process ended; starting another")

        async def run() -> list[bytes]:
            streams = await open_streams(server.port, 16)
            server.signal(signal.SIGTERM)
            assert await asyncio.to_thread(refuses_connections, server.port)
            upstream.finish()
            return await asyncio.gather(*(stream.rest() for stream in streams))

        assert all(b"[DONE]" in answer or b"message_stop" in answer for answer in asyncio.run(run()))
        assert server.wait() == 0
        assert all(not Path(f"/proc/{pid}").exists() for pid in now)


def test_workers_end_with_their_parent(tmp_path: Path) -> None:
    with serving(tmp_path, "--workers", "2") as server:
        workers = children(server.process.pid)
        server.signal(signal.SIGKILL)
        server.wait()
        deadline = time.monotonic() + PATIENCE
        while any(_is_alive(pid) for pid in workers):
            assert time.monotonic() < deadline
            time.sleep(0.05)


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_port_in_use_is_told(tmp_path: Path) -> None:
    from support.athena_process import athena

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for workers in ("1", "2"):
            result = athena(tmp_path, "serve", "--port", port, "--workers", workers)
            assert result.code == 1
            assert f"port {port} on 127.0.0.1 is in use" in result.err
            assert "Traceback" not in result.err


def test_json_log_is_one_object_per_line(tmp_path: Path) -> None:
    with serving(tmp_path, "--log-format", "json") as server:
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            client.sendall(b"GET /nowhere HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
            while client.recv(65536):
                pass
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
        lines = [msgspec.json.decode(line, type=dict[str, Any]) for line in server.log().splitlines()]
    assert [line["message"] for line in lines] == ["listening", "request", "stopped"]
    assert lines[1]["status"] == 404
