"""Settings that once were accepted and changed nothing do what the reference says."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from athena.shells.config import Sources, load
from support.gateway_process import GatewayThread, read_number, running_gateway
from support.patience import until
from support.plain_upstream import PlainUpstream, Reply
from support.raw_server import Hold, RawServer, Request, Script, Step

MESSAGE = {"role": "assistant", "content": "Hi"}
ANSWER = {
    "id": "1",
    "object": "chat.completion",
    "model": "m",
    "choices": [{"index": 0, "message": MESSAGE, "finish_reason": "stop"}],
}
TOOL, OTHER_TOOL = (
    {"type": "function", "function": {"name": name, "description": "Look. " * 100, "parameters": {"type": "object"}}}
    for name in ("look", "see")
)
BASE: dict[str, Any] = {"models": [{"match": "*", "use": "up"}], "retries": {"attempts": 0}, "envelope_key": "test"}


def ask(gateway: GatewayThread, path: str = "/v1/chat/completions", **fields: Any) -> tuple[int, Any]:
    """Status and body of one question."""
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], **fields}
    data = json.dumps(body).encode() if path.endswith("completions") else None
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(f"http://127.0.0.1:{gateway.port}{path}", data, headers)
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


@pytest.mark.parametrize("enabled", [True, False])
def test_metrics_are_served_only_where_they_are_enabled(enabled: bool, tmp_path: Path) -> None:
    config = {**BASE, "upstreams": {"up": {"base_url": "http://127.0.0.1:9"}}, "metrics": {"enabled": enabled}}
    with running_gateway(config, tmp_path) as gateway:
        status, body = ask(gateway, "/metrics")
    assert status == (200 if enabled else 404)
    assert (b"athena_requests_total" in body) is enabled


def test_the_prompt_that_teaches_tools_is_bounded(tmp_path: Path) -> None:
    with PlainUpstream({"/v1/chat/completions": Reply(ANSWER)}) as upstream:
        config = {
            **BASE,
            "models": [{"match": "*", "use": "up", "tools": "prompted"}],
            "upstreams": {"up": {"base_url": upstream.url}},
            "limits": {"prompt_bytes": 2000},
        }
        with running_gateway(config, tmp_path) as gateway:
            assert ask(gateway, tools=[TOOL])[0] == 200
            status, body = ask(gateway, tools=[TOOL, OTHER_TOOL])
        assert status == 400
        assert b"at most 2000 are allowed" in body
        assert len(upstream.visits) == 1


@pytest.mark.parametrize("wanted", [True, False])
def test_changes_are_logged_where_that_is_asked_for(wanted: bool, tmp_path: Path) -> None:
    with PlainUpstream({"/v1/messages": Reply({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [{"type": "text", "text": "Hi"}],
        "stop_reason": "end_turn", "usage": {"input_tokens": 1, "output_tokens": 1},
    })}) as upstream:  # fmt: skip
        config = {
            **BASE,
            "upstreams": {"up": {"base_url": upstream.url, "dialect": "anthropic_messages"}},
            "log": {"transformations": wanted},
        }
        with running_gateway(config, tmp_path) as gateway:
            assert ask(gateway, seed=7, logit_bias={"5": 1})[0] == 200
            lines = gateway.logs.lines
    told = [line for line in lines if " of the request dropped: " in line]
    assert sorted(line.split(" of the ")[0].split()[-1] for line in told) == (["logit_bias", "seed"] if wanted else [])


def script() -> Script:
    """Answers on one connection, as often as it is asked."""
    body = json.dumps(ANSWER).encode()
    head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode()
    steps: list[Step] = []
    for _ in range(3):
        steps += [Request(), head + body]
    return [*steps, Hold()]


def test_idle_connections_are_kept_as_each_upstream_says(tmp_path: Path) -> None:
    with RawServer(script()) as kept, RawServer(script()) as closed:
        config = {
            **BASE,
            "models": [{"match": "kept", "use": "kept"}, {"match": "closed", "use": "closed"}],
            "upstreams": {
                "kept": {"base_url": f"{kept.url}/v1", "max_idle_connections": 1},
                "closed": {"base_url": f"{closed.url}/v1", "max_idle_connections": 0},
            },
        }
        with running_gateway(config, tmp_path) as gateway:
            for _ in range(2):
                for model in ("kept", "closed"):
                    assert ask(gateway, model=model)[0] == 200
            stats = gateway.gateway.resources.client.stats()
            assert until(lambda: sorted(one.idle for one in gateway.gateway.resources.client.stats().values()) == [0, 1]), stats
        assert (kept.connections, closed.connections) == (1, 2)


def test_unused_connections_are_closed_when_the_upstream_says(tmp_path: Path) -> None:
    with RawServer(script()) as server:
        up = {"base_url": f"{server.url}/v1", "keep_idle_s": 0.05}
        with running_gateway({**BASE, "upstreams": {"up": up}}, tmp_path) as gateway:
            assert ask(gateway)[0] == 200
            assert until(lambda: sum(one.open for one in gateway.gateway.resources.client.stats().values()) == 0)


@pytest.mark.parametrize("named", ["uvicorn", "fast"])
def test_a_choice_of_server_from_earlier_versions_is_explained(named: str, tmp_path: Path) -> None:
    file = tmp_path / "athena.yml"
    file.write_text(json.dumps({"upstreams": {"up": {"base_url": "http://127.0.0.1:9"}}, "server": named}))
    loaded = load(Sources(environment={}, home=tmp_path, directory=tmp_path, config_file=file))
    (told,) = [warning for warning in map(str, loaded.warnings) if "server" in warning]
    assert "no choice of a server any more" in told
    assert "uvicorn --factory athena.asgi:create_app" in told


CALL = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
HISTORY = [
    {"role": "user", "content": "Read it. " * 300},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "call_1", "content": "It is long. " * 300},
]


@pytest.mark.parametrize("kept", [64 << 20, 0])
def test_a_history_is_known_again_to_its_own_caller(kept: int, tmp_path: Path) -> None:
    message = {"type": "message", "role": "assistant", "content": [{"type": "text", "text": "Hi"}], "model": "m", "id": "msg_1"}
    replies = {"/v1/messages": Reply({**message, "stop_reason": "end_turn", "usage": {"input_tokens": 1, "output_tokens": 1}})}
    with PlainUpstream(replies) as upstream:
        config = {
            **BASE,
            "upstreams": {"up": {"base_url": upstream.url, "dialect": "anthropic_messages"}},
            "limits": {"history_cache_bytes": kept},
        }
        with running_gateway(config, tmp_path) as gateway:

            def known(key: str, messages: list[Any]) -> int:
                before = read_number(gateway.port, 'athena_request_parts_total{seen="before"}')
                body = json.dumps({"model": "m", "messages": messages, "tools": [TOOL]}).encode()
                headers = {"content-type": "application/json", "authorization": f"Bearer {key}"}
                with urllib.request.urlopen(
                    urllib.request.Request(f"http://127.0.0.1:{gateway.port}/v1/chat/completions", body, headers)
                ) as answer:
                    assert answer.status == 200
                return int(read_number(gateway.port, 'athena_request_parts_total{seen="before"}') - before)

            on = kept > 0
            assert known("one", HISTORY) == 0
            assert known("one", HISTORY) == 0  # what came once was only noted
            assert known("one", HISTORY) == 4 * on
            assert known("two", HISTORY) == 0
            assert known("one", [*HISTORY, {"role": "user", "content": "Go on."}]) == 4 * on
            assert (read_number(gateway.port, "athena_history_cache_bytes") > 0) is on
        sent = [visit.body for visit in upstream.visits]
        assert sent[0] == sent[1] == sent[2] == sent[3]
        assert len(sent[4]["messages"]) == len(sent[0]["messages"])
        assert sent[4]["messages"][:2] == sent[0]["messages"][:2]
