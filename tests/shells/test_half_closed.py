"""Clients that stop sending behind their request and wait for the answer; and clients that look like them but have left."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from support.athena_process import Serving, serving
from support.held_upstream import HeldUpstream
from support.patience import PATIENCE


class SilentUpstream:
    """Takes requests and never answers; knows which of its clients are still there."""

    def __init__(self) -> None:
        self.asked = 0
        self.waiting = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/v1"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            connection.recv(65536)
            self.waiting += 1
            self.asked += 1
            try:
                while connection.recv(65536):
                    pass
            except ConnectionError:
                pass
            self.waiting -= 1

    def close(self) -> None:
        self._listener.close()


@pytest.fixture(scope="module")
def held() -> Iterator[HeldUpstream]:
    with HeldUpstream() as running:
        yield running


@pytest.fixture(scope="module")
def silent() -> Iterator[SilentUpstream]:
    upstream = SilentUpstream()
    yield upstream
    upstream.close()


@pytest.fixture(scope="module")
def server(held: HeldUpstream, silent: SilentUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    config = {
        "upstreams": {"held": {"base_url": held.url}, "silent": {"base_url": silent.url}},
        "models": [{"match": "held", "use": "held"}, {"match": "silent", "use": "silent"}],
        # Nothing is sent by the clock, and no limit of time ends anything.
        "timeouts": {"keep_alive_s": 600, "hold_head_s": 600, "idle_s": 600},
    }
    with serving(tmp_path_factory.mktemp("half"), config=config) as running:
        yield running


def connect(server: Serving) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), PATIENCE)


def request_for(model: str, *, stream: bool = True) -> bytes:
    body = json.dumps({"model": model, "stream": stream, "messages": [{"role": "user", "content": "x"}]}).encode()
    return f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def read_to_end(client: socket.socket) -> bytes:
    answer = b""
    while data := client.recv(65536):
        answer += data
    return answer


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


@pytest.mark.parametrize("version", ["1.1", "1.0"])
def test_a_short_answer_arrives(server: Serving, version: str) -> None:
    with connect(server) as client:
        client.sendall(f"GET /health HTTP/{version}\r\nHost: localhost\r\n\r\n".encode())
        client.shutdown(socket.SHUT_WR)
        answer = read_to_end(client)
    assert answer.endswith(b'{"status":"ok"}')


def test_pipelined_requests_are_all_answered(server: Serving) -> None:
    with connect(server) as client:
        client.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n" * 5)
        client.shutdown(socket.SHUT_WR)
        assert read_to_end(client).count(b'{"status":"ok"}') == 5


@pytest.mark.parametrize("when", ["before the answer", "in the middle"])
def test_a_stream_arrives_whole(server: Serving, held: HeldUpstream, when: str) -> None:
    with connect(server) as client:
        client.sendall(request_for("held"))
        answer = b""
        if when == "before the answer":
            client.shutdown(socket.SHUT_WR)
        while b"one" not in answer:
            answer += client.recv(65536)
        if when == "in the middle":
            client.shutdown(socket.SHUT_WR)
        until(lambda: held.open_streams > 0, "the upstream is asked")
        time.sleep(0.5)  # longer than it takes to find out that a client has left
        held.say("two")
        while b"two" not in answer:
            more = client.recv(65536)
            assert more, answer
            answer += more
        held.finish()
        answer += read_to_end(client)
    assert b"[DONE]" in answer
    assert answer.endswith(b"0\r\n\r\n")
    head, _, rest = answer.partition(b"\r\n\r\n")
    if head == b"HTTP/1.1 100 Continue":
        head = rest.partition(b"\r\n\r\n")[0]
    assert head.startswith(b"HTTP/1.1 200 OK")


LEAVING = [
    ("silent", True, "before a streamed answer"),
    ("silent", False, "before a whole answer"),
    ("held", True, "in the middle of a stream"),
]


@pytest.mark.parametrize(("model", "stream", "when"), LEAVING, ids=[case[2] for case in LEAVING])
def test_a_client_that_left_is_found_out(
    server: Serving, held: HeldUpstream, silent: SilentUpstream, model: str, stream: bool, when: str
) -> None:
    asked = silent.asked
    with connect(server) as client:
        client.sendall(request_for(model, stream=stream))
        if model == "held":
            answer = b""
            while b"one" not in answer:
                answer += client.recv(65536)
            until(lambda: held.open_streams > 0, "the upstream is asked")
        else:
            until(lambda: silent.asked > asked, "the upstream is asked")
    until(lambda: not silent.waiting and not held.open_streams, "the upstream's request goes on without its client")


def test_a_client_that_left_after_half_a_request_is_not_waited_for(server: Serving) -> None:
    for part in (b"GET /hea", b"GET /health HTTP/1.1\r\n", request_for("held")[:-5]):
        with connect(server) as client:
            client.sendall(part)
            client.shutdown(socket.SHUT_WR)
            assert read_to_end(client) == b""


def test_the_server_is_well_after_all_this(server: Serving) -> None:
    with connect(server) as client:
        client.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert read_to_end(client).endswith(b'{"status":"ok"}')
    assert "Traceback" not in server.log()
    assert "Task was destroyed" not in server.log()
