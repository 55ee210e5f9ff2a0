"""When a request begins whose body comes after its head, on a clock of the test's own."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from athena.errors import AthenaError
from athena.shells.gateway.client import Client, ClientGone
from athena.shells.server import http
from athena.shells.server.front import Front, FrontLimits
from athena.shells.server.http import HttpConnection
from support.examples import examples
from support.raw_server import chunk
from support.virtual_clock import run_virtually

POST = b"POST /v1/messages HTTP/1.1\r\nhost: localhost\r\n"
SOON = 0.02
"""Seconds after which a request begins without its body."""


class Transport:
    """A socket that takes everything."""

    def __init__(self) -> None:
        self.written = b""
        self.closed = False

    def get_extra_info(self, name: str) -> None:
        return None

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.closed

    def write(self, data: bytes) -> None:
        self.written += data

    def close(self) -> None:
        self.closed = True

    abort = write_eof = close

    def can_write_eof(self) -> bool:
        return False


class Served(NamedTuple):
    """What a gateway saw of a request when it began."""

    at: float
    body: bytes
    complete: bool
    gone: bool = False


class Gateway:
    """Notes when requests begin, reads them to their end, and answers."""

    def __init__(self) -> None:
        self.served: list[Served] = []
        self.begun = 0
        """Requests: of one whose client leaves before its body is there two things are noted."""
        self.lingers = 0.0
        """Seconds for which it has something to do after an answer."""
        self.bodies: list[bytes] = []

    def serve(self, client: Client, refusal: AthenaError | None = None) -> Coroutine[Any, Any, None]:
        return self._serve(client)

    async def _serve(self, client: Client) -> None:
        at = round(asyncio.get_running_loop().time(), 6)
        self.begun += 1
        try:
            body, complete = client.take_body()
            self.served.append(Served(at, body, complete))
            while not complete:
                await client.more_body(0)
                more, complete = client.take_body()
                body += more
        except ClientGone:
            self.served.append(Served(at, b"", False, gone=True))
            return
        self.bodies.append(body)
        client.start(200, [], 0)
        client.finish()
        await asyncio.sleep(self.lingers)


def served(*pieces: tuple[float, bytes], leaves: bool = True, lingers: float = 0.0) -> tuple[Gateway, bytes]:
    """Send pieces, each after a pause; the client leaves a moment after the last one, or at once."""

    async def main() -> tuple[Gateway, bytes]:
        gateway, loop, transport = Gateway(), asyncio.get_running_loop(), Transport()
        gateway.lingers = lingers
        front = Front(FrontLimits(header_bytes=65536, header_fields=100, headers_s=10, write_s=10))
        connection = HttpConnection(gateway, front, loop)  # type: ignore[arg-type]
        connection.connection_made(transport)  # type: ignore[arg-type]
        for pause, piece in pieces:
            await asyncio.sleep(pause)
            connection.data_received(piece)
        if leaves:
            await asyncio.sleep(1)
        connection.connection_lost(None)
        while front.tasks:
            await asyncio.sleep(0.001)
        return gateway, transport.written

    return run_virtually(main)


def head(length: int, *fields: bytes) -> bytes:
    return POST + b"".join(field + b"\r\n" for field in fields) + b"content-length: %d\r\n\r\n" % length


@pytest.mark.parametrize("gap", [0.0, 0.001, 0.019])
@pytest.mark.parametrize("size", [1, 9_999, 65_536, 99_999])
def test_a_request_begins_when_its_body_has_come(size: int, gap: float) -> None:
    body = b"x" * size
    gateway, written = served((0, head(size)), (gap, body))
    assert gateway.served == [Served(gap, body, True)]
    assert written.startswith(b"HTTP/1.1 200 ")


def test_a_body_in_pieces_is_waited_for_from_its_head_on() -> None:
    gateway, _ = served((0, head(3)), (0.008, b"a"), (0.008, b"b"), (0.1, b"c"))
    assert gateway.served == [Served(SOON, b"ab", False)]
    assert gateway.bodies == [b"abc"]


def test_a_request_with_its_body_begins_at_once() -> None:
    gateway, _ = served((0, head(3) + b"abc"))
    assert gateway.served == [Served(0, b"abc", True)]


def test_an_empty_body_is_not_waited_for() -> None:
    gateway, _ = served((0, head(0)), (0, POST + b"\r\n"))
    assert gateway.served == [Served(0, b"", True)] * 2


@pytest.mark.parametrize(
    "begin",
    [
        head(100_000),
        head(3, b"expect: 100-continue"),
        head(3, b"upgrade: websocket", b"connection: upgrade"),
        POST + b"transfer-encoding: chunked\r\n\r\n",
    ],
    ids=["large", "expect", "upgrade", "chunked"],
)
def test_other_requests_begin_at_their_head(begin: bytes) -> None:
    gateway, written = served((0, begin), (0.01, b""), leaves=False)
    assert gateway.served[0] == Served(0, b"", False)
    assert written.startswith(b"HTTP/1.1 100 ") == (b"expect" in begin)


def test_a_client_that_leaves_before_its_body_is_told_to_the_gateway() -> None:
    gateway, written = served((0, head(3)), (0.005, b"a"), leaves=False)
    assert gateway.served == [Served(0.005, b"", False, gone=True)]
    assert not written


def test_a_request_that_waited_for_its_turn_begins_with_it() -> None:
    gateway, written = served(
        (0, head(1)), (0.005, b"a" + head(2)), (0.005, b"bc" + POST + b"\r\n"), (0.1, head(1)), (0.01, b"d")
    )
    assert gateway.bodies == [b"a", b"bc", b"", b"d"]
    assert [seen.body for seen in gateway.served] == [b"a", b"", b"", b"d"]
    assert [seen.at for seen in gateway.served] == [0.005, 0.005, 0.01, 0.12]
    assert written.count(b"HTTP/1.1 200 ") == 4


@pytest.mark.parametrize("lingers", [0.001, 0.004, 0.1])
def test_the_request_before_may_still_be_at_work(lingers: float) -> None:
    gateway, written = served((0, head(1) + b"a"), (0.002, head(1)), (0.004, b"b"), lingers=lingers)
    assert [seen.body for seen in gateway.served] == [b"a", b"b"]
    assert written.count(b"HTTP/1.1 200 ") == 2


def test_garbage_after_a_body_is_refused_as_before() -> None:
    gateway, written = served((0, head(1)), (0.005, b"a\x00\x01"))
    assert gateway.served == [Served(0.005, b"", False, gone=True)]
    assert written.startswith(b"HTTP/1.1 400 ")


KINDS: dict[str, Callable[[bytes], bytes]] = {
    "short": lambda body: head(len(body)) + body,
    "chunked": lambda body: POST + b"transfer-encoding: chunked\r\n\r\n" + (chunk(body) if body else b"") + b"0\r\n\r\n",
    "expecting": lambda body: head(len(body), b"expect: 100-continue") + body,
    "upgrading": lambda body: head(len(body), b"upgrade: h2c", b"connection: upgrade") + body,
    "nothing": lambda body: POST + b"\r\n",
    "garbage": lambda body: b"\x00\x01",
}


@examples(200)
@given(
    st.lists(st.tuples(st.sampled_from(sorted(KINDS)), st.binary(max_size=20)), max_size=4),
    st.lists(st.tuples(st.integers(1, 60), st.sampled_from([0, 0.001, 0.015, 0.05])), max_size=8),
    st.booleans(),
    st.sampled_from([0.0, 0.002, 0.03]),
)
@example(requests=[("short", b"\x00")], cuts=[(6, 0.0), (60, 0.0)], leaves=False, lingers=0.0)
def test_what_is_served_is_the_same_without_waiting(
    requests: list[tuple[str, bytes]], cuts: list[tuple[int, float]], leaves: bool, lingers: float
) -> None:
    data = b"".join(KINDS[kind](body) for kind, body in requests)
    pieces: list[tuple[float, bytes]] = []
    for size, pause in cuts:
        pieces.append((pause, data[:size]))
        data = data[size:]
    pieces.append((0.0, data))
    pieces = [(pause, piece) for pause, piece in pieces if piece]
    gateway, written = served(*pieces, leaves=leaves, lingers=lingers)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(http, "_SHORT_DIGITS", 0)
        other, without_waiting = served(*pieces, leaves=leaves, lingers=lingers)
    assert gateway.begun == other.begun
    if leaves:
        assert gateway.bodies == other.bodies
        assert statuses(written) == statuses(without_waiting)


def statuses(written: bytes) -> list[bytes]:
    """Of all answers; a `100 Continue` depends on what has come when it is asked for."""
    return [status for status in re.findall(rb"HTTP/1\.1 (\d+) ", written) if status != b"100"]
