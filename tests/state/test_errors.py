"""What is wrong with a reference to stored state, in OpenAI's own words, and that no key reads what another one made."""

from __future__ import annotations

from typing import Any, get_args

import httpx2 as httpx
import pytest
from openai.types.conversations import ConversationItem, Message

from athena.dialects.openai_responses.vocabulary import CONVERSATION_ITEMS, MESSAGE_ROLES
from support.gateway_process import GatewayThread
from support.patience import PATIENCE

from .conftest import KEYS, TOOL

GONE = "resp_ath" + "0" * 40


class Api:
    """Plain requests with one key."""

    def __init__(self, gateway: GatewayThread, who: str) -> None:
        self._client = httpx.Client(
            base_url=gateway.url, headers={"authorization": f"Bearer {KEYS[who]}"}, timeout=PATIENCE, trust_env=False
        )

    def __call__(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        given = {} if body is None else {"json": body}
        answer = self._client.request(method, f"/v1{path}", **given)
        return answer.status_code, answer.json()

    def create(self, **body: Any) -> Any:
        status, answer = self("POST", "/responses", {"model": "chat/model", **body})
        assert status == 200, answer
        return answer

    def close(self) -> None:
        self._client.close()


@pytest.fixture(scope="module")
def alice(gateway: GatewayThread) -> Any:
    api = Api(gateway, "alice")
    yield api
    api.close()


@pytest.fixture(scope="module")
def mallory(gateway: GatewayThread) -> Any:
    api = Api(gateway, "mallory")
    yield api
    api.close()


def error(message: str, code: str | None, param: str | None) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error", "param": param, "code": code}}


def not_found(name: str) -> tuple[int, Any]:
    return 400, error(f"Previous response with id '{name}' not found.", "previous_response_not_found", "previous_response_id")


def test_bad_references(alice: Api, mallory: Api) -> None:
    def ask(api: Api = alice, **body: Any) -> tuple[int, Any]:
        return api("POST", "/responses", {"model": "chat/model", "input": "x", **body})

    first = alice.create(input="one")["id"]
    second = alice.create(input="two", previous_response_id=first)["id"]
    # Unknown, foreign, invented by another server, deleted, not stored.
    assert ask(previous_response_id=GONE) == not_found(GONE)
    assert ask(previous_response_id="resp_68af4030baa4") == not_found("resp_68af4030baa4")
    assert ask(mallory, previous_response_id=second) == not_found(second)
    assert alice("DELETE", f"/responses/{first}") == (200, {"id": first, "object": "response", "deleted": True})
    assert ask(previous_response_id=first) == not_found(first)
    assert alice("GET", f"/responses/{first}") == (404, error(f"Response with id '{first}' not found.", None, None))
    assert alice("DELETE", f"/responses/{first}") == (404, error(f"Response with id '{first}' not found.", None, None))
    third = alice.create(input="three", previous_response_id=second)
    assert third["output"][0]["content"][0]["text"].startswith("heard one | two")
    unkept = alice.create(input="one", store=False)
    assert unkept["store"] is False
    assert ask(previous_response_id=unkept["id"]) == not_found(unkept["id"])
    # What excludes each other, and what is no id.
    status, answer = ask(previous_response_id=second, conversation="conv_1")
    assert (status, answer["error"]["code"]) == (400, "mutually_exclusive_parameters")
    bad: list[dict[str, Any]] = [{"previous_response_id": 7}, {"conversation": {}}, {"conversation": 7}, {"store": "yes"}]
    for body in (*bad, {"background": 1}):
        assert ask(**body)[0] == 400, body
    assert ask(background=True, store=False)[0] == 400
    missing = "conv_ath" + "1" * 40
    assert ask(conversation=missing) == (404, error(f"Conversation with id '{missing}' not found.", None, None))
    status, answer = ask(input=[{"type": "item_reference", "id": "msg_1"}])
    assert (status, answer["error"]["code"], answer["error"]["param"]) == (404, None, "input")
    assert answer["error"]["message"].startswith("Item with id 'msg_1' not found.")


def test_calls_and_results_that_do_not_meet(alice: Api) -> None:
    first = alice.create(input="use the tool one", tools=[TOOL])
    call = next(item for item in first["output"] if item["type"] == "function_call")["call_id"]
    status, answer = alice(
        "POST", "/responses", {"model": "chat/model", "input": "never mind", "previous_response_id": first["id"]}
    )
    assert (status, answer) == (400, error(f"No tool output found for function call {call}.", None, "input"))
    orphan = {"type": "function_call_output", "call_id": "call_x", "output": "y"}
    status, answer = alice(
        "POST", "/responses", {"model": "chat/model", "input": [orphan], "previous_response_id": first["id"]}
    )
    assert status == 400
    assert answer["error"]["message"] == "No tool call found for function call output with call_id call_x."
    result = {"type": "function_call_output", "call_id": call, "output": "found"}
    # Two continuations of one response: both are answered, and each goes on by itself.
    ways = [alice.create(input=[result], previous_response_id=first["id"], tools=[TOOL]) for _ in range(2)]
    assert ways[0]["id"] != ways[1]["id"]
    for way in ways:
        alice.create(input="on", previous_response_id=way["id"])


def test_wrong_methods_pages_and_bodies(alice: Api) -> None:
    first = alice.create(input="one")["id"]
    assert alice("POST", f"/responses/{first}", {})[0] == 405
    for query in ("limit=0", "limit=101", "limit=x", "order=up", "after=msg_none"):
        assert alice("GET", f"/responses/{first}/input_items?{query}")[0] == 400, query
    assert alice("POST", f"/responses/{first}/cancel")[1]["error"]["message"] == "Cannot cancel a synchronous response."
    assert alice("GET", f"/responses/{first}?stream=true")[0] == 400
    talk = alice("POST", "/conversations")[1]["id"]
    items: list[Any] = [1, [1], [{}], [{"role": "user"}] * 21]
    bodies: list[dict[str, Any]] = [*({"items": each} for each in items), {"metadata": {"a": 1}}]
    for body in bodies:
        assert alice("POST", "/conversations", body)[0] == 400, body
        if "items" in body:
            assert alice("POST", f"/conversations/{talk}/items", body)[0] == 400, body
    assert alice("POST", "/conversations", {"metadata": {str(number): "" for number in range(17)}})[0] == 400
    assert alice("POST", f"/conversations/{talk}", {"metadata": {"a": "b"}})[0] == 200
    assert alice("POST", f"/conversations/{talk}", {}) == (
        400, error("metadata: field required", "invalid_request", "metadata"),
    )  # fmt: skip
    assert alice("GET", f"/conversations/{talk}")[1]["metadata"] == {"a": "b"}, "nothing is wiped"
    assert alice("POST", f"/conversations/{talk}", {"metadata": None})[1]["metadata"] == {}
    assert alice("GET", f"/conversations/{talk}/items?after=x")[0] == 400
    assert alice("GET", f"/conversations/{talk}/items/none")[0] == 404
    assert alice("DELETE", f"/conversations/{talk}/items/none")[0] == 404


UNREADABLE: list[tuple[str, dict[str, Any]]] = [
    ("type", {"type": "nope"}),
    ("type", {"type": 5}),
    ("type", {"type": "item_reference"}),
    ("type", {"type": "compaction_trigger"}),
    ("role", {"type": "message", "content": "x"}),
    ("role", {"content": "x"}),
    ("role", {"role": "nobody", "content": "x"}),
    ("role", {"role": ["user"], "content": "x"}),
    ("content", {"role": "user"}),
    ("content", {"role": "user", "content": 5}),
    ("content[0].type", {"role": "user", "content": [{}]}),
    ("content[0].text", {"role": "user", "content": [{"type": "input_text"}]}),
    ("call_id", {"type": "function_call", "name": "f", "arguments": "{}"}),
    ("output", {"type": "function_call_output", "call_id": "c"}),
]


@pytest.mark.parametrize(("field", "item"), UNREADABLE, ids=[str(item) for _, item in UNREADABLE])
def test_items_that_a_conversation_could_not_go_on_with(alice: Api, field: str, item: dict[str, Any]) -> None:
    talk = alice("POST", "/conversations")[1]["id"]
    good = {"role": "user", "content": "zero"}
    for path in ("/conversations", f"/conversations/{talk}/items"):
        status, answer = alice("POST", path, {"items": [good, item]})
        assert (status, answer.get("error", {}).get("param")) == (400, f"items[1].{field}")
        assert answer["error"]["message"].startswith(f"items[1].{field}: ")
    answer = alice.create(input="one", conversation=talk)
    assert answer["output"][0]["content"][0]["text"] == "heard one; spoke 0", "none of them is kept"


def test_the_types_and_roles_of_items_are_those_of_the_sdk() -> None:
    kinds = {get_args(each.model_fields["type"].annotation)[0] for each in get_args(get_args(ConversationItem)[0])}
    assert kinds <= CONVERSATION_ITEMS
    assert set(get_args(Message.model_fields["role"].annotation)) == MESSAGE_ROLES


def test_no_key_reads_what_another_made(alice: Api, mallory: Api) -> None:
    """Every endpoint, with every id of another key's objects."""
    first = alice.create(input="the word is swordfish")
    second = alice.create(input="two", previous_response_id=first["id"], background=True)
    talk = alice("POST", "/conversations", {"items": [{"role": "user", "content": "swordfish"}]})[1]["id"]
    (item,) = alice("GET", f"/conversations/{talk}/items")[1]["data"]
    names = [first["id"], second["id"], talk, item["id"], first["output"][0]["id"]]
    for name in names:
        for method, path, body in (
            ("GET", f"/responses/{name}", None),
            ("GET", f"/responses/{name}?stream=true", None),
            ("DELETE", f"/responses/{name}", None),
            ("POST", f"/responses/{name}/cancel", None),
            ("GET", f"/responses/{name}/input_items", None),
            ("GET", f"/conversations/{name}", None),
            ("POST", f"/conversations/{name}", {"metadata": {}}),
            ("DELETE", f"/conversations/{name}", None),
            ("GET", f"/conversations/{name}/items", None),
            ("POST", f"/conversations/{name}/items", {"items": [{"role": "user", "content": "x"}]}),
            ("GET", f"/conversations/{name}/items/{item['id']}", None),
            ("DELETE", f"/conversations/{name}/items/{item['id']}", None),
            ("POST", "/responses", {"model": "chat/model", "input": "x", "previous_response_id": name}),
            ("POST", "/responses", {"model": "chat/model", "input": "x", "conversation": name}),
            ("POST", "/responses", {"model": "chat/model", "input": [{"type": "item_reference", "id": name}]}),
            ("POST", "/responses/compact", {"model": "chat/model", "previous_response_id": name}),
        ):
            status, answer = mallory(method, path, body)
            assert status in (400, 404), (method, path, answer)
            assert "swordfish" not in str(answer)
    assert alice("GET", f"/responses/{first['id']}")[0] == 200
    assert alice("GET", f"/conversations/{talk}")[0] == 200
    own = mallory("POST", "/conversations")[1]["id"]
    assert mallory("GET", f"/conversations/{own}/items/{item['id']}")[0] == 404
