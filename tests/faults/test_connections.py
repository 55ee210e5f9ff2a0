"""Rows 1, 2, 27, 47, 48 and 52: what happens to connections. Strays stay strays, clients leave, clients do not read."""

from __future__ import annotations

import itertools
import random
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.fault_judge import ask_raw, judge, read_answer, request_body, request_bytes, send
from support.fault_scripts import STRAY
from support.faulty_upstream import FaultyUpstream
from support.gateway_process import DIALECTS, GatewayProcess, GatewayThread, fault_config, free_port, running_gateway

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
    assert answer.seconds < 3


def test_connect_hangs(tmp_path: Path) -> None:
    """A listener whose queue is full accepts nobody."""
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        waiting = [socket.socket() for _ in range(4)]
        for sock in waiting:
            sock.setblocking(False)
            sock.connect_ex(full.getsockname())
        config = fault_config(f"http://127.0.0.1:{full.getsockname()[1]}")
        with running_gateway(config, tmp_path) as gateway:
            answer = ask_raw(gateway.port, "anthropic_messages", "chat/control", stream=True)
        for sock in waiting:
            sock.close()
    assert answer.status == 504
    assert 0.8 < answer.seconds < 4


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_a_stray_answer_reaches_nobody(gateway: GatewayProcess, stream: bool) -> None:
    """40 of 40 requests after a smuggled second response get their own answer."""
    for number in range(40):
        ask_raw(gateway.port, "openai_chat", f"chat/response-smuggle.{number}", stream=stream)
        answer = ask_raw(gateway.port, "openai_chat", "chat/control", stream=stream)
        assert STRAY.encode() not in answer.raw
        assert judge("openai_chat", answer, stream=stream).outcome == "OK"


def test_pipelined_requests_get_their_own_answers(gateway: GatewayProcess) -> None:
    """Two requests in one write, 25 times over one connection: answers in order, none of another request."""
    paths = [request_body("openai_chat", model, stream=False) for model in ("chat/control", "chat/text-call")]
    both = b"".join(request_bytes(path, body) for path, body in paths)
    with socket.create_connection(("127.0.0.1", gateway.port), 5) as sock:
        for _ in range(25):
            sock.sendall(both)
            data = b""
            while data.count(b"HTTP/1.1 200") < 2 or not data.endswith(b"}"):
                more = sock.recv(1 << 20)
                assert more, data
                data += more
            first, second = data.split(b"HTTP/1.1 200")[1:]
            assert "Grüße".encode() in first
            assert b"Let me see" in second


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
    """A gateway that would wait for a long time, so that only the client's leaving can end anything."""
    config = fault_config(upstream.url, timeouts={"first_byte_s": 60, "idle_s": 60, "total_s": 60})
    with running_gateway(config, tmp_path_factory.mktemp("patient")) as running:
        ask_raw(running.port, "openai_chat", "chat/control", stream=True)
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
        sock.settimeout(5)
        assert sock.recv(100)
    left = time.monotonic()
    sock.close()
    assert upstream.wait_for(lambda: upstream.of(model)[0].gone_at is not None, 3), "the upstream's request goes on"
    assert (upstream.of(model)[0].gone_at or 0) - left < 1


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
    assert upstream.wait_for(lambda: all(visit.gone_at for model in models for visit in upstream.of(model)), 3)
    deadline = time.monotonic() + 3
    while patient.gateway.open_flows and time.monotonic() < deadline:
        time.sleep(0.01)
    assert patient.gateway.open_flows == 0


def _kernel_buffers() -> int:
    """What the kernel may hold of one stream: a send buffer on each of the two hops, a receive buffer at the gateway."""
    send, receive = (
        int(Path(f"/proc/sys/net/ipv4/{name}").read_text(encoding="ascii").split()[2]) for name in ("tcp_wmem", "tcp_rmem")
    )
    return 2 * send + receive


def test_a_client_that_does_not_read(upstream: FaultyUpstream, tmp_path: Path) -> None:
    """Memory stays flat, the upstream is throttled, and at the write limit the client is cut off."""
    config = fault_config(upstream.url, timeouts={"client_write_s": 1.0, "idle_s": 0.5, "first_byte_s": 5, "total_s": 30})
    gateway = GatewayProcess(config, tmp_path, log_level="info")
    try:
        ask_raw(gateway.port, "openai_chat", "chat/control", stream=True)
        before = gateway.memory()
        socks = []
        for number in range(4):
            path, body = request_body("openai_chat", f"chat/flood.{number}", stream=True)
            sock = socket.socket()
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
            sock.connect(("127.0.0.1", gateway.port))
            sock.sendall(request_bytes(path, body))
            socks.append(sock)
        visits = [f"flood.{number}" for number in range(4)]
        assert upstream.wait_for(lambda: all(upstream.of(model) for model in visits))
        assert _settles(lambda: sum(upstream.of(model)[0].sent for model in visits))
        grown = gateway.memory() - before
        taken = max(upstream.of(model)[0].sent for model in visits)
        # What the kernel's buffers between the three processes hold is in this number too.
        allowed = _kernel_buffers() + 2 * 1024 * 1024
        assert taken < allowed, f"{taken} bytes taken from the upstream, {allowed} allowed"
        assert grown < 4 * 3 * 1024 * 1024, f"{grown} bytes more"
        assert upstream.wait_for(lambda: all(upstream.of(model)[0].gone_at for model in visits), 5), "never cut off"
        for sock in socks:
            sock.close()
        assert "client_stalled" in gateway.log()
    finally:
        gateway.stop()


def _settles(value: Callable[[], int]) -> bool:
    """True once a number has stopped growing for a moment."""
    last, since = -1, time.monotonic()
    deadline = since + 5
    while time.monotonic() < deadline:
        current = value()
        if current != last:
            last, since = current, time.monotonic()
        elif time.monotonic() - since > 0.2:
            return True
        time.sleep(0.02)
    return False


def test_a_slow_reader_gets_everything(upstream: FaultyUpstream, gateway: GatewayProcess) -> None:
    """Back-pressure must not become a time limit of the upstream: it is we who do not read."""
    path, body = request_body("openai_chat", "chat/tool-huge-args.slow", stream=True)
    with send(gateway.port, request_bytes(path, body)) as sock:
        upstream.wait_for(lambda: bool(upstream.of("tool-huge-args.slow")))
        time.sleep(1.2)  # the fault itself: longer than the idle limit
        answer = read_answer(sock)
    assert judge("openai_chat", answer, stream=True).lies == []


def test_hang_after_done_closes_the_upstream(upstream: FaultyUpstream, gateway: GatewayProcess) -> None:
    for name in ("chat", "anthropic", "responses", "gemini"):
        model = f"hang-after-done.{name}"
        answer = ask_raw(gateway.port, DIALECTS[name], f"{name}/{model}", stream=True)
        assert judge(DIALECTS[name], answer, stream=True).outcome == "OK"
        assert answer.seconds < 1.5
        assert upstream.wait_for(lambda: upstream.of(model)[0].gone_at is not None, 2)  # noqa: B023 - waited for right here
