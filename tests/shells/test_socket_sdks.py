"""The official SDK's `responses.connect`, and the `websockets` package, over every upstream dialect: tool loops, lanes, forks,
steering, warm-up, and what is not found."""

from __future__ import annotations

import asyncio
import json
import os
import ssl
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.resources.responses.responses import AsyncResponsesConnection, ResponsesConnection
from openai.types.responses import Response
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from support.certificates import Authority
from support.gateway_process import GatewayProcess, GatewayThread, running_gateway
from support.held_upstream import HeldUpstream
from support.patience import FOR_EVER, PATIENCE
from support.replays import differing
from support.session_upstream import QUESTION, STEPS, SessionUpstream

DIALECTS = {"chat": "openai_chat", "anthropic": "anthropic_messages", "responses": "openai_responses", "gemini": "gemini"}
TURNS = 6 if os.environ.get("ATHENA_SOAK") else 4
PLACE = "notes/secret.txt"
WORD = "SECRET-0123456789ab"
TOOLS: Any = [
    {
        "type": "function",
        "name": "read_file",
        "description": "Read a file.",
        "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
        "strict": False,
    }
]
ORPHAN: Any = [{"type": "function_call_output", "call_id": "call_of_nobody", "output": "x"}]
ENDS = ("response.completed", "response.incomplete", "response.failed", "error")


@pytest.fixture(scope="module")
def model() -> Iterator[SessionUpstream]:
    with SessionUpstream() as running:
        yield running


def config(model: SessionUpstream, **more: Any) -> dict[str, Any]:
    upstreams = {
        name: {"base_url": model.url if name == "gemini" else f"{model.url}/v1", "dialect": dialect}
        for name, dialect in DIALECTS.items()
    }
    return {
        "upstreams": upstreams,
        "models": [{"match": f"{name}/*", "use": f"{name}/*"} for name in DIALECTS],
        "envelope_key": "test",
        "timeouts": dict.fromkeys(("client_body_s", "client_write_s"), FOR_EVER),
        **more,
    }


@pytest.fixture(scope="module")
def gateway(model: SessionUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayThread]:
    with running_gateway(config(model), tmp_path_factory.mktemp("gateway")) as running:
        yield running


def client_of(gateway: GatewayThread | GatewayProcess) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="none", max_retries=0, timeout=PATIENCE)


def finished(connection: ResponsesConnection, lane: str | None = None) -> Response:
    """The response of the lane that ends next; a failure is raised."""
    for event in connection:
        if event.type in ENDS and (lane is None or event.stream_id == lane):
            assert event.type == "response.completed", event
            return event.response
    raise AssertionError("the connection ended")


def results(response: Response) -> list[Any]:
    return [
        {"type": "function_call_output", "call_id": item.call_id, "output": f"the word is {WORD}"}
        for item in response.output
        if item.type == "function_call"
    ]


@pytest.mark.parametrize("store", [False, True])
@pytest.mark.parametrize("name", DIALECTS)
def test_a_tool_loop_of_which_only_the_new_items_are_sent(
    gateway: GatewayThread, model: SessionUpstream, name: str, store: bool
) -> None:
    asked: dict[str, Any] = {"model": f"{name}/m", "tools": TOOLS, "store": store}
    with client_of(gateway) as client, client.responses.connect() as connection:
        connection.response.create(**asked, generate=False, instructions="Read files.", input=[])
        response = finished(connection)
        assert response.output == []
        items: Any = [{"role": "user", "content": QUESTION.format(path=PLACE)}]
        for _ in range(STEPS + 1):
            before = response.id
            connection.response.create(**asked, previous_response_id=before, input=items)
            response = finished(connection)
            assert response.previous_response_id == before
            assert response.to_dict()["store"] is store
            items = results(response)
        assert response.output_text == f"The word is {WORD}."
        assert not items
        if store:
            again = client.responses.create(**asked, previous_response_id=response.id, input="And?")
            assert again.previous_response_id == response.id
    assert not model.faults


@pytest.mark.parametrize("name", DIALECTS)
def test_the_async_client_runs_lanes_side_by_side(gateway: GatewayThread, model: SessionUpstream, name: str) -> None:
    async def run() -> dict[str, str]:
        asking = openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="none", timeout=PATIENCE)
        async with asking as client, client.responses.connect() as connection:
            return await _lanes(connection, f"{name}/m", 4)

    assert asyncio.run(run()) == {f"lane-{number}": f"The word is {WORD}." for number in range(4)}
    assert not model.faults


async def _lanes(connection: AsyncResponsesConnection, model: str, count: int) -> dict[str, str]:
    """The same question on several lanes; one reader for all of them."""
    asked: dict[str, Any] = {"model": model, "tools": TOOLS, "store": False}
    for number in range(count):
        await connection.response.create(**asked, stream_id=f"lane-{number}", input=QUESTION.format(path=PLACE))
    told: dict[str, str] = {}
    async for event in connection:
        assert event.type not in ("error", "response.failed"), event
        lane = getattr(event, "stream_id", None)
        assert lane is not None
        if event.type != "response.completed":
            continue
        items = results(event.response)
        if items:
            await connection.response.create(**asked, stream_id=lane, previous_response_id=event.response.id, input=items)
            continue
        told[lane] = event.response.output_text
        if len(told) == count:
            return told
    raise AssertionError("the connection ended")


def test_a_failed_continuation_is_forgotten_and_a_fork_is_not(gateway: GatewayThread) -> None:
    asked: dict[str, Any] = {"model": "chat/m", "store": False}
    with client_of(gateway) as client, client.responses.connect() as connection:
        connection.response.create(**asked, stream_id="a", input="One.")
        first = finished(connection, "a")
        connection.response.create(**asked, stream_id="b", previous_response_id=first.id, input=ORPHAN)
        assert next(iter(connection)).type == "error"
        connection.response.create(**asked, stream_id="a", previous_response_id=first.id, input="Two.")
        second = finished(connection, "a")
        connection.response.create(**asked, stream_id="a", previous_response_id=second.id, input=ORPHAN)
        assert next(iter(connection)).type == "error"
        for name in (first.id, second.id, "resp_of_nobody"):
            connection.response.create(**asked, stream_id="a", previous_response_id=name, input="Three.")
            error: Any = next(iter(connection))
            assert (error.type, error.status, error.error.code) == ("error", 400, "previous_response_not_found")
            assert error.error.param == "previous_response_id"
            assert error.stream_id == "a"


def test_another_connection_knows_only_what_is_stored(gateway: GatewayThread) -> None:
    with client_of(gateway) as client:
        with client.responses.connect() as connection:
            connection.response.create(model="gemini/m", store=True, input="Kept.")
            kept = finished(connection)
            connection.response.create(model="gemini/m", store=False, input="Not kept.")
            gone = finished(connection)
        assert client.responses.retrieve(kept.id).id == kept.id
        with client.responses.connect() as connection:
            connection.response.create(model="gemini/m", previous_response_id=kept.id, input="And?")
            finished(connection)
            connection.response.create(model="gemini/m", previous_response_id=gone.id, input="And?")
            error: Any = next(iter(connection))
            assert error.error.code == "previous_response_not_found"


def test_without_a_store_a_connection_still_remembers(model: SessionUpstream, tmp_path: Path) -> None:
    with running_gateway(config(model, store=False), tmp_path) as gateway, client_of(gateway) as client:
        for name in DIALECTS:
            with client.responses.connect() as connection:
                connection.response.create(model=f"{name}/m", tools=TOOLS, input=QUESTION.format(path=PLACE))
                response = finished(connection)
                connection.response.create(
                    model=f"{name}/m", tools=TOOLS, previous_response_id=response.id, input=results(response)
                )
                assert results(finished(connection))
    assert not model.faults
    assert differing(gateway.gateway) == {}, "what the connection remembers is recorded with the request"


def test_steering_an_answer_that_is_under_way(tmp_path: Path) -> None:
    with HeldUpstream() as upstream:
        value = {
            "upstreams": {"one": {"base_url": upstream.url, "dialect": "openai_chat"}},
            "models": [{"match": "*", "use": "one/*"}],
            "envelope_key": "test",
        }
        with (
            running_gateway(value, tmp_path) as gateway,
            client_of(gateway) as client,
            client.responses.connect() as connection,
        ):
            connection.response.create(model="m", stream_id="a", store=False, input="Write a poem.")
            events = iter(connection)
            created: Any = next(events)
            assert created.type == "response.created"
            connection.response.steer(previous_response_id=created.response.id, input="Make it short.")
            accepted: Any = next(event for event in events if event.type.startswith("response.steer"))
            assert accepted.type == "response.steer.accepted"
            assert accepted.stream_id == "a"
            upstream.finish()
            follower: Any = next(event for event in events if event.type == "response.created")
            assert follower.response.previous_response_id == created.response.id
            assert upstream.wait_for(lambda: upstream.opened == 2)
            upstream.finish()
            assert finished(connection).id == follower.response.id
            connection.response.steer(previous_response_id=follower.response.id, input="Too late.")
            failed: Any = next(events)
            assert (failed.type, failed.error.code) == ("response.steer.failed", "response_already_completed")
            said = [message["content"] for message in upstream.bodies[-1]["messages"]]
            assert said == ["Write a poem.", "one", "Make it short."]


def test_the_websockets_package_over_two_processes_and_tls(model: SessionUpstream, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    cert, key = authority.issue("127.0.0.1", "gateway")
    gateway = GatewayProcess(config(model, workers=2, tls={"cert": str(cert), "key": str(key)}), tmp_path)
    open_socket = partial(
        connect,
        f"wss://127.0.0.1:{gateway.port}/v1/responses",
        open_timeout=PATIENCE,
        ssl=ssl.create_default_context(cafile=authority.ca_file),
    )
    try:
        ids: list[str] = []
        for number in range(TURNS):
            with open_socket() as socket:
                message: dict[str, Any] = {"type": "response.create", "model": "chat/m", "store": True, "input": "Hello."}
                if ids:
                    message["previous_response_id"] = ids[-1]
                socket.send(json.dumps(message))
                while (event := json.loads(socket.recv(PATIENCE)))["type"] != "response.completed":
                    assert event["type"] != "error", event
                ids.append(event["response"]["id"])
                assert len(model.requests[-1][1]["messages"]) == 2 * number + 1
        with open_socket() as socket:
            gateway.process.terminate()
            with pytest.raises(ConnectionClosed) as closed:
                socket.recv(PATIENCE)
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1001
    finally:
        gateway.stop()
