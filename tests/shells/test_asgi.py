"""The gateway behind ASGI: `create_app` under uvicorn, which somebody else starts."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from athena.dialects import dialect_names
from support.athena_process import environment, serving
from support.canonical import Piece
from support.patience import PATIENCE
from support.sdks import ask

WANTED = Piece("call", "get_weather", {})


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(tmp_path_factory.mktemp("demo"), "--demo") as server:
        yield server.url


@pytest.fixture(scope="module")
def mounted(demo: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """`create_app` under plain uvicorn, before the demo gateway as its upstream."""
    home: Path = tmp_path_factory.mktemp("mounted")
    port = free_port()
    settings = environment(home, ATHENA_BASE_URL=f"{demo}/v1", ATHENA_API_KEY="sk-none")
    command = [sys.executable, "-m", "uvicorn", "--factory", "athena.asgi:create_app", "--port", str(port)]
    process = subprocess.Popen(
        [*command, "--log-level", "warning"], env=settings, cwd=home, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        url = f"http://127.0.0.1:{port}"
        wait_for(f"{url}/health")
        yield url
    finally:
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(PATIENCE) in (0, -signal.SIGTERM)  # uvicorn repeats the signal when it is done


def wait_for(url: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            urllib.request.urlopen(url, timeout=PATIENCE).close()
            return
        except OSError:
            assert time.monotonic() < deadline, "the server did not start"
            time.sleep(0.1)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("client", dialect_names())
def test_calls_arrive_through_asgi(mounted: str, client: str, stream: bool) -> None:
    seen = ask(client, mounted, "athena-demo", stream=stream)
    assert WANTED in seen.pieces


def test_a_client_that_leaves_ends_its_request(mounted: str) -> None:
    """A stream broken off by its client: the next one on the same server is served."""
    host, port = mounted.removeprefix("http://").split(":")
    body = b'{"model":"athena-demo","stream":true,"messages":[{"role":"user","content":"Tell me about the weather."}]}'
    for _ in range(3):
        with socket.create_connection((host, int(port)), PATIENCE) as client:
            client.sendall(
                b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body
            )
            assert client.recv(12) == b"HTTP/1.1 200"
    assert ask("openai_chat", mounted, "athena-demo", stream=True).pieces
