"""Clients that leave, break the connection or send nonsense in the middle of an answer: the log stays free of tracebacks."""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Iterator

import pytest

from support.athena_process import Serving, serving
from support.held_upstream import HeldUpstream
from support.patience import PATIENCE

BODY = json.dumps({"model": "m", "stream": True, "messages": [{"role": "user", "content": "x"}]}).encode()
POST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(BODY)
RESET = struct.pack("ii", 1, 0)


@pytest.fixture(scope="module")
def upstream() -> Iterator[HeldUpstream]:
    with HeldUpstream() as running:
        yield running


@pytest.fixture(scope="module")
def server(upstream: HeldUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    config = {
        "upstreams": {"held": {"base_url": upstream.url}},
        "models": [{"match": "*", "use": "held"}],
        "timeouts": {"client_headers_s": 0.5},
    }
    with serving(tmp_path_factory.mktemp("cuts"), config=config) as running:
        yield running


def wait_for_lines(server: Serving, count: int) -> str:
    """The log, once it tells of so many requests of clients that left."""
    deadline = time.monotonic() + PATIENCE
    while (log := server.log()).count(" client_closed ") < count:
        assert time.monotonic() < deadline, log
        time.sleep(0.02)
    return log


def leave(server: Serving, how: str) -> None:
    with socket.create_connection(("127.0.0.1", server.port), PATIENCE) as client:
        if how == "inside the body":
            client.sendall(POST + BODY[:5])
            return
        client.sendall(POST + BODY)
        assert client.recv(12) == b"HTTP/1.1 200"
        if how == "with a reset":
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        elif how == "with nonsense":
            client.sendall(b"NONSENSE\r\n\r\n")
            while client.recv(65536):
                pass
        elif how == "with half a head":
            client.sendall(b"GET /hea")
            while client.recv(65536):
                pass


def test_no_way_to_leave_leaves_a_traceback(server: Serving, upstream: HeldUpstream) -> None:
    ways = ("with a reset", "in order", "inside the body", "with nonsense", "with half a head")
    for way in ways:
        leave(server, way)
    log = wait_for_lines(server, len(ways))
    deadline = time.monotonic() + PATIENCE
    while upstream.open_streams:
        assert time.monotonic() < deadline, "an upstream's stream goes on without its client"
        time.sleep(0.02)
    for word in ("Traceback", "Exception", "Task was destroyed", "never retrieved"):
        assert word not in log
