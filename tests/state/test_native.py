"""An upstream that keeps Responses itself: its state passes through untouched, and no key gets at another one's."""

from __future__ import annotations

from typing import Any

import pytest

from support.gateway_process import GatewayThread
from support.remembering_upstream import RememberingUpstream

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
