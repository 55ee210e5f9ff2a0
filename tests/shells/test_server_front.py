"""The HTTP front against clients that do not play by the rules, on raw sockets
(docs/reference/faults.md#clients-that-misbehave)."""

from __future__ import annotations

import re
import signal
import socket
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from support.athena_process import Serving, serving
from support.cases import CASES
from support.patience import FOR_EVER, PATIENCE

HOST = b"Host: localhost\r\n"
POST = b"POST /v1/chat/completions HTTP/1.1\r\n" + HOST
GET = b"GET /health HTTP/1.1\r\n" + HOST + b"\r\n"


class HostileRequest(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """One row of `tests/cases/hostile_clients.toml`."""

    name: str
    send: str
    status: int

    @property
    def data(self) -> bytes:
        return _REPEATED.sub(lambda found: int(found[1]) * found[2], self.send).encode("latin-1")


_REPEATED = re.compile(r"<(\d+) x ([^>]+)>", re.DOTALL)
HOSTILE = msgspec.convert(
    tomllib.loads((CASES / "hostile_clients.toml").read_text(encoding="utf-8")), dict[str, list[HostileRequest]]
)
FRAMING = HOSTILE.pop("framing")
OTHERS = [request for requests in HOSTILE.values() for request in requests]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """One that waits for slow clients."""
    config = {
        "timeouts": {"client_headers_s": FOR_EVER, "client_body_s": FOR_EVER},
        "limits": {"body_bytes": 4096},
    }
    with serving(tmp_path_factory.mktemp("front"), config=config) as running:
        yield running


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """One that does not."""
    config = {"timeouts": {"client_headers_s": 0.6, "client_body_s": 0.6}}
    with serving(tmp_path_factory.mktemp("hasty"), config=config) as running:
        yield running


def exchange(server: Serving, *pieces: bytes, pause: float = 0.0) -> bytes:
    """Send, then read until the server closes."""
    with socket.create_connection(("127.0.0.1", server.port), PATIENCE) as client:
        for piece in pieces:
            client.sendall(piece)
            if pause:
                time.sleep(pause)
        return read_all(client)


def read_all(client: socket.socket) -> bytes:
    answer = b""
    while data := client.recv(65536):
        answer += data
    return answer


def status(answer: bytes) -> int:
    found = re.match(rb"HTTP/1\.1 (\d{3}) ", answer)
    assert found, answer
    return int(found.group(1))


@pytest.mark.parametrize("case", FRAMING, ids=lambda case: case.name)
def test_ambiguous_requests_are_refused_and_the_connection_ends(server: Serving, case: HostileRequest) -> None:
    answer = exchange(server, case.data + GET)
    assert status(answer) == case.status
    assert len(re.findall(rb"HTTP/1\.1 \d", answer)) == 1
    assert b"connection: close" in answer
    assert b"x-request-id: req_" in answer


@pytest.mark.parametrize("case", OTHERS, ids=lambda case: case.name)
def test_hostile_requests_get_their_status(server: Serving, case: HostileRequest) -> None:
    answer = exchange(server, case.data)
    assert status(answer) == case.status
    assert len(re.findall(rb"HTTP/1\.1 \d", answer)) == 1


def test_another_version_is_named(server: Serving) -> None:
    assert status(exchange(server, b"GET / HTTP/2.0\r\n" + HOST + b"\r\n")) == 505


def test_as_many_headers_as_are_allowed_pass(server: Serving) -> None:
    assert status(exchange(server, b"GET / HTTP/1.1\r\n" + HOST + b"A: b\r\n" * 98 + b"Connection: close\r\n\r\n")) == 200


def test_a_head_of_many_tiny_fields_is_refused(server: Serving) -> None:
    assert b"too_many_headers" in exchange(server, b"GET / HTTP/1.1\r\n" + HOST + b"A:\r\n" * 7_000 + b"\r\n")


def test_a_head_without_fields_passes_where_none_is_needed(server: Serving) -> None:
    assert status(exchange(server, b"GET /health HTTP/1.0\r\n\r\n")) == 200


def test_only_the_blanks_of_http_stand_around_a_coding(server: Serving) -> None:
    request = b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: \xa0chunked\r\n\r\n0\r\n\r\n"
    assert status(exchange(server, request)) == 400


def test_fields_of_one_name_are_one_list(server: Serving) -> None:
    """Whatever the case of their names: together they are no id that may be repeated."""
    line, once, again = b"GET /health HTTP/1.0\r\n", b"X-Request-Id: one\r\n", b"x-request-id: two\r\n"
    assert b"\r\nx-request-id: one\r\n" in exchange(server, line + once + b"\r\n")
    assert b"\r\nx-request-id: req_" in exchange(server, line + once + again + b"\r\n")


def test_an_endless_head_is_cut_while_it_comes(server: Serving) -> None:
    with socket.create_connection(("127.0.0.1", server.port), PATIENCE) as client:
        client.sendall(b"GET / HTTP/1.1\r\nA: ")
        for _ in range(40):
            client.sendall(b"x" * 16_384)
        assert status(read_all(client)) == 431


def test_slow_heads_are_ended(hasty: Serving) -> None:
    assert status(exchange(hasty, b"GET / HTTP/1.1\r\n", b"Ho")) == 408
    assert exchange(hasty) == b""


def test_a_slow_head_of_a_later_request_is_ended(hasty: Serving) -> None:
    answer = exchange(hasty, GET + b"GET /health HTT")
    assert answer.startswith(b"HTTP/1.1 200")
    assert b"HTTP/1.1 408" in answer


def test_a_slow_body_is_ended_in_the_dialect(hasty: Serving) -> None:
    answer = exchange(hasty, b"POST /v1/messages HTTP/1.1\r\n" + HOST + b"Content-Length: 100\r\n\r\n{")
    assert status(answer) == 408
    assert b'"type":"error"' in answer


def test_a_dripping_body_is_ended(hasty: Serving) -> None:
    with socket.create_connection(("127.0.0.1", hasty.port), PATIENCE) as client:
        client.sendall(b"POST /v1/messages HTTP/1.1\r\n" + HOST + b"Content-Length: 1000\r\n\r\n")
        client.settimeout(0.1)
        deadline = time.monotonic() + PATIENCE
        while True:
            client.sendall(b" ")
            try:
                answer = client.recv(65536)
                break
            except TimeoutError:
                assert time.monotonic() < deadline
    assert status(answer) == 408


def test_a_body_that_is_too_large_is_told_while_it_is_sent(server: Serving) -> None:
    with socket.create_connection(("127.0.0.1", server.port), PATIENCE) as client:
        client.sendall(b"POST /v1/messages HTTP/1.1\r\n" + HOST + b"Content-Length: 4000000\r\n\r\n")
        for _ in range(100):
            client.sendall(b"x" * 40_000)
        answer = read_all(client)
    assert status(answer) == 413
    assert answer.count(b"HTTP/1.1 ") == 1


def test_trailers_do_not_become_headers(server: Serving) -> None:
    body = b'{"model":"m","messages":[]}'
    request = POST + b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n%x\r\n%b\r\n0\r\n" % (len(body), body)
    answer = exchange(server, request + b"X-Request-Id: from-a-trailer\r\n\r\n")
    assert b"from-a-trailer" not in answer


def test_pipelined_requests_are_answered_in_order(server: Serving) -> None:
    one = b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: r%d\r\n%b\r\n"
    requests = b"".join(one % (number, b"Connection: close\r\n" if number == 9 else b"") for number in range(10))
    answer = exchange(server, requests)
    assert re.findall(rb"\r\nx-request-id: (r\d)\r\n", answer) == [b"r%d" % number for number in range(10)]


def test_a_flood_of_pipelined_requests_is_cut(server: Serving) -> None:
    answer = exchange(server, GET * 3000)
    assert answer.count(b"HTTP/1.1 200") < 3000


def test_an_upgrade_nobody_speaks_is_a_plain_request(server: Serving) -> None:
    head = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"
    body = b'{"model":"m","max_tokens":5,"messages":[{"role":"user","content":"hi"}]}'
    post = b"POST /v1/messages HTTP/1.1\r\n" + HOST + head
    pieces = (
        b"GET /health HTTP/1.1\r\n" + HOST + head + b"\r\n",
        post + b"Content-Length: %d\r\n\r\n%b" % (len(body), body),
        post + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(body), body),
        b"GET /health HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n",
    )
    for answer in (exchange(server, *pieces), exchange(server, b"".join(pieces))):
        assert answer.count(b"HTTP/1.1 200 OK") == 4
        assert answer.count(b"demo model") == 2


def test_answers_say_nothing_about_the_server(server: Serving) -> None:
    answer = exchange(server, b"GET /health HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n").lower()
    assert b"\r\nserver:" not in answer
    assert b"\r\ndate: " in answer


def test_the_server_is_well_after_all_this(server: Serving) -> None:
    assert status(exchange(server, b"GET /health HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n")) == 200
    assert "Traceback" not in server.log()


def test_garbage_after_a_request_spends_nothing(tmp_path: Path) -> None:
    from support.held_upstream import HeldUpstream

    body = b'{"model":"m","stream":true,"messages":[{"role":"user","content":"x"}]}'
    with HeldUpstream() as upstream:
        config = {"upstreams": {"held": {"base_url": upstream.url}}, "models": [{"match": "*", "use": "held"}]}
        with serving(tmp_path, config=config) as server:
            answer = exchange(server, POST + b"Content-Length: %d\r\n\r\n%b" % (len(body), body) + b"NONSENSE\r\n\r\n")
            assert status(answer) == 400
            server.signal(signal.SIGTERM)
            assert server.wait() == 0
        assert upstream.opened == 0
