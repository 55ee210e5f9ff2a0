"""A running gateway with two targets for one model: who serves, what is said about it, and what happens when one turns bad."""

from __future__ import annotations

import json
import time
import urllib.request
from pathlib import Path
from typing import Any

from openai import OpenAI

from athena.shells.cli.background import _route_words
from support.gateway_process import GatewayThread, running_gateway
from support.patience import PATIENCE
from support.plain_upstream import PlainUpstream, Reply

TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def reply(arguments: str) -> Reply:
    call = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": arguments}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    choice = {"index": 0, "finish_reason": "tool_calls", "message": message}
    return Reply({"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]})


GOOD, BAD = reply('{"city":"Oslo"}'), reply('{"town":"Oslo"}')


def served_by(client: OpenAI, *, tools: bool = True) -> str:
    arguments: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
    if tools:
        arguments["tools"] = [TOOL]
    answer = client.chat.completions.with_raw_response.create(**arguments)
    assert answer.parse().choices[0].message.tool_calls, "the call reaches the client, whoever made it"
    return str(answer.headers["x-athena-served-by"])


def told(running: GatewayThread, path: str, token: str = "") -> Any:
    asked = urllib.request.Request(f"{running.url}{path}", headers={"authorization": f"Bearer {token}"} if token else {})
    with urllib.request.urlopen(asked, timeout=PATIENCE) as answer:
        text = answer.read().decode()
    return text if path == "/metrics" else json.loads(text)


def test_a_target_that_turns_bad_is_left_and_comes_back(tmp_path: Path) -> None:
    with PlainUpstream() as upstream:
        paths = {name: f"/{name}/v1/chat/completions" for name in ("one", "two")}
        upstream.table |= dict.fromkeys(paths.values(), GOOD)
        config = {
            "upstreams": {name: {"base_url": f"{upstream.url}/{name}/v1"} for name in paths},
            "models": [{"match": "*", "use": ["one/m", {"use": "two/m"}]}],
            "health": {"tools": {"probe_s": 0.001, "probes": 3}},
            "record": {"mode": "memory"},
            "state_dir": str(tmp_path),
            "envelope_key": "test",
        }
        with (
            running_gateway(config, tmp_path) as running,
            OpenAI(base_url=f"{running.url}/v1", api_key="x", max_retries=0) as client,
        ):
            assert {served_by(client) for _ in range(3)} == {"one/m"}
            upstream.table[paths["one"]] = BAD
            assert {served_by(client) for _ in range(4)} == {"one/m"}
            # Out by now: a request without tools is never a canary.
            assert served_by(client, tools=False) == "two/m"
            (route, _) = told(running, "/ready")["routes"]
            assert (route["upstream"], route["state"], route["found"]) == ("one", "out", {"off_schema": 4})
            assert _route_words(route) == "one/m left out: 7 answers lately, 4 off_schema; 0 good canaries so far"
            numbers = told(running, "/metrics")
            assert 'athena_findings_total{detail="",finding="off_schema",model="m",upstream="one"} 4.0' in numbers
            assert 'athena_answers_total{model="m",upstream="one"} 7.0' in numbers
            assert 'athena_route_up{model="m",upstream="one"} 0.0' in numbers
            assert 'athena_route_up{model="m",upstream="two"} 1.0' in numbers
            inspector = running.gateway.inspector
            assert inspector is not None
            assert told(running, "/inspect/api/health", inspector.token)["routes"][0]["state"] == "out"
            upstream.table[paths["one"]] = GOOD
            for _ in range(3):
                time.sleep(0.002)
                assert served_by(client) == "one/m", "a canary"
            assert served_by(client, tools=False) == "one/m", "it is back"
            numbers = told(running, "/metrics")
            assert 'athena_canaries_total{model="m",upstream="one"} 3.0' in numbers
            assert 'athena_route_transitions_total{model="m",state="in",upstream="one"} 1.0' in numbers
        decisions = [line for line in running.logs.lines if "one/m is" in line]
        assert [line.partition(" {")[0] for line in decisions] == [
            "athena WARNING one/m is left out while there is another target: 4 of the last 7 answers were bad (4 off_schema); "
            "10% of 40 is the limit",
            "athena INFO one/m is back: 3 good answers in a row; 0 of the last 3 answers were bad",
        ]
        assert any("'chosen_by': 'canary'" in line and "'upstream': 'one'" in line for line in running.logs.lines)
