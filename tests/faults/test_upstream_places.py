"""An upstream has so many places, a queue before them, and a breaker that says whether it is asked at all."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from athena.serving.breaker import BreakerState
from athena.serving.health import UpstreamHealth
from support.fault_config import DIALECTS, fault_config
from support.fault_judge import Answer, ask_raw, judge, request_body, request_bytes, send
from support.faulty_upstream import FaultyUpstream
from support.gateway_process import GatewayThread, read_number, running_gateway
from support.patience import FOR_EVER, PATIENCE, until
from support.raw_server import RawServer, Request
from support.upstream_talk import Talk

CLIENTS = list(DIALECTS.values())
PATIENT = dict.fromkeys(("first_byte_s", "idle_s", "total_s", "connect_s"), FOR_EVER)


@contextlib.contextmanager
def gateway_with(upstream: FaultyUpstream, directory: Path, own: dict[str, Any], **settings: Any) -> Iterator[GatewayThread]:
    """A gateway whose upstream `chat` has settings of its own, and whose model `either` falls back to another upstream."""
    config = fault_config(upstream.url, **{"timeouts": PATIENT, **settings})
    config["upstreams"]["chat"] |= own
    rule = {"match": "either/*", "use": "chat/*", "fallback": ["anthropic/control.fallback"]}
    config["models"] = [rule, *config["models"]]
    with running_gateway(config, directory) as running:
        yield running


class Held:
    """A model that answers only when the test lets it."""

    def __init__(self, upstream: FaultyUpstream, name: str) -> None:
        self.name = name
        self.upstream = upstream
        self.release = threading.Event()
        upstream.scripts[name] = self._answer

    async def _answer(self, talk: Talk) -> None:
        import asyncio

        while not self.release.is_set():
            await asyncio.sleep(0.005)
        await talk.control()

    @property
    def asked(self) -> int:
        return len(self.upstream.of(self.name))


def check_refusal(client: str, answer: Answer, code: str) -> None:
    assert answer.status == (529 if client == "anthropic_messages" else 503), answer.body
    verdict = judge(client, answer, stream=False)
    assert (verdict.outcome, verdict.lies) == ("PRE", [])
    assert int(answer.headers["retry-after"]) >= 1
    assert "x-should-retry" not in answer.headers
    error = json.loads(answer.body)["error"]
    assert "max_connections" in error["message"]
    if client == "anthropic_messages":
        assert error["code"] == code


# -- places ------------------------------------------------------------------------------------------------------------------


def test_places_queue_and_refusal(upstream: FaultyUpstream, tmp_path: Path) -> None:
    held = Held(upstream, "held.places")
    own = {"max_connections": 2, "queue": 1, "queue_wait_s": FOR_EVER}
    with gateway_with(upstream, tmp_path, own) as running, ThreadPoolExecutor(4) as pool:

        def number(name: str) -> float:
            return read_number(running.port, name)

        lane = running.gateway.resources.lanes.of("chat")
        waiting = []
        for in_work, queued in ((1, 0), (2, 0), (2, 1)):
            waiting.append(pool.submit(ask_raw, running.port, "openai_chat", "chat/held.places", stream=True))
            assert until(lambda: (lane.in_work, lane.waiting) == (in_work, queued))  # noqa: B023 - waited for right here
        assert number('athena_upstream_requests{state="in_work",upstream="chat"}') == 2
        assert number('athena_upstream_requests{state="waiting",upstream="chat"}') == 1
        assert number('athena_upstream_places{upstream="chat"}') == 2
        assert number('athena_upstream_queue{upstream="chat"}') == 1
        for client in CLIENTS:
            check_refusal(client, ask_raw(running.port, client, "chat/held.places", stream=False), "queue_full")
        assert number('athena_upstream_queue_refusals_total{reason="queue_full",upstream="chat"}') == 4
        assert until(lambda: held.asked == 2), "a place is taken before the request has arrived there"
        before = len(upstream.of("control.fallback"))
        assert ask_raw(running.port, "openai_chat", "either/held.places", stream=True).status == 200
        assert len(upstream.of("control.fallback")) == before + 1
        assert ask_raw(running.port, "openai_chat", "anthropic/control", stream=True).status == 200, "another upstream's places"
        held.release.set()
        assert [done.result(PATIENCE).status for done in waiting] == [200, 200, 200]
        assert held.asked == 3
        assert until(lambda: (lane.in_work, lane.waiting) == (0, 0))
        assert running.gateway.resources.health.is_up("chat"), "that it had no place says nothing about the upstream"


@pytest.mark.parametrize("client", CLIENTS)
def test_nobody_waits_for_ever(client: str, upstream: FaultyUpstream, tmp_path: Path) -> None:
    held = Held(upstream, f"held.wait-{client}")
    own = {"max_connections": 1, "queue_wait_s": 0.2}
    with gateway_with(upstream, tmp_path, own, retries={"attempts": 2}) as running, ThreadPoolExecutor(1) as pool:
        first = pool.submit(ask_raw, running.port, client, f"chat/{held.name}", stream=True)
        assert until(lambda: held.asked == 1)
        check_refusal(client, ask_raw(running.port, client, f"chat/{held.name}", stream=True), "queue_timeout")
        held.release.set()
        assert first.result(PATIENCE).status == 200
        assert held.asked == 1


def test_who_leaves_the_queue_leaves_no_place_behind(upstream: FaultyUpstream, tmp_path: Path) -> None:
    held = Held(upstream, "held.leaves")
    with gateway_with(upstream, tmp_path, {"max_connections": 1, "queue_wait_s": FOR_EVER}) as running:
        lane = running.gateway.resources.lanes.of("chat")
        data = request_bytes(*request_body("openai_chat", "chat/held.leaves", stream=True))
        with send(running.port, data):
            assert until(lambda: held.asked == 1)
            with send(running.port, data), send(running.port, data):
                assert until(lambda: lane.waiting == 2)
            assert until(lambda: lane.waiting == 0)
        assert until(lambda: lane.in_work == 0)
        held.release.set()
        assert ask_raw(running.port, "openai_chat", "chat/held.leaves", stream=True).status == 200


def test_a_new_configuration_changes_the_places(upstream: FaultyUpstream, tmp_path: Path) -> None:
    import msgspec

    held = Held(upstream, "held.reload")
    with (
        gateway_with(upstream, tmp_path, {"max_connections": 1, "queue_wait_s": FOR_EVER}) as running,
        ThreadPoolExecutor(3) as pool,
    ):
        waiting = [pool.submit(ask_raw, running.port, "openai_chat", "chat/held.reload", stream=True) for _ in range(3)]
        assert until(lambda: running.gateway.resources.lanes.of("chat").waiting == 2)
        config = running.gateway.config
        chat = msgspec.structs.replace(config.upstreams["chat"], max_connections=3)
        changed = msgspec.structs.replace(config, upstreams={**config.upstreams, "chat": chat})
        running.call(running.gateway.use, changed)
        assert until(lambda: held.asked == 3)
        held.release.set()
        assert [done.result(PATIENCE).status for done in waiting] == [200] * 3


def test_two_upstreams_at_one_address_have_their_own_limits(upstream: FaultyUpstream, tmp_path: Path) -> None:
    """Two connections for one and six for the other: neither has more, whatever the other may have."""
    one, other = Held(upstream, "held.two"), Held(upstream, "held.six")
    config = fault_config(upstream.url, timeouts=PATIENT)
    config["upstreams"]["chat"] |= {"max_connections": 2, "queue_wait_s": FOR_EVER}
    config["upstreams"]["chat-clean"] |= {"max_connections": 6, "queue_wait_s": FOR_EVER}
    with running_gateway(config, tmp_path) as running, ThreadPoolExecutor(24) as pool:
        waiting = [
            pool.submit(ask_raw, running.port, "openai_chat", model, stream=True)
            for model in ["chat/held.two", "chat-clean/held.six"] * 12
        ]
        lanes = running.gateway.resources.lanes
        assert until(lambda: lanes.of("chat").waiting == 10 and lanes.of("chat-clean").waiting == 6)
        assert until(lambda: (one.asked, other.asked) == (2, 6))
        assert running.gateway.resources.upstream_connections == 8
        one.release.set()
        other.release.set()
        assert [done.result(PATIENCE).status for done in waiting] == [200] * 24
        assert (one.asked, other.asked) == (12, 12)


def test_idle_connections_are_kept_as_configured(upstream: FaultyUpstream, tmp_path: Path) -> None:
    config = fault_config(upstream.url, timeouts=PATIENT)
    config["upstreams"]["chat"] |= {"max_idle_connections": 2, "keep_idle_s": FOR_EVER}
    config["upstreams"]["chat-clean"] |= {"max_idle_connections": 50, "keep_idle_s": 0.2}
    with running_gateway(config, tmp_path) as running, ThreadPoolExecutor(8) as pool:
        for model, held in (
            ("chat/held.idle", Held(upstream, "held.idle")),
            ("chat-clean/held.short", Held(upstream, "held.short")),
        ):
            waiting = [pool.submit(ask_raw, running.port, "openai_chat", model, stream=False) for _ in range(8)]
            assert until(lambda: held.asked == 8)  # noqa: B023 - waited for right here
            held.release.set()
            assert [done.result(PATIENCE).status for done in waiting] == [200] * 8
            # Two of the first, and none of the second once their time is over.
            assert until(lambda: running.gateway.resources.upstream_connections == 2)


# -- the breaker -------------------------------------------------------------------------------------------------------------


class Clock:
    """A time that only the test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@contextlib.contextmanager
def with_clock(upstream: FaultyUpstream, directory: Path, **health: Any) -> Iterator[tuple[GatewayThread, Clock]]:
    settings = {"failures": 3, "error_rate": 0, "cooldown_s": 10, **health}
    with gateway_with(upstream, directory, {}, health=settings) as running:
        clock = Clock()
        gateway = running.gateway
        gateway.resources.health = UpstreamHealth(gateway.config.health, clock, gateway.resources.changes.upstream_changed)
        running.call(gateway.use, gateway.config)
        yield running, clock


def ask(running: GatewayThread, model: str) -> int:
    return ask_raw(running.port, "openai_chat", model, stream=True).status


def test_a_failing_upstream_is_left_out_and_tried_again(upstream: FaultyUpstream, tmp_path: Path) -> None:
    with with_clock(upstream, tmp_path) as (running, clock):
        fallback = len(upstream.of("control.fallback"))
        for _ in range(3):
            assert ask(running, "either/500-json.down") == 200, "the fallback answers"
        assert len(upstream.of("500-json.down")) == 3
        for _ in range(3):
            assert ask(running, "either/500-json.down") == 200
        assert len(upstream.of("500-json.down")) == 3, "it is not asked any more"
        assert len(upstream.of("control.fallback")) == fallback + 6
        state = 'athena_upstream_circuit{{state="{}",upstream="chat"}}'
        assert read_number(running.port, state.format("open")) == 1
        assert read_number(running.port, 'athena_upstream_up{upstream="chat"}') == 0
        clock.now += 10
        assert ask(running, "either/500-json.down") == 200
        assert len(upstream.of("500-json.down")) == 4, "the probe"
        clock.now += 10
        ask(running, "either/500-json.down")
        assert len(upstream.of("500-json.down")) == 4, "it rests for twice as long now"
        clock.now += 10
        assert ask(running, "either/control.back") == 200
        assert len(upstream.of("control.back")) == 1
        assert read_number(running.port, state.format("closed")) == 1
        moves = 'athena_upstream_transitions_total{{state="{}",upstream="chat"}}'
        assert [read_number(running.port, moves.format(name)) for name in ("open", "half_open", "closed")] == [2, 2, 1]
    lines = [line for line in running.logs.lines if "upstream chat is" in line]
    assert [line.split("upstream chat is ")[1].split(":")[0] for line in lines] == [
        "left out", "tried again", "left out", "tried again", "back",
    ]  # fmt: skip


def test_one_probe_at_a_time_while_others_fall_back(upstream: FaultyUpstream, tmp_path: Path) -> None:
    held = Held(upstream, "held.probe")
    with with_clock(upstream, tmp_path) as (running, clock), ThreadPoolExecutor(1) as pool:
        for _ in range(3):
            ask(running, "either/reset.down")
        clock.now += 10
        probe = pool.submit(ask, running, "either/held.probe")
        assert until(lambda: held.asked == 1)
        for _ in range(4):
            assert ask(running, "either/held.probe") == 200
        assert held.asked == 1
        held.release.set()
        assert probe.result(PATIENCE) == 200
        assert until(lambda: running.gateway.resources.health.breaker("chat").state is BreakerState.CLOSED)


def test_a_probe_whose_client_leaves_is_followed_by_another(upstream: FaultyUpstream, tmp_path: Path) -> None:
    held = Held(upstream, "held.left")
    with with_clock(upstream, tmp_path) as (running, clock):
        for _ in range(3):
            ask(running, "either/reset.down-too")
        clock.now += 10
        with send(running.port, request_bytes(*request_body("openai_chat", "either/held.left", stream=True))):
            assert until(lambda: held.asked == 1)
        assert until(lambda: running.gateway.open_flows == 0)
        held.release.set()
        assert ask(running, "either/held.left") == 200
        assert held.asked == 2


def test_without_a_fallback_it_is_asked_all_the_same(upstream: FaultyUpstream, tmp_path: Path) -> None:
    with with_clock(upstream, tmp_path) as (running, _):
        for _ in range(6):
            assert ask(running, "chat/500-json.alone") == 500
        assert len(upstream.of("500-json.alone")) == 6
        assert ask(running, "chat/control.alone") == 200
        assert running.gateway.resources.health.is_up("chat"), "it answered"


@pytest.mark.parametrize("client", CLIENTS)
def test_or_refused_at_once(client: str, upstream: FaultyUpstream, tmp_path: Path) -> None:
    with with_clock(upstream, tmp_path, fail_fast=True) as (running, clock):
        model = f"500-json.fast-{client}"
        for _ in range(3):
            assert ask(running, f"chat/{model}") == 500
        for stream in (True, False):
            answer = ask_raw(running.port, client, f"chat/{model}", stream=stream)
            assert answer.status == (529 if client == "anthropic_messages" else 503)
            assert judge(client, answer, stream=stream).lies == []
            assert answer.headers["retry-after"] == "10"
        assert len(upstream.of(model)) == 3
        assert ask(running, f"either/{model}") == 200
        clock.now += 10
        assert ask(running, "chat/control.fast") == 200


def test_a_share_of_failures_is_enough(upstream: FaultyUpstream, tmp_path: Path) -> None:
    with with_clock(upstream, tmp_path, failures=0, error_rate=0.5, min_requests=8) as (running, _):
        for _ in range(4):
            ask(running, "chat/control.share")
            ask(running, "chat/500-json.share")
        assert not running.gateway.resources.health.is_up("chat")


def test_what_a_client_does_wrong_says_nothing_about_the_upstream(upstream: FaultyUpstream, tmp_path: Path) -> None:
    with with_clock(upstream, tmp_path) as (running, _):
        for fault in ("400", "404", "422", "429"):
            for _ in range(2):
                ask(running, f"chat/{fault}.wrong")
        assert running.gateway.resources.health.is_up("chat")


def test_a_reload_keeps_what_is_known(upstream: FaultyUpstream, tmp_path: Path) -> None:
    import msgspec

    with with_clock(upstream, tmp_path) as (running, _):
        for _ in range(3):
            ask(running, "chat/500-json.reload")
        running.call(running.gateway.use, msgspec.structs.replace(running.gateway.config, strict=True))
        assert not running.gateway.resources.health.is_up("chat")


# -- the health check --------------------------------------------------------------------------------------------------------


def answer(status: str) -> list[Any]:
    return [Request(), f"HTTP/1.1 {status}\r\ncontent-length: 2\r\n\r\nok".encode()]


def test_the_health_check_decides_without_requests(upstream: FaultyUpstream, tmp_path: Path) -> None:
    bad, good = answer("500 X"), answer("200 OK")
    with RawServer(good, bad, good, bad, bad, bad, good) as server:
        config = fault_config(upstream.url, timeouts=PATIENT)
        config["upstreams"]["watched"] = {
            "base_url": f"{server.url}/v1",
            "api_key": "sk-watched",
            "health_check": {"path": "/healthz", "interval_s": 0.05, "timeout_s": FOR_EVER, "failures": 2},
        }
        with running_gateway(config, tmp_path) as running:
            seen = 'athena_upstream_transitions_total{{state="{}",upstream="watched"}}'

            def moved(state: str) -> bool:
                try:
                    return read_number(running.port, seen.format(state)) == 1
                except StopIteration:
                    return False

            assert until(lambda: moved("open") and moved("closed"))
            assert running.gateway.resources.health.is_up("watched")
        lines = [line for line in running.logs.lines if "upstream watched is" in line]
        assert "status 500" in lines[0]
    first = server.requests[0].decode("latin-1").lower()
    assert first.startswith("get /healthz http/1.1\r\n")
    assert "authorization: bearer sk-watched" in first
    assert not running.leftovers


def test_an_upstream_that_nobody_reaches_is_found_by_its_check(upstream: FaultyUpstream, tmp_path: Path) -> None:
    from support.gateway_process import free_port

    config = fault_config(upstream.url, timeouts=PATIENT)
    config["upstreams"]["gone"] = {
        "base_url": f"http://127.0.0.1:{free_port()}",
        "health_check": {"interval_s": 0.05, "failures": 2},
    }
    config["models"] = [{"match": "gone", "use": "gone/m", "fallback": ["chat/control.instead"]}, *config["models"]]
    with running_gateway(config, tmp_path) as running:
        assert until(lambda: not running.gateway.resources.health.is_up("gone"))
        assert ask(running, "gone") == 200
        assert read_number(running.port, 'athena_upstream_up{upstream="gone"}') == 0
