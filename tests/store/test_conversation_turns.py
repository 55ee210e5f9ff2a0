"""The turns of one conversation through a gateway on each database: when the next one is let in, and what it gets."""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
from websockets.sync.client import connect

from athena.dialects.openai_responses.decode_request import decode_request
from athena.errors import ClientError
from athena.shells.config import StoreSettings
from athena.shells.gateway.responses_state import ResponsePlan, ResponsesState
from athena.shells.migrations import migrate_sqlite, scripts
from athena.shells.store import SqlSteps, Store
from athena.shells.store.store import StoreLimits
from athena.state.errors import StoreDown
from athena.state.values import Conversation
from support.gateway_process import GatewayThread, running_gateway
from support.patience import PATIENCE, until
from support.postgres import PostgresServer
from support.remembering_upstream import RememberingUpstream, config
from support.virtual_clock import run_virtually

from .conftest import emptied


@pytest.fixture(scope="module")
def upstream() -> Iterator[RememberingUpstream]:
    with RememberingUpstream() as running:
        yield running


@pytest.fixture(params=["sqlite", "postgres"])
def settings(request: pytest.FixtureRequest, upstream: RememberingUpstream) -> dict[str, Any]:
    """The configuration of a gateway on an empty store of each kind."""
    store: dict[str, Any] = {"native": False}
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres")
        asyncio.run(emptied(server.url))
        store["url"] = server.url
    return config(upstream, store=store)


@pytest.fixture
def gateway(settings: dict[str, Any], tmp_path: Path) -> Iterator[GatewayThread]:
    with running_gateway(settings, tmp_path) as running:
        yield running


@pytest.fixture
def client(gateway: GatewayThread) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{gateway.url}/v1", timeout=PATIENCE, trust_env=False) as each:
        yield each


def post(client: httpx.Client, path: str, **body: Any) -> dict[str, Any]:
    answer = client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    value: dict[str, Any] = answer.json()
    return value


def said(response: dict[str, Any]) -> str:
    return "".join(part["text"] for item in response["output"] for part in item["content"])


def streamed(client: httpx.Client, **body: Any) -> dict[str, Any]:
    answer = client.post("/responses", json={**body, "stream": True})
    assert answer.status_code == 200, answer.text
    (*_, line) = [line for line in answer.text.split("\n") if line.startswith("data: ")]
    event: dict[str, Any] = json.loads(line[6:])
    assert event["type"] == "response.completed", event
    response: dict[str, Any] = event["response"]
    return response


def store_of(gateway: GatewayThread) -> Any:
    responses = gateway.gateway.configured.responses
    assert responses is not None
    return responses.store


def test_whoever_has_an_answer_may_go_on_at_once(
    gateway: GatewayThread, client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the gateway does after the client has its answer comes too late here."""

    async def too_late(name: str, holder: str) -> None: ...

    monkeypatch.setattr(store_of(gateway), "unlock_conversation", too_late)
    talk = post(client, "/conversations")["id"]
    post(client, "/responses", model="chat/m", input="one", conversation=talk)
    streamed(client, model="chat/m", input="two", conversation=talk)
    post(client, "/responses", model="chat/m", input="three", conversation=talk, store=False)
    queued = post(client, "/responses", model="chat/m", input="four", conversation=talk, background=True)
    while client.get(f"/responses/{queued['id']}").json()["status"] in ("queued", "in_progress"):
        pass
    last = post(client, "/responses", model="chat/m", input="five", conversation=talk)
    assert said(last) == "heard one | two | three | four | five; spoke 4"


def test_a_cancelled_response_lets_the_next_one_in(
    gateway: GatewayThread, client: httpx.Client, upstream: RememberingUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def too_late(name: str, holder: str) -> None: ...

    monkeypatch.setattr(store_of(gateway), "unlock_conversation", too_late)
    talk = post(client, "/conversations")["id"]
    upstream.close_gate()
    try:
        queued = post(client, "/responses", model="chat/m", input="one", conversation=talk, background=True)
        refused = client.post("/responses", json={"model": "chat/m", "input": "two", "conversation": talk})
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "conversation_locked")
        assert post(client, f"/responses/{queued['id']}/cancel")["status"] == "cancelled"
    finally:
        upstream.open_gate()
    assert said(post(client, "/responses", model="chat/m", input="two", conversation=talk)) == "heard two; spoke 0"


def test_another_gateway_deletes_what_is_being_continued(
    gateway: GatewayThread, client: httpx.Client, upstream: RememberingUpstream, settings: dict[str, Any], tmp_path: Path
) -> None:
    first = post(client, "/responses", model="chat/m", input="one")["id"]
    second = post(client, "/responses", model="chat/m", input="two", previous_response_id=first)["id"]
    before = len(upstream.answered)
    with running_gateway(settings, tmp_path) as other, ThreadPoolExecutor() as pool:
        upstream.close_gate()
        try:
            asked = pool.submit(post, client, "/responses", model="chat/m", input="three", previous_response_id=second)
            assert until(lambda: len(upstream.answered) > before)
            for name in (first, second):
                assert httpx.delete(f"{other.url}/v1/responses/{name}", timeout=PATIENCE).status_code == 200
        finally:
            upstream.open_gate()
        third = asked.result(PATIENCE)
        assert said(third) == "heard one | two | three; spoke 2"
        for _ in range(2):
            fourth = post(client, "/responses", model="chat/m", input="four", previous_response_id=third["id"])
            assert said(fourth) == "heard one | two | three | four; spoke 3"


def test_what_is_stored_may_continue_what_only_a_connection_knows(gateway: GatewayThread, client: httpx.Client) -> None:
    names: list[str] = []
    with connect(f"ws://127.0.0.1:{gateway.port}/v1/responses", open_timeout=PATIENCE) as socket:
        for text, stores in (("one", False), ("two", True), ("three", True), ("four", False), ("five", True)):
            body: dict[str, Any] = {"type": "response.create", "model": "chat/m", "input": text, "store": stores}
            if names:
                body["previous_response_id"] = names[-1]
            socket.send(json.dumps(body))
            while (event := json.loads(socket.recv(PATIENCE)))["type"] != "response.completed":
                assert event["type"] != "error", event
            names.append(event["response"]["id"])
    last = post(client, "/responses", model="chat/m", input="six", previous_response_id=names[4])
    assert said(last) == "heard one | two | three | four | five | six; spoke 5"
    forked = post(client, "/responses", model="chat/m", input="6", previous_response_id=names[2])
    assert said(forked) == "heard one | two | three | 6; spoke 3"
    shown = client.get(f"/responses/{names[1]}/input_items?order=asc").json()["data"]
    assert [item["content"][0]["text"] for item in shown] == ["one", "heard one; spoke 0", "two"]


def test_a_request_that_is_refused_holds_no_lock(gateway: GatewayThread, client: httpx.Client) -> None:
    """Nor does one that asks nothing of a model, and names one that there is not."""
    talk = post(client, "/conversations")["id"]
    with connect(f"ws://127.0.0.1:{gateway.port}/v1/responses", open_timeout=PATIENCE) as socket:
        for more in ({"generate": False}, {}):
            body = {"type": "response.create", "model": "nobody", "input": "one", "conversation": talk, **more}
            socket.send(json.dumps(body))
            assert json.loads(socket.recv(PATIENCE))["error"]["code"] == "model_not_found"
    until = time.monotonic() + PATIENCE
    while True:
        answer = client.post("/responses", json={"model": "chat/m", "input": "two", "conversation": talk})
        if answer.status_code != 409 or time.monotonic() > until:
            break
    assert said(answer.json()) == "heard two; spoke 0"


class _Memory:
    """A database in this thread, for an event loop whose clock is a number."""

    def __init__(self) -> None:
        self._connection = sqlite3.connect(":memory:", isolation_level=None)
        migrate_sqlite(self._connection, scripts("athena.shells.store"))

    async def write(self, steps: Callable[[], SqlSteps[Any]]) -> Any:
        running = steps()
        rows: Any = None
        try:
            while True:
                query = running.send(rows)
                sql = re.sub(r"\$(\d+)", r"?\1", query.sql)
                rows = self._connection.execute(sql, query.values).fetchall()
        except StopIteration as end:
            return end.value

    read = write

    async def settle(self) -> None: ...

    async def close(self) -> None:
        self._connection.close()


def test_a_lock_lasts_as_long_as_its_holder() -> None:
    """It is renewed while the answer is made, for hours; where the gateway is killed, or the store is down at the end of the
    answer, it ends by itself."""

    async def main() -> None:
        clock = asyncio.get_running_loop().time
        store = Store(_Memory(), StoreLimits(max_age_s=1e9, max_bytes=10**9), clock=clock)  # type: ignore[arg-type]
        state = ResponsesState(store, StoreSettings(), None, clock=clock)  # type: ignore[arg-type]
        await store.put_conversation(Conversation(id="c", owner="ann", created=0.0), [])

        def plan() -> ResponsePlan:
            body = {"model": "m", "input": "x", "conversation": "c"}
            return state.plan(body, "ann", lambda body, recall=None: decode_request(body, recall=recall))

        async def is_locked() -> bool:
            other = plan()
            try:
                await state.load(other)
            except ClientError as error:
                return error.code == "conversation_locked"
            await other.close()
            return False

        for _ in range(2):
            held = plan()
            await state.load(held)
            for _ in range(100):
                await asyncio.sleep(60)
                assert await is_locked()
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()  # as if the process were killed
            await asyncio.sleep(31)
            assert not await is_locked()

        held = plan()
        await state.load(held)
        whole, store.unlock_conversation = store.unlock_conversation, _down  # type: ignore[method-assign]
        await held.close()
        store.unlock_conversation = whole  # type: ignore[method-assign]
        await asyncio.sleep(31)
        assert not await is_locked()
        await asyncio.sleep(1)
        assert len(asyncio.all_tasks()) == 1
        await store.close()

    run_virtually(main)


async def _down(name: str, holder: str) -> None:
    raise StoreDown("it is down")


def test_a_response_of_a_conversation_is_continued_with_what_was_before_it(
    gateway: GatewayThread, client: httpx.Client
) -> None:
    talk = post(client, "/conversations", items=[{"role": "user", "content": "My name is Ann"}])["id"]
    post(client, "/responses", model="chat/m", input="q1", conversation=talk)
    second = post(client, "/responses", model="chat/m", input="q2", conversation=talk)["id"]
    post(client, f"/conversations/{talk}/items", items=[{"role": "user", "content": "later"}])
    shown = client.get(f"/responses/{second}/input_items?order=asc").json()["data"]
    assert [item["content"][0]["text"] for item in shown] == [
        "My name is Ann", "q1", "heard My name is Ann | q1; spoke 0", "q2",
    ]  # fmt: skip
    heard = "heard My name is Ann | q1 | q2 | q3; spoke 2"
    for name in ("chat", "claude", "chat"):
        third = post(client, "/responses", model=f"{name}/m", input="q3", previous_response_id=second)
        assert said(third) == heard
    fourth = post(client, "/responses", model="chat/m", input="q4", previous_response_id=third["id"])
    assert said(fourth) == "heard My name is Ann | q1 | q2 | q3 | q4; spoke 3"
    background = post(client, "/responses", model="chat/m", input="q5", conversation=talk, background=True)["id"]
    while client.get(f"/responses/{background}").json()["status"] in ("queued", "in_progress"):
        pass
    sixth = post(client, "/responses", model="chat/m", input="q6", previous_response_id=background)
    assert said(sixth) == "heard My name is Ann | q1 | q2 | later | q5 | q6; spoke 3"

    # What is deleted there is not said again, whether or not it is remembered.
    first = client.get(f"/conversations/{talk}/items?order=asc").json()["data"][0]["id"]
    assert client.delete(f"/conversations/{talk}/items/{first}").status_code == 200
    again = post(client, "/responses", model="chat/m", input="q3", previous_response_id=second)
    assert said(again) == "heard q1 | q2 | q3; spoke 2"
    assert client.delete(f"/conversations/{talk}").status_code == 200
    for name in (second, fourth["id"]):
        refused = client.post("/responses", json={"model": "chat/m", "input": "x", "previous_response_id": name})
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "previous_response_not_found")


def test_a_socket_remembers_no_part_of_a_conversation(gateway: GatewayThread, client: httpx.Client) -> None:
    talk = post(client, "/conversations", items=[{"role": "user", "content": "one"}])["id"]
    with connect(f"ws://127.0.0.1:{gateway.port}/v1/responses", open_timeout=PATIENCE) as socket:

        def ask(**body: Any) -> dict[str, Any]:
            socket.send(json.dumps({"type": "response.create", "model": "chat/m", **body}))
            while (event := json.loads(socket.recv(PATIENCE)))["type"] not in ("response.completed", "error"):
                pass
            assert isinstance(event, dict)
            return event

        first = ask(input="two", conversation=talk)["response"]["id"]
        second = ask(input="three", previous_response_id=first)["response"]
        assert said(second) == "heard one | two | three; spoke 1"
        third = ask(input="four", previous_response_id=second["id"])["response"]
        assert said(third) == "heard one | two | three | four; spoke 2"
        unkept = ask(input="five", conversation=talk, store=False)["response"]["id"]
        assert ask(input="six", previous_response_id=unkept)["error"]["code"] == "previous_response_not_found"


def texts(client: httpx.Client, talk: str) -> list[str]:
    items = client.get(f"/conversations/{talk}/items?order=asc&limit=100").json()["data"]
    return [item["content"][0]["text"] for item in items]


def test_no_item_takes_the_id_of_another_one(client: httpx.Client) -> None:
    def item(name: str, text: str) -> dict[str, Any]:
        return {"type": "message", "role": "user", "id": name, "content": text}

    def refused(path: str, place: str, **body: Any) -> None:
        answer = client.post(path, json=body)
        assert answer.status_code == 400, answer.text
        assert answer.json()["error"]["param"] == place
        assert "Duplicate item found with id msg_" in answer.json()["error"]["message"]

    talk = post(client, "/conversations", items=[item("msg_a", "one")])["id"]
    refused("/conversations", "items[1].id", items=[item("msg_x", "x"), item("msg_x", "y")])
    for text in ("two", "one"):
        refused(f"/conversations/{talk}/items", "items[1].id", items=[item("msg_b", "x"), item("msg_a", text)])
    refused(f"/conversations/{talk}/items", "items[1].id", items=[item("msg_b", "x"), item("msg_b", "y")])
    refused("/responses", "input", model="chat/m", conversation=talk, input=[item("msg_a", "two")])
    refused("/responses", "input", model="chat/m", conversation=talk, input=[item("msg_b", "x"), item("msg_b", "y")])
    assert texts(client, talk) == ["one"]
    post(client, "/responses", model="chat/m", conversation=talk, input=[item("msg_b", "two")])
    assert texts(client, talk) == ["one", "two", "heard one | two; spoke 0"]


def test_a_reference_as_an_item_is_what_it_refers_to(client: httpx.Client) -> None:
    first = post(client, "/responses", model="chat/m", input="one")
    reference = {"type": "item_reference", "id": first["output"][0]["id"]}
    talk = post(client, "/conversations", items=[{"role": "user", "content": "zero"}, reference])["id"]
    (zero, _) = client.get(f"/conversations/{talk}/items?order=asc").json()["data"]
    other = post(client, "/conversations")["id"]
    post(client, f"/conversations/{other}/items", items=[{"id": zero["id"]}])
    assert texts(client, talk) == ["zero", "heard one; spoke 0"]
    assert texts(client, other) == ["zero"]
    missing = client.post(f"/conversations/{other}/items", json={"items": [{"type": "item_reference", "id": "msg_none"}]})
    assert missing.status_code == 404
    answer = post(client, "/responses", model="chat/m", conversation=talk, input=[{"id": zero["id"]}])
    assert said(answer) == "heard zero | zero; spoke 1"
