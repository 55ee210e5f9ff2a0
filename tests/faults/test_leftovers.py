"""Whatever fails, nothing of it waits for the garbage collector: requests hold megabytes, and the collector comes seldom."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
import time
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from zlib import crc32

import httpx2
import pytest

from athena.transport import AsyncTransport, Transport
from support.cases import CASES
from support.fault_config import DIALECTS, fault_config
from support.fault_judge import ask_raw, request_body, request_bytes, send
from support.fault_scripts import FAULTS
from support.faulty_upstream import FaultyUpstream
from support.gateway_process import GatewayThread, free_port, running_gateway
from support.leftovers import without_collector
from support.patience import FOR_EVER, PATIENCE
from support.transport_clients import settings_for

CLIENTS = list(DIALECTS.values())
_ENDLESS = {"flood", "endless-stream", "endless-line"}
"""Answers that only a limit or the client ends; clients that leave are tested with one of them."""
_WITHOUT_PAUSE = {"echo-slowly", "slowloris-body", "stall-with-pings", "stall-with-pings-midtool"}
"""Answers that never pause long enough for an SDK's timeout: the transport, which has no clock, waits for their end."""
_SHORT = {"first_byte_s": 0.5, "idle_s": 0.3, "total_s": 2.0, "connect_s": 0.3, "client_write_s": 0.3, "client_body_s": 0.3}
_EVERYWHERE = {
    name: tuple(entry.get("not_in", ()))
    for entry in tomllib.loads((CASES / "faults.toml").read_text(encoding="utf-8"))["fault"]
    if entry.get("everywhere")
    for name in entry["names"]
}
"""Faults that every upstream dialect has, and which have them not."""


def _two(fault: str) -> tuple[str, str]:
    """Chat and another dialect, which changes with the fault."""
    others = [client for client in CLIENTS if client != "openai_chat"]
    return "openai_chat", others[crc32(fault.encode()) % len(others)]


@contextlib.contextmanager
def _gateway(config: dict[str, Any], directory: Path) -> Iterator[GatewayThread]:
    with running_gateway(config, directory) as running:
        logging.getLogger("athena").setLevel(logging.CRITICAL)  # a kept log line would keep what it tells of
        for client in CLIENTS:
            for stream in (True, False):
                ask_raw(running.port, client, "chat/control", stream=stream)
        yield running


@pytest.fixture(scope="module")
def running(upstream: FaultyUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayThread]:
    with _gateway(fault_config(upstream.url, timeouts=_SHORT), tmp_path_factory.mktemp("leftovers")) as gateway:
        yield gateway


def _settle(running: GatewayThread) -> None:
    """Until no request is under way; what a request held is gone a moment later."""
    deadline = time.monotonic() + 20
    while running.gateway.open_flows and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.1)


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_no_fault_of_an_upstream_leaves_a_cycle(stream: bool, running: GatewayThread) -> None:
    asked = [(f"chat/{name}", client) for name in FAULTS if name not in _ENDLESS for client in _two(name)]
    for short, dialect in DIALECTS.items():
        for upstream in (short, f"{short}-clean"):
            asked += [
                (f"{upstream}/{name}", dialect)
                for name, not_in in _EVERYWHERE.items()
                if short not in not_in and name not in _ENDLESS and upstream != "chat"
            ]
    with without_collector() as left, ThreadPoolExecutor(24) as pool:
        waiting = [
            pool.submit(ask_raw, running.port, client, f"{model}.left-{client}-{stream}", stream=stream)
            for model, client in asked
        ]
        for done in waiting:
            done.result(PATIENCE)
        del waiting, done
        _settle(running)
    assert left == []


@pytest.mark.parametrize("client", CLIENTS)
def test_no_client_leaves_a_cycle(client: str, running: GatewayThread, upstream: FaultyUpstream) -> None:
    """Clients that send nonsense, leave at any point, or do not read."""
    path, body = request_body(client, "chat/control", stream=True)
    good = request_bytes(path, body)
    broken = [
        b"GET / HTTP/1.1\r\n\r\n", b"NONSENSE\r\n\r\n", good[:30], good[:-5], good + good[:40],
        request_bytes(path, b"{"), request_bytes(path, b"{}"), request_bytes(path, b"x", "content-encoding: gzip"),
        request_bytes(path, b"x", "content-encoding: br"), request_bytes("/nowhere", b"{}"),
        request_bytes(*request_body(client, "nobody/nothing", stream=True)),
        request_bytes(path, body, "expect: 100-continue"),
        f"POST {path} HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n5\r\n".encode(),
        f"POST {path} HTTP/1.1\r\nhost: a\r\ncontent-length: 99999999999\r\n\r\n".encode(),
    ]  # fmt: skip
    with without_collector() as left:
        for data in broken:
            with send(running.port, data) as sock:
                sock.settimeout(0.05)
                with contextlib.suppress(TimeoutError, ConnectionError):
                    sock.recv(65536)
        for fault in ("stall-headers", "stall-first-byte", "stall-midstream", "endless-stream"):
            for stream in (True, False):
                model = f"{fault}.leaves-{client}-{stream}"
                with send(running.port, request_bytes(*request_body(client, f"chat/{model}", stream=stream))):
                    assert upstream.wait_for(lambda: bool(upstream.of(model)))  # noqa: B023 - waited for right here
        flood = request_body(client, f"chat/flood.left-{client}", stream=True)
        with _client_that_never_reads(running.port, request_bytes(*flood)):
            _settle(running)  # until it is given up
        _settle(running)
    assert left == []


def _client_that_never_reads(port: int, data: bytes) -> socket.socket:
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
    sock.connect(("127.0.0.1", port))
    sock.sendall(data)
    return sock


def test_no_way_to_an_upstream_leaves_a_cycle(upstream: FaultyUpstream, tmp_path: Path) -> None:
    """Nobody listens, the name does not exist, nobody accepts, TLS meets plain text, a proxy refuses; fallbacks and retries."""
    with contextlib.ExitStack() as stack:
        full = stack.enter_context(socket.socket())
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(4):
            sock = stack.enter_context(socket.socket())
            sock.setblocking(False)
            sock.connect_ex(full.getsockname())
        ways: dict[str, dict[str, Any]] = {
            "refused": {"base_url": f"http://127.0.0.1:{free_port()}"},
            "two": {"base_url": f"http://localhost:{free_port()}"},
            "nobody": {"base_url": "http://nobody.invalid"},
            "hangs": {"base_url": f"http://127.0.0.1:{full.getsockname()[1]}"},
            "tls": {"base_url": upstream.url.replace("http:", "https:")},
            "proxy": {"base_url": "http://example.invalid", "proxy": upstream.url},
        }
        config = fault_config(upstream.url, timeouts=_SHORT, retries={"attempts": 1})
        config["upstreams"] |= ways
        config["models"] = [
            {"match": "fallback/*", "use": "refused/m", "fallback": ["tls/m", "chat/500-json", "chat/control"]},
            *config["models"],
            *({"match": f"{name}/*", "use": f"{name}/*"} for name in ways),
        ]
        with _gateway(config, tmp_path) as running, without_collector() as left:
            for name in (*ways, "fallback"):
                for stream in (True, False):
                    answer = ask_raw(running.port, "anthropic_messages", f"{name}/m", stream=stream)
                    assert (answer.status == 200) is (name == "fallback"), name
            _settle(running)
    assert left == []


def test_the_end_of_the_gateway_leaves_no_cycle(upstream: FaultyUpstream, tmp_path: Path) -> None:
    with without_collector() as left:
        with _gateway(
            fault_config(upstream.url, timeouts=dict.fromkeys(("first_byte_s", "idle_s", "total_s"), FOR_EVER)), tmp_path
        ) as running:
            data = request_bytes(*request_body("openai_chat", "chat/stall-midstream.end", stream=True))
            with send(running.port, data) as sock:
                assert upstream.wait_for(lambda: bool(upstream.of("stall-midstream.end")))
                running.stop()
                assert b"shutting down" in b"".join(iter(lambda: sock.recv(65536), b""))
            running.stop = lambda: None  # type: ignore[method-assign]  # it has ended
        del running
    # The gateway itself is in a cycle with its gauges, once in a process's life.
    kinds = ("frame of", "exchange.Exchange", "Driver", "Http")
    assert [line for line in left if any(kind in line for kind in kinds)] == []


# -- the transport -----------------------------------------------------------------------------------------------------------


def _asked_of_transport(turn: int) -> list[tuple[str, dict[str, Any]]]:
    """Every fault once: streamed or whole, for a client that changes with the fault; the other `turn` has the other mode."""
    return [
        request_body(CLIENTS[number // 2 % 4], f"openai_chat/{name}.turn{turn}", stream=(number + turn) % 2 == 0)
        for number, name in enumerate(FAULTS)
        if name not in _ENDLESS and name not in _WITHOUT_PAUSE
    ]


def test_the_transport_leaves_no_cycle(upstream: FaultyUpstream) -> None:
    def post(http: httpx2.Client, path: str, body: dict[str, Any]) -> None:
        with contextlib.suppress(httpx2.HTTPError):
            http.post(f"http://athena{path}", content=json.dumps(body))

    with httpx2.Client(transport=Transport(**settings_for(upstream.url)), timeout=0.3) as http:
        post(http, *request_body("openai_chat", "openai_chat/control", stream=True))
        with without_collector() as left, ThreadPoolExecutor(24) as pool:
            for done in [pool.submit(post, http, path, body) for path, body in _asked_of_transport(0)]:
                done.result(PATIENCE)
            del done
    assert left == []


def test_the_asynchronous_transport_leaves_no_cycle(upstream: FaultyUpstream) -> None:
    async def post(http: httpx2.AsyncClient, gate: asyncio.Semaphore, path: str, body: dict[str, Any]) -> None:
        async with gate:
            with contextlib.suppress(httpx2.HTTPError):
                await http.post(f"http://athena{path}", content=json.dumps(body))

    async def main() -> list[str]:
        gate = asyncio.Semaphore(24)
        async with httpx2.AsyncClient(transport=AsyncTransport(**settings_for(upstream.url)), timeout=0.3) as http:
            await post(http, gate, *request_body("openai_chat", "openai_chat/control", stream=True))
            with without_collector() as left:
                await asyncio.gather(*(post(http, gate, path, body) for path, body in _asked_of_transport(1)))
            return left

    assert asyncio.run(main()) == []
