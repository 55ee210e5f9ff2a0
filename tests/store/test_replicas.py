"""Two gateways on one PostgreSQL behind nginx, as `examples/replicas` sets them up: any continues what another began, and one
that is killed loses nothing that was acknowledged."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
import yaml
from websockets.sync.client import connect

from athena.shells.config import hash_key
from support.athena_process import athena
from support.gateway_process import GatewayProcess, free_port
from support.patience import PATIENCE
from support.postgres import PostgresServer
from support.session_upstream import SessionUpstream

EXAMPLE = Path(__file__).parents[2] / "examples" / "replicas"
KEY = "ath_only-for-these-tests"
TURNS = 60 if os.environ.get("ATHENA_SOAK") else 4


@contextlib.contextmanager
def nginx(ports: list[int], place: Path) -> Iterator[int]:
    """nginx with the configuration of the example, in front of gateways on these ports."""
    program = shutil.which("nginx") or "/usr/sbin/nginx"
    if not Path(program).exists():
        reason = "nginx is not installed (`apt-get install nginx-light`)"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    port = free_port()
    text = (EXAMPLE / "nginx.conf").read_text().replace("listen 8080", f"listen 127.0.0.1:{port}")
    for number, gateway in enumerate(ports, 1):
        text = text.replace(f"gateway-{number}:12377", f"127.0.0.1:{gateway}")
    places = "".join(f"{kind}_temp_path {place}/{kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    main = f"daemon off; master_process off; pid {place}/pid; error_log stderr warn; events {{}}\n"
    (place / "nginx.conf").write_text(f"{main}http {{ access_log off;\n{places}{text} }}\n")
    with open(place / "nginx.log", "wb") as log:
        process = subprocess.Popen([program, "-p", str(place), "-c", str(place / "nginx.conf")], stderr=log)
    try:
        deadline = time.monotonic() + PATIENCE
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            assert time.monotonic() < deadline, (place / "nginx.log").read_text()
            assert process.poll() is None, (place / "nginx.log").read_text()
            time.sleep(0.02)
        yield port
    finally:
        process.terminate()
        process.wait(PATIENCE)


def served(gateway: GatewayProcess) -> bool:
    """Has it answered requests of a batch or of a client?"""
    return '"message":"request"' in gateway.log()


def test_replicas(postgres: PostgresServer, tmp_path: Path) -> None:
    with SessionUpstream() as upstream, contextlib.ExitStack() as stack:
        value: dict[str, Any] = {
            "upstreams": {"one": {"base_url": f"{upstream.url}/v1", "dialect": "openai_chat"}},
            "models": [{"match": "*", "use": "one/m"}],
            "keys": [{"name": "tests", "hash": hash_key(KEY)}],
            "store": postgres.url,
            "envelope_key": "the same on both",
            "batches": {"poll_s": 0.1, "lease_s": 1.0, "concurrency": 2},
        }
        gateways: list[GatewayProcess] = []
        for name in ("first", "second"):
            (tmp_path / name).mkdir()
            gateway = GatewayProcess(value, tmp_path / name, log_level="info")
            stack.callback(gateway.end)
            gateways.append(gateway)
        port = stack.enter_context(nginx([gateway.port for gateway in gateways], tmp_path))
        base = f"http://127.0.0.1:{port}"
        client = stack.enter_context(openai.OpenAI(base_url=f"{base}/v1", api_key=KEY, timeout=PATIENCE, max_retries=0))
        claude = stack.enter_context(anthropic.Anthropic(base_url=base, api_key=KEY, timeout=PATIENCE, max_retries=0))

        ids: list[str] = []

        def turn() -> None:
            before: dict[str, Any] = {"previous_response_id": ids[-1]} if ids else {}
            said = f"Turn {len(ids)}."
            ids.append(client.responses.create(model="m", input=said, **before).id)
            shown = [body["messages"] for _, body in upstream.requests if said in str(body["messages"][-1])]
            assert [len(messages) for messages in shown] == [2 * len(ids) - 1]

        for _ in range(TURNS):
            turn()
        with connect(
            f"ws://127.0.0.1:{port}/v1/responses", additional_headers={"authorization": f"Bearer {KEY}"}, open_timeout=PATIENCE
        ) as web:
            web.send(json.dumps({"type": "response.create", "model": "m", "input": "Hi.", "previous_response_id": ids[-1]}))
            while (event := json.loads(web.recv(PATIENCE)))["type"] != "response.completed":
                assert event["type"] != "error", event
        assert all(map(served, gateways))

        params: Any = {"model": "m", "max_tokens": 10, "messages": [{"role": "user", "content": "Hello."}]}
        batch = claude.messages.batches.create(
            requests=[{"custom_id": f"r{number}", "params": params} for number in range(3 * TURNS)]
        )
        gateways[0].process.kill()
        gateways[0].wait()
        for _ in range(TURNS):
            turn()
        for name in ids:
            assert client.responses.retrieve(name).id == name
        deadline = time.monotonic() + PATIENCE
        while (ended := claude.messages.batches.retrieve(batch.id)).processing_status != "ended":
            assert time.monotonic() < deadline, ended
            time.sleep(0.05)
        assert ended.request_counts.succeeded == 3 * TURNS
        results = list(claude.messages.batches.results(batch.id))
        assert len({result.custom_id for result in results}) == len(results) == 3 * TURNS
        assert not upstream.faults
        gateways[1].stop()


def test_the_example_is_a_configuration(tmp_path: Path) -> None:
    shutil.copy(EXAMPLE / "athena.yml", tmp_path / "athena.yml")
    extra = {
        "DATABASE_URL": "postgresql://a@b/c",
        "ENVELOPE_KEY": "x",
        "OPENROUTER_API_KEY": "y",
        "ATHENA_GATEWAY_KEY": "z" * 30,
    }
    checked = athena(tmp_path, "config", "check", "athena.yml", **extra)
    assert checked.code == 0, checked.out + checked.err
    compose = yaml.safe_load((EXAMPLE / "compose.yml").read_text())
    assert set(compose["services"]) == {"database", "gateway-1", "gateway-2", "nginx"}
    given = set(compose["services"]["gateway-2"]["environment"])
    assert given == set(extra), "the gateways get other variables than their configuration names"
