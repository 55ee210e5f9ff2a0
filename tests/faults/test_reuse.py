"""Rows 47 and 52 of docs/reference/faults.md: many rounds, pipelined, answered in order, broken off anywhere. No request
gets the answer to another one.

Every request carries a name of its own, which the upstream repeats in its answer. `./dev soak` runs the full
counts (1,000 rounds, 10,000 leaves), CI a part of them.
"""

from __future__ import annotations

import os
import random
import re
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from support.fault_config import DIALECTS
from support.fault_judge import request_body, request_bytes
from support.faulty_upstream import FaultyUpstream
from support.gateway_process import GatewayProcess
from support.patience import PATIENCE

SOAK = bool(os.environ.get("ATHENA_SOAK"))
ROUNDS = 1000 if SOAK else 120
LEAVES = 10_000 if SOAK else 200
CLIENTS = list(DIALECTS.values())
AT_ONCE = 4
_NAME = re.compile(rb"echo-of-([a-z0-9-]+)\.")


def _request(client: str, name: str, *, stream: bool) -> bytes:
    path, body = request_body(client, f"chat/echo.{name}", stream=stream)
    return request_bytes(path, body)


def _is_whole(data: bytes) -> bool:
    head, mark, rest = data.partition(b"\r\n\r\n")
    found = re.search(rb"content-length: (\d+)", head)
    return bool(mark) and (len(rest) >= int(found[1]) if found else rest.endswith(b"0\r\n\r\n"))


def _names(data: bytes) -> set[str]:
    return {name.decode() for name in _NAME.findall(data)}


def _read_one(sock: socket.socket) -> bytes:
    data = b""
    while not _is_whole(data):
        more = sock.recv(1 << 16)
        assert more, f"the connection ended inside an answer: {data[-200:]!r}"
        data += more
    return data


def _in_parallel(port: int, work: Callable[[int, int, int], None], rounds: int) -> None:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for future in [pool.submit(work, port, seed, rounds // AT_ONCE) for seed in range(AT_ONCE)]:
            future.result(None if SOAK else 5 * PATIENCE)


def test_pipelined_requests_get_their_own_answers(gateway: GatewayProcess) -> None:
    """Two or three requests in one write, over and over on one connection: answers in their order."""
    _in_parallel(gateway.port, _pipeline, ROUNDS)


def _pipeline(port: int, seed: int, rounds: int) -> None:
    source = random.Random(seed)
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as sock:
        for turn in range(rounds):
            names = [f"p{seed}-{turn}-{part}" for part in range(source.choice((2, 3)))]
            # Whole answers: where one ends is plain, so what is behind it is the next one's.
            sock.sendall(b"".join(_request(source.choice(CLIENTS), name, stream=False) for name in names))
            data = b""
            while data.count(b"HTTP/1.1 200") < len(names) or not _is_whole(b"HTTP" + data.rpartition(b"HTTP/1.1")[2]):
                more = sock.recv(1 << 16)
                assert more, data
                data += more
            answers = data.split(b"HTTP/1.1 200")[1:]
            assert [_names(answer) for answer in answers] == [{name} for name in names]


def test_after_an_aborted_request_everybody_gets_their_own_answer(gateway: GatewayProcess, upstream: FaultyUpstream) -> None:
    """Ask, leave at a random point, ask again: the upstream's connection of the first is never used again."""
    before = len(upstream.visits)
    _in_parallel(gateway.port, _abort_and_ask, ROUNDS)
    aborted: dict[int, str] = {}
    for visit in upstream.visits[before:]:
        assert visit.connection not in aborted, f"{visit.model} came over the connection of {aborted[visit.connection]}"
        if visit.model.startswith("echo-slowly."):
            aborted[visit.connection] = visit.model
    assert aborted, "no request was broken off while its answer was on the way"


def _abort_and_ask(port: int, seed: int, rounds: int) -> None:
    source = random.Random(seed)
    for turn in range(rounds):
        client, stream = source.choice(CLIENTS), source.random() < 0.7
        path, body = request_body(client, f"chat/echo-slowly.a{seed}-{turn}", stream=stream)
        request = request_bytes(path, body)
        with socket.create_connection(("127.0.0.1", port), PATIENCE) as leaving:
            # Anywhere: inside the request, before the answer, inside the answer.
            cut = source.choice((source.randrange(1, len(request)), len(request), len(request)))
            leaving.sendall(request[:cut])
            if cut == len(request) and stream and source.random() < 0.7:
                leaving.recv(source.randrange(1, 400))
        with socket.create_connection(("127.0.0.1", port), PATIENCE) as sock:
            for part in range(2):
                name = f"b{seed}-{turn}-{part}"
                sock.sendall(_request(client, name, stream=stream))
                assert _names(_read_one(sock)) == {name}


def test_upstreams_are_left_when_their_clients_leave(gateway: GatewayProcess, upstream: FaultyUpstream) -> None:
    """Streams, plain requests and requests without a first byte, left at random points. Nothing else would end them."""
    _in_parallel(gateway.port, lambda port, seed, rounds: _leave(port, upstream, seed, rounds), LEAVES)
    assert upstream.wait_for(lambda: upstream.open_connections <= AT_ONCE * 8)


def _leave(port: int, upstream: FaultyUpstream, seed: int, rounds: int) -> None:
    source = random.Random(seed)
    for turn in range(rounds):
        model = f"{source.choice(('endless-stream', 'stall-first-byte', 'stall-headers', 'stall-midstream'))}.l{seed}-{turn}"
        stream = source.random() < 0.7
        path, body = request_body(source.choice(CLIENTS), f"chat/{model}", stream=stream)
        with socket.create_connection(("127.0.0.1", port), PATIENCE) as sock:
            sock.sendall(request_bytes(path, body))
            assert upstream.wait_for(lambda: bool(upstream.of(model)))  # noqa: B023 - waited for right here
            visit = upstream.of(model)[0]
            time.sleep(source.random() * 0.02)  # the fault itself: anywhere in the answer
        left = time.monotonic()
        assert upstream.wait_for(lambda: visit.gone_at is not None), f"{model} went on after its client had left"  # noqa: B023
        if SOAK:
            # Not in the gate: how long it takes is also a matter of what else the machine does.
            assert (visit.gone_at or 0) - left < 1, f"{model} went on for a second after its client had left"
