"""Ids with a NUL, which PostgreSQL cannot hold: the same answers as from SQLite, and never a store that seems to be down."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import httpx2 as httpx
import pytest

from support.gateway_process import running_gateway
from support.patience import PATIENCE
from support.postgres import PostgresServer
from support.remembering_upstream import RememberingUpstream, config

from .conftest import emptied

NUL = "msg_\0"


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def client(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    settings: dict[str, Any] = {}
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres")
        asyncio.run(emptied(server.url))
        settings["store"] = server.url
    with (
        RememberingUpstream() as upstream,
        running_gateway(config(upstream, **settings), tmp_path_factory.mktemp("gateway")) as running,
        httpx.Client(base_url=f"{running.url}/v1", timeout=PATIENCE, trust_env=False) as client,
    ):
        yield client


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/responses/resp_%00x/input_items", 404),
        ("GET", "/conversations/%00", 404),
        ("POST", "/conversations/%00", 404),
        ("DELETE", "/conversations/%00", 404),
        ("GET", "/conversations/%00/items", 404),
        ("GET", "/conversations/{conversation}/items/%00", 404),
        ("DELETE", "/conversations/{conversation}/items/%00", 404),
        ("GET", "/conversations/{conversation}/items?after=%00", 400),
        ("GET", "/batches/%00", 404),
        ("POST", "/batches/%00/cancel", 404),
        ("GET", "/batches?after=%00", 400),
        ("GET", "/messages/batches/%00", 404),
        ("DELETE", "/messages/batches/%00", 404),
        ("GET", "/messages/batches?after_id=%00", 400),
        ("GET", "/messages/batches?before_id=%00", 400),
        ("GET", "/files/%00", 404),
        ("DELETE", "/files/%00", 404),
        ("GET", "/files/%00/content", 404),
        ("GET", "/files?after=%00", 400),
    ],
)
def test_nothing_has_such_an_id(client: httpx.Client, method: str, path: str, status: int) -> None:
    conversation = client.post("/conversations", json={}).json()["id"]
    answer = client.request(
        method, path.format(conversation=conversation), content=b'{"metadata": {}}' if method == "POST" else b""
    )
    assert answer.status_code == status, answer.text


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"previous_response_id": "resp_\0"}, 400),
        ({"conversation": "conv_\0"}, 404),
        ({"input": [{"type": "item_reference", "id": NUL}]}, 404),
    ],
)
def test_nothing_is_continued_by_such_an_id(client: httpx.Client, fields: dict[str, Any], status: int) -> None:
    answer = client.post("/responses", json={"model": "chat/model", "input": "x", **fields})
    assert answer.status_code == status, answer.text


@pytest.mark.parametrize("background", [False, True])
def test_an_item_of_a_conversation_cannot_have_such_an_id(client: httpx.Client, background: bool) -> None:
    """The request is refused before a model is asked: its answer could not be kept."""
    conversation = client.post("/conversations", json={}).json()["id"]
    said = [{"role": "user", "content": "one"}, {"role": "user", "content": "two", "id": NUL}]
    asked = {"model": "chat/model", "conversation": conversation, "background": background}
    answer = client.post("/responses", json={**asked, "input": said})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "input[1].id")
    answer = client.post("/responses", json={**asked, "background": False, "input": "three"})
    assert answer.status_code == 200, "the conversation is not locked"
    answer = client.post(f"/conversations/{conversation}/items", json={"items": said})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "items[1].id")
    answer = client.post("/conversations", json={"items": said})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "items[1].id")


def test_a_line_of_a_batch_cannot_have_such_an_id(client: httpx.Client) -> None:
    answer = client.post("/batches", json={"input_file_id": "file-\0", "endpoint": "/v1/responses", "completion_window": "24h"})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "input_file_id")
    line = {"custom_id": "a\0", "method": "POST", "url": "/v1/responses", "body": {"model": "chat/model", "input": "x"}}
    file = client.post("/files", data={"purpose": "batch"}, files={"file": ("a.jsonl", json.dumps(line).encode())}).json()
    asked = {"input_file_id": file["id"], "endpoint": "/v1/responses", "completion_window": "24h"}
    made = client.post("/batches", json=asked)
    assert (made.status_code, made.json()["status"]) == (200, "failed"), made.text
    (problem,) = made.json()["errors"]["data"]
    assert (problem["code"], problem["line"], problem["param"]) == ("invalid_value", 1, "custom_id")
