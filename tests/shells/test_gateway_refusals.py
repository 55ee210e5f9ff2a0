"""Refusals of a shape, through the gateway: asked again without it before the client has a byte, remembered and shown."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import httpx2 as httpx
import openai
import pytest

from athena.shells.config import hash_key
from support.gateway_process import GatewayThread, running_gateway
from support.patience import PATIENCE, until
from support.replays import differing, kept
from support.scripted_upstream import ScriptedUpstream
from support.sdks import anthropic_client, openai_client
from support.upstream_speech import chat_stream, chat_whole, encode
from support.upstream_talk import Talk

STRICT = "System message must be at the beginning."
BLIND = "this model does not support image input"
NINE = "Jinja Exception: Tool call IDs should be alphanumeric strings with length 9!"
KEYS = {"alice": "alices-key-0123456789", "mallory": "mallorys-key-0123456789"}


class Upstream(ScriptedUpstream):
    """A Chat server that refuses what it is told to refuse, and answers everything else."""

    base_path = "/v1"

    def __init__(self) -> None:
        super().__init__()
        self.refuses: set[str] = set()
        self.last_word: tuple[int, str] | None = None
        """What to answer to a request in which nothing is left to refuse, instead of an answer."""

    async def answer(self, talk: Talk) -> None:
        refusal = self.refusal(talk.body)
        if refusal is not None:
            await talk.whole(encode({"error": {"message": refusal[1], "type": "BadRequestError"}}), f"{refusal[0]} X")
        else:
            await talk.say(chat_stream([{"content": "Hello"}], "stop"), chat_whole({"content": "Hello"}, "stop"))

    def refusal(self, body: dict[str, Any]) -> tuple[int, str] | None:
        roles = [message["role"] for message in body["messages"]]
        if "late_system" in self.refuses and "system" in roles[1:]:
            return 400, STRICT
        if "images" in self.refuses and "image_url" in json.dumps(body):
            return 500, BLIND
        names = [call["id"] for message in body["messages"] for call in message.get("tool_calls", ())]
        if "call_ids" in self.refuses and not all(len(name) == 9 and name.isalnum() for name in names):
            return 400, NINE
        for name in sorted(self.refuses & set(body)):
            return 400, f"Unrecognized request argument supplied: {name}"
        return self.last_word


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with Upstream() as running:
        yield running


@pytest.fixture
def gateway(upstream: Upstream, tmp_path: Path) -> Iterator[GatewayThread]:
    with running_gateway(config(upstream), tmp_path) as running:
        yield running


def config(upstream: Upstream, **fields: Any) -> dict[str, Any]:
    return {
        "upstreams": {"local": {"base_url": upstream.url, "dialect": "openai_chat"}},
        "models": [{"match": "*", "use": "local/*"}],
        "retries": {"attempts": 0},
        **fields,
    }


def as_claude_code(url: str, *, stream: bool) -> str:
    """A request with instructions in mid-conversation, as Claude Code sends it."""
    messages: list[Any] = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Yes?"},
        {"role": "system", "content": "The file changed."},
        {"role": "user", "content": "Go on"},
    ]
    client = anthropic_client(url)
    if not stream:
        return client.messages.create(model="m", max_tokens=9, system="Be brief.", messages=messages).content[0].text  # type: ignore[union-attr]  # the answer is text
    with client.messages.stream(model="m", max_tokens=9, system="Be brief.", messages=messages) as events:
        return events.get_final_text()


def with_image(url: str, key: str = "x", **fields: Any) -> httpx.Response:
    pixel = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    content = [{"type": "text", "text": "What is this?"}, pixel]
    body = {"model": "m", "messages": [{"role": "user", "content": content}], **fields}
    headers = {"authorization": f"Bearer {key}"}
    return httpx.post(f"{url}/v1/chat/completions", json=body, headers=headers, timeout=PATIENCE)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_strict_template(stream: bool, upstream: Upstream, gateway: GatewayThread) -> None:
    upstream.refuses = {"late_system"}
    for _ in range(4):
        assert as_claude_code(gateway.url, stream=stream) == "Hello"
    late = ["system" in [message["role"] for message in body["messages"]][1:] for body in upstream.bodies]
    assert late == [True, False, True, False, False, False], "two requests are refused and corrected; then it is known"
    assert "The file changed." in json.dumps(upstream.bodies[-1])
    assert until(lambda: any("refuses late_system" in line for line in gateway.logs.lines))
    assert any("'corrections': 'late_system'" in line for line in gateway.logs.lines)
    metrics = httpx.get(f"{gateway.url}/metrics", timeout=PATIENCE).text
    assert 'athena_learnt_total{feature="late_system",upstream="local"} 1.0' in metrics
    assert 'athena_corrected_requests_total{feature="late_system",upstream="local"} 2.0' in metrics
    (lesson,) = httpx.get(f"{gateway.url}/ready", timeout=PATIENCE).json()["learnt"]
    assert (lesson["upstream"], lesson["model"], lesson["feature"]) == ("local", "m", "late_system")
    assert 0 < lesson["expires_s"] <= 3600


def test_a_template_that_wants_ids_of_nine_letters(upstream: Upstream, gateway: GatewayThread) -> None:
    upstream.refuses = {"call_ids"}
    call: Any = {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {}}
    result: Any = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "Fine."}
    messages: list[Any] = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result]},
    ]
    tools: Any = [{"name": "get_weather", "input_schema": {"type": "object"}}]
    client = anthropic_client(gateway.url)
    for _ in range(3):
        with client.messages.stream(model="m", max_tokens=9, messages=messages, tools=tools) as events:
            assert events.get_final_text() == "Hello"
    assert len(upstream.bodies) == 5, "two requests are refused and corrected; then it is known"
    _, assistant, tool = upstream.bodies[-1]["messages"]
    assert tool["tool_call_id"] == assistant["tool_calls"][0]["id"]


def _forget(url: str, body: Any, **headers: str) -> httpx.Response:
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx.post(f"{url}/learnt/forget", json=body, headers=headers, timeout=PATIENCE)


def test_what_was_learnt_is_forgotten_when_the_operator_asks(upstream: Upstream, gateway: GatewayThread) -> None:
    upstream.refuses = {"images"}
    for _ in range(2):
        assert with_image(gateway.url).status_code == 200
    upstream.refuses = set()
    assert "image_url" not in json.dumps((with_image(gateway.url), upstream.bodies[-1])[1])
    for refused, status in (
        (_forget(gateway.url, {}, origin="https://evil.example"), 403),
        (_forget(gateway.url, {}, sec_fetch_site="cross-site"), 403),
        (_forget(gateway.url, {}, x_forwarded_for="192.0.2.1"), 403),
        (_forget(gateway.url, {"upstream": "nobody"}), 400),
        (_forget(gateway.url, {"model": "m"}), 400),
        (_forget(gateway.url, {"upstream": 1}), 400),
        (_forget(gateway.url, {"all": True}), 400),
        (httpx.get(f"{gateway.url}/learnt/forget", timeout=PATIENCE), 405),
    ):
        assert refused.status_code == status, refused.text
    assert _forget(gateway.url, {"upstream": "local", "model": "another"}).json()["forgotten"] == []
    assert len(httpx.get(f"{gateway.url}/ready", timeout=PATIENCE).json()["learnt"]) == 1
    (lesson,) = _forget(gateway.url, {"upstream": "local", "model": "m"}).json()["forgotten"]
    assert (lesson["upstream"], lesson["model"], lesson["feature"]) == ("local", "m", "images")
    assert httpx.get(f"{gateway.url}/ready", timeout=PATIENCE).json()["learnt"] == []
    assert with_image(gateway.url).status_code == 200
    assert "image_url" in json.dumps(upstream.bodies[-1])
    assert 'athena_forgotten_lessons_total{upstream="local"} 1.0' in httpx.get(f"{gateway.url}/metrics", timeout=PATIENCE).text
    assert any("what was learnt about local/m is forgotten: 1 lesson" in line for line in gateway.logs.lines)


def test_a_clients_key_makes_nobody_forget(upstream: Upstream, tmp_path: Path) -> None:
    keys = [{"name": name, "hash": hash_key(key)} for name, key in KEYS.items()]
    state = str(tmp_path / "state")
    with running_gateway(config(upstream, keys=keys, record={"mode": "memory"}, state_dir=state), tmp_path) as gateway:
        upstream.refuses = {"images"}
        for _ in range(2):
            assert with_image(gateway.url, KEYS["alice"]).status_code == 200
        for headers in (
            {},
            {"authorization": f"Bearer {KEYS['mallory']}"},
            {"x_api_key": "nonsense"},
        ):
            answer = _forget(gateway.url, {}, **headers)
            assert (answer.status_code, answer.json()["error"]["code"]) == (403, "operator_only")
        inspector = gateway.gateway.inspector
        assert inspector is not None
        shown = {"authorization": f"Bearer {inspector.token}"}
        health = f"{gateway.url}/inspect/api/health"
        (lesson,) = httpx.get(health, headers=shown, timeout=PATIENCE).json()["lessons"]
        assert (lesson["model"], lesson["feature"]) == ("m", "images")
        assert len(_forget(gateway.url, {}, **shown).json()["forgotten"]) == 1
        assert httpx.get(health, headers=shown, timeout=PATIENCE).json()["lessons"] == []


def test_one_refusal_after_another(upstream: Upstream, gateway: GatewayThread) -> None:
    upstream.refuses = {"images", "frequency_penalty", "seed"}
    for _ in range(3):
        answer = with_image(gateway.url, frequency_penalty=1, seed=2)
        assert answer.status_code == 200
        assert "no images" in answer.headers["x-athena-warnings"]
    sizes = [("image_url" in json.dumps(body), len({"frequency_penalty", "seed"} & set(body))) for body in upstream.bodies]
    assert sizes == [(True, 2), (False, 2), (False, 1), (False, 0)] * 2 + [(False, 0)]
    until(lambda: len(kept(gateway.gateway)) == 3)
    assert differing(gateway.gateway) == {}, "a replay knows what was learnt before the request"


def test_a_fourth_refusal_is_the_clients(upstream: Upstream, gateway: GatewayThread) -> None:
    """Each part is left out once, and three in all: then the client hears the first refusal, and nothing is learnt."""
    upstream.refuses = {"images", "frequency_penalty", "presence_penalty", "seed"}
    for _ in range(2):
        answer = with_image(gateway.url, frequency_penalty=1, presence_penalty=1, seed=2)
        assert (answer.status_code, answer.json()["error"]["message"]) == (400, BLIND)
    parts = [("image_url" in json.dumps(body)) + len(upstream.refuses & set(body)) for body in upstream.bodies]
    assert parts == [4, 3, 2, 1] * 2
    assert httpx.get(f"{gateway.url}/ready", timeout=PATIENCE).json()["learnt"] == []


def test_the_first_error_is_told_when_it_was_in_vain(upstream: Upstream, gateway: GatewayThread) -> None:
    upstream.refuses, upstream.last_word = {"images"}, (400, "something else is wrong")
    answer = with_image(gateway.url)
    assert answer.json()["error"]["message"] == BLIND
    assert len(upstream.bodies) == 2


def test_news_are_told(upstream: Upstream, gateway: GatewayThread) -> None:
    upstream.refuses, upstream.last_word = {"images"}, (400, "This model's maximum context length is 9 tokens")
    answer = with_image(gateway.url)
    assert answer.json()["error"]["code"] == "context_length_exceeded"


def test_one_client_changes_nothing_for_another(upstream: Upstream, tmp_path: Path) -> None:
    """Mallory's requests are refused for their images; the upstream takes those of others."""
    keys = [{"name": name, "hash": hash_key(key)} for name, key in KEYS.items()]
    with running_gateway(config(upstream, keys=keys), tmp_path) as gateway:
        upstream.refuses = {"images"}
        for _ in range(3):
            assert with_image(gateway.url, KEYS["mallory"]).status_code == 200
        upstream.refuses = set()
        assert "image_url" not in json.dumps(upstream.bodies[-1])
        assert with_image(gateway.url, KEYS["alice"]).status_code == 200
        assert "image_url" in json.dumps(upstream.bodies[-1])


def test_corrections_may_be_turned_off(upstream: Upstream, tmp_path: Path) -> None:
    upstream.refuses = {"late_system", "images"}
    with running_gateway(config(upstream, learning={"correct": False}), tmp_path) as gateway:
        with pytest.raises(anthropic.BadRequestError, match="must be at the beginning"):
            as_claude_code(gateway.url, stream=True)
        assert with_image(gateway.url).json()["error"]["message"] == BLIND
    assert len(upstream.bodies) == 2


def test_a_refusal_of_a_demand_is_the_clients(upstream: Upstream, gateway: GatewayThread) -> None:
    """Without its schema the answer would not be what the client asked for."""
    upstream.refuses = {"response_format"}
    with pytest.raises(openai.BadRequestError, match="response_format"):
        openai_client(gateway.url).chat.completions.create(
            model="m", messages=[{"role": "user", "content": "Hi"}], response_format={"type": "json_object"}
        )
    assert len(upstream.bodies) == 1
