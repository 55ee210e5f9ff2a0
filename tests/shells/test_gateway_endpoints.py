"""Endpoints beside the answers: passed-through endpoints, usual spellings of base URLs, WebSocket upgrades, unknown paths."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import anthropic
import openai
import pytest
import uvicorn
from google import genai
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from athena.asgi import create_app
from athena.serving.endpoints import Endpoint, gateway_endpoint
from athena.shells.config import hash_key
from support.config_file import load_config
from support.fault_judge import Answer, read_answer, request_body, request_bytes, send
from support.gateway_process import GatewayThread, running_gateway
from support.patience import PATIENCE
from support.plain_upstream import PlainUpstream, Reply
from support.upstream_speech import chat_whole

KEY = "sk-upstream-0123456789abcdef"
CLIENT_KEY = "ath_client-0123456789abcdef"
VECTOR = {
    "object": "list",
    "data": [{"object": "embedding", "index": 0, "embedding": [0.25, -1.5]}],
    "model": "real",
    "usage": {"prompt_tokens": 2, "total_tokens": 2},
}
COMPLETION = {
    "id": "cmpl-1",
    "object": "text_completion",
    "created": 1,
    "model": "real",
    "choices": [{"index": 0, "text": "there", "finish_reason": "stop", "logprobs": None}],
}


def _piece(text: str) -> bytes:
    value = {**COMPLETION, "choices": [{"index": 0, "text": text, "finish_reason": None, "logprobs": None}]}
    return b"data: " + json.dumps(value).encode() + b"\n\n"


@pytest.fixture(scope="module")
def upstream() -> Iterator[PlainUpstream]:
    with PlainUpstream() as running:
        yield running


@pytest.fixture(autouse=True)
def _fresh(upstream: PlainUpstream) -> None:
    upstream.table.clear()
    upstream.forget()


def _config(upstream: PlainUpstream, **more: Any) -> dict[str, Any]:
    dead = "http://127.0.0.1:9/v1"
    return {
        "upstreams": {
            "chat": {"base_url": f"{upstream.url}/v1", "api_key": KEY},
            "dead": {"base_url": dead},
            "google": {"base_url": upstream.url, "dialect": "gemini", "api_key": KEY},
            "claude": {"base_url": upstream.url, "dialect": "anthropic_messages", "api_key": KEY},
        },
        "models": [
            {"match": "safe", "use": "dead/real", "fallback": ["claude/other", "chat/real"]},
            {"match": "gone", "use": "dead/real"},
            {"match": "claude-*", "use": "claude"},
            {"match": "embed-*", "use": "google/gemini-embedding-001"},
            {"match": "google/*", "use": "google/*"},
            {"match": "*", "use": "chat/real"},
        ],
        "retries": {"attempts": 0},
        "envelope_key": "test",
        **more,
    }


@pytest.fixture(scope="module")
def gateway(upstream: PlainUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayThread]:
    with running_gateway(_config(upstream), tmp_path_factory.mktemp("gateway")) as running:
        yield running


@pytest.fixture
def client(gateway: GatewayThread) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(api_key="mine", base_url=f"{gateway.url}/v1", max_retries=0) as made:
        yield made


def _post(gateway: GatewayThread, path: str, body: Any, *headers: str) -> Answer:
    with send(gateway.port, request_bytes(path, body, *headers)) as sock:
        return read_answer(sock)


# -- passed through ------------------------------------------------------------------------------------------------------------


def test_embeddings_are_passed_to_the_upstream(client: openai.OpenAI, upstream: PlainUpstream) -> None:
    upstream.table["/v1/embeddings"] = Reply(VECTOR)
    answer = client.embeddings.create(model="any-name", input="hi", encoding_format="float", dimensions=2)
    assert answer.data[0].embedding == [0.25, -1.5]
    (sent,) = upstream.of("/v1/embeddings")
    assert sent.body == {"model": "real", "input": "hi", "encoding_format": "float", "dimensions": 2}
    assert sent.headers["authorization"] == f"Bearer {KEY}"
    assert "mine" not in str(sent.headers)


def test_completions_are_passed_whole_and_streamed(client: openai.OpenAI, upstream: PlainUpstream) -> None:
    upstream.table["/v1/completions"] = Reply(COMPLETION)
    assert client.completions.create(model="m", prompt="hi").choices[0].text == "there"
    pieces = (_piece("one "), _piece("two"), b"data: [DONE]\n\n")
    upstream.table["/v1/completions"] = Reply(kind="text/event-stream", pieces=pieces)
    with client.completions.create(model="m", prompt="hi", stream=True) as stream:
        assert "".join(chunk.choices[0].text for chunk in stream) == "one two"
    assert upstream.of("/v1/completions")[-1].headers["accept"] == "text/event-stream"


def test_a_stream_that_breaks_is_an_error_for_the_sdk(client: openai.OpenAI, upstream: PlainUpstream) -> None:
    upstream.table["/v1/completions"] = Reply(kind="text/event-stream", pieces=(_piece("one"),), cut=True)
    with client.completions.create(model="m", prompt="hi", stream=True) as stream, pytest.raises(openai.APIError):
        list(stream)


def test_a_whole_answer_that_breaks_is_an_error_for_the_sdk(client: openai.OpenAI, upstream: PlainUpstream) -> None:
    upstream.table["/v1/embeddings"] = Reply(b'{"object": "list", "data": []', cut=True)
    with pytest.raises(openai.APIConnectionError):
        client.embeddings.create(model="m", input="hi", encoding_format="float")


def test_the_upstreams_error_is_the_clients(client: openai.OpenAI, upstream: PlainUpstream) -> None:
    error = {"message": f"key {KEY} is over its limit", "type": "requests", "code": "rate_limit_exceeded"}
    upstream.table["/v1/embeddings"] = Reply({"error": error}, 429, headers={"retry-after": "7"})
    with pytest.raises(openai.RateLimitError, match=r"key \*\*\* is over its limit") as caught:
        client.embeddings.create(model="m", input="hi")
    assert caught.value.response.headers["retry-after"] == "7"


def test_another_target_is_tried_and_one_without_the_endpoint_is_passed_over(
    client: openai.OpenAI, upstream: PlainUpstream
) -> None:
    upstream.table["/v1/embeddings"] = Reply(VECTOR)
    assert client.embeddings.create(model="safe", input="hi", encoding_format="float").data
    assert [request.path for request in upstream.visits] == ["/v1/embeddings"]


def test_no_upstream_answers(client: openai.OpenAI) -> None:
    with pytest.raises(openai.InternalServerError) as caught:
        client.embeddings.create(model="gone", input="hi")
    assert caught.value.status_code == 502


def test_an_upstream_of_another_family_has_no_such_endpoint(client: openai.OpenAI, upstream: PlainUpstream) -> None:
    with pytest.raises(openai.BadRequestError, match="claude speaks anthropic_messages, which has no embeddings"):
        client.embeddings.create(model="claude-x", input="hi")
    assert not upstream.visits


def test_gemini_embeddings(gateway: GatewayThread, upstream: PlainUpstream) -> None:
    path = "/v1beta/models/gemini-embedding-001:batchEmbedContents"
    upstream.table[path] = Reply({"embeddings": [{"values": [0.5]}]})
    with genai.Client(api_key="mine", http_options={"base_url": gateway.url, "api_version": "v1beta"}) as sdk:
        answer = sdk.models.embed_content(model="embed-small", contents=["one"])
    assert answer.embeddings is not None
    assert answer.embeddings[0].values == [0.5]
    (sent,) = upstream.visits
    assert sent.body["requests"][0]["model"] == "models/gemini-embedding-001"
    assert sent.headers["x-goog-api-key"] == KEY
    single = path.replace("batchEmbedContents", "embedContent")
    upstream.table[single] = Reply({"embedding": {"values": [1.0]}})
    one = _post(gateway, "/v1/models/embed-small:embedContent", {"content": {"parts": [{"text": "hi"}]}})
    assert (one.status, json.loads(one.body)) == (200, {"embedding": {"values": [1.0]}})


GEMINI_VERBS = ("generateContent", "streamGenerateContent?alt=sse", "embedContent", "batchEmbedContents")


@pytest.mark.parametrize("name", ["../../v1/admin", "..", "a/../../b", "./x", "a//b", "/a", "a/"])
def test_a_name_of_a_model_can_not_lead_out_of_the_models(name: str, gateway: GatewayThread, upstream: PlainUpstream) -> None:
    """Whichever endpoint it comes in by: the operator's key goes with it."""
    quoted = "google%2F" + name.replace("/", "%2F").replace(".", "%2e")
    for verb in GEMINI_VERBS:
        answer = _post(gateway, f"/v1beta/models/{quoted}:{verb}", request_body("gemini", "m", stream=False)[1])
        assert answer.status == 400, verb
        assert b"model: the name of a model" in answer.body
    for dialect in ("openai_chat", "anthropic_messages", "openai_responses"):
        assert _post(gateway, *request_body(dialect, f"google/{name}", stream=True)).status == 400, dialect
    assert not upstream.visits


@pytest.mark.parametrize(
    ("name", "sent"),
    [
        ("..%2f..%2fadmin", "..%252f..%252fadmin"),
        ("%2e%2e/x", "%252e%252e/x"),
        ("x?y=1", "x%3Fy%3D1"),
        ("x#y", "x%23y"),
        ("x\r\ny: z", "x%0D%0Ay%3A%20z"),
        ("x:y", "x%3Ay"),
        ("\u00e9@1", "%C3%A9@1"),
    ],
)
def test_whatever_else_a_name_holds_is_part_of_the_name(
    name: str, sent: str, gateway: GatewayThread, upstream: PlainUpstream
) -> None:
    _post(gateway, *request_body("openai_chat", f"google/{name}", stream=False))
    _post(gateway, f"/v1beta/models/{quote(f'google/{name}', safe='')}:embedContent", {"content": {}})
    assert [request.path for request in upstream.visits] == [
        f"/v1beta/models/{sent}:generateContent",
        f"/v1beta/models/{sent}:embedContent",
    ]


def test_gateway_keys_hold_here_too(upstream: PlainUpstream, tmp_path: Path) -> None:
    upstream.table["/v1/embeddings"] = Reply({"error": {"message": f"bad key {KEY}"}}, 401)
    keys = [{"hash": hash_key(CLIENT_KEY)}]
    with running_gateway(_config(upstream, keys=keys), tmp_path) as running:
        body = {"model": "m", "input": "hi"}
        assert _post(running, "/v1/embeddings", body).status == 401
        assert not upstream.visits
        shown = _post(running, "/v1/embeddings", body, f"x-api-key: {CLIENT_KEY}")
        # The client's own key is right: a 401 would send it looking in the wrong place.
        assert shown.status == 502
        assert KEY.encode() not in shown.body


@pytest.mark.parametrize("body", [{"input": "hi"}, {"model": 3}, {"model": ""}])
def test_a_request_without_a_model(body: Any, gateway: GatewayThread) -> None:
    answer = _post(gateway, "/v1/embeddings", body)
    assert answer.status == 400
    assert b"model" in answer.body


def test_passed_requests_are_counted_and_logged(gateway: GatewayThread, client: openai.OpenAI, upstream: PlainUpstream) -> None:
    upstream.table["/v1/embeddings"] = Reply(VECTOR)
    answered = client.embeddings.with_raw_response.create(model="m", input="a secret text")
    line = _request_line(gateway, answered.headers["x-request-id"])
    assert "'upstream': 'chat'" in line
    assert "'outcome': 'ok'" in line
    assert "secret text" not in line


def _request_line(gateway: GatewayThread, request_id: str) -> str:
    """The line about one request. It is written after the answer, so that of an earlier test may still come."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        for line in gateway.logs.lines:
            if line.startswith("athena.request") and request_id in line:
                return line
        time.sleep(0.01)
    raise AssertionError("no line about the request")


# -- spellings -----------------------------------------------------------------------------------------------------------------

MESSAGES = Endpoint("answer", "anthropic_messages")
CHAT = Endpoint("answer", "openai_chat")


def stored(what: str, *methods: str) -> dict[str, Any]:
    return {"methods": methods, "stored": what, "names": ("resp_1",)}


@pytest.mark.parametrize(
    ("path", "endpoint"),
    [
        ("/v1/v1/messages", MESSAGES),
        ("/messages", MESSAGES),
        ("//v1/messages", MESSAGES),
        ("/anthropic/v1/messages", MESSAGES),
        ("/v1/messages/v1/messages", MESSAGES),
        ("/v1/v1/messages/count_tokens", Endpoint("count", "anthropic_messages")),
        ("/messages/count_tokens", Endpoint("count", "anthropic_messages")),
        ("/chat/completions", CHAT),
        ("/v1/v1/chat/completions/", CHAT),
        ("/api/v1/chat/completions", CHAT),
        ("/v1/chat/completions/chat/completions", CHAT),
        ("/v1beta/openai/chat/completions", CHAT),
        ("/openai/v1/chat/completions", CHAT),
        ("/responses", Endpoint("answer", "openai_responses")),
        ("/embeddings", Endpoint("pass", "openai_chat", upstream_path="/v1/embeddings")),
        ("/v1/v1/completions", Endpoint("pass", "openai_chat", upstream_path="/v1/completions")),
        ("/v1/v1beta/models/m:generateContent", Endpoint("answer", "gemini", "m", False)),
        ("/v1beta/v1beta/models/m/x:countTokens", Endpoint("count", "gemini", "m/x", False)),
        ("/models/m:embedContent", Endpoint("pass", "gemini", "m", upstream_path="/v1beta/models/{model}:embedContent")),
        ("/v1/models/m:fly", None),
        ("/v1/mesages", None),
        ("/openai/v1/responses/resp_1", Endpoint("stored", "openai_responses", **stored("response", "GET", "DELETE"))),
        ("/v1/v1/responses/resp_1/cancel", Endpoint("stored", "openai_responses", **stored("cancel", "POST"))),
        ("/v1/responses/resp_1/elsewhere", None),
        ("/v1/chat", None),
        ("/v1", None),
        ("/" + "v1/" * 40 + "messages", None),
    ],
)
def test_spellings_of_a_path(path: str, endpoint: Endpoint | None) -> None:
    assert gateway_endpoint("POST", path, "", {}) == endpoint


def test_models_in_the_usual_spellings() -> None:
    for path in ("/models", "/v1/v1/models", "/v1/models"):
        assert gateway_endpoint("GET", path, "", {}) == Endpoint("models", "openai_chat", methods=("GET",))
    assert gateway_endpoint("GET", "/v1/v1beta/models", "", {}) == Endpoint("models", "gemini", methods=("GET",))
    # A colon is part of many names, and only a POST has a verb.
    assert gateway_endpoint("GET", "/v1/models/llama3:8b", "", {}) == Endpoint(
        "model", "openai_chat", "llama3:8b", methods=("GET",)
    )


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/"])
def test_every_sdk_is_served_with_any_usual_base_url(suffix: str, gateway: GatewayThread, upstream: PlainUpstream) -> None:
    upstream.table["/v1/chat/completions"] = Reply(chat_whole({"role": "assistant", "content": "hello"}, "stop"))
    base = gateway.url + suffix
    messages: Any = [{"role": "user", "content": "hi"}]
    with openai.OpenAI(api_key="k", base_url=base, max_retries=0) as chat:
        assert chat.chat.completions.create(model="m", messages=messages).choices[0].message.content == "hello"
        assert chat.responses.create(model="m", input="hi").output_text == "hello"
    with anthropic.Anthropic(api_key="k", base_url=base, max_retries=0) as claude:
        answer = claude.messages.create(model="m", max_tokens=9, messages=messages)
        assert "hello" in answer.content[0].to_json()
    with genai.Client(api_key="k", http_options={"base_url": base}) as google:
        assert google.models.generate_content(model="m", contents="hi").text == "hello"


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz"])
def test_health_in_the_spellings_of_kubernetes(path: str, gateway: GatewayThread) -> None:
    with send(gateway.port, request_bytes(path, b"", method="GET")) as sock:
        answer = read_answer(sock)
    assert (answer.status, json.loads(answer.body)["status"]) == (200, "ok")


@pytest.mark.parametrize(
    ("header", "where"),
    [
        ("anthropic-version: 2023-06-01", "not_found_error"),
        ("x-goog-api-key: k", "NOT_FOUND"),
        ("accept: */*", '"unknown_path"'),
    ],
)
def test_an_unknown_path_is_told_in_the_callers_shape_with_the_nearest_one(
    header: str, where: str, gateway: GatewayThread
) -> None:
    answer = _post(gateway, "/v1/mesages", {}, header)
    assert answer.status == 404
    assert where in answer.body.decode()
    assert "nearest: /v1/messages" in answer.body.decode()
    assert "model_not_found" not in answer.body.decode()


def test_a_verb_that_no_model_has(gateway: GatewayThread) -> None:
    answer = _post(gateway, "/v1beta/models/m:fly", {})
    assert (answer.status, json.loads(answer.body)["error"]["status"]) == (404, "NOT_FOUND")


# -- WebSocket -----------------------------------------------------------------------------------------------------------------


def test_an_upgrade_is_answered_426_where_it_is_off_and_the_connection_goes_on(upstream: PlainUpstream, tmp_path: Path) -> None:
    with running_gateway({**_config(upstream), "websocket": {"enabled": False}}, tmp_path) as gateway:
        _is_refused(gateway, upstream)


def _is_refused(gateway: GatewayThread, upstream: PlainUpstream) -> None:
    with pytest.raises(InvalidStatus) as caught:
        connect(f"ws://127.0.0.1:{gateway.port}/v1/responses", open_timeout=PATIENCE).close()
    assert caught.value.response.status_code == 426
    assert caught.value.response.headers["upgrade"] == "HTTP/1.1"
    upstream.table["/v1/chat/completions"] = Reply(chat_whole({"role": "assistant", "content": "hello"}, "stop"))
    upgrade = (
        "connection: Upgrade",
        "upgrade: websocket",
        "sec-websocket-version: 13",
        "sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==",
    )
    path, body = request_body("openai_chat", "m", stream=False)
    with send(gateway.port, request_bytes("/v1/responses", b"", *upgrade, method="GET")) as sock:
        first = read_answer(sock)
        assert (first.status, json.loads(first.body)["error"]["code"]) == (426, "websocket_not_supported")
        sock.sendall(request_bytes(path, body))
        assert read_answer(sock).status == 200


def test_an_upgrade_under_another_server(upstream: PlainUpstream, tmp_path: Path) -> None:
    app = create_app(load_config(_config(upstream), tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            with pytest.raises(InvalidStatus) as caught:
                connect(f"ws://127.0.0.1:{listener.getsockname()[1]}/v1/responses", open_timeout=PATIENCE).close()
        finally:
            server.should_exit = True
            thread.join(PATIENCE)
    assert caught.value.response.status_code == 426
