"""The store lost and found while clients ask: who fails, who is answered all the same, and who is told what."""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from athena.shells.migrations import scripts
from athena.shells.store.opening import FILE
from support.athena_process import athena
from support.gateway_process import GatewayThread, read_number, running_gateway
from support.patience import PATIENCE
from support.remembering_upstream import RememberingUpstream, config
from support.replays import differing

PLAIN = "the store of this gateway cannot be used at the moment; its operator finds the reason in its log"
"""What clients are told: nothing of where the store is, and how it is reached."""


@contextlib.contextmanager
def serving(upstream: RememberingUpstream, directory: Path, **settings: Any) -> Iterator[tuple[GatewayThread, httpx.Client]]:
    with (
        running_gateway(config(upstream, **settings), directory) as running,
        httpx.Client(base_url=f"{running.url}/v1", timeout=PATIENCE, trust_env=False) as client,
    ):
        yield running, client


def post(client: httpx.Client, **body: Any) -> httpx.Response:
    return client.post("/responses", json={"model": "chat/model", "input": "x", **body})


def last_event(answer: httpx.Response) -> dict[str, Any]:
    (*_, line) = [line for line in answer.text.split("\n") if line.startswith("data: ")]
    event: dict[str, Any] = json.loads(line[6:])
    return event


@pytest.mark.parametrize("rule", ["answer", "fail"])
def test_a_store_that_is_down(
    upstream: RememberingUpstream, tmp_path: Path, rule: str, caplog: pytest.LogCaptureFixture
) -> None:
    state = tmp_path / "athena-state"
    other = "fail" if rule == "answer" else "answer"
    with serving(upstream, tmp_path, store={"down": rule, "down_asked": other}) as (running, client):
        before = post(client).json()["id"]
        # The directory is replaced by a file: nothing there can be read or written any more.
        shutil.move(state, tmp_path / "away")
        state.write_text("in the way")
        _close_files(running)
        for asked, expected in ((None, rule), (True, other)):
            said = {} if asked is None else {"store": asked}
            whole, streamed = post(client, **said), last_event(post(client, stream=True, **said))
            if expected == "answer":
                assert whole.status_code == 200
                assert whole.json()["store"] is False
                assert "store dropped" in whole.headers["x-athena-warnings"]
                assert (streamed["type"], streamed["response"]["store"]) == ("response.completed", False)
            else:
                assert (whole.status_code, whole.json()["error"]["code"]) == (503, "server_is_overloaded")
                assert (streamed["type"], streamed["response"]["status"]) == ("response.failed", "failed")
                assert whole.json()["error"]["message"] == streamed["response"]["error"]["message"] == PLAIN
        assert post(client, store=False).status_code == 200, "who wants nothing kept is not touched"
        assert post(client, previous_response_id=before).status_code == 503
        assert post(client, background=True).status_code == 503
        for path in (f"/responses/{before}", "/conversations/conv_x", "/batches/batch_x"):
            answer = client.get(path)
            assert (answer.status_code, answer.json()["error"]["message"]) == (503, PLAIN), path
        told = [line.getMessage() for line in caplog.records if line.levelname == "ERROR"]
        assert any(str(state) in line for line in told), "the operator learns why"
        assert read_number(running.port, "athena_store_failures_total") >= 6
        assert read_number(running.port, 'athena_unkept_responses_total{reason="store_down"}') == 2
        state.unlink()
        shutil.move(tmp_path / "away", state)
        after = post(client, previous_response_id=before)
        assert after.status_code == 200, "it is found again without a restart"
        assert after.json()["store"] is True
    assert differing(running.gateway) == {}, "a replay knows what could not be kept"


def _close_files(gateway: GatewayThread) -> None:
    """A file that is open stays usable after it was moved: let the threads of the store open it anew."""
    responses = gateway.gateway.configured.responses
    assert responses is not None
    responses.store.database.close_now()  # type: ignore[attr-defined]


def test_a_store_that_is_switched_off(upstream: RememberingUpstream, tmp_path: Path) -> None:
    with serving(upstream, tmp_path, store=False) as (_, client):
        assert post(client).json()["store"] is False
        refused = post(client, previous_response_id="resp_x")
        assert refused.status_code == 400
        missing = client.get("/responses/resp_x")
        assert (missing.status_code, missing.json()["error"]["code"]) == (404, "unsupported_endpoint")
        assert not (tmp_path / "athena-state" / "responses.sqlite3").exists()


def test_a_postgresql_that_cannot_be_reached(upstream: RememberingUpstream, tmp_path: Path) -> None:
    with serving(upstream, tmp_path, store="postgresql://athena@127.0.0.1:1/secret") as (_, client):
        answer = client.get("/responses/resp_x/input_items")
    assert (answer.status_code, answer.json()["error"]["message"]) == (503, PLAIN)


def test_the_command_says_why(tmp_path: Path) -> None:
    """Also where the store breaks only after it was looked at."""
    file = tmp_path / "athena.yml"
    file.write_text(f"state_dir: {tmp_path / 'state'}\nupstreams: {{u: {{base_url: 'http://127.0.0.1:9/v1'}}}}\n")
    (tmp_path / "state").mkdir()
    with contextlib.closing(sqlite3.connect(tmp_path / "state" / FILE)) as store:
        store.execute(f"PRAGMA user_version = {len(scripts('athena.shells.store'))}")  # it has no table
    result = athena(tmp_path, "store", "check", "--config", str(file))
    assert result.code == 1
    assert f"athena: the store cannot be used (SQLite, {tmp_path / 'state' / FILE})" in result.err
