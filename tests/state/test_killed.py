"""A gateway killed with -9 under load: what a client was told to be kept is there afterwards, once, and can be continued.

In the gate once on SQLite; with `ATHENA_SOAK` 200 times (`ATHENA_KILLS` says how many), and as often with PostgreSQL killed
instead.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from support.gateway_process import GatewayProcess
from support.patience import PATIENCE
from support.postgres import PostgresServer, binaries
from support.remembering_upstream import UPSTREAMS, RememberingUpstream, config

SOAK = bool(os.environ.get("ATHENA_SOAK"))
ROUNDS = int(os.environ.get("ATHENA_KILLS", "200")) if SOAK else 1
CLIENTS = 8
MOST = 60 if SOAK else 24
"""Fewer than so many responses are acknowledged before the end."""


class Load:
    """Clients that ask without a pause, and what each of them was told."""

    def __init__(self) -> None:
        self.acknowledged: dict[str, str] = {}
        """The text of every response that a client got whole, by id."""
        self.number = 0

    async def run(self, url: str, stop: asyncio.Event) -> None:
        async with httpx.AsyncClient(base_url=url, timeout=PATIENCE, trust_env=False) as client:
            await asyncio.gather(*(self._one(client, stop, number) for number in range(CLIENTS)))

    async def _one(self, client: httpx.AsyncClient, stop: asyncio.Event, number: int) -> None:
        names = list(UPSTREAMS)
        previous: str | None = None
        while not stop.is_set():
            self.number += 1
            body: dict[str, Any] = {"model": f"{names[self.number % 4]}/m", "input": f"<{self.number}>", "store": True}
            if previous is not None and self.number % 3:
                body["previous_response_id"] = previous
            try:
                response = await (self._streamed if number % 2 else self._whole)(client, body)
            except (httpx.HTTPError, json.JSONDecodeError):
                return  # the gateway is gone
            if response is not None:
                previous = response["id"]
                text = "".join(part["text"] for item in response["output"] for part in item.get("content") or ())
                self.acknowledged[response["id"]] = text

    async def _whole(self, client: httpx.AsyncClient, body: dict[str, Any]) -> dict[str, Any] | None:
        answer = await client.post("/v1/responses", json=body)
        value: dict[str, Any] = answer.json()
        return value if answer.status_code == 200 else None

    async def _streamed(self, client: httpx.AsyncClient, body: dict[str, Any]) -> dict[str, Any] | None:
        async with client.stream("POST", "/v1/responses", json={**body, "stream": True}) as answer:
            async for line in answer.aiter_lines():
                if line.startswith("data: ") and '"response.completed"' in line[:60]:
                    found: dict[str, Any] = json.loads(line[6:])["response"]
                    return found
        return None


async def _ended_at_random(load: Load, url: str, end: Any, after: int) -> None:
    """Under load until so many more responses were acknowledged, then the end."""
    stop = asyncio.Event()
    asking = asyncio.create_task(load.run(url, stop))
    goal = len(load.acknowledged) + after
    while len(load.acknowledged) < goal and not asking.done():
        await asyncio.sleep(0.001)
    end()
    stop.set()
    await asking


def _found(client: httpx.Client, name: str) -> Any:
    """A store that has just been started may need longer than its limit of time: that is said, and nothing is lost."""
    until = time.monotonic() + PATIENCE
    while True:
        answer = client.get(f"/v1/responses/{name}")
        if answer.status_code == 503 and time.monotonic() < until:
            continue
        assert answer.status_code == 200, f"{name}: {answer.text}"
        return answer.json()


def _check(url: str, load: Load) -> None:
    """Everything that was acknowledged is there, with what was told, and can be continued."""
    with httpx.Client(base_url=url, timeout=PATIENCE, trust_env=False) as client:
        for name, text in load.acknowledged.items():
            found = _found(client, name)
            kept = "".join(part["text"] for item in found["output"] for part in item.get("content") or ())
            assert kept == text, name
        last = next(reversed(load.acknowledged))
        body = {"model": "chat/m", "input": "on", "previous_response_id": last}
        said = client.post("/v1/responses", json=body).json()["output"][0]["content"][0]["text"]
        heard = load.acknowledged[last].partition("heard ")[2].rpartition(";")[0]
        assert said.startswith(f"heard {heard} | on"), "nothing of the conversation is lost or there twice"
    load.acknowledged.clear()


def test_a_killed_gateway(upstream: RememberingUpstream, tmp_path: Path) -> None:
    chance = random.Random(17)
    value = config(upstream, state_dir=str(tmp_path / "state"), record=False)
    load = Load()
    gateway = GatewayProcess(value, tmp_path, "warning")
    try:
        for _ in range(ROUNDS):
            kill = lambda process=gateway.process: process.send_signal(signal.SIGKILL)  # noqa: E731
            asyncio.run(_ended_at_random(load, gateway.url, kill, chance.randrange(8, MOST)))
            gateway.wait()
            gateway.end()
            gateway = GatewayProcess(value, tmp_path, "warning")
            _check(gateway.url, load)
    finally:
        gateway.stop()


@pytest.mark.skipif(not SOAK, reason="it restarts PostgreSQL many times, which takes minutes: ./dev soak runs it")
def test_a_killed_database(upstream: RememberingUpstream, tmp_path: Path) -> None:
    assert binaries() is not None, "PostgreSQL is not installed"
    chance = random.Random(17)
    server = PostgresServer()
    try:
        gateway = GatewayProcess(config(upstream, store=server.url, record=False), tmp_path, "error")
        try:
            for _ in range(ROUNDS):
                load = Load()
                asyncio.run(_ended_at_random(load, gateway.url, lambda: server.stop(at_once=True), chance.randrange(8, MOST)))
                server.start()
                _check(gateway.url, load)
        finally:
            gateway.stop()
    finally:
        server.close()
