"""Rows 32 to 38: how often an upstream is asked, how long a client is told to wait, and where the next target comes in."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.fault_config import DIALECTS, fault_config
from support.fault_judge import Answer, ask_raw, judge
from support.fault_scripts.statuses import LATER
from support.faulty_upstream import FaultyUpstream
from support.gateway_process import GatewayThread, free_port, running_gateway

CLIENTS = list(DIALECTS.values())
_numbers = itertools.count()


@pytest.fixture(scope="module")
def retrying(upstream: FaultyUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayThread]:
    config = fault_config(upstream.url, retries={"attempts": 2, "wait_s": 3, "share": 1.0}, health={"failures": 0})
    with running_gateway(config, tmp_path_factory.mktemp("retrying")) as running:
        yield running


def _asked(upstream: FaultyUpstream, gateway: GatewayThread, fault: str, client: str, *, stream: bool) -> tuple[Answer, int]:
    model = f"{fault}.attempts{next(_numbers)}"
    answer = ask_raw(gateway.port, client, f"chat/{model}", stream=stream)
    return answer, len(upstream.of(model))


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_retries_until_it_works(client: str, stream: bool, retrying: GatewayThread, upstream: FaultyUpstream) -> None:
    for fault, attempts in (("flaky-500", 2), ("flaky-429", 2)):
        answer, count = _asked(upstream, retrying, fault, client, stream=stream)
        assert (judge(client, answer, stream=stream).outcome, count) == ("OK", attempts)


def test_attempts_are_exactly_those_allowed(retrying: GatewayThread, upstream: FaultyUpstream) -> None:
    answer, count = _asked(upstream, retrying, "always-500", "openai_chat", stream=True)
    assert (answer.status, count) == (500, 3)
    assert answer.headers["x-should-retry"] == "false"
    answer, count = _asked(upstream, retrying, "flaky-500-twice", "anthropic_messages", stream=False)
    assert (answer.status, count) == (200, 3)


@pytest.mark.parametrize(
    ("fault", "attempts"),
    [
        ("400", 1), ("401-echo-key", 1), ("403", 1), ("404", 1), ("413", 1), ("422", 1), ("402", 1), ("redirect", 1),
        ("429-final", 1),
        # Sent, and perhaps paid: one resend where not a byte came back, and that is all.
        ("close-before-headers", 2), ("bad-chunk-size", 1), ("200-html", 1), ("empty-200", 1), ("truncated-clean", 1),
    ],
)  # fmt: skip
def test_what_is_not_retried(fault: str, attempts: int, retrying: GatewayThread, upstream: FaultyUpstream) -> None:
    answer, count = _asked(upstream, retrying, fault, "openai_chat", stream=False)
    assert answer.status >= 400
    assert count == attempts


def test_a_long_wait_is_passed_on_instead(retrying: GatewayThread, upstream: FaultyUpstream) -> None:
    answer, count = _asked(upstream, retrying, "429-huge", "openai_chat", stream=True)
    assert (answer.status, count, answer.headers["retry-after"]) == (429, 1, "120")


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("client", CLIENTS)
def test_the_wait_in_every_dialect(client: str, stream: bool, gateway: GatewayThread) -> None:
    for fault, seconds in (("429", 7), ("429-ms", 3), ("429-huge", 120), ("429-date", LATER)):
        answer = ask_raw(gateway.port, client, f"chat/{fault}", stream=stream)
        assert answer.status == 429
        # Of a date, what has passed meanwhile is not waited for any more.
        least = seconds - 2 - (answer.seconds if fault == "429-date" else 0)
        assert least <= int(answer.headers["retry-after"]) <= seconds + 2, fault
        error = json.loads(answer.body)["error"]
        if client == "anthropic_messages":
            assert error["type"] == "rate_limit_error"
        elif client == "gemini":
            assert error["status"] == "RESOURCE_EXHAUSTED"
            delay = next(detail["retryDelay"] for detail in error["details"] if "retryDelay" in detail)
            assert least <= float(delay[:-1]) <= seconds + 2
        else:
            assert error["code"] == "rate_limit_exceeded"
    for fault in ("429-garbage", "429-nan", "429-inf", "429-negative"):
        assert "retry-after" not in ask_raw(gateway.port, client, f"chat/{fault}", stream=stream).headers


# -- the next target -------------------------------------------------------------------------------------------------------


def _with_fallback(upstream: FaultyUpstream, fault: str, **settings: Any) -> dict[str, Any]:
    config = fault_config(upstream.url, **settings)
    config["upstreams"]["dead"] = {"base_url": f"http://127.0.0.1:{free_port()}", "dialect": "openai_chat"}
    first = "dead/x" if fault == "dead" else f"chat/{fault}"
    config["models"].insert(0, {"match": "m", "use": first, "fallback": ["anthropic/control.fallback"]})
    return config


@pytest.mark.parametrize("fault", ["dead", "500-json", "429", "401-echo-key", "404", "close-before-headers", "200-html"])
def test_the_next_target_answers(fault: str, upstream: FaultyUpstream, tmp_path: Path) -> None:
    with running_gateway(_with_fallback(upstream, f"{fault}.first" if fault != "dead" else fault), tmp_path) as running:
        for client in CLIENTS:
            answer = ask_raw(running.port, client, "m", stream=True)
            assert judge(client, answer, stream=True).outcome == "OK"


def test_a_bad_request_is_bad_everywhere(upstream: FaultyUpstream, tmp_path: Path) -> None:
    before = len(upstream.of("control.fallback"))
    with running_gateway(_with_fallback(upstream, "400.bad"), tmp_path) as running:
        assert ask_raw(running.port, "openai_chat", "m", stream=True).status == 400
    assert len(upstream.of("control.fallback")) == before


@pytest.mark.parametrize("client", CLIENTS)
def test_never_after_the_first_byte(client: str, upstream: FaultyUpstream, tmp_path: Path) -> None:
    fault = f"flaky-midstream.{next(_numbers)}"
    before = len(upstream.of("control.fallback"))
    config = _with_fallback(upstream, fault, retries={"attempts": 2, "share": 1.0})
    with running_gateway(config, tmp_path) as running:
        answer = ask_raw(running.port, client, "m", stream=True)
    verdict = judge(client, answer, stream=True)
    assert (verdict.outcome, verdict.lies) == ("MID", [])
    assert len(upstream.of(fault)) == 1
    assert len(upstream.of("control.fallback")) == before


def test_a_redirect_is_not_followed(upstream: FaultyUpstream, gateway: GatewayThread) -> None:
    before = upstream.canary
    assert ask_raw(gateway.port, "openai_chat", "chat/redirect.canary", stream=False).status == 502
    assert upstream.canary == before
