"""The status line waits for the first meaningful event, but not for ever; then keep-alives begin and errors become frames."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.fault_judge import ask_raw, judge, request_body, request_bytes, send
from support.faulty_upstream import FaultyUpstream
from support.gateway_process import DIALECTS, GatewayThread, fault_config, running_gateway

CLIENTS = list(DIALECTS.values())
KEEP_ALIVES = {"openai_chat": b": ", "openai_responses": b": ", "anthropic_messages": b"event: ping", "gemini": b"\r\n\r\n"}


@pytest.fixture(scope="module")
def hasty(upstream: FaultyUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayThread]:
    timeouts = {"hold_head_s": 0.1, "keep_alive_s": 0.1, "first_byte_s": 1.5, "idle_s": 0.5}
    config = fault_config(upstream.url, timeouts=timeouts, retries={"attempts": 2, "share": 1.0})
    with running_gateway(config, tmp_path_factory.mktemp("hasty")) as running:
        ask_raw(running.port, "openai_chat", "chat/control", stream=True)
        yield running


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("fault", ["stall-headers", "stall-first-byte"])
def test_errors_after_the_head_are_frames(client: str, fault: str, hasty: GatewayThread, upstream: FaultyUpstream) -> None:
    answer = ask_raw(hasty.port, client, f"chat/{fault}.late-{client}", stream=True)
    verdict = judge(client, answer, stream=True)
    assert (answer.status, verdict.outcome, verdict.lies) == (200, "MID", [])
    assert verdict.status in (0, 504)
    assert KEEP_ALIVES[client] in answer.body
    assert len(upstream.of(f"{fault}.late-{client}")) == 1


@pytest.mark.parametrize("client", CLIENTS)
def test_whole_answers_keep_their_status(client: str, hasty: GatewayThread) -> None:
    answer = ask_raw(hasty.port, client, "chat/stall-headers", stream=False)
    assert judge(client, answer, stream=False).outcome == "PRE"
    assert answer.status == 504


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("name", list(DIALECTS))
def test_early_failures_keep_their_status(client: str, name: str, hasty: GatewayThread) -> None:
    answer = ask_raw(hasty.port, client, f"{name}/400", stream=True)
    assert (answer.status, judge(client, answer, stream=True).lies) == (400, [])


@pytest.mark.parametrize("client", CLIENTS)
def test_a_model_that_thinks_longer(client: str, hasty: GatewayThread) -> None:
    answer = ask_raw(hasty.port, client, "chat/think-long", stream=True)
    verdict = judge(client, answer, stream=True)
    assert (verdict.outcome, verdict.lies) == ("OK", [])
    if client == "gemini":
        assert answer.body.startswith(b"\r\n")
    else:
        assert KEEP_ALIVES[client] in answer.body.split(b"Gr")[0]


@pytest.mark.parametrize("client", CLIENTS)
def test_the_client_sees_life_before_the_answer(client: str, hasty: GatewayThread) -> None:
    path, body = request_body(client, "chat/stall-first-byte.life", stream=True)
    with send(hasty.port, request_bytes(path, body)) as sock:
        sock.settimeout(1)
        assert sock.recv(4096).startswith(b"HTTP/1.1 200")
