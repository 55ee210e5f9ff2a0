"""The published compliance list of Open Responses over HTTP and WebSocket, on each of four upstream dialects.

Every answer and every event of a stream is valid, streamed and whole; what the list asserts beyond that stands in each row.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx2 as httpx
import pytest

from support.gateway_process import GatewayThread
from support.open_responses import JUDGES, problems
from support.patience import PATIENCE
from support.remembering_upstream import UPSTREAMS
from support.socket_client import SocketClient

from .conftest import KEYS, TOOL

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
IMAGE = {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}"}
ROWS: dict[str, dict[str, Any]] = {
    "basic-response": {"input": "Say hello."},
    "assistant-phase": {
        "input": [
            {"role": "user", "content": "one"},
            {"role": "assistant", "content": "let me see", "phase": "commentary"},
            {"role": "assistant", "content": "it is one", "phase": "final_answer"},
            {"role": "user", "content": "two"},
        ]
    },
    "system-prompt": {"input": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]},
    "tool-calling": {"input": "use the tool one", "tools": [TOOL]},
    "image-input": {"input": [{"role": "user", "content": [{"type": "input_text", "text": "What is it?"}, IMAGE]}]},
    "multi-turn": {
        "input": [
            {"role": "user", "content": "I am Ann."},
            {"role": "assistant", "content": "Hello Ann."},
            {"role": "user", "content": "Who am I?"},
        ]
    },
}


@pytest.fixture(scope="module")
def client(gateway: GatewayThread) -> Iterator[httpx.Client]:
    headers = {"authorization": f"Bearer {KEYS['alice']}"}
    with httpx.Client(base_url=f"{gateway.url}/v1", headers=headers, timeout=PATIENCE, trust_env=False) as made:
        yield made


def valid(value: dict[str, Any]) -> dict[str, Any]:
    for judge in JUDGES:
        assert problems(value, judge) == [], (judge, value)
    return value


@pytest.mark.parametrize("name", UPSTREAMS)
def test_the_list(client: httpx.Client, name: str) -> None:
    model = f"{name}/model"
    for row, body in ROWS.items():
        whole = valid(client.post("/responses", json={"model": model, **body}).json())
        assert (row, whole["status"]) == (row, "completed"), whole
        assert whole["output"]
        if row == "tool-calling":
            assert any(item["type"] == "function_call" for item in whole["output"])
        # streaming-response, and the same for every other row.
        stream = client.post("/responses", json={"model": model, "stream": True, **body})
        events = [json.loads(line[6:]) for line in stream.text.split("\n") if line.startswith("data: ")]
        for event in events:
            valid(event)
        assert events[-1]["type"] == "response.completed"
        final = valid(events[-1]["response"])
        assert sorted(item["type"] for item in final["output"]) == sorted(item["type"] for item in whole["output"])
        stored = client.get(f"/responses/{final['id']}").json()
        assert valid(stored) == final, "what is stored is what was sent"
    # compact-response and compact-missing-model
    compacted = client.post("/responses/compact", json={"model": model, "input": "Hi", "prompt_cache_key": "k"})
    value = valid(compacted.json())
    assert value["object"] == "response.compaction"
    assert any(item["type"] == "compaction" for item in value["output"])
    assert client.post("/responses/compact", json={"input": "Hi"}).status_code in (400, 422)


class Socket:
    """One connection, on which every event is judged."""

    def __init__(self, gateway: GatewayThread, name: str) -> None:
        self.client = SocketClient(gateway.port, "/v1/responses", f"authorization: Bearer {KEYS['alice']}")
        self._name = name

    def ask(self, given: Any, **fields: Any) -> dict[str, Any]:
        """The response of a request, or its error."""
        body = {"type": "response.create", "model": f"{self._name}/model", "store": False, "input": given, **fields}
        self.client.say(body)
        while True:
            event = self.client.event()
            if event["type"] == "error":
                error: dict[str, Any] = event["error"]
                return error
            valid(event)
            if event["type"] in ("response.completed", "response.failed", "response.incomplete"):
                response: dict[str, Any] = event["response"]
                return valid(response)


@pytest.mark.parametrize("name", UPSTREAMS)
def test_the_list_over_sockets(client: httpx.Client, gateway: GatewayThread, name: str) -> None:
    one = Socket(gateway, name)
    with one.client:
        # websocket-response and websocket-sequential-responses
        assert one.ask("Say hello.", store=True)["status"] == "completed"
        first, second = one.ask("one"), one.ask("two")
        assert (first["status"], second["status"]) == ("completed", "completed")
        # websocket-continuation
        third = one.ask("three", previous_response_id=second["id"])
        assert (third["status"], third["previous_response_id"]) == ("completed", second["id"])
        # websocket-previous-response-not-found
        assert one.ask("x", previous_response_id="resp_invented")["code"] == "previous_response_not_found"
        # websocket-failed-continuation-evicts-cache
        fourth = one.ask("four")
        orphan = [{"type": "function_call_output", "call_id": "call_of_nobody", "output": "x"}]
        assert one.ask(orphan, previous_response_id=fourth["id"])["type"] == "invalid_request_error"
        assert one.ask("on", previous_response_id=fourth["id"])["code"] == "previous_response_not_found"
        fifth = one.ask("five")
        # websocket-compact-new-chain
        asked = {"model": f"{name}/model", "input": [{"role": "user", "content": "Remember seven."}]}
        compacted = valid(client.post("/responses/compact", json=asked).json())
        going_on = [*compacted["output"], {"role": "user", "content": "And now?"}]
        assert one.ask(going_on)["status"] == "completed"
    # websocket-reconnect-store-false-recovery
    two = Socket(gateway, name)
    with two.client:
        assert two.ask("on", previous_response_id=fifth["id"])["code"] == "previous_response_not_found"
        assert two.ask("anew")["status"] == "completed"


def test_phases_of_output_messages() -> None:
    """response-output-phase-schema: no request, a response whose messages have phases is a valid one."""
    part = {"type": "output_text", "text": "x", "annotations": [], "logprobs": []}
    for phase in ("commentary", "final_answer"):
        item = {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "content": [part], "phase": phase}
        event = {"type": "response.output_item.done", "sequence_number": 1, "output_index": 0, "item": item}
        valid(event)
