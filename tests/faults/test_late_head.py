"""The status line waits for the first meaningful event, but not for ever; then keep-alives begin and errors become frames.

The gateway's clock is moved by hand.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from support.fault_config import DIALECTS, fault_config
from support.fault_judge import ask_raw, judge, read_answer, request_body, request_bytes, send
from support.faulty_upstream import FaultyUpstream
from support.gateway_process import GatewayThread, running_gateway
from support.hand_clock import HandClock
from support.upstream_talk import Talk

CLIENTS = list(DIALECTS.values())
KEEP_ALIVES = {"openai_chat": b": ", "openai_responses": b": ", "anthropic_messages": b"event: ping", "gemini": b"\r\n"}
HOLD_HEAD, KEEP_ALIVE, FIRST_BYTE, TOTAL = 20, 10, 600, 3600


@pytest.fixture(scope="module")
def clock() -> HandClock:
    return HandClock()


@pytest.fixture(scope="module")
def hasty(upstream: FaultyUpstream, clock: HandClock, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayThread]:
    """With the limits that it has by default."""
    timeouts = {"hold_head_s": HOLD_HEAD, "keep_alive_s": KEEP_ALIVE, "first_byte_s": FIRST_BYTE, "total_s": TOTAL}
    # There is no idle limit: it would end what the total limit must.
    config = fault_config(upstream.url, timeouts=timeouts, retries={"attempts": 2, "share": 1.0})
    with running_gateway(config, tmp_path_factory.mktemp("hasty"), clock) as running:
        yield running


def _asked(gateway: GatewayThread, upstream: FaultyUpstream, client: str, model: str, *, stream: bool) -> socket.socket:
    """A connection whose request the upstream has answered with all that it will say by itself."""
    path, body = request_body(client, f"chat/{model}", stream=stream)
    sock = send(gateway.port, request_bytes(path, body))
    assert upstream.waits(model)
    return sock


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("fault", ["stall-headers", "stall-first-byte"])
def test_errors_after_the_head_are_frames(
    client: str, fault: str, hasty: GatewayThread, clock: HandClock, upstream: FaultyUpstream
) -> None:
    model = f"{fault}.late-{client}"
    with _asked(hasty, upstream, client, model, stream=True) as sock:
        clock.advance(FIRST_BYTE + 1)
        answer = read_answer(sock)
    verdict = judge(client, answer, stream=True)
    assert (answer.status, verdict.outcome, verdict.lies) == (200, "MID", [])
    assert verdict.status in (0, 504)
    assert answer.body.count(KEEP_ALIVES[client]) >= (FIRST_BYTE - HOLD_HEAD) // KEEP_ALIVE - 1
    assert len(upstream.of(model)) == 1


@pytest.mark.parametrize("client", CLIENTS)
def test_whole_answers_keep_their_status(client: str, hasty: GatewayThread, clock: HandClock, upstream: FaultyUpstream) -> None:
    with _asked(hasty, upstream, client, f"stall-headers.whole-{client}", stream=False) as sock:
        clock.advance(FIRST_BYTE + 1)
        answer = read_answer(sock)
    assert judge(client, answer, stream=False).outcome == "PRE"
    assert answer.status == 504


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("name", list(DIALECTS))
def test_early_failures_keep_their_status(client: str, name: str, hasty: GatewayThread) -> None:
    answer = ask_raw(hasty.port, client, f"{name}/400", stream=True)
    assert (answer.status, judge(client, answer, stream=True).lies) == (400, [])


@pytest.mark.parametrize("client", CLIENTS)
def test_a_model_that_thinks_longer(client: str, hasty: GatewayThread, clock: HandClock, upstream: FaultyUpstream) -> None:
    async def thinking(talk: Talk) -> None:
        await talk.head()
        await talk.until_told()
        await talk.at_once(*talk.speech.frames, head=False, end=True)

    model = f"thinks-{client}"
    upstream.scripts[model] = thinking
    with _asked(hasty, upstream, client, model, stream=True) as sock:
        clock.advance(HOLD_HEAD + KEEP_ALIVE + 1)
        upstream.tell(upstream.of(model)[0])
        answer = read_answer(sock)
    verdict = judge(client, answer, stream=True)
    assert (verdict.outcome, verdict.lies) == ("OK", [])
    if client == "gemini":
        assert answer.body.startswith(b"\r\n")
    else:
        assert KEEP_ALIVES[client] in answer.body.split(b"Gr")[0]


@pytest.mark.parametrize("client", CLIENTS)
def test_the_client_sees_life_before_the_answer(
    client: str, hasty: GatewayThread, clock: HandClock, upstream: FaultyUpstream
) -> None:
    with _asked(hasty, upstream, client, f"stall-first-byte.life-{client}", stream=True) as sock:
        clock.advance(HOLD_HEAD - 1)
        sock.setblocking(False)
        with pytest.raises(BlockingIOError):
            sock.recv(1)
        sock.setblocking(True)
        clock.advance(1)
        assert sock.recv(4096).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("client", CLIENTS)
def test_the_total_limit_ends_an_answer_that_goes_on(
    client: str, hasty: GatewayThread, clock: HandClock, upstream: FaultyUpstream
) -> None:
    with _asked(hasty, upstream, client, f"endless-stream.total-{client}", stream=True) as sock:
        clock.advance(TOTAL + 1)
        answer = read_answer(sock)
    verdict = judge(client, answer, stream=True)
    assert (verdict.outcome, verdict.lies) == ("MID", [])
    assert verdict.status in (0, 504)
    assert b"Gr" in answer.body
