"""Counting the tokens of a request that continues something: the history counts, too, and errors are those of the request."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.gateway_process import GatewayThread, running_gateway
from support.remembering_upstream import RememberingUpstream, config

from .conftest import keys
from .test_errors import GONE, Api

PATH = "/responses/input_tokens"
LONG = "one two three " * 100


@pytest.fixture
def alice(gateway: GatewayThread) -> Iterator[Api]:
    api = Api(gateway, "alice")
    yield api
    api.close()


@pytest.fixture
def mallory(gateway: GatewayThread) -> Iterator[Api]:
    api = Api(gateway, "mallory")
    yield api
    api.close()


def count(api: Api, **body: Any) -> int:
    status, answer = api("POST", PATH, {"model": "chat/model", "input": "x", **body})
    assert status == 200, answer
    return int(answer["input_tokens"])


def test_the_history_is_counted(alice: Api) -> None:
    made = alice.create(input=LONG)
    said = made["output"][0]
    whole = [{"role": "user", "content": LONG}, {"role": "assistant", "content": said["content"][0]["text"]}]
    asked = {"role": "user", "content": "x"}
    expected = count(alice, input=[*whole, asked])
    assert expected > count(alice) + len(LONG) // 10
    assert count(alice, previous_response_id=made["id"]) == expected
    reference = {"type": "item_reference", "id": said["id"]}
    assert count(alice, input=[whole[0], reference, asked]) == expected


def test_a_conversation_is_counted_also_while_a_response_is_made(alice: Api, upstream: RememberingUpstream) -> None:
    _, made = alice("POST", "/conversations", {"items": [{"role": "user", "content": LONG}]})
    asked = {"role": "user", "content": "x"}
    expected = count(alice, input=[{"role": "user", "content": LONG}, asked])
    upstream.close_gate()
    try:
        alice.create(input="slow", conversation=made["id"], background=True)
        for conversation in (made["id"], {"id": made["id"]}):
            assert count(alice, conversation=conversation) == expected
    finally:
        upstream.open_gate()


def test_the_errors_are_those_of_the_request(alice: Api, mallory: Api) -> None:
    made = alice.create(input="one")
    _, talk = alice("POST", "/conversations", {})
    wrong: list[dict[str, Any]] = [
        {"previous_response_id": GONE},
        {"previous_response_id": made["id"]},
        {"previous_response_id": "resp_of_another_server"},
        {"previous_response_id": 5},
        {"conversation": "conv_x"},
        {"conversation": talk["id"]},
        {"conversation": {}},
        {"previous_response_id": made["id"], "conversation": talk["id"]},
        {"input": [{"type": "item_reference", "id": made["output"][0]["id"]}]},
    ]
    for fields in wrong:
        for model in ("chat/model", "native/m"):
            body = {"model": model, "input": "x", **fields}
            status, said = mallory("POST", PATH, body)
            assert 400 <= status < 500, (fields, said)
            assert (status, said) == mallory("POST", "/responses", body), (model, fields)


def test_what_an_upstream_keeps_is_counted_there(alice: Api, mallory: Api, upstream: RememberingUpstream) -> None:
    _, made = alice("POST", "/responses", {"model": "native/m", "input": "one"})
    asked = {"model": "native/m", "input": "x", "previous_response_id": made["id"]}
    status, answer = alice("POST", PATH, asked)
    assert (status, answer) == (200, {"object": "native", "path": "/v1/responses/input_tokens"})
    status, answer = mallory("POST", PATH, asked)
    assert (status, answer["error"]["code"]) == (400, "previous_response_not_found")
    assert count(alice, model="native/m") == count(alice), "what continues nothing is counted here"


def test_nothing_is_counted_that_nobody_keeps(upstream: RememberingUpstream, tmp_path: Path) -> None:
    with running_gateway(config(upstream, store=False, keys=keys()), tmp_path) as running:
        api = Api(running, "alice")
        status, said = api("POST", PATH, {"model": "chat/model", "input": "x", "previous_response_id": GONE})
        assert (status, said["error"]["code"]) == (400, "previous_response_not_found")
        assert count(api) > 0
        api.close()
