"""The upstream client over real sockets: answers, pooling, stray bytes, resends, limits, back-pressure."""

from __future__ import annotations

import asyncio
import gzip
import re
import socket
import threading

import pytest

from athena.errors import UpstreamClosed, UpstreamProtocol, UpstreamTimeout, UsageError
from athena.shells.upstream import (
    ClientSettings,
    Origin,
    Timeouts,
    UpstreamClient,
    parse_base_url,
)
from support.event_loops import Run, both_loops, by_hand_clock, hand_clock
from support.patience import PATIENCE
from support.raw_server import (
    FirstByte,
    Flood,
    Hold,
    RawServer,
    Request,
    Reset,
    Script,
    Signal,
    Step,
    Until,
    answer,
    chunk,
    chunked_head,
)
from support.upstream_clients import ask, drain, read_all, same_answer, send, stats, until, with_client

# -- one request -----------------------------------------------------------------------------------------------------------


@both_loops
def test_what_goes_out_and_what_comes_back(run: Run) -> None:
    with RawServer([Request(), answer(b"hello", "X-Id: 7", status="201 Created"), Hold()]) as server:

        async def main(client: UpstreamClient) -> None:
            response = await send(client, server, b'{"a":1}')
            assert (response.status, response.headers["x-id"]) == (201, "7")
            assert (stats(client).resent, stats(client).reused) == (0, 0)
            assert await read_all(response) == b"hello"
            assert await response.read() == b""

        with_client(run, main)
    assert server.requests == [
        b"POST /v1/chat HTTP/1.1\r\nhost: 127.0.0.1:%d\r\naccept-encoding: identity\r\nauthorization: Bearer key\r\n"
        b'content-type: application/json\r\ncontent-length: 7\r\n\r\n{"a":1}' % server.port
    ]


@pytest.mark.parametrize(
    ("script", "body"),
    [
        ([chunked_head(), chunk(b"a"), chunk(b"b"), chunk(b"")], b"ab"),
        ([chunked_head() + b"1;x=y\r\na\r\n0\r\nx-trailer: 1\r\n\r\n"], b"a"),
        ([b"HTTP/1.0 200 OK\r\n\r\n", b"until ", b"the end"], b"until the end"),
        ([b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n", answer(b"a")], b"a"),
        ([bytes([byte]) for byte in answer(b"slowly")], b"slowly"),
        ([b"HTTP/1.1 204 No Content\r\n\r\n"], b""),
        ([answer(gzip.compress(b"zipped" * 99), "content-encoding: gzip")], b"zipped" * 99),
    ],
)
@both_loops
def test_framings(run: Run, script: Script, body: bytes) -> None:
    with RawServer([Request(), *script]) as server:

        async def main(client: UpstreamClient) -> None:
            response = await send(client, server)
            assert await read_all(response) == body
            assert "content-encoding" not in response.headers

        with_client(run, main)


@both_loops
def test_one_read_takes_all_that_came(run: Run) -> None:
    sent = threading.Event()
    go = threading.Event()
    with RawServer([Request(), chunked_head(), Until(go), *[chunk(b"x" * 10)] * 50, Signal(sent), Hold()]) as server:

        async def main(client: UpstreamClient) -> None:
            response = await send(client, server)
            go.set()
            await asyncio.to_thread(sent.wait, 10)
            received = await response.read()
            while len(received) < 500:
                received += await response.read()
            assert received == b"x" * 500
            response.close()

        with_client(run, main)


@both_loops
def test_redirects_are_not_followed(run: Run) -> None:
    with (
        RawServer([Hold()]) as canary,
        RawServer([Request(), answer(b"", f"location: {canary.url}/", status="307 Temporary Redirect")]) as server,
    ):

        async def main(client: UpstreamClient) -> None:
            response = await send(client, server)
            assert response.status == 307

        with_client(run, main)
        assert canary.connections == 0


# -- pooling ---------------------------------------------------------------------------------------------------------------


@both_loops
def test_connections_are_reused_last_in_first_out(run: Run) -> None:
    script = same_answer(4)
    with RawServer(script) as server:

        async def main(client: UpstreamClient) -> None:
            for position in range(3):
                response = await send(client, server)
                assert stats(client).reused == position
                await read_all(response)
            assert list(await asyncio.gather(ask(client, server), ask(client, server))) == [b"a", b"a"]
            found = stats(client)
            assert (found.open, found.idle, found.opened, found.reused) == (2, 2, 2, 3)

        with_client(run, main)
    assert server.connections == 2


@both_loops
def test_different_origins_do_not_share(run: Run) -> None:
    with RawServer([Request(), answer(b"a"), Hold()]) as server:

        async def main(client: UpstreamClient) -> None:
            plain, _ = parse_base_url(server.url)
            named = Origin("http", "localhost", server.port)
            for origin in (plain, named):
                response = await client.send("GET", origin, "/")
                await read_all(response)
            assert len(client.stats()) == 2

        with_client(run, main)
    assert server.connections == 2


@pytest.mark.parametrize("headers", [("connection: close",), ("keep-alive: timeout=1",)])
@both_loops
def test_the_server_says_how_long(run: Run, headers: tuple[str, ...]) -> None:
    with RawServer([Request(), answer(b"a", *headers), Hold()]) as server:

        async def main(client: UpstreamClient) -> None:
            assert await ask(client, server) == b"a"
            assert await ask(client, server) == b"a"

        with_client(run, main)
    assert server.connections == 2


@both_loops
def test_idle_connections_are_swept_and_limited(run: Run) -> None:
    script = same_answer(9)
    with RawServer(script) as server:

        async def main(client: UpstreamClient) -> None:
            await asyncio.gather(*[ask(client, server) for _ in range(4)])
            assert stats(client).idle <= 2
            await until(lambda: stats(client).open == 0)
            assert await ask(client, server) == b"a"

        with_client(run, main, ClientSettings(max_idle=2, idle_lifetime=0.05))


@both_loops
def test_waiters_get_their_turn_in_order(run: Run) -> None:
    script = same_answer(9)
    with RawServer(script) as server:

        async def main(client: UpstreamClient) -> None:
            finished: list[int] = []

            async def numbered(number: int) -> None:
                assert await ask(client, server, b"%d" % number) == b"a"
                finished.append(number)

            await asyncio.gather(*map(numbered, range(8)))
            assert finished == list(range(8))
            assert stats(client).open == 1

        with_client(run, main, ClientSettings(max_connections=1))
    assert [request[-1:] for request in server.requests] == [b"%d" % number for number in range(8)]


@both_loops
def test_a_waiter_gives_up_at_its_limit(run: Run) -> None:
    with RawServer([Request(), chunked_head(), Hold()]) as server:

        async def main(client: UpstreamClient) -> None:
            busy = await send(client, server)
            with pytest.raises(UpstreamTimeout) as caught:
                await ask(client, server, timeouts=Timeouts(pool=0.05))
            assert caught.value.code == "pool_timeout"
            assert not caught.value.request_sent
            assert stats(client).waiting == 0
            busy.close()

        with_client(run, main, ClientSettings(max_connections=1))


@both_loops
def test_a_dead_connections_place_goes_to_a_waiter(run: Run) -> None:
    with RawServer([Request(), chunked_head(), Hold()], [Request(), answer(b"b"), Hold()]) as server:

        async def main(client: UpstreamClient) -> None:
            busy = await send(client, server)
            waiting = asyncio.ensure_future(ask(client, server))
            await until(lambda: stats(client).waiting == 1)
            busy.close()
            assert await waiting == b"b"

        with_client(run, main, ClientSettings(max_connections=1))


# -- stray bytes -----------------------------------------------------------------------------------------------------------

STRAY = answer(b'{"wrong": "answer"}')


@pytest.mark.parametrize("body", [[answer(b"right")], [chunked_head(), chunk(b"right"), chunk(b"")]], ids=["length", "chunked"])
@pytest.mark.parametrize("stray", [STRAY, STRAY[:1], b"\r\n", b"\n"], ids=["response", "byte", "line end", "LF"])
@pytest.mark.parametrize("apart", [False, True], ids=["same write", "next write"])
@both_loops
def test_a_stray_response_never_reaches_the_next_request(run: Run, body: list[bytes], stray: bytes, apart: bool) -> None:
    sent = [threading.Event() for _ in range(10)]

    def script(event: threading.Event) -> list[Step]:
        bodies: list[Step] = [*body[:-1], body[-1], stray] if apart else [*body[:-1], body[-1] + stray]
        return [Request(), *bodies, Signal(event), Hold()]

    with RawServer(*map(script, sent)) as server:

        async def main(client: UpstreamClient) -> None:
            for event in sent:
                assert await ask(client, server) == b"right"
                # The wire is faster than this test: the bytes are in the kernel, read by the loop or not.
                event.wait(PATIENCE)
            await until(lambda: stats(client).open == 0)
            assert stats(client).reused == 0
            assert stats(client).resent == 0

        with_client(run, main)
    assert server.connections == len(sent)


@both_loops
def test_forty_of_forty_requests_after_a_stray_response_are_unharmed(run: Run) -> None:
    """The two responses come in one write."""
    smuggle: list[Step] = [Request(), answer(b"right") + STRAY, Hold()]
    with RawServer(smuggle) as server:

        async def main(client: UpstreamClient) -> None:
            for _ in range(40):
                assert await ask(client, server) == b"right"
                assert await ask(client, server) == b"right"
            assert stats(client).stray == 80

        with_client(run, main)


@both_loops
def test_a_byte_on_an_idle_connection_kills_it(run: Run) -> None:
    idle = threading.Event()
    with RawServer([Request(), answer(b"a"), Until(idle), b"x", Hold()], [Request(), answer(b"b"), Hold()]) as server:

        async def main(client: UpstreamClient) -> None:
            assert await ask(client, server) == b"a"
            assert stats(client).idle == 1
            idle.set()
            await until(lambda: stats(client).open == 0)
            assert stats(client).stray == 1
            assert await ask(client, server) == b"b"

        with_client(run, main)


# -- responses that are left -----------------------------------------------------------------------------------------------


@both_loops
def test_a_half_read_response_takes_its_connection_along(run: Run) -> None:
    with RawServer([Request(), chunked_head(), chunk(b"a"), Hold()], [Request(), answer(b"b"), Hold()]) as server:

        async def main(client: UpstreamClient) -> None:
            response = await send(client, server)
            assert await response.read() == b"a"
            response.close()
            response.close()
            assert stats(client).open == 0
            with pytest.raises(UpstreamClosed):
                await response.read()
            assert await asyncio.to_thread(server.gone.acquire, timeout=PATIENCE)
            assert await ask(client, server) == b"b"

        with_client(run, main)


@both_loops
def test_a_complete_response_keeps_its_connection_read_or_not(run: Run) -> None:
    with RawServer([Request(), answer(b"a"), Request(), answer(b"b"), Hold()]) as server:

        async def main(client: UpstreamClient) -> None:
            response = await send(client, server)
            await until(lambda: stats(client).idle == 1)
            response.close()
            with pytest.raises(UsageError):
                await response.read()
            assert await ask(client, server) == b"b"

        with_client(run, main)
    assert server.connections == 1


@pytest.mark.parametrize("script", [[], [b"HTTP/1.1 200 OK\r\n"], [chunked_head(), chunk(b"a")]])
@both_loops
def test_a_cancelled_request_ends_upstream_at_once(run: Run, script: Script) -> None:
    with RawServer([Request(), *script, Hold()], [Request(), answer(b"b"), Hold()]) as server:

        async def main(client: UpstreamClient) -> None:
            came: list[bytes] = []

            async def reading() -> None:
                response = await send(client, server)
                while data := await response.read():
                    came.append(data)

            task = asyncio.ensure_future(reading())
            await until(lambda: bool(came) if script[-1:] == [chunk(b"a")] else len(server.requests) == 1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            if script[-1:] == [chunk(b"a")]:
                # Here the head had come: the response was the consumer's, who has to close it and does not.
                assert stats(client).open == 1
            else:
                assert stats(client).open == 0
                assert await asyncio.to_thread(server.gone.acquire, timeout=PATIENCE)
                assert await ask(client, server) == b"b"

        with_client(run, main)


# -- resends ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", [[], [Reset()]], ids=["FIN", "RST"])
@both_loops
def test_a_stale_pooled_connection_is_replaced_once(run: Run, ending: Script) -> None:
    with RawServer([Request(), answer(b"a"), Request(), *ending], [Request(), answer(b"b"), Hold()]) as server:

        async def main(client: UpstreamClient) -> None:
            assert await ask(client, server) == b"a"
            response = await send(client, server)
            assert (stats(client).resent, stats(client).opened) == (1, 2)
            assert await read_all(response) == b"b"

        with_client(run, main, ClientSettings(resend_when_fresh=False))


@both_loops
def test_a_connection_closed_while_idle_is_not_even_tried(run: Run) -> None:
    with RawServer([Request(), answer(b"a")], [Request(), answer(b"b"), Hold()]) as server:

        async def main(client: UpstreamClient) -> None:
            assert await ask(client, server) == b"a"
            await asyncio.to_thread(server.gone.acquire, timeout=PATIENCE)
            response = await send(client, server)
            assert await read_all(response) == b"b"
            assert stats(client).resent in (0, 1)

        with_client(run, main)


@pytest.mark.parametrize("ending", [[], [Reset()]], ids=["FIN", "RST"])
@both_loops
def test_a_fresh_connection_closed_without_a_byte(run: Run, ending: Script) -> None:
    with RawServer([Request(), *ending], [Request(), answer(b"b"), Hold()]) as server:

        async def main(client: UpstreamClient) -> None:
            response = await send(client, server)
            assert stats(client).resent == 1
            assert await read_all(response) == b"b"

        with_client(run, main)
    assert server.connections == 2


@pytest.mark.parametrize(("resend", "connections"), [(True, 2), (False, 1)])
@both_loops
def test_at_most_one_resend(run: Run, resend: bool, connections: int) -> None:
    with RawServer([Request()]) as server:

        async def main(client: UpstreamClient) -> None:
            with pytest.raises(UpstreamClosed) as caught:
                await ask(client, server)
            assert caught.value.request_sent
            assert not caught.value.response_started

        with_client(run, main, ClientSettings(resend_when_fresh=resend))
    assert server.connections == connections


@both_loops
def test_no_resend_after_one_byte_of_an_answer(run: Run) -> None:
    with RawServer([Request(), answer(b"a"), Request(), b"H"], [Request(), answer(b"b"), Hold()]) as server:

        async def main(client: UpstreamClient) -> None:
            assert await ask(client, server) == b"a"
            with pytest.raises(UpstreamClosed) as caught:
                await ask(client, server)
            assert caught.value.request_sent
            assert caught.value.response_started

        with_client(run, main)
    assert server.connections == 1


@both_loops
def test_a_resend_finds_a_place_when_all_are_taken(run: Run) -> None:
    with RawServer([Request(), answer(b"a"), Request()], [Request(), answer(b"b"), Hold()]) as server:

        async def main(client: UpstreamClient) -> None:
            assert await ask(client, server) == b"a"
            assert list(await asyncio.gather(ask(client, server), ask(client, server))) == [b"b", b"b"]
            assert stats(client).resent == 1

        with_client(run, main, ClientSettings(max_connections=1))


# -- broken answers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ([chunked_head(), chunk(b"half")], "upstream_closed"),
        ([answer(b"halfmore")[:-4]], "upstream_closed"),
        # What came before a RST can still be read.
        ([chunked_head(), chunk(b"half"), Reset()], "upstream_reset"),
        ([b"HTTP/1.1 200 OK\r\n\r\nhalf", Reset()], "upstream_reset"),
    ],
    ids=["chunked FIN", "length FIN", "chunked RST", "until end RST"],
)
@both_loops
def test_a_cut_answer_gives_what_came_and_then_fails(run: Run, script: Script, code: str) -> None:
    with RawServer([Request(), *script]) as server:

        async def main(client: UpstreamClient) -> None:
            response = await send(client, server)
            pieces, failure = await drain(response)
            assert b"".join(pieces) == b"half"
            assert isinstance(failure, UpstreamClosed)
            assert failure.code == code
            assert failure.request_sent
            assert failure.response_started
            assert stats(client).open == 0

        with_client(run, main)
    assert server.connections == 1


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n", "upstream_protocol"),
        (b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 101 + b"\r\n", "header_limit"),
        (b"HTTP/1.1 200 OK\r\nx: " + b"y" * 70000, "header_limit"),
        (answer(b"x", "content-encoding: br"), "unknown_encoding"),
    ],
)
@both_loops
def test_a_bad_head_is_a_protocol_error(run: Run, raw: bytes, code: str) -> None:
    with RawServer([Request(), raw, Hold()]) as server:

        async def main(client: UpstreamClient) -> None:
            with pytest.raises(UpstreamProtocol) as caught:
                await ask(client, server)
            assert caught.value.code == code
            assert caught.value.response_started
            assert stats(client).open == 0

        with_client(run, main)


@both_loops
def test_a_bad_chunk_in_the_middle(run: Run) -> None:
    with RawServer([Request(), chunked_head(), chunk(b"good") + b"zz\r\n", Hold()]) as server:

        async def main(client: UpstreamClient) -> None:
            response = await send(client, server)
            assert await response.read() == b"good"
            with pytest.raises(UpstreamProtocol):
                await response.read()
            assert stats(client).open == 0

        with_client(run, main)


@pytest.mark.parametrize(
    ("wire", "code"),
    [
        (gzip.compress(b"\0" * (64 << 20), 9), "decompression_limit"),
        (b"not gzip at all", "broken_encoding"),
        (gzip.compress(b"cut short" * 50)[:-12], "broken_encoding"),
    ],
    ids=["bomb", "lie", "cut"],
)
@both_loops
def test_bad_encodings_end_in_an_error_with_little_memory(run: Run, wire: bytes, code: str) -> None:
    with RawServer([Request(), answer(wire, "content-encoding: gzip"), Hold()]) as server:

        async def main(client: UpstreamClient) -> None:
            response = await send(client, server)
            pieces, failure = await drain(response)
            assert all(len(piece) <= 256 * 1024 for piece in pieces)
            assert failure is not None
            assert failure.code == code
            with pytest.raises(UpstreamProtocol):
                await response.read()

        with_client(run, main)


# -- limits in time --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "timeouts", "code", "started"),
    [
        ([], Timeouts(first_byte=10), "first_byte_timeout", False),
        ([chunked_head()], Timeouts(first_byte=10), "first_byte_timeout", True),
        ([chunked_head(), chunk(b"a")], Timeouts(first_byte=1, idle=10), "idle_timeout", True),
        ([chunked_head(), chunk(b"a")], Timeouts(idle=20, total=10), "total_timeout", True),
        ([], Timeouts(total=10), "total_timeout", False),
    ],
    ids=["no byte", "head only", "idle", "total", "total before a byte"],
)
@by_hand_clock
def test_time_limits(run: Run, script: Script, timeouts: Timeouts, code: str, started: bool) -> None:
    said = threading.Event()
    with RawServer([Request(), *script, Signal(said), Hold()]) as server:

        async def main(client: UpstreamClient) -> None:
            asking = asyncio.ensure_future(ask(client, server, timeouts=timeouts))
            assert await asyncio.to_thread(said.wait, PATIENCE)
            await hand_clock().pass_time(9)
            assert not asking.done()
            await hand_clock().pass_time(2)
            with pytest.raises(UpstreamTimeout) as caught:
                await asking
            assert caught.value.code == code
            assert caught.value.kind == "timeout"
            assert caught.value.request_sent
            assert caught.value.response_started == started
            assert stats(client).open == 0

        with_client(run, main)
    assert server.connections == 1


@pytest.mark.parametrize(
    ("script", "timeouts", "code"),
    [
        ([], Timeouts(first_byte=0.05), "first_byte_timeout"),
        ([chunked_head(), chunk(b"a")], Timeouts(idle=0.05), "idle_timeout"),
    ],
    ids=["no byte", "idle"],
)
@both_loops
def test_time_limits_end_by_themselves(run: Run, script: Script, timeouts: Timeouts, code: str) -> None:
    with RawServer([Request(), *script, Hold()]) as server:

        async def main(client: UpstreamClient) -> None:
            with pytest.raises(UpstreamTimeout) as caught:
                await ask(client, server, timeouts=timeouts)
            assert caught.value.code == code

        with_client(run, main)


class Drip:
    """Pieces that a server sends one by one, each when the test says so."""

    def __init__(self, *pieces: bytes) -> None:
        self._begun = threading.Event()
        self._events = [(threading.Event(), threading.Event()) for _ in pieces]
        self.steps: list[Step] = [Signal(self._begun)]
        for piece, (go_on, sent) in zip(pieces, self._events, strict=True):
            self.steps += [Until(go_on), piece, Signal(sent)]

    async def fall(self, *, seconds: float) -> None:
        """All of them, with so much time before each; what the script sends before the first has arrived by then."""
        assert await asyncio.to_thread(self._begun.wait, PATIENCE)
        for go_on, sent in self._events:
            await hand_clock().pass_time(seconds)
            go_on.set()
            assert await asyncio.to_thread(sent.wait, PATIENCE)
        await hand_clock().settle()


@pytest.mark.parametrize(
    ("script", "pieces", "timeouts", "code"),
    [
        ([], [b"H", b"T"], Timeouts(first_byte=10), "first_byte_timeout"),
        ([chunked_head(), chunk(b"a")], [b"1;x", b"x"], Timeouts(idle=10), "idle_timeout"),
    ],
    ids=["dripping head", "chunk extension only"],
)
@by_hand_clock
def test_bytes_that_say_nothing_gain_no_time(
    run: Run, script: Script, pieces: list[bytes], timeouts: Timeouts, code: str
) -> None:
    drip = Drip(*pieces)
    with RawServer([Request(), *script, *drip.steps, Hold()]) as server:

        async def main(client: UpstreamClient) -> None:
            asking = asyncio.ensure_future(ask(client, server, timeouts=timeouts))
            await drip.fall(seconds=4)
            assert not asking.done()
            await hand_clock().pass_time(4)
            with pytest.raises(UpstreamTimeout) as caught:
                await asking
            assert caught.value.code == code
            assert caught.value.response_started

        with_client(run, main)


@by_hand_clock
def test_data_in_time_keeps_a_stream_alive(run: Run) -> None:
    drip = Drip(*[chunk(b"a")] * 6, chunk(b""))
    with RawServer([Request(), chunked_head(), *drip.steps, Hold()]) as server:

        async def main(client: UpstreamClient) -> None:
            asking = asyncio.ensure_future(ask(client, server, timeouts=Timeouts(idle=10, first_byte=10)))
            await drip.fall(seconds=9)
            assert await asking == b"a" * 6
            assert stats(client).idle == 1

        with_client(run, main)


@by_hand_clock
def test_a_slow_consumer_is_not_the_upstreams_silence(run: Run) -> None:
    size = 1 << 20
    with RawServer([Request(), answer(b"x" * size), Hold()]) as server:

        async def main(client: UpstreamClient) -> None:
            response = await send(client, server, timeouts=Timeouts(idle=10))
            # Once our buffer is full we do not read any more; until then a silence is the upstream's.
            await until(lambda: response._paused)
            await hand_clock().pass_time(50)
            assert len(await read_all(response)) == size

        with_client(run, main)


# -- back-pressure ---------------------------------------------------------------------------------------------------------


@both_loops
def test_an_unread_response_stops_the_upstream(run: Run) -> None:
    total = 64 << 20
    with RawServer(
        [Request(), f"HTTP/1.1 200 OK\r\ncontent-length: {total}\r\n\r\n".encode(), Flood(b"x" * 65536, 1024), Hold()]
    ) as server:

        async def main(client: UpstreamClient) -> None:
            response = await send(client, server)
            # The kernel's own buffers take some megabytes on loopback; then it must stand still.
            seen = -1
            while server.flooded != seen:
                seen = server.flooded
                await asyncio.sleep(0.1)
            assert server.flooded < total // 2
            first = await response.read()
            assert len(first) <= 256 * 1024 + 256 * 1024
            received = len(first)
            while data := await response.read():
                received += len(data)
            assert received == total
            assert stats(client).idle == 1

        with_client(run, main)


# -- large requests --------------------------------------------------------------------------------------------------------


@both_loops
def test_a_large_request_body(run: Run) -> None:
    body = b"x" * (5 << 20)
    with RawServer([Request(), answer(b"ok"), Hold()]) as server:

        async def main(client: UpstreamClient) -> None:
            assert await ask(client, server, body) == b"ok"

        with_client(run, main)
    assert server.requests[0].endswith(b"\r\n\r\n" + body)


@both_loops
def test_an_answer_before_the_request_was_read_ends_the_connection(run: Run) -> None:
    release = threading.Event()
    with RawServer([FirstByte(), answer(b"too large", status="413 Too Large"), Until(release)]) as server:

        async def main(client: UpstreamClient) -> None:
            try:
                response = await send(client, server, b"x" * (32 << 20))
                assert (response.status, await read_all(response)) == (413, b"too large")
                assert stats(client).open == 0
            finally:
                release.set()

        with_client(run, main)


# -- the end ---------------------------------------------------------------------------------------------------------------


@both_loops
def test_closing_the_client_ends_everything(run: Run) -> None:
    with RawServer([Request(), chunked_head() + chunk(b"a"), Hold()]) as server:

        async def main(client: UpstreamClient) -> None:
            response = await send(client, server)
            waiting = asyncio.ensure_future(ask(client, server))
            await until(lambda: stats(client).waiting == 1)
            await client.close()
            assert await response.read() == b"a"
            with pytest.raises(UpstreamClosed):
                await response.read()
            with pytest.raises(UpstreamClosed):
                await waiting
            with pytest.raises(UsageError):
                await ask(client, server)

        with_client(run, main, ClientSettings(max_connections=1))


@both_loops
def test_sockets_have_their_options(run: Run) -> None:
    with RawServer([Request(), answer(b"a"), Hold()]) as server:

        async def main(client: UpstreamClient) -> None:
            await ask(client, server)
            text = await asyncio.to_thread(_open_sockets_to, server.port)
            assert text == [(1, 1)]

        with_client(run, main)


def _open_sockets_to(port: int) -> list[tuple[int, int]]:
    """TCP_NODELAY and SO_KEEPALIVE of this process's sockets that lead to the port."""
    import os

    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            if not re.match(r"socket:", os.readlink(f"/proc/self/fd/{name}")):
                continue
            duplicate = socket.socket(fileno=os.dup(int(name)))
        except OSError:
            continue
        with duplicate:
            try:
                peer = duplicate.getpeername()
            except OSError:
                continue
            if isinstance(peer, tuple) and peer[1] == port:
                found.append(
                    (
                        int(bool(duplicate.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))),
                        int(bool(duplicate.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE))),
                    )
                )
    return found
