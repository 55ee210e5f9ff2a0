"""Row 54: what requests and answers hold together stays below one limit; what does not fit is refused, and all comes back.

`./dev soak` runs the counts that are asked of a gateway in use and prints the figures, CI a small part of them.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from athena.shells.gateway import incoming
from support.fault_config import DIALECTS, fault_config
from support.fault_judge import Answer, ask_raw, judge, read_answer, request_body, request_bytes, send
from support.fault_scripts import FAULTS
from support.faulty_upstream import FaultyUpstream
from support.gateway_process import GatewayProcess, GatewayThread, read_number, running_gateway
from support.patience import PATIENCE, until

SOAK = bool(os.environ.get("ATHENA_SOAK"))
MB = 1024 * 1024
CLIENTS = list(DIALECTS.values())
USED, LIMIT = 'athena_budget_used{budget="memory_bytes"}', 'athena_budget_limit{budget="memory_bytes"}'
REFUSED = 'athena_refusals_total{budget="memory_bytes"}'


def tell(text: str) -> None:
    """A figure, for whoever runs the long version."""
    if SOAK:
        sys.stderr.write(f"\n  {text}\n")


def large(client: str, size: int, model: str = "chat/control", *, stream: bool = False) -> tuple[str, bytes]:
    """A request of that many bytes, all of one letter."""
    path, body = request_body(client, model, stream=stream)
    text = "a" * size
    if client == "openai_responses":
        body["input"] = text
    elif client == "gemini":
        body["contents"][0]["parts"][0]["text"] = text
    else:
        body["messages"][0]["content"] = text
    return path, json.dumps(body).encode()


def post(port: int, path: str, body: bytes, *headers: str) -> Answer:
    with send(port, request_bytes(path, body, *headers)) as sock:
        return read_answer(sock)


def check_refusal(client: str, answer: Answer) -> None:
    """Overloaded, in the client's own words, with a time to come again."""
    assert answer.status == (529 if client == "anthropic_messages" else 503), answer.body
    verdict = judge(client, answer, stream=False)
    assert (verdict.outcome, verdict.lies) == ("PRE", [])
    assert int(answer.headers["retry-after"]) >= 1
    assert "limits.memory_bytes" in json.loads(answer.body)["error"]["message"]
    assert "x-should-retry" not in answer.headers


def test_packed_bodies_do_not_outgrow_the_budget(upstream: FaultyUpstream, tmp_path: Path) -> None:
    """Many small bodies that become large ones, all at once; others are served meanwhile."""
    count, size, budget = (200, 33_000_000, 512 * MB) if SOAK else (24, 8_000_000, 96 * MB)
    config = fault_config(upstream.url, record=False, limits={"memory_bytes": budget})
    gateway = GatewayProcess(config, tmp_path, log_level="info", forked=False)
    try:
        assert gateway.number(LIMIT) == budget
        requests = {client: large(client, size, "chat/control.packed") for client in CLIENTS}
        packed = {client: (path, gzip.compress(body, 9)) for client, (path, body) in requests.items()}
        small = large("openai_chat", 10)
        assert post(gateway.port, *small).status == 200
        base = gateway.memory()
        statuses, others, done = Counter[int](), Counter[int](), threading.Event()

        def keep_asking() -> None:
            while not done.is_set():
                others[post(gateway.port, *small).status] += 1

        beside = threading.Thread(target=keep_asking)
        beside.start()
        with ThreadPoolExecutor(count) as pool:
            asked = [
                (client, pool.submit(post, gateway.port, *packed[client], "content-encoding: gzip"))
                for client in (CLIENTS[number % 4] for number in range(count))
            ]
            for client, waiting in asked:
                answer = waiting.result(PATIENCE)
                statuses[answer.status] += 1
                if answer.status != 200:
                    check_refusal(client, answer)
        done.set()
        beside.join()
        peak = gateway.peak_memory()
        assert until(lambda: gateway.number(USED) == 0), "something is still held"
        assert until(lambda: gateway.memory() - base < 32 * MB), "what was held did not come back"
        tell(
            f"{count} packed bodies of {size} bytes, budget {budget // MB} MB: {dict(statuses)}, "
            f"others {dict(others)}; base {base // MB} MB, peak {peak // MB} MB, afterwards {gateway.memory() // MB} MB"
        )
        assert statuses[200] >= 1
        assert statuses.total() == count
        assert set(others) == {200}, "others were not served meanwhile"
        assert gateway.number(REFUSED) >= statuses.total() - statuses[200]
        # File pages are in the peak and not in the base.
        assert peak < base + budget + 64 * MB
    finally:
        gateway.stop()
    assert "Traceback" not in gateway.log()


@pytest.fixture(scope="module")
def narrow(upstream: FaultyUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayThread]:
    """A gateway with room for two requests of 2 MB."""
    config = fault_config(upstream.url, record=False, limits={"memory_bytes": 16 * MB})
    with running_gateway(config, tmp_path_factory.mktemp("narrow")) as running:
        yield running


@contextlib.contextmanager
def half_sent(port: int, size: int, count: int) -> Iterator[list[socket.socket]]:
    """Clients that announce a body and send half of it."""
    path, body = large("openai_chat", size)
    data = request_bytes(path, body)
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(send(port, data[: len(data) // 2])) for _ in range(count)]


@pytest.mark.parametrize("client", CLIENTS)
def test_an_announced_body_is_refused_before_it_is_read(client: str, narrow: GatewayThread) -> None:
    memory = narrow.gateway.memory
    with half_sent(narrow.port, 2_000_000, 2):
        assert until(lambda: memory.used > 12_000_000)
        path, body = large(client, 2_000_000)
        head = request_bytes(path, b"", "expect: 100-continue").replace(b"content-length: 0", b"content-length: %d" % len(body))
        with send(narrow.port, head) as sock:
            check_refusal(client, read_answer(sock))
        # A client that sends without asking gets to read the refusal too.
        check_refusal(client, post(narrow.port, path, body))
        assert ask_raw(narrow.port, client, "chat/control", stream=True).status == 200
    assert until(lambda: memory.used == 0)


def test_half_sent_bodies_hold_no_more_than_the_budget(upstream: FaultyUpstream, tmp_path: Path) -> None:
    count, size, budget = (12, 33_000_000, 256 * MB) if SOAK else (12, 8_000_000, 64 * MB)
    gateway = GatewayProcess(
        fault_config(upstream.url, record=False, limits={"memory_bytes": budget}), tmp_path, log_level="info", forked=False
    )
    try:
        base = gateway.memory()
        with half_sent(gateway.port, size, count):
            assert until(lambda: gateway.number(REFUSED) >= count - budget // (3 * size))
            time.sleep(0.3)  # those that were let in go on sending
            held = gateway.memory() - base
            tell(f"{count} half-sent bodies of {size} bytes, budget {budget // MB} MB: {held // MB} MB held")
            assert held < budget
            assert post(gateway.port, *large("openai_chat", 10)).status == 200
        assert until(lambda: gateway.number(USED) == 0)
    finally:
        gateway.stop()


def test_while_memory_is_short_a_body_that_does_not_come_gives_way(
    narrow: GatewayThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would have as long as the test may take, and longer, otherwise."""
    monkeypatch.setattr(incoming, "_SHORT_SPAN_S", 0.2)
    monkeypatch.setattr(incoming, "_LOOK_S", 0.1)
    with half_sent(narrow.port, 2_000_000, 2) as waiting:
        assert until(lambda: narrow.gateway.memory.used > 12_000_000)
        check_refusal("openai_chat", post(narrow.port, *large("openai_chat", 2_000_000)))
        for sock in waiting:
            assert read_answer(sock).status == 408
    assert post(narrow.port, *large("openai_chat", 2_000_000)).status == 200


def test_a_body_without_a_length_asks_as_it_grows(narrow: GatewayThread) -> None:
    path, _ = request_body("openai_chat", "chat/control", stream=False)
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n".encode()
    piece = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    with half_sent(narrow.port, 2_000_000, 2):
        assert until(lambda: narrow.gateway.memory.used > 12_000_000)
        with send(narrow.port, head) as sock:
            with contextlib.suppress(ConnectionError):
                for _ in range(32):
                    sock.sendall(piece)
            check_refusal("openai_chat", read_answer(sock))
    assert until(lambda: narrow.gateway.memory.used == 0)


@pytest.mark.parametrize(
    ("text", "status"),
    [("a", 200), ("\N{GRINNING FACE}", 413)],
    ids=["plain text", "wide text, which takes nine times its size"],
)
def test_what_a_body_becomes_is_counted(text: str, status: int, narrow: GatewayThread) -> None:
    path, body = request_body("openai_chat", "chat/control", stream=False)
    body["messages"][0]["content"] = "a" * 2_000_000 + text
    answer = post(narrow.port, path, json.dumps(body, ensure_ascii=False).encode())
    assert answer.status == status
    if status == 413:
        assert b"limits.memory_bytes" in answer.body
    assert until(lambda: narrow.gateway.memory.used == 0)


def test_many_tiny_values_are_counted(narrow: GatewayThread) -> None:
    """200 kB that become many times that."""
    path, body = request_body("openai_chat", "chat/control", stream=False)
    body["tools"][0]["function"]["parameters"] = {"type": "object", "enum": [[]] * 70_000}
    answer = post(narrow.port, path, json.dumps(body, separators=(",", ":")).encode())
    assert answer.status == 413
    assert until(lambda: narrow.gateway.memory.used == 0)


def test_a_request_that_waits_for_its_answer_is_counted_and_gives_back_what_it_no_longer_needs(
    narrow: GatewayThread, upstream: FaultyUpstream
) -> None:
    memory = narrow.gateway.memory
    path, body = large("openai_chat", 2_000_000, "chat/stall-headers.held", stream=True)
    with send(narrow.port, request_bytes(path, body)):
        assert upstream.wait_for(lambda: bool(upstream.of("stall-headers.held")))
        assert until(lambda: 4_500_000 < memory.used < 6_000_000), "the decoded request and the upstream's"
    assert until(lambda: memory.used == 0)
    path, body = large("openai_chat", 2_000_000, "chat/stall-midstream.held", stream=True)
    with send(narrow.port, request_bytes(path, body)):
        assert until(lambda: 1_900_000 < memory.used < 3_000_000), "the upstream's request is not needed any more"
    assert until(lambda: memory.used == 0)


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_an_answer_that_must_be_held_is_counted(client: str, stream: bool, upstream: FaultyUpstream, tmp_path: Path) -> None:
    """2 MB of arguments: too much for a gateway with room for 4 MB, unless they pass through as they come."""
    model = f"chat/tool-huge-args.counted-{client}-{stream}"
    config = fault_config(upstream.url, record=False, limits={"memory_bytes": 4 * MB})
    with running_gateway(config, tmp_path) as running:
        answer = ask_raw(running.port, client, model, stream=stream)
        verdict = judge(client, answer, stream=stream)
        assert verdict.lies == []
        if stream and client in ("openai_chat", "openai_responses"):
            assert verdict.outcome == "OK"
        elif not stream:
            check_refusal(client, answer)
            assert running.gateway.memory.peak <= 4 * MB
        assert until(lambda: running.gateway.memory.used == 0)
        breaker = running.gateway.resources.health.breaker("chat")
        assert breaker.is_up, "the upstream did nothing wrong"


def test_an_answer_that_nobody_takes_is_counted(upstream: FaultyUpstream, tmp_path: Path) -> None:
    config = fault_config(upstream.url, record=False)
    with running_gateway(config, tmp_path) as running:
        memory = running.gateway.memory
        path, body = request_body("openai_chat", "chat/tool-huge-args.unsent", stream=False)
        with socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
            sock.connect(("127.0.0.1", running.port))
            sock.sendall(request_bytes(path, body))
            assert until(lambda: memory.used > MB and not running.gateway.open_flows)
            assert len(read_answer(sock).body) > 2 * MB
        assert until(lambda: memory.used == 0)


def test_heads_and_requests_that_wait_for_their_turn_are_counted(upstream: FaultyUpstream, tmp_path: Path) -> None:
    config = fault_config(upstream.url, record=False, limits={"memory_bytes": MB})
    with running_gateway(config, tmp_path) as running:
        memory = running.gateway.memory
        with send(running.port, b"GET / HTTP/1.1\r\nhost: a\r\nx: ") as sock:
            sock.sendall(b"y" * 50_000)
            assert until(lambda: memory.used >= 50_000)
        assert until(lambda: memory.used == 0)
        first = request_bytes(*request_body("openai_chat", "chat/stall-midstream.pipelined", stream=True))
        behind = request_bytes(*large("openai_chat", 100_000))
        with send(running.port, first) as sock:
            assert upstream.wait_for(lambda: bool(upstream.of("stall-midstream.pipelined")))
            assert memory.used < 100_000
            sock.sendall(behind)
            assert until(lambda: memory.used >= 130_000)
            # More of them than there is room for: the client is given up, and with it all it holds.
            with contextlib.suppress(ConnectionError):
                for _ in range(12):
                    sock.sendall(behind)
            assert until(lambda: memory.used == 0)


@contextlib.contextmanager
def without_collector(upstream: FaultyUpstream, directory: Path, **timeouts: float) -> Iterator[GatewayProcess]:
    """A gateway process whose garbage collector never runs."""
    site = directory / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text("import gc\n\ngc.disable()\n")
    inherited = os.environ.get("PYTHONPATH", "")
    config = fault_config(upstream.url, record=False, timeouts={"drain_s": 5, **timeouts})
    gateway = GatewayProcess(config, directory, log_level="error", PYTHONPATH=f"{site}:{inherited}".rstrip(":"))
    try:
        assert post(gateway.port, *large("openai_chat", 10)).status == 200
        yield gateway
        assert until(lambda: gateway.number(USED) == 0)
    finally:
        gateway.stop()


@pytest.mark.parametrize("fault", ["close-before-headers", "500-json", "reset"])
def test_memory_comes_back_after_failures(fault: str, upstream: FaultyUpstream, tmp_path: Path) -> None:
    """Without the garbage collector: nothing of a failed request may wait for it."""
    count, size = (1000, 33_000_000) if SOAK else (12, 8_000_000)
    with without_collector(upstream, tmp_path) as gateway:
        base = gateway.memory()
        path, body = large("openai_chat", size, f"chat/{fault}.large")
        for number in range(count):
            assert post(gateway.port, path, body).status in (500, 502)
            if number % 10 == 9:
                upstream.forget()
        assert until(lambda: gateway.memory() - base < 64 * MB)
        tell(f"{count} x {fault} of {size} bytes, no collector: base {base // MB} MB, peak {gateway.peak_memory() // MB} MB, "
             f"afterwards {gateway.memory() // MB} MB")  # fmt: skip


def test_memory_comes_back_after_every_fault(upstream: FaultyUpstream, tmp_path: Path) -> None:
    """The whole catalogue with large requests, without the garbage collector."""
    faults, size = (sorted(FAULTS), 33_000_000) if SOAK else (sorted(FAULTS)[::16], 4_000_000)
    limits = {"first_byte_s": 0.5, "idle_s": 0.3, "total_s": 2.0}
    with without_collector(upstream, tmp_path, **limits) as gateway:
        base = gateway.memory()
        statuses = Counter[int]()
        for number, fault in enumerate(faults):
            stream = number % 3 > 0
            path, body = large(CLIENTS[number % 4], size, f"chat/{fault}.after-{number}", stream=stream)
            statuses[post(gateway.port, path, body).status] += 1
            upstream.forget()
        assert until(lambda: gateway.memory() - base < 64 * MB)
        tell(f"{len(faults)} faults with {size} bytes each, no collector: {dict(statuses)}; base {base // MB} MB, "
             f"peak {gateway.peak_memory() // MB} MB, afterwards {gateway.memory() // MB} MB")  # fmt: skip
        assert statuses[200] > 0
        assert statuses.total() > statuses[200]


def test_every_budget_is_shown(narrow: GatewayThread) -> None:
    assert read_number(narrow.port, LIMIT) == 16 * MB
    assert read_number(narrow.port, 'athena_budget_limit{budget="requests"}') == 10_000
    assert read_number(narrow.port, 'athena_budget_used{budget="requests"}') == 0
