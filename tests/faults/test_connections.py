"""Rows 1, 2, 27, 47 and 48: what happens to connections. Strays stay strays, clients leave, clients do not read."""

from __future__ import annotations

import itertools
import random
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from athena.shells.server.http import HttpConnection
from support.fault_config import DIALECTS, fault_config
from support.fault_judge import ask_raw, judge, read_answer, request_body, request_bytes, send
from support.fault_scripts.http_itself import STRAY
from support.faulty_upstream import FaultyUpstream
from support.gateway_process import GatewayProcess, GatewayThread, free_port, running_gateway
from support.hand_clock import HandClock
from support.patience import PATIENCE

CLIENTS = list(DIALECTS.values())
_numbers = itertools.count()


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_connect_refused(client: str, stream: bool, tmp_path: Path) -> None:
    with running_gateway(fault_config(f"http://127.0.0.1:{free_port()}"), tmp_path) as gateway:
        answer = ask_raw(gateway.port, client, "chat/control", stream=stream)
    verdict = judge(client, answer, stream=stream)
    assert (verdict.outcome, verdict.status, verdict.lies) == ("PRE", 502, [])


def test_a_name_that_does_not_exist(tmp_path: Path) -> None:
    with running_gateway(fault_config("http://nobody.invalid"), tmp_path) as gateway:
        answer = ask_raw(gateway.port, "openai_chat", "chat/control", stream=True)
    assert answer.status in (502, 504)


def test_connect_hangs(tmp_path: Path) -> None:
    """A listener whose queue is full accepts nobody."""
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        waiting = [socket.socket() for _ in range(4)]
        for sock in waiting:
            sock.setblocking(False)
            sock.connect_ex(full.getsockname())
        config = fault_config(f"http://127.0.0.1:{full.getsockname()[1]}", timeouts={"connect_s": 0.3})
        with running_gateway(config, tmp_path) as gateway:
            answer = ask_raw(gateway.port, "anthropic_messages", "chat/control", stream=True)
        for sock in waiting:
            sock.close()
    assert answer.status == 504
    assert answer.seconds >= 0.3


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_a_stray_answer_reaches_nobody(gateway: GatewayProcess, stream: bool) -> None:
    """40 of 40 requests after a smuggled second response get their own answer."""
    for number in range(40):
        ask_raw(gateway.port, "openai_chat", f"chat/response-smuggle.{number}", stream=stream)
        answer = ask_raw(gateway.port, "openai_chat", "chat/control", stream=stream)
        assert STRAY.encode() not in answer.raw
        assert judge("openai_chat", answer, stream=stream).outcome == "OK"


_LEAVE: list[tuple[str, bool, str]] = [
    ("stall-headers", True, "before the head"),
    ("stall-first-byte", True, "before the first byte"),
    ("stall-midstream", True, "in the middle"),
    ("stall-midtool", True, "inside a call"),
    ("hang-after-finish", True, "at the end"),
    ("stall-headers", False, "plain, before the head"),
    ("stall-midstream", False, "plain, in the body"),
]


@pytest.fixture(scope="module")
def patient(upstream: FaultyUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayThread]:
    """A gateway that would wait for ever, so that only the client's leaving can end anything."""
    with running_gateway(fault_config(upstream.url), tmp_path_factory.mktemp("patient")) as running:
        yield running


@pytest.mark.parametrize(("fault", "stream", "when"), _LEAVE, ids=[case[2] for case in _LEAVE])
@pytest.mark.parametrize("client", CLIENTS)
def test_client_leaves(
    client: str, fault: str, stream: bool, when: str, patient: GatewayThread, upstream: FaultyUpstream
) -> None:
    model = f"{fault}.leave{next(_numbers)}"
    path, body = request_body(client, f"chat/{model}", stream=stream)
    sock = send(patient.port, request_bytes(path, body))
    assert upstream.wait_for(lambda: bool(upstream.of(model)))
    if stream and fault.startswith("stall-mid"):
        assert sock.recv(100)
    sock.close()
    assert upstream.wait_for(lambda: upstream.of(model)[0].gone_at is not None), "the upstream's request goes on"


def test_clients_leave_at_random_points(patient: GatewayThread, upstream: FaultyUpstream) -> None:
    """40 leaves after any number of bytes: all noticed, nothing left behind."""
    source = random.Random(3)
    models: list[str] = []
    for _ in range(40):
        model = f"endless-stream.random{next(_numbers)}"
        path, body = request_body(source.choice(CLIENTS), f"chat/{model}", stream=source.random() < 0.7)
        data = request_bytes(path, body)
        sock = send(patient.port, data)
        models.append(model)
        upstream.wait_for(lambda name=model: bool(upstream.of(name)))  # type: ignore[misc]  # the default binds the name
        sock.settimeout(0.02)
        wanted = source.randrange(3000)
        got = 0
        try:
            while got < wanted and (more := sock.recv(500)):
                got += len(more)
        except TimeoutError:
            pass
        sock.close()
    assert upstream.wait_for(lambda: all(visit.gone_at for model in models for visit in upstream.of(model)))
    deadline = time.monotonic() + PATIENCE
    while patient.gateway.open_flows and time.monotonic() < deadline:
        time.sleep(0.01)
    assert patient.gateway.open_flows == 0


STALLED = 6
TAKEN_AT_MOST = 2 * 1024 * 1024


@pytest.mark.parametrize("client", CLIENTS)
def test_clients_that_do_not_read(client: str, upstream: FaultyUpstream, tmp_path: Path) -> None:
    """Little is taken from the upstream, kernel buffers included; memory stays flat; at the write limit all is given back."""
    # What is recorded has a bound of its own.
    config = fault_config(upstream.url, record=False, timeouts={"client_write_s": 1.0})
    gateway = GatewayProcess(config, tmp_path, log_level="info", forked=False)
    try:
        ask_raw(gateway.port, client, "chat/control", stream=True)
        sizes = [gateway.memory()]
        for turn in range(3):
            models = [f"flood.{client}-{turn}-{number}" for number in range(STALLED)]
            clients = [_client_that_never_reads(gateway.port, client, f"chat/{model}") for model in models]
            assert upstream.wait_for(lambda: all(upstream.of(model) for model in models))  # noqa: B023 - waited for right here
            assert _settles(lambda: sum(upstream.of(model)[0].taken for model in models))  # noqa: B023
            taken = [upstream.of(model)[0].taken for model in models]
            assert max(taken) <= TAKEN_AT_MOST, f"{taken} bytes taken from the upstream"
            sizes.append(gateway.memory())
            # The clients stay: it is the gateway that gives them up.
            assert upstream.wait_for(lambda: all(upstream.of(model)[0].gone_at for model in models)), "never cut off"  # noqa: B023
            for sock in clients:
                assert _is_reset(sock), "the connection of a client that was given up is still there"
                sock.close()
        assert max(sizes) - sizes[0] <= STALLED * TAKEN_AT_MOST, f"{sizes}: more than what was taken"
        # The first turn may be looked at before the gateway has taken all that it takes.
        assert sizes[-1] - sizes[-2] <= TAKEN_AT_MOST, f"{sizes}: it grows from turn to turn"
    finally:
        gateway.stop()
    assert gateway.log().count("client_stalled") == 3 * STALLED
    assert "ASGI callable" not in gateway.log()


def test_answers_that_nobody_reads_are_not_piled_up(upstream: FaultyUpstream, tmp_path: Path) -> None:
    """A client asks again and again on one connection, 2 MiB each time, and reads nothing: each answer waits for the last."""
    config = fault_config(upstream.url, timeouts={"client_write_s": 1.0, "drain_s": 30})
    gateway = GatewayProcess(config, tmp_path, log_level="info", forked=False)
    path, body = request_body("openai_chat", "chat/tool-huge-args.piled", stream=False)
    request = request_bytes(path, body)
    try:
        ask_raw(gateway.port, "openai_chat", "chat/tool-huge-args.alone", stream=False)
        before = gateway.memory()
        asked = 0
        with socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
            sock.connect(("127.0.0.1", gateway.port))
            sock.settimeout(0.5)
            given_up = False
            try:
                for asked in range(1, 61):
                    sock.sendall(request)
                    upstream.wait_for(lambda: len(upstream.of("tool-huge-args.piled")) >= asked, 0.1)  # noqa: B023
            except TimeoutError:
                pass  # nobody takes any more requests
            except (ConnectionResetError, BrokenPipeError):
                given_up = True
            assert asked, "nothing was asked"
            assert len(upstream.of("tool-huge-args.piled")) <= 2, "answers were fetched that nobody takes"
            assert gateway.memory() - before <= 16 * 1024 * 1024
            assert given_up or _is_reset(sock), "the client was never given up"
    finally:
        # A connection that is not read does not delay a stop.
        gateway.stop()


def test_the_last_bytes_of_an_answer_wait_no_longer_than_others(upstream: FaultyUpstream, tmp_path: Path) -> None:
    """A whole answer that is not read, on a connection that stays open and silent."""
    gateway = GatewayProcess(fault_config(upstream.url, timeouts={"client_write_s": 0.5}), tmp_path, log_level="info")
    try:
        path, body = request_body("openai_chat", "chat/tool-huge-args.last", stream=False)
        with socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
            sock.connect(("127.0.0.1", gateway.port))
            sock.sendall(request_bytes(path, body))
            deadline = time.monotonic() + PATIENCE
            while "did not take its answer" not in gateway.log():
                assert time.monotonic() < deadline, "never given up"
                time.sleep(0.05)
            assert _is_reset(sock)
    finally:
        gateway.stop()


def _client_that_never_reads(port: int, client: str, model: str) -> socket.socket:
    """It asks and never reads; its own kernel takes little for it."""
    path, body = request_body(client, model, stream=True)
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
    sock.connect(("127.0.0.1", port))
    sock.sendall(request_bytes(path, body))
    return sock


def _is_reset(sock: socket.socket) -> bool:
    """Did the other side end the connection without sending what was left? Nothing is read before: that would let it go on."""
    watch = select.poll()
    watch.register(sock, 0)  # errors are told in any case
    if not watch.poll(PATIENCE * 1000):
        return False
    sock.settimeout(PATIENCE)
    try:
        while sock.recv(65536):
            pass
    except ConnectionResetError:
        return True
    return False


def _settles(value: Callable[[], int]) -> bool:
    """True once a number has stopped growing for a moment."""
    last, since = -1, time.monotonic()
    deadline = since + PATIENCE
    while time.monotonic() < deadline:
        current = value()
        if current != last:
            last, since = current, time.monotonic()
        elif time.monotonic() - since > 0.2:
            return True
        time.sleep(0.02)
    return False


def test_a_slow_reader_gets_everything(upstream: FaultyUpstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Back-pressure must not become a time limit of the upstream: it is we who do not read."""
    clock, blocked, pause_writing = HandClock(), threading.Event(), HttpConnection.pause_writing

    def pause(connection: HttpConnection) -> None:
        pause_writing(connection)
        blocked.set()

    monkeypatch.setattr(HttpConnection, "pause_writing", pause)
    config = fault_config(upstream.url, timeouts={"idle_s": 10, "first_byte_s": 10})
    with (
        running_gateway(config, tmp_path, clock) as gateway,
        _client_that_never_reads(gateway.port, "openai_chat", "chat/tool-huge-args.slow") as sock,
    ):
        assert blocked.wait(PATIENCE), "the client never held the gateway up"
        assert _settles(lambda: upstream.of("tool-huge-args.slow")[0].taken)
        clock.advance(50)
        answer = read_answer(sock)
    verdict = judge("openai_chat", answer, stream=True)
    assert (verdict.outcome, verdict.lies) == ("OK", [])


def test_what_has_come_is_read_before_a_client_is_given_up(upstream: FaultyUpstream, tmp_path: Path) -> None:
    """A loop that was busy for longer than a client's limit rings its timers before it reads what has come meanwhile."""
    clock = HandClock()
    config = fault_config(upstream.url, timeouts={"client_headers_s": 10})
    request = b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n"
    with running_gateway(config, tmp_path, clock) as gateway:
        with socket.create_connection(("127.0.0.1", gateway.port), PATIENCE) as sock:
            clock.advance(10)
            sock.sendall(request)
            assert read_answer(sock).status == 200
        with socket.create_connection(("127.0.0.1", gateway.port), PATIENCE) as sock:
            clock.advance(11)
            assert sock.recv(64) == b"", "a client that says nothing is given up all the same"


def test_hang_after_done_closes_the_upstream(upstream: FaultyUpstream, gateway: GatewayProcess) -> None:
    for name in ("chat", "anthropic", "responses", "gemini"):
        model = f"hang-after-done.{name}"
        answer = ask_raw(gateway.port, DIALECTS[name], f"{name}/{model}", stream=True)
        assert judge(DIALECTS[name], answer, stream=True).outcome == "OK"
        assert upstream.wait_for(lambda: upstream.of(model)[0].gone_at is not None)  # noqa: B023 - waited for right here
