"""WebSockets over real connections: who gets one, broken frames, lanes, back-pressure, time, and the end."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from athena.shells.config import hash_key
from support.athena_process import serving
from support.config_file import load_config
from support.gateway_process import GatewayThread, running_gateway
from support.hand_clock import HandClock
from support.held_upstream import HeldUpstream
from support.patience import FOR_EVER, until
from support.scripted_upstream import ScriptedUpstream
from support.socket_client import BINARY, CLOSE, CONTINUATION, PING, PONG, TEXT, SocketClient, frame
from support.upstream_speech import DONE, chunk
from support.upstream_talk import Talk

KEY = "ath_only-for-these-tests"
UNSENT = 10_000
"""More than any message of these tests, and less than may wait for a client before it counts as one that does not read."""
CREATE = b'{"type":"response.create","model":"m","input":"hi"}'
DELTA, DONE_EVENT = "response.output_text.delta", "response.completed"


class WordUpstream(ScriptedUpstream):
    """Says one word, whole or streamed; `flood` says it for ever."""

    base_path = "/v1"

    async def answer(self, talk: Talk) -> None:
        if talk.model == "flood":
            await talk.head("200 OK")
            while True:
                await talk.send(chunk({"content": "word " * 200}))
        if talk.model == "refused":
            await talk.whole(b'{"error": {"message": "slow down", "code": "rate_limit_exceeded"}}', "429 X", "retry-after: 7")
            return
        if talk.model == "cut":
            await talk.head("200 OK")
            await talk.send(chunk({"role": "assistant", "content": "on"}))
            talk.reset()
            return
        await talk.head("200 OK")
        await talk.send(chunk({"role": "assistant", "content": "word"}), chunk({}, "stop"), DONE)
        await talk.end()


def settings(upstream: ScriptedUpstream, **more: Any) -> dict[str, Any]:
    value: dict[str, Any] = {
        "upstreams": {"one": {"base_url": upstream.url, "dialect": "openai_chat"}},
        "models": [{"match": "*", "use": "one/*"}],
        "retries": {"attempts": 0},
        "timeouts": dict.fromkeys(("client_body_s", "client_write_s", "idle_s", "first_byte_s", "total_s"), FOR_EVER),
        "limits": {"body_bytes": 200_000},
        "envelope_key": "test",
    }
    return {**value, **{key: {**value.get(key, {}), **each} if isinstance(each, dict) else each for key, each in more.items()}}


@pytest.fixture(scope="module")
def words() -> Iterator[WordUpstream]:
    with WordUpstream() as running:
        yield running


@pytest.fixture(scope="module")
def gateway(words: WordUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayThread]:
    with running_gateway(settings(words), tmp_path_factory.mktemp("gateway")) as running:
        yield running
        assert until(lambda: _open(running) == 0)


def _open(gateway: GatewayThread) -> float:
    line = next(
        line
        for line in gateway.gateway.metrics.render().decode().splitlines()
        if line.startswith("athena_websocket_connections ")
    )
    return float(line.rpartition(" ")[2])


# -- who gets one --------------------------------------------------------------------------------------------------------------

HANDSHAKES: dict[str, tuple[str, tuple[str, ...], int, str]] = {
    "as documented": ("/v1/responses", (), 101, ""),
    "with a query": ("/v1/responses?model=m", (), 101, ""),
    "base URL without a version": ("/responses", (), 101, ""),
    "own page": ("/v1/responses", ("origin: http://127.0.0.1:{port}",), 101, ""),
    "foreign page": ("/v1/responses", ("origin: https://evil.example",), 403, "origin_not_allowed"),
    "page of a file": ("/v1/responses", ("origin: null",), 403, "origin_not_allowed"),
    "foreign site": ("/v1/responses", ("sec-fetch-site: cross-site",), 403, "origin_not_allowed"),
    "another API": ("/v1/chat/completions", (), 426, "websocket_not_supported"),
    "no API": ("/v1/realtime", (), 426, "websocket_not_supported"),
    "another version": ("/v1/responses", ("sec-websocket-version: 8",), 426, "websocket_version"),
    "a body": ("/v1/responses", ("content-length: 0",), 426, "websocket_not_supported"),
}


@pytest.mark.parametrize("name", HANDSHAKES)
def test_who_gets_a_socket(gateway: GatewayThread, name: str) -> None:
    path, headers, status, code = HANDSHAKES[name]
    with SocketClient(gateway.port, path, *(header.format(port=gateway.port) for header in headers)) as client:
        assert client.status == status
        assert "x-request-id: " in client.head
        if status == 101:
            client.create()
            assert client.until(DONE_EVENT)["response"]["output"][0]["content"][0]["text"] == "word"
        else:
            assert code in client._exactly(int(client.head.partition("content-length: ")[2].split()[0])).decode()


def test_a_host_that_is_not_ours(gateway: GatewayThread) -> None:
    request = "GET /v1/responses HTTP/1.1\r\nhost: evil.example\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n"
    with socket.create_connection(("127.0.0.1", gateway.port)) as client:
        client.sendall(request.encode())
        assert b" 421 " in client.recv(65536).partition(b"\r\n")[0]


def test_what_follows_a_refused_handshake_is_the_next_request(words: WordUpstream, tmp_path: Path) -> None:
    early = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"
    with (
        running_gateway(settings(words, websocket={"enabled": False}), tmp_path) as gateway,
        SocketClient(gateway.port, early=early) as client,
    ):
        assert client.status == 426
        client._exactly(int(client.head.partition("content-length: ")[2].split()[0]))
        while b'{"status":"ok"}' not in client._came:
            client._came += client._socket.recv(65536)
        assert client._came.startswith(b"HTTP/1.1 200 ")


def test_frames_right_behind_the_handshake(gateway: GatewayThread) -> None:
    with SocketClient(gateway.port, early=frame(TEXT, CREATE)) as client:
        assert client.until(DONE_EVENT)


def test_keys_are_asked_for_at_the_handshake_and_for_every_request(words: WordUpstream, tmp_path: Path) -> None:
    value = settings(words, keys=[hash_key(KEY)])
    with running_gateway(value, tmp_path) as gateway:
        with SocketClient(gateway.port) as client:
            assert client.status == 401
        with SocketClient(gateway.port, "/v1/responses", f"authorization: Bearer {KEY}") as client:
            assert client.status == 101
            client.create()
            client.until(DONE_EVENT)
            other = settings(words, keys=[hash_key("ath_another")])
            gateway.call(gateway.gateway.use, load_config(other, tmp_path))
            client.create()
            refused = client.event()
            assert (refused["type"], refused["status"], refused["error"]["code"]) == ("error", 401, "invalid_api_key")
        assert KEY not in "\n".join(gateway.logs.lines)


# -- frames --------------------------------------------------------------------------------------------------------------------

BROKEN: dict[str, tuple[bytes, int]] = {
    "not masked": (frame(TEXT, CREATE, masked=False), 1002),
    "a reserved bit": (frame(TEXT, CREATE, reserved=4), 1002),
    "an unknown kind": (frame(3, b"x"), 1002),
    "an unknown control frame": (frame(11, b"x"), 1002),
    "a ping in pieces": (frame(PING, b"x", last=False), 1002),
    "a long ping": (frame(PING, b"x" * 126), 1002),
    "a continuation of nothing": (frame(CONTINUATION, b"x"), 1002),
    "a message inside of another": (frame(TEXT, b"{", last=False) + frame(TEXT, b"}"), 1002),
    "no UTF-8": (frame(TEXT, b'{"type":"\xff"}'), 1007),
    "a cut character": (frame(TEXT, b"\xc3"), 1007),
    "close with one byte": (frame(CLOSE, b"x"), 1002),
    "close with a code of nobody": (frame(CLOSE, b"\x03\xed"), 1002),
    "close with a reason that is no text": (frame(CLOSE, b"\x03\xe8\xff"), 1007),
    "a length in too many bytes": (bytes([0x81, 0xFE, 0, 5]) + b"\0\0\0\0hello", 1002),
    "a length beyond all": (bytes([0x81, 0xFF]) + b"\xff" * 8 + b"\0\0\0\0", 1002),
    "HTTP": (b"POST /v1/responses HTTP/1.1\r\nhost: localhost\r\n\r\n", 1002),
    "too large": (frame(TEXT, b"x" * 200_001), 1009),
    "too large in pieces": (frame(TEXT, b"x" * 150_000, last=False) + frame(CONTINUATION, b"x" * 60_000, last=False), 1009),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_frames_end_the_connection_with_their_code(gateway: GatewayThread, name: str) -> None:
    data, code = BROKEN[name]
    with SocketClient(gateway.port) as client:
        client.send(data)
        assert client.closed() == code
        client.send(frame(CLOSE, b"\x03\xe8"))
        assert client.receive() == (CLOSE, b"")


def test_messages_that_are_none_get_an_error_and_the_connection_goes_on(gateway: GatewayThread) -> None:
    cases: list[tuple[bytes, int, str]] = [
        (frame(TEXT, b""), 400, "invalid_json"),
        (frame(TEXT, b"[1]"), 400, "invalid_json"),
        (frame(BINARY, b"\xff\xfe"), 400, "invalid_json"),
        (frame(BINARY, b'{"type":"response.create","model":"m","input":"\xff"}'), 400, "invalid_json"),
        (frame(TEXT, b'{"type":"session.update"}'), 400, "unknown_event_type"),
        (frame(TEXT, b'{"type":"response.create","input":"hi"}'), 400, "invalid_request"),
        (frame(TEXT, b'{"type":"response.create","model":"m","input":' + b"[" * 500 + b"]" * 500 + b"}"), 400, "too_deep"),
        (frame(TEXT, b'{"type":"response.create","model":"m","input":[{"type":"no_such_thing"}],"tools":5}'), 400, ""),
        (frame(TEXT, b'{"type":"response.create","model":"m","stream_id":"!","input":"hi"}'), 400, "invalid_stream_id"),
        (frame(TEXT, b'{"type":"response.create","model":"m","background":true,"input":"hi"}'), 400, "unsupported_value"),
        (frame(TEXT, b'{"type":"response.create","model":"m","generate":5,"input":"hi"}'), 400, "invalid_type"),
        (frame(TEXT, b'{"type":"response.create","model":"refused","input":"hi"}'), 429, "rate_limit_exceeded"),
    ]
    with SocketClient(gateway.port) as client:
        for data, status, code in cases:
            client.send(data)
            event = client.event()
            assert (event["type"], event["status"]) == ("error", status), (data, event)
            assert not code or event["error"]["code"] == code, (data, event)
            assert event["error"]["message"]
        assert event["headers"]["retry-after"] == event["error"]["headers"]["retry-after"] == "7"
        client.send(frame(PING, b"still there?"))
        assert client.receive() == (PONG, b"still there?")
        for piece in (frame(TEXT, CREATE[:9], last=False), frame(PING, b"1"), frame(CONTINUATION, CREATE[9:20], last=False)):
            client.send(piece)
        assert client.receive() == (PONG, b"1")
        client.send(frame(CONTINUATION, CREATE[20:]))
        assert client.until(DONE_EVENT)
        client.send(frame(BINARY, CREATE))
        assert client.until(DONE_EVENT)
        client.send(frame(CLOSE, b"\x03\xe8bye"))
        assert client.closed() == 1000


def test_an_answer_that_breaks_off_is_a_failed_response(gateway: GatewayThread) -> None:
    with SocketClient(gateway.port) as client:
        client.create(model="cut", stream_id="a")
        event = client.until("response.failed", "error")
        assert event["type"] == "response.failed"
        assert event["stream_id"] == "a"
        client.create(stream_id="a")
        assert client.until(DONE_EVENT)["stream_id"] == "a"


# -- lanes ---------------------------------------------------------------------------------------------------------------------


def test_lanes_run_side_by_side_and_each_in_its_order(tmp_path: Path) -> None:
    with (
        HeldUpstream() as upstream,
        running_gateway(settings(upstream), tmp_path) as gateway,
        SocketClient(gateway.port) as client,
    ):
        for lane in [f"lane-{number % 18}" for number in range(36)]:
            client.create(stream_id=lane)
        begun = {client.until(DELTA)["stream_id"] for _ in range(16)}
        assert begun == {f"lane-{number}" for number in range(16)}
        done: list[str] = []
        for opened, running in ((16, 16), (32, 16), (36, 4)):
            assert upstream.wait_for(lambda: (upstream.opened, upstream.open_streams) == (opened, running))  # noqa: B023
            upstream.finish()
            done += [client.until(DONE_EVENT)["stream_id"] for _ in range(running)]
        assert sorted(done) == sorted(2 * [f"lane-{number}" for number in range(18)])
        for number in range(14):
            client.create(stream_id=f"more-{number}")
        client.create(stream_id="one-too-many")
        assert client.until("error")["error"]["code"] == "websocket_stream_limit_reached"


def test_a_client_that_leaves_ends_its_upstreams(tmp_path: Path) -> None:
    with HeldUpstream() as upstream, running_gateway(settings(upstream), tmp_path) as gateway:
        leave = (SocketClient.reset, SocketClient.half_close, lambda client: client.send(frame(CLOSE, b"\x03\xe9")))
        for way in leave:
            with SocketClient(gateway.port) as client:
                for lane in "abc":
                    client.create(stream_id=lane)
                client.create(stream_id="a", input="waits")
                assert upstream.wait_for(lambda: upstream.open_streams == 3)
                way(client)
                assert upstream.wait_for(lambda: upstream.open_streams == 0)
        assert upstream.opened == 9
        assert until(lambda: _open(gateway) == 0)
        assert gateway.gateway.memory.used == 0


def test_a_client_that_does_not_read_stops_its_upstreams(gateway: GatewayThread, words: WordUpstream) -> None:
    with SocketClient(gateway.port, receive_buffer=4096) as client:
        words.forget()
        for lane in ("a", "b"):
            client.create(model="flood", stream_id=lane)
        assert words.wait_for(lambda: len(words.visits) == 2)

        def rests() -> bool:
            before = [visit.taken for visit in words.visits]
            return until(lambda: True) and before == _later(words) and min(before) > 0

        assert until(rests)
        assert gateway.gateway.memory.used < 10_000_000
        before = sum(visit.taken for visit in words.visits)
        while sum(visit.taken for visit in words.visits) == before:
            client.event()


def _later(upstream: ScriptedUpstream) -> list[int]:
    time.sleep(0.3)
    return [visit.taken for visit in upstream.visits]


def _stop_reading(gateway: GatewayThread, client: SocketClient) -> None:
    """Send pings and read no answer until more waits for the client than should."""
    pings = frame(PING, b"x" * 125) * 50

    def waits() -> bool:
        client.send(pings)
        return gateway.gateway.memory.used > UNSENT

    assert until(waits)


@pytest.mark.parametrize("ending", [b"", frame(CLOSE, b"\x03\xe8")], ids=["stays", "says goodbye"])
def test_a_client_that_leaves_its_last_answers_is_cut_off(words: WordUpstream, tmp_path: Path, ending: bytes) -> None:
    clock = HandClock()
    value = settings(words, timeouts={"client_write_s": 30}, websocket={"ping_s": FOR_EVER, "silence_s": FOR_EVER})
    with running_gateway(value, tmp_path, clock) as gateway, SocketClient(gateway.port, receive_buffer=4096) as client:
        _stop_reading(gateway, client)
        client.send(ending)
        clock.advance(40)
        assert until(lambda: _open(gateway) == 0)
        assert gateway.gateway.memory.used == 0


def test_a_client_that_reads_in_the_end_is_not_cut_off(words: WordUpstream, tmp_path: Path) -> None:
    clock = HandClock()
    value = settings(words, timeouts={"client_write_s": 30}, websocket={"ping_s": FOR_EVER, "silence_s": FOR_EVER})
    with running_gateway(value, tmp_path, clock) as gateway, SocketClient(gateway.port, receive_buffer=4096) as client:
        _stop_reading(gateway, client)
        client.send(frame(TEXT, b"{"))
        clock.advance(20)
        assert client.event()["type"] == "error", "what waited before it has been read"
        assert until(lambda: gateway.gateway.memory.used < UNSENT)
        clock.advance(40)
        client.create()
        assert client.until(DONE_EVENT)


# -- time and the end ----------------------------------------------------------------------------------------------------------


def test_an_old_connection_is_told_to_open_another(words: WordUpstream, tmp_path: Path) -> None:
    value = settings(words, websocket={"connection_s": 0.2})
    with running_gateway(value, tmp_path) as gateway, SocketClient(gateway.port) as client:
        event = client.event()
        assert (event["error"]["code"], event["status"]) == ("websocket_connection_limit_reached", 400)
        assert client.closed() == 1001


def test_pings_and_a_client_that_never_answers(words: WordUpstream, tmp_path: Path) -> None:
    with running_gateway(settings(words, websocket={"ping_s": 0.05, "silence_s": 0.5}), tmp_path) as gateway:
        with SocketClient(gateway.port) as client:
            assert client.receive()[0] == PING
            assert client.closed() == 0
        assert until(lambda: _open(gateway) == 0)


def test_a_message_that_does_not_come(words: WordUpstream, tmp_path: Path) -> None:
    value = settings(words, timeouts={"client_body_s": 0.2})
    with running_gateway(value, tmp_path) as gateway, SocketClient(gateway.port) as client:
        client.send(frame(TEXT, b"{", last=False))
        assert client.closed() == 1008


def test_a_drain_lets_answers_end_and_closes(tmp_path: Path) -> None:
    with (
        HeldUpstream() as upstream,
        serving(tmp_path, config=settings(upstream)) as gateway,
        SocketClient(gateway.port) as busy,
        SocketClient(gateway.port) as idle,
    ):
        busy.create(stream_id="a")
        assert busy.until(DELTA)
        gateway.signal(signal.SIGTERM)
        assert idle.closed() == 1001
        if not os.environ.get("ATHENA_SOAK"):
            idle.send(frame(CLOSE, b"\x03\xe9"))  # it would be waited for two seconds
        busy.create(stream_id="b")
        refused = busy.until("error")
        assert refused["error"]["code"] == "shutting_down"
        upstream.finish()
        assert busy.until(DONE_EVENT)["stream_id"] == "a"
        assert busy.closed() == 1001
        busy.send(frame(CLOSE, b"\x03\xe9"))
        assert gateway.wait() == 0


def test_a_warm_up_asks_no_upstream_and_gives_an_id(gateway: GatewayThread, words: WordUpstream) -> None:
    words.forget()
    with SocketClient(gateway.port) as client:
        client.create(generate=False, tools=[], instructions="Be brief.")
        created, progress, done = client.event(), client.event(), client.event()
        kinds = [event["type"] for event in (created, progress, done)]
        assert kinds == ["response.created", "response.in_progress", DONE_EVENT]
        assert done["response"]["output"] == []
        assert done["response"]["status"] == "completed"
        assert done["response"]["id"].startswith("resp_")
        assert words.visits == []
        client.create(generate=False, model="")
        assert client.event()["type"] == "error"
    assert json.dumps(done)
