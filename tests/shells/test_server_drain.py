"""The end of a serving process and its reload, with streams open."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import time
import urllib.request
from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from support.athena_process import Serving, serving
from support.held_upstream import HeldUpstream
from support.patience import FOR_EVER, PATIENCE


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
        head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
        writer.write(head.encode() + b"\r\n\r\n" + body)
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
            socket.create_connection(("127.0.0.1", port), PATIENCE).close()
        except OSError:
            return True
        time.sleep(0.01)
    return False


def test_streams_finish_during_the_drain(tmp_path: Path) -> None:
    with HeldUpstream() as upstream, serving(tmp_path, config=settings(upstream, drain_s=FOR_EVER)) as server:

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
    with HeldUpstream() as upstream, serving(tmp_path, config=settings(upstream, drain_s=FOR_EVER)) as server:

        async def run() -> list[bytes]:
            streams = await open_streams(server.port, 4)
            server.signal(signal.SIGINT)
            assert await asyncio.to_thread(refuses_connections, server.port)
            server.signal(signal.SIGINT)
            return await asyncio.gather(*(stream.rest() for stream in streams))

        assert all(b"shutting down" in answer for answer in asyncio.run(run()))
        assert server.wait() == 1


def test_an_idle_server_ends_at_once(tmp_path: Path) -> None:
    config = {"timeouts": {"drain_s": FOR_EVER}}
    with serving(tmp_path, config=config) as server, socket.create_connection(("127.0.0.1", server.port)) as idle:
        idle.sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
        answer = b""
        while b'{"status":"ok"}' not in answer:
            answer += idle.recv(65536)
        server.signal(signal.SIGTERM)
        # Patience is shorter than the time that open answers would have had.
        assert server.wait() == 0
        assert idle.recv(1) == b""


def _answered(sock: socket.socket) -> bytes:
    sock.settimeout(PATIENCE)
    answer = b""
    try:
        while data := sock.recv(65536):
            answer += data
    except ConnectionError:
        pass
    return answer


def test_a_request_that_came_before_the_drain_is_answered(tmp_path: Path) -> None:
    """What had arrived and was not read yet, on connections old and new: an answer, or a 503 that says why."""
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "x"}]}).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    request = head + b"content-length: %d\r\n\r\n" % len(body) + body
    with serving(tmp_path, config={"timeouts": {"drain_s": FOR_EVER}}) as server:
        used = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(20)]
        for sock in used:
            sock.sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
            assert b"200 OK" in sock.recv(65536)
        new = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(20)]
        for sock in (*used, *new):
            sock.sendall(request)
        server.signal(signal.SIGTERM)
        for sock in (*used, *new):
            answer = _answered(sock)
            sock.close()
            assert answer.startswith((b"HTTP/1.1 200 ", b"HTTP/1.1 503 ")), answer
            assert b"connection: close" in answer.lower()
        assert server.wait() == 0


@pytest.mark.parametrize("is_first", [True, False])
def test_a_request_whose_head_is_on_its_way_is_refused_in_words(tmp_path: Path, *, is_first: bool) -> None:
    with (
        serving(tmp_path, config={"timeouts": {"drain_s": FOR_EVER}}) as server,
        socket.create_connection(("127.0.0.1", server.port)) as sock,
    ):
        if not is_first:
            sock.sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
            assert b"200 OK" in sock.recv(65536)
        sock.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nhost: local")
        server.signal(signal.SIGTERM)
        assert refuses_connections(server.port)
        answer = _answered(sock)
        assert answer.startswith(b"HTTP/1.1 503 "), answer
        assert b"shutting down" in answer
        assert b"connection: close" in answer.lower()
        assert server.wait() == 0


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


def test_reload_cannot_open_a_public_port_without_a_key(tmp_path: Path) -> None:
    key = "sha256:" + "1" * 64
    with HeldUpstream() as upstream:
        config = {**settings(upstream), "host": "0.0.0.0", "keys": [key]}
        with serving(tmp_path, config=config) as server:
            assert log_says(server, "keys and conversations travel in clear: 0.0.0.0 speaks plain HTTP to other machines")
            (tmp_path / "athena.yml").write_text(json.dumps({**settings(upstream), "host": "127.0.0.1"}))
            server.signal(signal.SIGHUP)
            assert log_says(server, "no gateway key is set")


def children(pid: int) -> list[int]:
    return [int(text) for text in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def metrics(port: int) -> dict[str, float]:
    """What one process, whichever is asked, says about all of them; labels summed up."""
    text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE).read().decode()
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found[sample.name] = found.get(sample.name, 0.0) + sample.value
    return found


def counted_requests(port: int, wanted: int) -> set[float]:
    """What the processes say, once it was said or patience ended: a request is counted right behind its last byte."""
    deadline = time.monotonic() + PATIENCE
    while metrics(port)["athena_requests_total"] != wanted and time.monotonic() < deadline:
        time.sleep(0.02)
    return {metrics(port)["athena_requests_total"] for _ in range(8)}


def descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


async def streams_on_all(port: int, count: int, workers: list[int]) -> list[Stream]:
    """Open streams until every process has some: the kernel deals connections out by hash."""
    before = {pid: descriptors(pid) for pid in workers}
    streams = await open_streams(port, count)
    assert all(descriptors(pid) > before[pid] for pid in workers), "one process has no stream at all"
    return streams


def test_workers_share_the_port_their_numbers_and_their_end(tmp_path: Path) -> None:
    """One of two processes is killed under open streams: only its own streams break, and no number is lost or counted twice."""
    with HeldUpstream() as upstream, serving(tmp_path, "--workers", "2", config=settings(upstream, drain_s=FOR_EVER)) as server:
        first = children(server.process.pid)
        assert len(first) == 2

        async def finished(count: int) -> None:
            streams = await streams_on_all(server.port, count, children(server.process.pid))
            assert {metrics(server.port)["athena_open_streams"] for _ in range(8)} == {count}
            upstream.finish()
            await asyncio.gather(*(stream.until(b"0\r\n\r\n") for stream in streams))
            for stream in streams:
                stream.close()

        asyncio.run(finished(24))
        assert counted_requests(server.port, 24) == {24}
        os.kill(first[0], signal.SIGKILL)
        deadline = time.monotonic() + PATIENCE
        while len(now := children(server.process.pid)) < 2 or first[0] in now:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert log_says(server, "a serving process ended; starting another")
        asyncio.run(finished(24))
        # Asked often enough to reach both, the new process and the old one.
        assert counted_requests(server.port, 48) == {48}
        assert metrics(server.port)["athena_request_seconds_count"] == 48

        async def drained() -> list[bytes]:
            streams = await streams_on_all(server.port, 24, now)
            server.signal(signal.SIGTERM)
            assert await asyncio.to_thread(refuses_connections, server.port)
            upstream.say("two")
            await asyncio.gather(*(stream.until(b"two") for stream in streams))
            upstream.finish()
            return await asyncio.gather(*(stream.rest() for stream in streams))

        assert all(b"[DONE]" in answer or b"message_stop" in answer for answer in asyncio.run(drained()))
        assert server.wait() == 0
        assert all(not Path(f"/proc/{pid}").exists() for pid in now)


def test_workers_tell_what_is_left_after_the_drain(tmp_path: Path) -> None:
    with HeldUpstream() as upstream, serving(tmp_path, "--workers", "2", config=settings(upstream, drain_s=0.5)) as server:

        async def run() -> list[bytes]:
            streams = await streams_on_all(server.port, 24, children(server.process.pid))
            server.signal(signal.SIGTERM)
            return await asyncio.gather(*(stream.rest() for stream in streams))

        answers = asyncio.run(run())
        assert all(b"shutting down" in answer for answer in answers)
        assert not any(b"message_stop" in answer or b'"finish_reason":"' in answer for answer in answers)
        assert server.wait() == 0


def test_a_signal_reloads_every_worker(tmp_path: Path) -> None:
    """With streams open on both: they go on, and no process answers by the old configuration."""
    with HeldUpstream() as upstream, serving(tmp_path, "--workers", "2", config=settings(upstream)) as server:

        async def run() -> None:
            streams = await streams_on_all(server.port, 24, children(server.process.pid))
            (tmp_path / "athena.yml").write_text(json.dumps({**settings(upstream), "keys": ["sha256:" + "0" * 64]}))
            server.signal(signal.SIGHUP)
            async with asyncio.timeout(PATIENCE):
                while not await _all_refuse(server.port):
                    await asyncio.sleep(0.05)
            upstream.say("two")
            await asyncio.gather(*(stream.until(b"two") for stream in streams))
            upstream.finish()
            await asyncio.gather(*(stream.until(b"0\r\n\r\n") for stream in streams))
            for stream in streams:
                stream.close()

        asyncio.run(run())
        assert server.log().count("configuration reloaded") == 1, "one process speaks for all"
        server.signal(signal.SIGTERM)
        assert server.wait() == 0


async def _all_refuse(port: int) -> bool:
    """Do 24 connections, dealt out to both processes, all meet the key that is asked for now?"""
    streams = [await Stream.open(port) for _ in range(24)]
    try:
        await asyncio.gather(*(stream.until(b"HTTP/1.1 ") for stream in streams))
        return all(stream.text.startswith(b"HTTP/1.1 401") for stream in streams)
    finally:
        for stream in streams:
            stream.close()


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
            client.sendall(b"GET /nowhere HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
            while client.recv(65536):
                pass
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
        lines = [msgspec.json.decode(line, type=dict[str, Any]) for line in server.log().splitlines()]
    assert [line["message"] for line in lines] == ["listening", "request", "stopped"]
    assert lines[1]["status"] == 404
