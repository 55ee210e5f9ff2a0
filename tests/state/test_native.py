"""An upstream that keeps Responses itself: its state passes through untouched, and no key gets at another one's."""

from __future__ import annotations

import contextlib
import socket
import time
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from support.gateway_process import GatewayThread, running_gateway
from support.patience import PATIENCE, until
from support.remembering_upstream import RememberingUpstream, config
from support.socket_client import SocketClient
from support.upstream_talk import Talk

from .conftest import KEYS, TOOL, keys
from .test_errors import Api


@pytest.fixture
def apis(gateway: GatewayThread) -> Any:
    both = Api(gateway, "alice"), Api(gateway, "mallory")
    yield both
    for api in both:
        api.close()


def test_native_state(gateway: GatewayThread, upstream: RememberingUpstream, apis: tuple[Api, Api]) -> None:
    alice, mallory = apis
    for stream in (False, True):
        given = {"model": "native/m", "input": "one", "metadata": {"a": "b"}, "stream": stream}
        answer = alice._client.post("/v1/responses", json=given)
        assert answer.status_code == 200
        assert upstream.answered[-1] == {**given, "model": "m"}, "the request goes as it is"
        name = f"resp_{len(upstream.answered)}"
        assert f'"{name}"' in answer.text, "its ids are the upstream's"
        onward = {"model": "native/m", "input": "two", "previous_response_id": name, "background": False}
        status, said = mallory("POST", "/responses", onward)
        assert (status, said["error"]["code"]) == (400, "previous_response_not_found")
        assert alice("POST", "/responses", onward)[0] == 200
        assert upstream.answered[-1]["previous_response_id"] == name
        for method, below in (("GET", ""), ("GET", "/input_items?limit=3"), ("POST", "/cancel"), ("DELETE", "")):
            assert mallory(method, f"/responses/{name}{below}")[0] == 404
            shown = alice(method, f"/responses/{name}{below}")
            assert shown == (
                200,
                {"object": "native", "path": f"/v1/responses/{name}{below}"},
            )
            assert upstream.native[-1] == (method, f"/v1/responses/{name}{below}")
    status, value = alice("POST", "/responses/compact", {"model": "native/m", "input": "x"})
    assert (status, value["path"]) == (200, "/v1/responses/compact")
    status, said = alice("POST", "/responses", {"model": "native/m", "input": "x", "conversation": "conv_of_another"})
    assert status == 404
    # What was begun here is continued here, whatever the upstream.
    first = alice.create(input="one")["id"]
    status, value = alice("POST", "/responses", {"model": "native/m", "input": "two", "previous_response_id": first})
    assert status == 200
    assert value["output"][0]["content"][0]["text"] == "heard one | two; spoke 1"
    assert "previous_response_id" not in upstream.answered[-1]


FOREIGN: dict[str, tuple[dict[str, Any], int, str]] = {
    "previous": ({"previous_response_id": "resp_alice"}, 400, "Previous response with id 'resp_alice' not found."),
    "conversation": ({"conversation": "conv_alice"}, 404, "Conversation with id 'conv_alice' not found."),
    "conversation object": ({"conversation": {"id": "conv_alice"}}, 404, "Conversation with id 'conv_alice' not found."),
    "item of instructions": (
        {"instructions": [{"type": "item_reference", "id": "msg_alice"}]},
        404,
        "Item with id 'msg_alice' not found.",
    ),
    **{
        f"item {item}": ({"input": [item, {"role": "user", "content": "x"}]}, 404, "Item with id 'msg_alice' not found.")
        for item in (
            {"type": "item_reference", "id": "msg_alice"},
            {"id": "msg_alice"},
            {"type": "", "id": "msg_alice"},
            {"type": None, "id": "msg_alice", "role": None},
        )
    },
}
"""What names native state that is not known to be the caller's: the fields, and the error of each."""


@pytest.mark.parametrize("name", FOREIGN)
@pytest.mark.parametrize("path", ["/responses", "/responses/compact"])
def test_no_way_to_anothers_native_state(upstream: RememberingUpstream, apis: tuple[Api, Api], path: str, name: str) -> None:
    fields, status, message = FOREIGN[name]
    before = len(upstream.answered), len(upstream.native)
    got, said = apis[1]("POST", path, {"model": "native/m", "input": "x", **fields})
    assert (got, said["error"]["message"][: len(message)]) == (status, message)
    assert (len(upstream.answered), len(upstream.native)) == before, "the upstream is not asked"


@pytest.mark.parametrize("name", FOREIGN)
def test_no_way_over_a_socket(gateway: GatewayThread, upstream: RememberingUpstream, name: str) -> None:
    fields, status, message = FOREIGN[name]
    before = len(upstream.answered)
    with SocketClient(gateway.port, "/v1/responses", f"authorization: Bearer {KEYS['mallory']}") as client:
        client.say({"type": "response.create", "model": "native/m", "input": "x", **fields})
        event = client.event()
    assert (event["status"], event["error"]["message"][: len(message)]) == (status, message)
    assert len(upstream.answered) == before


@pytest.mark.parametrize("stream", [False, True])
def test_own_native_items_can_be_referred_to(upstream: RememberingUpstream, apis: tuple[Api, Api], stream: bool) -> None:
    """As the AI SDK does with what is stored: reasoning, calls and messages of the answers before go by reference."""
    alice, mallory = apis
    asked = {"model": "native/m", "input": "use the tool word", "tools": [TOOL], "stream": stream}
    # What a client says is no proof: it is repeated in the answer.
    answer = alice._client.post("/v1/responses", json={**asked, "metadata": {"id": "msg_bobs"}}).text
    number = len(upstream.answered)
    names = [f"rs_{number}", f"msg_o{number}", f"fc_call_{number}"]
    assert all(f'"{name}"' in answer for name in names)
    result = {"type": "function_call_output", "call_id": f"call_{number}", "output": "found"}
    given = {"model": "native/m", "input": [*({"type": "item_reference", "id": name} for name in names), result]}
    assert alice("POST", "/responses", given)[0] == 200
    assert upstream.answered[-1]["input"] == given["input"]
    assert alice("POST", "/responses/compact", given)[0] == 200
    for name in names:
        status, said = mallory("POST", "/responses", {**given, "input": [{"type": "item_reference", "id": name}]})
        assert (status, said["error"]["message"].partition(".")[0]) == (404, f"Item with id '{name}' not found")
    for name in ("msg_bobs", f"resp_{number + 1000}", "msg_none"):
        assert alice("POST", "/responses", {**given, "input": [{"id": names[1]}, {"id": name}]})[0] == 404
    assert alice("POST", "/responses/compact", {"model": "native/m", "previous_response_id": [names[1]]})[0] == 400


def test_a_gateway_key_in_the_query_stays_here(gateway: GatewayThread, upstream: RememberingUpstream) -> None:
    with httpx.Client(base_url=f"{gateway.url}/v1", timeout=PATIENCE, trust_env=False) as client:
        key = f"key={KEYS['alice']}"
        name = client.post(f"/responses?{key}", json={"model": "native/m", "input": "one"}).json()["id"]
        assert client.get(f"/responses/{name}/input_items?limit=3&{key}&order=asc").status_code == 200
        assert upstream.native[-1] == ("GET", f"/v1/responses/{name}/input_items?limit=3&order=asc")
        assert client.get(f"/responses/{name}?{key}").status_code == 200
        assert upstream.native[-1] == ("GET", f"/v1/responses/{name}")


class Flooding(RememberingUpstream):
    """Its stored responses have long streams."""

    sent = 0

    async def answer_elsewhere(self, talk: Talk) -> None:
        await talk.head(kind="text/event-stream")
        for _ in range(1000):
            await talk.send(b": %b\n\n" % (b"x" * 65536))
            self.sent += 1


def test_a_client_that_does_not_read_stops_the_stream_of_what_an_upstream_keeps(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        upstream = stack.enter_context(Flooding())
        value = config(upstream)
        value["upstreams"] = {"native": value["upstreams"]["native"]}  # the only one that can have it
        value["models"] = [{"match": "*", "use": "native/*"}]
        running, client = stack.enter_context(running_gateway(value, tmp_path)), stack.enter_context(socket.socket())
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", running.port))
        client.sendall(b"GET /v1/responses/resp_1?stream=true HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")

        def rests() -> bool:
            before = upstream.sent
            time.sleep(0.3)
            return before == upstream.sent > 0

        assert until(rests)
        assert upstream.sent < 1000, "not all of it waits for the client"


def test_own_native_state_can_be_compacted(apis: tuple[Api, Api]) -> None:
    alice, mallory = apis
    _, made = alice("POST", "/responses", {"model": "native/m", "input": "one"})
    asked = {"model": "native/m", "previous_response_id": made["id"]}
    assert alice("POST", "/responses/compact", asked)[0] == 200
    status, said = mallory("POST", "/responses/compact", asked)
    assert (status, said["error"]["code"]) == (400, "previous_response_not_found")


@pytest.mark.parametrize("name", FOREIGN)
@pytest.mark.parametrize("has_keys", [False, True])
def test_only_keys_are_kept_apart(upstream: RememberingUpstream, tmp_path: Path, name: str, has_keys: bool) -> None:
    """A gateway of one person passes everything on; one with keys that notes nothing cannot tell whose it is."""
    fields, status, _ = FOREIGN[name]
    settings: dict[str, Any] = {"keys": keys(), "store": False} if has_keys else {}
    before = len(upstream.answered)
    with running_gateway(config(upstream, **settings), tmp_path) as running:
        answer = httpx.post(
            f"{running.url}/v1/responses",
            json={"model": "native/m", "input": "x", **fields},
            headers={"authorization": f"Bearer {KEYS['mallory']}"},
            timeout=PATIENCE,
            trust_env=False,
        )
    assert answer.status_code == (status if has_keys else 200), answer.text
    assert len(upstream.answered) - before == (0 if has_keys else 1)


def test_no_way_beside_what_is_kept_here(upstream: RememberingUpstream, apis: tuple[Api, Api]) -> None:
    """References in instructions are nothing that this gateway resolves, so they are not sent on either."""
    mallory = apis[1]
    own = mallory.create(input="one")["id"]
    before = len(upstream.answered)
    for fields in ({"previous_response_id": own}, {"input": [{"type": "item_reference", "id": f"msg_{own[5:]}i0"}]}):
        asked = {"model": "native/m", "input": "x", "instructions": [{"id": "msg_alice"}], **fields}
        assert mallory("POST", "/responses", asked)[0] == 404
    assert len(upstream.answered) == before
