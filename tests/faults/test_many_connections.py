"""Row 53: more clients than there are places or descriptors. Each gets an answer or is told to come again."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from support.fault_config import DIALECTS, fault_config
from support.fault_judge import Answer, ask_raw, judge, read_answer, request_body, request_bytes, send
from support.faulty_upstream import FaultyUpstream
from support.gateway_process import GatewayProcess
from support.patience import FOR_EVER, PATIENCE

CLIENTS = list(DIALECTS.values())
HEALTH = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"
IN_USE, LIMIT = 'athena_budget_used{budget="connections"}', 'athena_budget_limit{budget="connections"}'
PATIENT = dict.fromkeys(("first_byte_s", "idle_s", "total_s", "connect_s"), FOR_EVER)


@contextlib.contextmanager
def serving(upstream: FaultyUpstream, directory: Path, descriptors: int = 0, **settings: Any) -> Iterator[GatewayProcess]:
    config = fault_config(upstream.url, **{"timeouts": PATIENT, **settings})
    gateway = GatewayProcess(config, directory, log_level="info", descriptors=descriptors)
    try:
        yield gateway
    finally:
        gateway.stop()
    assert "Traceback" not in gateway.log()


def check_refusal(client: str, answer: Answer) -> None:
    """No room, in the client's own words, with a time to come again."""
    assert answer.status == (529 if client == "anthropic_messages" else 503), answer.body
    verdict = judge(client, answer, stream=False)
    assert (verdict.outcome, verdict.lies) == ("PRE", [])
    assert int(answer.headers["retry-after"]) >= 1
    assert "limits.connections" in json.loads(answer.body)["error"]["message"]
    assert answer.headers["connection"] == "close"


def is_closed(sock: socket.socket) -> bool:
    """Did the other side end the connection in order?"""
    sock.settimeout(PATIENCE)
    try:
        while sock.recv(4096):
            pass
    except TimeoutError:
        return False
    return True


def test_few_descriptors_and_many_clients(upstream: FaultyUpstream, tmp_path: Path) -> None:
    """64 descriptors, 200 clients at once: every one gets an answer or a refusal, none is dropped."""
    with serving(upstream, tmp_path, 64) as gateway, ThreadPoolExecutor(200) as pool:

        def ask(number: int) -> int:
            client = CLIENTS[number % 4]
            data = request_bytes(*request_body(client, "chat/control.crowd", stream=number % 3 == 0), "connection: close")
            with socket.create_connection(("127.0.0.1", gateway.port), PATIENCE) as sock:
                sock.sendall(data)
                answer = read_answer(sock)
            if answer.status != 200:
                check_refusal(client, answer)
            else:
                assert answer.complete
            return answer.status

        statuses = Counter(pool.map(ask, range(200)))
        assert statuses.total() == 200
        assert statuses[200] >= gateway.number(LIMIT) / 2
        # All of it is over: everybody is served again.
        for client in CLIENTS:
            assert ask_raw(gateway.port, client, "chat/control", stream=True).status == 200


def test_idle_connections_lock_nobody_out(upstream: FaultyUpstream, tmp_path: Path) -> None:
    """256 descriptors and 300 connections that were used once and are kept: the oldest ones make room."""
    with serving(upstream, tmp_path, 256) as gateway, contextlib.ExitStack() as stack:
        kept = []
        for _ in range(300):
            sock = stack.enter_context(send(gateway.port, HEALTH))
            sock.settimeout(PATIENCE)
            assert read_answer(sock, PATIENCE).status == 200
            kept.append(sock)
        assert is_closed(kept[0])
        kept[-1].sendall(HEALTH)
        assert read_answer(kept[-1], PATIENCE).status == 200, "the newest was closed before the oldest"
        assert ask_raw(gateway.port, "openai_chat", "chat/control", stream=True).status == 200
        assert gateway.number(IN_USE) <= gateway.number(LIMIT) < 128


def test_silent_connections_lock_nobody_out(upstream: FaultyUpstream, tmp_path: Path) -> None:
    """Connections that never send anything have their place for a moment only, if somebody else needs it."""
    with serving(upstream, tmp_path, limits={"connections": 4}) as gateway, contextlib.ExitStack() as stack:
        for _ in range(4):
            stack.enter_context(socket.create_connection(("127.0.0.1", gateway.port), PATIENCE))
        deadline = time.monotonic() + PATIENCE
        while ask_raw(gateway.port, "openai_chat", "chat/control", stream=True).status != 200:
            assert time.monotonic() < deadline
            time.sleep(0.1)


@pytest.mark.parametrize("client", CLIENTS)
def test_whoever_finds_no_place_is_told_so(client: str, upstream: FaultyUpstream, tmp_path: Path) -> None:
    model = f"stall-midstream.{client}"
    data = request_bytes(*request_body(client, f"chat/{model}", stream=True))
    with serving(upstream, tmp_path, limits={"connections": 2}) as gateway:
        with send(gateway.port, data), send(gateway.port, data):
            assert upstream.wait_for(lambda: len(upstream.of(model)) == 2)
            for stream in (True, False):
                check_refusal(client, ask_raw(gateway.port, client, "chat/control", stream=stream))
            # One that never says what it wants is closed; so is one that sends no request.
            with socket.create_connection(("127.0.0.1", gateway.port), PATIENCE) as silent:
                assert is_closed(silent)
            with send(gateway.port, b"NONSENSE\r\n\r\n") as sock:
                assert read_answer(sock).status == 400
        assert upstream.wait_for(lambda: all(visit.gone_at for visit in upstream.of(model)))
        assert ask_raw(gateway.port, client, "chat/control", stream=True).status == 200
        assert gateway.number('athena_refusals_total{budget="connections"}') >= 4
    assert "limits.connections" in gateway.log()


def test_one_address_has_its_own_limit(upstream: FaultyUpstream, tmp_path: Path) -> None:
    """127.0.0.1 has all its places in work; 127.0.0.2 is served."""
    data = request_bytes(*request_body("openai_chat", "chat/stall-midstream.address", stream=True))
    good = request_bytes(*request_body("openai_chat", "chat/control", stream=True))
    limits = {"connections": 100, "connections_per_address": 2}
    with serving(upstream, tmp_path, limits=limits) as gateway, send(gateway.port, data), send(gateway.port, data):
        assert upstream.wait_for(lambda: len(upstream.of("stall-midstream.address")) == 2)
        check_refusal("openai_chat", ask_raw(gateway.port, "openai_chat", "chat/control", stream=False))
        with socket.create_connection(("127.0.0.1", gateway.port), PATIENCE, source_address=("127.0.0.2", 0)) as sock:
            sock.sendall(good)
            assert read_answer(sock).status == 200


def test_more_connections_than_descriptors_are_said_at_the_start(upstream: FaultyUpstream, tmp_path: Path) -> None:
    with serving(upstream, tmp_path, 128, limits={"connections": 5000}) as gateway:
        assert gateway.number(LIMIT) < 64
    assert "limits.connections is 5000, but 128 file descriptors" in gateway.log()


def test_idle_connections_to_upstreams_make_room_for_others(upstream: FaultyUpstream, tmp_path: Path) -> None:
    """Eight upstreams, each of which keeps its connections: together they have no more than their share of descriptors."""
    with serving(upstream, tmp_path, 64) as gateway, ThreadPoolExecutor(8) as pool:
        limit = gateway.number('athena_budget_limit{budget="upstream_connections"}')
        for name, dialect in DIALECTS.items():
            for model in (f"{name}/control.kept", f"{name}-clean/control.kept"):
                answers = list(pool.map(lambda _: ask_raw(gateway.port, dialect, model, stream=True).status, range(8)))  # noqa: B023
                assert answers == [200] * 8
                assert gateway.number('athena_budget_used{budget="upstream_connections"}') <= limit
