"""A client's messages and an answer's, without IO."""

from __future__ import annotations

import json
from typing import Any

import pytest

from athena.errors import ClientError
from athena.websocket.answers import Ending, SocketAnswer, required_inputs
from athena.websocket.frames import Create, LaneProblem, Steer, read_message
from athena.websocket.handshake import accepted

REFUSED: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "invalid_json"),
    "no JSON": (b"hello", "invalid_json"),
    "cut JSON": (b'{"type": "response.create", "inp', "invalid_json"),
    "two values": (b'{"type": "response.create"} {}', "invalid_json"),
    "a list": (b"[]", "invalid_json"),
    "a text": (b'"response.create"', "invalid_json"),
    "deep": (b'{"type": "response.create", "input": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "invalid_json"),
    "no type": (b"{}", "unknown_event_type"),
    "another type": (b'{"type": "response.cancel"}', "unknown_event_type"),
    "type of a wrong type": (b'{"type": 1}', "invalid_type"),
    "empty lane": (b'{"type": "response.create", "stream_id": ""}', "invalid_stream_id"),
    "lane with a space": (b'{"type": "response.create", "stream_id": "a b"}', "invalid_stream_id"),
    "lane with a quote": (b'{"type": "response.create", "stream_id": "a\\"b"}', "invalid_stream_id"),
    "lane with a line": (b'{"type": "response.create", "stream_id": "ab\\n"}', "invalid_stream_id"),
    "long lane": (b'{"type": "response.create", "stream_id": "' + b"a" * 257 + b'"}', "invalid_stream_id"),
    "lane of a wrong type": (b'{"type": "response.create", "stream_id": 5}', "invalid_stream_id"),
    "background": (b'{"type": "response.create", "background": true}', "unsupported_value"),
    "input of a wrong type": (b'{"type": "response.create", "input": 5}', "invalid_type"),
    "id of a wrong type": (b'{"type": "response.create", "previous_response_id": {}}', "invalid_type"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_message(name: str) -> None:
    text, code = REFUSED[name]
    with pytest.raises(ClientError) as refused:
        read_message(text)
    assert refused.value.code == code


def test_a_problem_names_its_lane() -> None:
    with pytest.raises(LaneProblem) as refused:
        read_message(b'{"type": "response.create", "stream_id": "a.b-c_1", "input": 5}')
    assert refused.value.lane == "a.b-c_1"


def test_a_request_keeps_what_it_does_not_know_as_it_was_written() -> None:
    text = b'"model":"m","temperature":1.0,"future":{"a": [1e5]},"stream":false,"input":[{"a": 1}, {"b":2}]'
    found = read_message(b'{"type":"response.create",%b}' % text)
    assert isinstance(found, Create)
    assert {name: bytes(raw) for name, raw in found.fields.items()} == {
        "model": b'"m"',
        "temperature": b"1.0",
        "future": b'{"a": [1e5]}',
    }
    assert found.input == (b'{"a": 1}', b'{"b":2}')
    assert found.lane is None
    assert found.generates


@pytest.mark.parametrize(
    ("fields", "generates"),
    [
        ({}, True),
        ({"generate": None}, True),
        ({"generate": True}, True),
        ({"generate": False}, False),
        ({"prompt_cache_options": {"prewarm": True}}, False),
        ({"prompt_cache_options": {"mode": "explicit"}}, True),
    ],
)
def test_what_only_gets_ready(fields: dict[str, Any], generates: bool) -> None:
    found = read_message(json.dumps({"type": "response.create", **fields}).encode())
    assert isinstance(found, Create)
    assert found.generates is generates


def test_steering_keeps_its_input_for_the_way_back() -> None:
    found = read_message(b'{"type":"response.steer","previous_response_id":"r","input":"a \\u00e9"}')
    assert isinstance(found, Steer)
    assert bytes(found.input) == b'"a \\u00e9"'
    assert found.problem == ""


# -- answers -------------------------------------------------------------------------------------------------------------------


def events(*kinds: str) -> bytes:
    return b"".join(
        f"event: {kind}\ndata: {json.dumps({'type': kind, 'response': {'id': 'r'}})}\n\n".encode() for kind in kinds
    )


def test_events_lose_their_frame_and_get_their_lane() -> None:
    answer = SocketAnswer("a", 1000)
    answer.head(200, {})
    body = b": keep-alive\n\n" + events("response.created") + b'data: {"type":"x.y"}\r\n\r\n' + events("response.completed")
    messages = [message for start in range(0, len(body), 7) for message in answer.feed(body[start : start + 7])]
    messages += answer.feed(b"data: [DONE]\n\n") + answer.end()
    found = [json.loads(message) for message in messages]
    assert [message["type"] for message in found] == ["response.created", "x.y", "response.completed"]
    assert {message["stream_id"] for message in found} == {"a"}
    assert answer.ending is Ending.COMPLETE
    assert answer.response_id == "r"


def test_a_failure_over_http_is_an_error_message() -> None:
    answer = SocketAnswer("a", 1000)
    answer.head(429, {"retry-after": "7", "content-type": "application/json", "x-request-id": "req_1"})
    assert answer.feed(b'{"error": {"message": "slow down", "type": "requests", ') == []
    assert answer.feed(b'"code": "rate_limit_exceeded", "param": null}}') == []
    (message,) = map(json.loads, answer.end())
    headers = {"retry-after": "7", "x-request-id": "req_1"}
    assert message == {
        "type": "error",
        "status": 429,
        "stream_id": "a",
        "headers": headers,
        "error": {
            "message": "slow down", "type": "requests", "code": "rate_limit_exceeded", "param": None, "headers": headers,
        },
    }  # fmt: skip
    assert answer.ending is Ending.FAILED


@pytest.mark.parametrize("body", [b"", b"<html>", b"[1]", b'{"error": "x"}', b"{" * 10_000])
def test_a_failure_that_says_nothing(body: bytes) -> None:
    answer = SocketAnswer(None, 1000)
    answer.head(502, {})
    answer.feed(body)
    (message,) = map(json.loads, answer.end())
    assert message["status"] == 502
    assert message["error"]["message"]


def test_an_error_event_has_an_object_of_its_own() -> None:
    answer = SocketAnswer(None, 1000)
    (message,) = map(
        json.loads,
        answer.feed(b'event: error\ndata: {"type":"error","code":"c","message":"m","param":null,"sequence_number":4}\n\n'),
    )
    assert message == {
        "type": "error",
        "sequence_number": 4,
        "error": {"type": "server_error", "code": "c", "message": "m", "param": None},
    }
    assert answer.ending is Ending.FAILED
    assert answer.feed(events("response.completed")) == []
    assert answer.end() == []


def test_an_answer_without_an_end_is_an_error() -> None:
    answer = SocketAnswer(None, 1000)
    answer.feed(events("response.created"))
    (message,) = map(json.loads, answer.end())
    assert message["error"]["code"] == "internal_error"


def test_bytes_that_are_no_text_do_not_reach_the_client() -> None:
    answer = SocketAnswer(None, 1000)
    (message,) = answer.feed(b'data: {"type":"response.output_text.delta","delta":"\xff\xc3\xa9"}\n\n')
    assert message.decode() == '{"type":"response.output_text.delta","delta":"\ufffdé"}'


def test_what_a_client_has_to_send_back() -> None:
    output: list[dict[str, Any]] = [
        {"type": "message"},
        {"type": "function_call", "call_id": "1", "name": "n", "arguments": "{}"},
        {"type": "mcp_approval_request", "id": "mcpr_1", "name": "x"},
        {"type": "tool_search_call", "execution": "server", "call_id": "2"},
        {"type": "tool_search_call", "execution": "client", "call_id": "3"},
        {"type": "web_search_call", "id": "ws_1"},
    ]
    assert required_inputs(tuple(json.dumps(item).encode() for item in output)) == [
        {"type": "function_call_output", "call_id": "1", "name": "n"},
        {"type": "mcp_approval_response", "approval_request_id": "mcpr_1"},
        {"type": "tool_search_output", "execution": "client", "call_id": "3"},
    ]


# -- the handshake -------------------------------------------------------------------------------------------------------------

ASKED = {
    "connection": "keep-alive, Upgrade",
    "upgrade": "websocket",
    "sec-websocket-version": "13",
    "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
}


def test_the_proof_is_that_of_the_standard() -> None:
    assert dict(accepted(ASKED))[b"sec-websocket-accept"] == b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"sec-websocket-version": "8"}, 426),
        ({"sec-websocket-version": ""}, 426),
        ({"sec-websocket-key": ""}, None),
        ({"sec-websocket-key": "short"}, None),
        ({"sec-websocket-key": "x" * 24}, None),
        ({"connection": "keep-alive"}, None),
    ],
)
def test_a_handshake_that_is_none(change: dict[str, str], status: int | None) -> None:
    with pytest.raises(ClientError) as refused:
        accepted({**ASKED, **change})
    assert refused.value.status == status
