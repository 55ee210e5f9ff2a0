"""Row 10 of the catalogue: a peer that is there and never speaks again. Its process is stopped, so its kernel still answers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import anthropic
import pytest

from support.fault_config import fault_config
from support.gateway_process import running_gateway
from support.patience import PATIENCE

UPSTREAM = r"""
import socket, time
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
peer, _ = server.accept()
peer.recv(65536)
peer.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
head = b'data: {"id":"1","object":"chat.completion.chunk","choices":[{"index":0,"finish_reason":null,"delta":'
peer.sendall(head + b'{"role":"assistant","content":"Hello"}}]}\n\n')
time.sleep(1000)
"""


@pytest.fixture
def peer() -> Iterator[tuple[subprocess.Popen[str], str]]:
    process = subprocess.Popen([sys.executable, "-c", UPSTREAM], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    yield process, f"http://127.0.0.1:{process.stdout.readline().strip()}"
    process.kill()
    process.wait(PATIENCE)
    process.stdout.close()


def test_a_stopped_peer_ends_in_an_error_at_the_idle_limit(peer: tuple[subprocess.Popen[str], str], tmp_path: Path) -> None:
    process, url = peer
    with (
        running_gateway(fault_config(url, timeouts={"idle_s": 0.5}), tmp_path) as gateway,
        anthropic.Anthropic(base_url=gateway.url, api_key="x", max_retries=0) as client,
    ):
        seen: list[str] = []

        def listen() -> None:
            messages: list[anthropic.types.MessageParam] = [{"role": "user", "content": "Hi"}]
            with client.messages.stream(model="chat/half-open", max_tokens=9, messages=messages) as events:
                for text in events.text_stream:
                    seen.append(text)
                    os.kill(process.pid, signal.SIGSTOP)

        with pytest.raises(anthropic.APIError, match="too long"):
            listen()
        assert seen == ["Hello"]
        os.kill(process.pid, signal.SIGCONT)
