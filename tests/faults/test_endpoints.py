"""Rows 28, 34, 35, 49 and 50, and the small endpoints: what a client gets before, instead of, or beside an answer."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from google import genai
from google.genai import types as genai_types

from athena.shells.config import hash_key
from support.fault_config import DIALECTS, UPSTREAM_KEY, fault_config
from support.fault_judge import Answer, ask_raw, judge, read_answer, request_body, request_bytes, send
from support.faulty_upstream import FaultyUpstream
from support.gateway_process import GatewayProcess, GatewayThread, running_gateway
from support.patience import PATIENCE

CLIENTS = list(DIALECTS.values())
CLIENT_KEY = "ath_client-canary-0123456789abcdef"
STATUS_WORDS = {
    "anthropic_messages": {
        400: "invalid_request_error", 401: "authentication_error", 404: "not_found_error", 413: "request_too_large",
    },
    "gemini": {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 404: "NOT_FOUND", 413: "INVALID_ARGUMENT"},
}  # fmt: skip


@pytest.fixture(scope="module")
def closed(upstream: FaultyUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayThread]:
    """A gateway with a key of its own and small limits of size."""
    config = fault_config(
        upstream.url,
        keys=[{"hash": hash_key(CLIENT_KEY), "name": "tester"}],
        limits={"body_bytes": 100_000, "request_depth": 60, "request_keys": 2000, "tools": 20},
    )
    with running_gateway(config, tmp_path_factory.mktemp("closed")) as running:
        ask_raw(running.port, "openai_chat", "chat/control", f"authorization: Bearer {CLIENT_KEY}", stream=True)
        yield running


def _post(port: int, client: str, body: Any, *headers: str, model: str = "chat/control", stream: bool = False) -> Answer:
    path, _ = request_body(client, model, stream=stream)
    with send(port, request_bytes(path, body, f"x-api-key: {CLIENT_KEY}", *headers)) as sock:
        return read_answer(sock)


def _check(client: str, answer: Answer, status: int) -> dict[str, Any]:
    verdict = judge(client, answer, stream=False)
    assert (verdict.outcome, answer.status, verdict.lies) == ("PRE", status, []), answer.body
    error: dict[str, Any] = json.loads(answer.body)["error"]
    word = error.get("status") if client == "gemini" else error["type"]
    assert word == STATUS_WORDS.get(client, {}).get(status, word)
    return error


# -- keys ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize(
    "header", ["authorization: Bearer {}", "authorization: bearer  {}", "x-api-key: {}", "x-goog-api-key: {}", "api-key: {}"]
)
def test_credentials_of_every_dialect_open_every_endpoint(
    client: str, header: str, closed: GatewayThread, upstream: FaultyUpstream
) -> None:
    model = f"control.endpoint-{client}-{header.split(':')[0]}"
    answer = ask_raw(closed.port, client, f"chat/{model}", header.format(CLIENT_KEY), stream=True)
    assert judge(client, answer, stream=True).outcome == "OK"
    sent = upstream.of(model)[-1].headers
    assert CLIENT_KEY not in str(sent), "the client's key went upstream"
    assert sent["authorization"] == f"Bearer {UPSTREAM_KEY}"


def test_a_key_in_the_query(closed: GatewayThread) -> None:
    path, body = request_body("gemini", "chat/control", stream=True)
    with send(closed.port, request_bytes(f"{path}&key={CLIENT_KEY}", body)) as sock:
        assert read_answer(sock).status == 200


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize(
    "header", ["x-nothing: 1", "authorization: Bearer wrong", "x-api-key: wrong", "authorization: Basic eDp5"]
)
def test_without_the_key(client: str, header: str, closed: GatewayThread, upstream: FaultyUpstream) -> None:
    before = len(upstream.visits)
    path, _ = request_body(client, "chat/control", stream=True)
    # Keys are looked at before the body is: this one is not even JSON.
    with send(closed.port, request_bytes(path, b"{", header)) as sock:
        _check(client, read_answer(sock), 401)
    assert len(upstream.visits) == before


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("name", list(DIALECTS))
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_the_upstreams_key_is_nowhere(client: str, name: str, stream: bool, closed: GatewayThread) -> None:
    """With gateway keys an upstream's 401 is not the client's: 502, no retry, and no trace of the key."""
    answer = ask_raw(closed.port, client, f"{name}/401-echo-key", f"x-api-key: {CLIENT_KEY}", stream=stream)
    _check(client, answer, 502)
    assert answer.headers["x-should-retry"] == "false"
    assert UPSTREAM_KEY.encode() not in answer.raw
    assert not [line for line in closed.logs.lines if UPSTREAM_KEY in line and not line.startswith("athena.body")]


@pytest.mark.parametrize("client", CLIENTS)
def test_personal_use_names_the_setting_to_mend(client: str, gateway: GatewayProcess) -> None:
    answer = ask_raw(gateway.port, client, "chat/401-echo-key", stream=False)
    message = json.loads(answer.body)["error"]["message"]
    assert answer.status == 401
    assert "upstreams.chat.api_key" in message
    assert UPSTREAM_KEY not in answer.raw.decode()
    assert "***" in message


def test_only_our_own_headers_reach_the_client(gateway: GatewayProcess) -> None:
    known = {
        "content-type", "content-length", "transfer-encoding", "cache-control", "x-accel-buffering", "request-id",
        "x-request-id", "date", "server", "connection", "x-athena-served-by", "x-athena-warnings",
    }  # fmt: skip
    for fault in ("odd-headers", "500-cookie"):
        for stream in (True, False):
            answer = ask_raw(gateway.port, "openai_chat", f"chat/{fault}", stream=stream)
            assert set(answer.headers) <= known, set(answer.headers) - known


# -- requests that are none --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("client", CLIENTS)
def test_bodies_that_are_no_request(client: str, closed: GatewayThread, upstream: FaultyUpstream) -> None:
    _, good = request_body(client, "chat/control", stream=False)
    before = len(upstream.visits)
    deep: Any = 1
    for _ in range(80):
        deep = [deep]
    for body in (
        b"", b"{", b"[]", b"null", b'"text"', b"\xff\xfe", b'{"a":1}}', b"[" * 50_000, b'{"x":' * 10_000 + b"1" + b"}" * 10_000,
        {**good, "deep": deep}, {**good, "wide": {str(number): 1 for number in range(3000)}}, {},
        b'{"model":1e999}', b'{"model":1' + b"0" * 10_000 + b"}",
    ):  # fmt: skip
        _check(client, _post(closed.port, client, body), 400)
    assert len(upstream.visits) == before, "something was sent upstream"


@pytest.mark.parametrize("client", CLIENTS)
def test_too_large(client: str, closed: GatewayThread) -> None:
    _, good = request_body(client, "chat/control", stream=False)
    large = json.dumps({**good, "pad": "x" * 200_000}).encode()
    _check(client, _post(closed.port, client, large), 413)
    bomb = gzip.compress(b" " * 50_000_000)
    _check(client, _post(closed.port, client, bomb, "content-encoding: gzip"), 413)
    # Without a length, and never ending by itself.
    path, _ = request_body(client, "chat/control", stream=False)
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\nx-api-key: {CLIENT_KEY}\r\ntransfer-encoding: chunked\r\n\r\n".encode()
    with send(closed.port, head + b"8000\r\n" + b"x" * 0x8000 + b"\r\n" * 1) as sock:
        for _ in range(4):
            sock.sendall(b"8000\r\n" + b"x" * 0x8000 + b"\r\n")
        _check(client, read_answer(sock), 413)


@pytest.mark.parametrize("client", CLIENTS)
def test_encoded_bodies(client: str, closed: GatewayThread) -> None:
    _, good = request_body(client, "chat/control", stream=False)
    packed = gzip.compress(json.dumps(good).encode())
    assert _post(closed.port, client, packed, "content-encoding: gzip").status == 200
    _check(client, _post(closed.port, client, packed[:-10], "content-encoding: gzip"), 400)
    _check(client, _post(closed.port, client, b"nothing packed", "content-encoding: gzip"), 400)
    _check(client, _post(closed.port, client, b"x", "content-encoding: br"), 415)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_body_that_never_comes(client: str, upstream: FaultyUpstream, tmp_path: Path) -> None:
    path, _ = request_body(client, "chat/control", stream=False)
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\nx-api-key: {CLIENT_KEY}\r\ncontent-length: 50\r\n\r\n{{".encode()
    config = fault_config(upstream.url, timeouts={"client_body_s": 0.3})
    with running_gateway(config, tmp_path) as hasty, send(hasty.port, head) as sock:
        _check(client, read_answer(sock), 408)


@pytest.mark.parametrize("client", CLIENTS)
def test_unknown_models_methods_and_paths(client: str, closed: GatewayThread) -> None:
    path, body = request_body(client, "nobody/nothing", stream=False)
    with send(closed.port, request_bytes(path, body, f"x-api-key: {CLIENT_KEY}")) as sock:
        _check(client, read_answer(sock), 404)
    path, body = request_body(client, "chat/control", stream=False)
    with send(closed.port, request_bytes(path, body, f"x-api-key: {CLIENT_KEY}", method="PUT")) as sock:
        _check(client, read_answer(sock), 405)
    wrong = {"anthropic_messages": "/v1/messages/x", "gemini": "/v1beta/other"}.get(client, "/v1/other")
    with send(closed.port, request_bytes(wrong, body)) as sock:
        _check(client, read_answer(sock), 404)


@pytest.mark.parametrize("client", CLIENTS)
def test_too_many_tools(client: str, closed: GatewayThread) -> None:
    _, body = request_body(client, "chat/control", stream=False)
    if client == "gemini":
        declarations = body["tools"][0]["functionDeclarations"]
        body["tools"] = [{"functionDeclarations": [{**declarations[0], "name": f"t{number}"} for number in range(30)]}]
    else:

        def named(number: int) -> dict[str, Any]:
            tool = json.loads(json.dumps(body["tools"][0]))
            (tool["function"] if client == "openai_chat" else tool)["name"] = f"t{number}"
            return tool  # type: ignore[no-any-return]  # a copy of what was put in

        body["tools"] = [named(number) for number in range(30)]
    _check(client, _post(closed.port, client, body), 400)


# -- what is dropped is said ---------------------------------------------------------------------------------------------------


def test_warnings_cannot_split_the_header(gateway: GatewayProcess) -> None:
    path, body = request_body("openai_chat", "anthropic/control", stream=True)
    body["evil\r\nset-cookie: a=b\r\n\x00é"] = 1
    with send(gateway.port, request_bytes(path, body)) as sock:
        answer = read_answer(sock)
    assert answer.status == 200
    assert "set-cookie" not in answer.headers
    assert "evil??set-cookie: a=b" in answer.headers["x-athena-warnings"]


@pytest.fixture(scope="module")
def limited(upstream: FaultyUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayThread]:
    config = fault_config(upstream.url, passthrough_invalid=True)
    config["models"][:0] = [
        {"match": "toolless", "use": "chat/control.toolless", "tools": "none"},
        {"match": "toolless-a", "use": "anthropic/control.toolless", "tools": "none"},
        {"match": "toolless-r", "use": "responses/control.toolless", "tools": "none"},
        {"match": "toolless-g", "use": "gemini/control.toolless", "tools": "none"},
        {"match": "strict", "use": "chat/control", "tools": "none", "strict": True},
        {"match": "short", "use": "chat/control", "context_limit_kb": 10},
    ]
    with running_gateway(config, tmp_path_factory.mktemp("limited")) as running:
        yield running


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("model", ["toolless", "toolless-a", "toolless-r", "toolless-g"])
def test_tools_none(client: str, model: str, limited: GatewayThread, upstream: FaultyUpstream) -> None:
    answer = ask_raw(limited.port, client, model, stream=False)
    assert answer.status == 200
    assert "tools dropped" in answer.headers["x-athena-warnings"]
    sent = upstream.of("control.toolless")[-1].body
    assert not {"tools", "tool_choice", "toolConfig", "parallel_tool_calls"} & set(sent), sent
    assert ask_raw(limited.port, client, "strict", stream=False).status == 400
    assert ask_raw(limited.port, client, "strict", stream=False, tools=False).status == 200


@pytest.mark.parametrize("client", CLIENTS)
def test_context_limit(client: str, limited: GatewayThread) -> None:
    def answer(size: int, *, tools: bool = True) -> Answer:
        path, body = request_body(client, "short", stream=False, tools=tools)
        text = json.dumps(body).replace('"Hi"', json.dumps("x" * size))
        with send(limited.port, request_bytes(path, text.encode())) as sock:
            return read_answer(sock)

    assert "near the limit" not in answer(1000).headers.get("x-athena-warnings", "")
    assert "near the limit" in answer(8200).headers["x-athena-warnings"]
    refused = answer(12_000)
    _check(client, refused, 400)
    assert answer(12_000, tools=False).status == 200


def test_invalid_lines_pass_on_request_only(limited: GatewayThread, gateway: GatewayProcess) -> None:
    for name in ("chat", "chat-clean"):
        shown = ask_raw(limited.port, "openai_chat", f"{name}/junk-line", stream=True)
        assert b"data: oops\n\n" in shown.body
        assert shown.body.endswith(b"data: [DONE]\n\n")
        assert b"oops" not in ask_raw(gateway.port, "openai_chat", f"{name}/junk-line", stream=True).body
    assert b"oops" not in ask_raw(limited.port, "anthropic_messages", "chat/junk-line", stream=True).body


# -- the line about a request ------------------------------------------------------------------------------------------------


def test_the_line_of_a_failure_says_where_it_went_and_what_came_back(gateway: GatewayProcess, upstream: FaultyUpstream) -> None:
    answer = ask_raw(gateway.port, "anthropic_messages", "chat/404", "x-request-id: the-lost-one", stream=False)
    assert answer.status == 404
    until = time.monotonic() + PATIENCE
    while not (lines := [line for line in gateway.log().splitlines() if "the-lost-one" in line and "athena.request" in line]):
        assert time.monotonic() < until, "the request has no line"
        time.sleep(0.05)
    line = json.loads(lines[0])
    assert line["path"] == "/v1/messages"
    assert line["url"].startswith(upstream.url)
    assert line["url"].endswith("/chat/completions")
    assert line["error_message"] in answer.body.decode()


# -- the small endpoints ----------------------------------------------------------------------------------------------------


def test_counting_with_the_sdks(gateway: GatewayProcess) -> None:
    with anthropic.Anthropic(base_url=gateway.url, api_key="x", max_retries=0) as messages:
        counted = messages.messages.count_tokens(model="chat/control", messages=[{"role": "user", "content": "Hello there"}])
    assert counted.input_tokens > 0
    with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="x", max_retries=0) as responses:
        assert responses.responses.input_tokens.count(model="chat/control", input="Hello there").input_tokens > 0
    with genai.Client(api_key="x", http_options=genai_types.HttpOptions(base_url=gateway.url)) as client:
        assert (client.models.count_tokens(model="chat/control", contents="Hello there").total_tokens or 0) > 0


def test_listing_models_with_the_sdks(upstream: FaultyUpstream, tmp_path: Path) -> None:
    config = fault_config(upstream.url)
    config["models"].insert(0, {"match": "my-model", "use": "chat/control"})
    with running_gateway(config, tmp_path) as running:
        with openai.OpenAI(base_url=f"{running.url}/v1", api_key="x", max_retries=0) as chat:
            assert "my-model" in [model.id for model in chat.models.list()]
            assert chat.models.retrieve("my-model").id == "my-model"
        with anthropic.Anthropic(base_url=running.url, api_key="x", max_retries=0) as messages:
            assert "my-model" in [model.id for model in messages.models.list()]
        with genai.Client(api_key="x", http_options=genai_types.HttpOptions(base_url=running.url)) as client:
            assert "models/my-model" in [model.name for model in client.models.list()]
        with send(running.port, request_bytes("/v1/models/nobody", b"", method="GET")) as sock:
            assert read_answer(sock).status == 404
