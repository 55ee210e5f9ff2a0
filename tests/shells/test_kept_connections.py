"""A connection to an upstream is used again when the end of its answer comes behind its last word, and nobody waits for it."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from support.certificates import Authority
from support.fault_judge import ask_raw
from support.gateway_process import GatewayThread, running_gateway
from support.patience import until
from support.raw_server import Hold, Pause, RawServer, Request, Script, Step, Tls, Until, chunk, chunked_head

REQUESTS = 30
CONFIG: dict[str, Any] = {
    "models": [{"match": "m", "use": "up"}],
    "retries": {"attempts": 0},
    "envelope_key": "test",
}


def record(delta: str, finish: str) -> bytes:
    choice = f'{{"index":0,"delta":{delta},"finish_reason":{finish}}}'
    return f'data: {{"id":"1","object":"chat.completion.chunk","model":"m","choices":[{choice}]}}\n\n'.encode()


ANSWER = (
    chunked_head("content-type: text/event-stream")
    + chunk(record('{"content":"Hi"}', "null"))
    + chunk(record("{}", '"stop"') + b"data: [DONE]\n\n")
)
END = chunk(b"")


def script(*gap: Step, first: Step | None = None) -> Script:
    """Answers on one connection, each with its end behind a gap."""
    steps: list[Step] = [first] if first is not None else []
    for _ in range(REQUESTS + 1):
        steps += [Request(), ANSWER, *gap, END]
    return [*steps, Hold()]


def config(server: RawServer, **upstream: Any) -> dict[str, Any]:
    return {**CONFIG, "upstreams": {"up": {"base_url": f"{server.url}/v1", **upstream}}}


def ask(gateway: GatewayThread) -> bytes:
    answer = ask_raw(gateway.port, "openai_chat", "m", stream=True)
    assert answer.status == 200
    assert b"[DONE]" in answer.body
    return answer.body


def idle(gateway: GatewayThread) -> int:
    return sum(stats.idle for stats in gateway.gateway.resources.client.stats().values())


@pytest.mark.parametrize("kind", ["plain", "tls"])
@pytest.mark.parametrize("milliseconds", [1, 5, 20])
def test_connections_are_kept_when_the_end_comes_a_little_later(kind: str, milliseconds: int, tmp_path: Path) -> None:
    gap, more = Pause(milliseconds / 1000), {}
    first: Step | None = None
    if kind == "tls":
        authority = Authority(tmp_path)
        first = Tls(authority.server_context("127.0.0.1"))
        more = {"ca_file": authority.ca_file}
    with RawServer(script(gap, first=first)) as server:
        own = config(server, **more)
        if kind == "tls":
            own["upstreams"]["up"]["base_url"] = f"https://127.0.0.1:{server.port}/v1"
        with running_gateway(own, tmp_path) as gateway:
            for _ in range(REQUESTS + 1):
                ask(gateway)
                assert until(lambda: idle(gateway) == 1), "the connection did not come back"
            assert server.connections == 1


def test_no_client_waits_for_the_end(tmp_path: Path) -> None:
    end = threading.Event()
    with RawServer(script(Until(end))) as server, running_gateway(config(server), tmp_path) as gateway:
        ask(gateway)
        assert idle(gateway) == 0, "the client has all of its answer, and the end has not come"
        ask(gateway)
        assert server.connections == 2
        end.set()
        assert until(lambda: idle(gateway) == 2)


@pytest.mark.parametrize("stray", [b"HTTP/1.1 200 OK\r\n\r\n", b"x"], ids=["an answer", "a byte"])
def test_a_stray_byte_kills_the_connection(stray: bytes, tmp_path: Path) -> None:
    with RawServer(script(Pause(0.005), END + stray)) as server, running_gateway(config(server), tmp_path) as gateway:
        ask(gateway)
        assert until(lambda: sum(stats.open for stats in gateway.gateway.resources.client.stats().values()) == 0)
        ask(gateway)
        assert server.connections == 2
