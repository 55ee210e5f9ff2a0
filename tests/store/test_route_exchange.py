"""Replicas agree on which model of an upstream is left out, through a database that they share."""

from __future__ import annotations

import asyncio
import json
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI

from athena.quality import Finding, Found
from athena.serving.record import Judged
from athena.serving.route_health import RouteHealth
from athena.serving.settings import ToolHealth
from athena.shells.gateway.route_exchange import RouteExchange
from athena.shells.store.database import Database, Query, SqlSteps
from athena.shells.store.store import Store, StoreLimits
from athena.state.errors import StoreDown
from support.gateway_process import GatewayProcess
from support.patience import PATIENCE
from support.plain_upstream import PlainUpstream, Reply
from support.postgres import PostgresServer

TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def note(routes: RouteHealth, *found: Found, model: str = "m") -> None:
    turn = routes.turn("a", model)
    judged = Judged(upstream="a", model=model, found=found, has_tools=True, streamed=True, first_byte_s=0.5, turn=turn)
    routes.note(judged, "")


def test_what_one_tells_the_others_hear(database: Database) -> None:
    """Two processes' clocks begin anywhere: what they tell each other is in the time of the wall."""
    hands = [RouteHealth(ToolHealth(), lambda: time.monotonic() + 5000.0), RouteHealth(ToolHealth(), time.monotonic)]

    async def run() -> None:
        store = Store(database, StoreLimits(max_age_s=1e6, max_bytes=10**9))
        exchanges = [RouteExchange(lambda routes=routes: (routes, store)) for routes in hands]  # type: ignore[misc]
        for routes in hands:
            note(routes)
            note(routes, Found(Finding.INVALID_JSON))
            note(routes, Found(Finding.CUT))
        for exchange in (*exchanges, *exchanges):
            await exchange.exchange()
        assert [routes.is_out("a", "m") for routes in hands] == [True, True]
        for _ in range(5):
            for routes in hands:
                note(routes)
        for exchange in (*exchanges, *exchanges):
            await exchange.exchange()
        assert [routes.turn("a", "m") for routes in hands] == [2, 2]
        await RouteExchange(lambda: None).exchange()
        await store.close()

    asyncio.run(run())


def rows() -> SqlSteps[int]:
    found = yield Query("SELECT COUNT(*) FROM route_health")
    return int(found[0][0])


def test_names_of_clients_and_good_answers_cost_nothing(database: Database) -> None:
    """Models may have any name; what is written is bounded by the routes that are known, and is nothing while all is well."""
    routes, other = RouteHealth(ToolHealth(), time.monotonic), RouteHealth(ToolHealth(), time.monotonic)
    strange = ("nul\0", "x" * 999, "🧑" * 300, "'; DROP TABLE route_health; --")

    async def run() -> None:
        store = Store(database, StoreLimits(max_age_s=1e6, max_bytes=10**9))
        exchange, listening = (RouteExchange(lambda each=each: (each, store)) for each in (routes, other))  # type: ignore[misc]
        for number in range(50):
            note(routes, model=f"good-{number}")
        note(routes, Found(Finding.EMPTY), model="y" * 5000)
        await exchange.exchange()
        assert await store.read(rows) == 0
        for model in strange:
            for _ in range(4):
                note(routes, Found(Finding.EMPTY), model=model)
        await exchange.exchange()
        await listening.exchange()
        assert await store.read(rows) == len(strange)
        assert all(other.is_out("a", model) for model in strange)
        routes.keep(())
        await exchange.exchange()
        assert await store.read(rows) == 0
        await store.close()

    asyncio.run(run())


def test_without_the_store_a_replica_goes_on_alone(tmp_path: Path) -> None:
    class Gone:
        async def write(self, steps: object) -> None:
            raise StoreDown("gone")

        read = write

    routes = RouteHealth(ToolHealth(), time.monotonic)

    async def run() -> None:
        exchange = RouteExchange(lambda: (routes, Gone()), every_s=0.001)  # type: ignore[arg-type,return-value]
        exchange.start()
        for _ in range(4):
            note(routes, Found(Finding.EMPTY))
            await asyncio.sleep(0.01)
        assert routes.is_out("a", "m")
        with pytest.raises(StoreDown):
            await exchange.exchange()
        await exchange.close()

    asyncio.run(run())


def reply(arguments: str) -> Reply:
    call = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": arguments}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    choice = {"index": 0, "finish_reason": "tool_calls", "message": message}
    return Reply({"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]})


def served_by(client: OpenAI, *, tools: bool) -> str:
    arguments: dict[str, Any] = {"tools": [TOOL]} if tools else {}
    answer = client.chat.completions.with_raw_response.create(
        model="m", messages=[{"role": "user", "content": "Hi"}], **arguments
    )
    return str(answer.headers["x-athena-served-by"])


def states(gateway: GatewayProcess) -> dict[str, str]:
    with urllib.request.urlopen(f"http://127.0.0.1:{gateway.port}/ready", timeout=PATIENCE) as answer:
        return {route["upstream"]: route["state"] for route in json.load(answer)["routes"]}


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_two_gateways_on_one_postgresql_agree(postgres: PostgresServer, tmp_path: Path) -> None:
    """One sees the bad answers, and the other leaves the model out too; the store goes away, and both go on."""
    good, bad = reply('{"city":"Oslo"}'), reply('{"town":"Oslo"}')
    with PlainUpstream() as upstream:
        paths = {name: f"/{name}/v1/chat/completions" for name in ("one", "two")}
        upstream.table |= {paths["one"]: bad, paths["two"]: good}
        value = {
            "upstreams": {name: {"base_url": f"{upstream.url}/{name}/v1"} for name in paths},
            "models": [{"match": "*", "use": ["one/m", {"use": "two/m"}]}],
            "health": {"tools": {"probe_s": 0.001, "probes": 3}},
            "store": postgres.url,
            "envelope_key": "the same on both",
        }
        gateways = []
        clients = []
        try:
            for name in ("first", "second"):
                (tmp_path / name).mkdir()
                gateways.append(GatewayProcess(value, tmp_path / name, log_level="info"))
                clients.append(OpenAI(base_url=f"http://127.0.0.1:{gateways[-1].port}/v1", api_key="x", max_retries=0))
            first, second = clients
            for _ in range(4):
                assert served_by(first, tools=True) == "one/m"
            assert served_by(first, tools=False) == "two/m"
            until(lambda: states(gateways[1]).get("one") == "out")
            assert served_by(second, tools=False) == "two/m", "it never asked the bad one itself"
            assert "another replica saw it: 4 of the last 4 answers were bad" in gateways[1].log()
            postgres.stop()
            upstream.table[paths["one"]] = good
            until(lambda: served_by(second, tools=True) == "one/m" and states(gateways[1])["one"] == "in")
            assert states(gateways[0])["one"] == "out", "they cannot talk"
            postgres.start()
            until(lambda: states(gateways[0])["one"] == "in")
        finally:
            for client in clients:
                client.close()
            for gateway in gateways:
                gateway.end()
