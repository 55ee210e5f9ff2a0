"""What Claude Code expects of a gateway before an Anthropic upstream, as its documentation of that protocol says.

Requests are those of a real session. Each rule is a test: endpoints, headers and body fields that must reach the upstream as
they are, errors whose wording its recovery depends on, the list of models it discovers, and streams that are not held back.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import pytest

from support.fault_judge import Answer, read_answer, request_bytes, send
from support.gateway_process import GatewayThread, running_gateway
from support.patience import PATIENCE
from support.plain_upstream import PlainUpstream, Reply
from support.raw_server import RawServer, Request, Until
from support.upstream_speech import CONTROL

_RECORDINGS = Path(__file__).parents[1] / "recordings" / "requests"
TURNS = ("claude-code-turn1", "claude-code-turn2", "claude-code-custom-model-turn1", "claude-code-custom-model-turn2")
BETAS = "claude-code-20250219,context-management-2025-06-27,interleaved-thinking-2025-05-14,a-beta-of-next-year-2027-01-01"
KEY = "sk-ant-upstream-0123456789"
WHOLE = CONTROL["anthropic_messages"].whole


@pytest.fixture(scope="module")
def upstream() -> Iterator[PlainUpstream]:
    with PlainUpstream() as running:
        yield running


@pytest.fixture(scope="module")
def gateway(upstream: PlainUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayThread]:
    config = {
        "upstreams": {
            "claude": {"base_url": upstream.url, "dialect": "anthropic_messages", "profile": "anthropic", "api_key": KEY}
        },
        "models": [
            {"match": "claude-sonnet-4-5", "use": "claude/claude-sonnet-4-5", "context": 200_000, "output": 64_000},
            {"match": "*", "use": "claude"},
        ],
        "retries": {"attempts": 0},
        "envelope_key": "test",
    }
    with running_gateway(config, tmp_path_factory.mktemp("gateway")) as running:
        yield running


@pytest.fixture(autouse=True)
def _fresh(upstream: PlainUpstream) -> None:
    upstream.table.clear()
    upstream.forget()
    upstream.table["/v1/messages"] = Reply(WHOLE)


def _recorded(name: str) -> dict[str, Any]:
    body: dict[str, Any] = json.loads((_RECORDINGS / f"{name}.json").read_text())["body"]
    return body


def _ask(gateway: GatewayThread, body: Any, *headers: str, path: str = "/v1/messages?beta=true") -> Answer:
    usual = ("authorization: Bearer any", "anthropic-version: 2023-06-01", f"anthropic-beta: {BETAS}")
    with send(gateway.port, request_bytes(path, body, *usual, *headers)) as sock:
        return read_answer(sock)


@pytest.mark.parametrize("name", TURNS)
def test_the_body_reaches_the_upstream_unchanged(name: str, gateway: GatewayThread, upstream: PlainUpstream) -> None:
    body = {**_recorded(name), "stream": False}
    assert _ask(gateway, body).status == 200
    (sent,) = upstream.of("/v1/messages")
    assert sent.body == body
    # The block that names the client stands first, where the provider looks for it.
    assert sent.body["system"] == body["system"]


def test_headers_that_must_travel_with_the_body(gateway: GatewayThread, upstream: PlainUpstream) -> None:
    assert _ask(gateway, {**_recorded(TURNS[0]), "stream": False}).status == 200
    (sent,) = upstream.visits
    assert sent.headers["anthropic-beta"] == BETAS
    assert sent.headers["anthropic-version"] == "2023-06-01"
    assert sent.headers["x-api-key"] == KEY
    assert "authorization" not in sent.headers


def test_fields_that_no_release_has_had_yet_travel_too(gateway: GatewayThread, upstream: PlainUpstream) -> None:
    body = {**_recorded(TURNS[0]), "stream": False, "a_field_of_next_year": {"mode": "on"}}
    assert _ask(gateway, body).status == 200
    assert upstream.visits[0].body["a_field_of_next_year"] == {"mode": "on"}


@pytest.mark.parametrize("header", ["authorization: Bearer any", "x-api-key: any"])
def test_both_places_of_a_key_are_taken(header: str, gateway: GatewayThread) -> None:
    body = {**_recorded(TURNS[0]), "stream": False}
    with send(gateway.port, request_bytes("/v1/messages", body, header, "anthropic-version: 2023-06-01")) as sock:
        assert read_answer(sock).status == 200


def test_the_root_answers_the_question_whether_anybody_is_there(gateway: GatewayThread) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=PATIENCE)
    with contextlib.closing(connection):
        connection.request("HEAD", "/")
        assert connection.getresponse().status == 200


@pytest.mark.parametrize(
    ("status", "kind", "message"),
    [
        (400, "invalid_request_error", "prompt is too long: 208310 tokens > 200000 maximum"),
        (400, "invalid_request_error", "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000"),
        (400, "invalid_request_error", "messages.3.content.0: `tool_use` ids were found without `tool_result` blocks"),
        (400, "invalid_request_error", "Unexpected value(s) `a-beta-of-next-year-2027-01-01` for the `anthropic-beta` header."),
        (413, "request_too_large", "Request exceeds the maximum size"),
        (429, "rate_limit_error", "This request would exceed your organization's rate limit of 80,000 tokens per minute"),
        (529, "overloaded_error", "Overloaded"),
        (500, "api_error", "Internal server error"),
    ],
)
def test_errors_keep_their_status_type_and_wording(
    status: int, kind: str, message: str, gateway: GatewayThread, upstream: PlainUpstream
) -> None:
    error = {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_upstream"}
    upstream.table["/v1/messages"] = Reply(error, status, headers={"retry-after": "3"})
    answer = _ask(gateway, {**_recorded(TURNS[0]), "stream": False})
    shown = json.loads(answer.body)
    # A fault of the upstream's server may be told as one of a gateway: it is retried all the same.
    assert answer.status == status or (status == 500 and answer.status == 502)
    assert shown["type"] == "error"
    assert (shown["error"]["type"], shown["error"]["message"]) == (kind, message)


def test_tokens_can_be_counted(gateway: GatewayThread) -> None:
    body = {name: value for name, value in _recorded(TURNS[0]).items() if name in ("model", "messages", "system", "tools")}
    answer = _ask(gateway, body, path="/v1/messages/count_tokens?beta=true")
    assert answer.status == 200
    assert json.loads(answer.body)["input_tokens"] > 0


def test_models_are_discovered_with_their_windows(gateway: GatewayThread, upstream: PlainUpstream) -> None:
    upstream.table["/v1/models"] = Reply(
        {
            "data": [
                {
                    "type": "model",
                    "id": "claude-next-9",
                    "display_name": "Next",
                    "created_at": "2026-01-01T00:00:00Z",
                    "max_input_tokens": 1_000_000,
                    "max_tokens": 128_000,
                }
            ],
            "has_more": False,
        }
    )
    with anthropic.Anthropic(api_key="any", base_url=gateway.url, max_retries=0) as client:
        listed = {entry.id: entry for entry in client.models.list(limit=1000)}
        one = client.models.retrieve("claude-next-9")
    assert list(listed) == ["claude-sonnet-4-5", "claude-next-9"]
    assert (listed["claude-sonnet-4-5"].max_input_tokens, listed["claude-sonnet-4-5"].max_tokens) == (200_000, 64_000)
    assert (one.max_input_tokens, one.max_tokens) == (1_000_000, 128_000)


def test_a_stream_is_passed_on_as_it_comes(tmp_path: Path) -> None:
    """The first events reach the client while the upstream still holds the others back."""
    seen = threading.Event()
    frames = CONTROL["anthropic_messages"].frames
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
    begin, rest = b"".join(frames[:3]), b"".join(frames[3:])
    with RawServer([Request(), head + begin, Until(seen), rest]) as server:
        upstream = {"base_url": f"http://127.0.0.1:{server.port}", "dialect": "anthropic_messages", "api_key": KEY}
        config = {"upstreams": {"claude": upstream}, "models": [{"match": "*", "use": "claude"}], "envelope_key": "test"}
        with running_gateway(config, tmp_path) as running:
            client = anthropic.Anthropic(api_key="any", base_url=running.url, max_retries=0, timeout=PATIENCE)
            with (
                client,
                client.messages.stream(
                    model="claude-of-tomorrow", max_tokens=99, messages=[{"role": "user", "content": "hi"}]
                ) as stream,
            ):
                kinds = []
                for event in stream:
                    kinds.append(event.type)
                    seen.set()
    assert kinds[0] == "message_start"
    assert kinds[-1] == "message_stop"
