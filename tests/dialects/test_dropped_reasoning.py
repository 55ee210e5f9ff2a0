"""Reasoning that a client does not keep goes back to a model that wants it with its calls."""

from __future__ import annotations

import json
from typing import Any

import pytest

from athena.dialects import get_dialect
from athena.exchange import Exchange, Options, Route
from athena.opaque import OpaqueStore
from athena.profiles import default_profiles

THOUGHT = "The user wants the time."
CALL = {"id": "functions.get_time:0", "type": "function", "function": {"name": "get_time", "arguments": "{}"}}
ANSWER = {
    "id": "c", "object": "chat.completion", "choices": [{"index": 0, "finish_reason": "tool_calls", "message": {
        "role": "assistant", "content": None, "reasoning_content": THOUGHT, "tool_calls": [CALL],
    }}],
}  # fmt: skip


def exchange(client: str, body: dict[str, Any], store: OpaqueStore, model: str, profile: str) -> Exchange:
    request = get_dialect(client).decode_request(body, model="m" if client == "gemini" else None, stream=False)
    chosen = default_profiles().get(profile, model)
    return Exchange(
        request, Route(dialect="openai_chat", model=model, profile=chosen), Options(store=store, tenant="t", seed="s")
    )


def asked(client: str, history: list[dict[str, Any]]) -> dict[str, Any]:
    """A body of the client's dialect."""
    if client == "gemini":
        first = {"role": "user", "parts": [{"text": "What time is it?"}]}
        return {"contents": [first, *history], "tools": [{"functionDeclarations": [{"name": "get_time"}]}]}
    if client == "openai_chat":
        tool = {"type": "function", "function": {"name": "get_time"}}
        return {"model": "m", "messages": [{"role": "user", "content": "What time is it?"}, *history], "tools": [tool]}
    tool = {"name": "get_time", "input_schema": {"type": "object"}}
    messages = [{"role": "user", "content": "What time is it?"}, *history]
    return {"model": "m", "max_tokens": 10, "messages": messages, "tools": [tool]}


def kept(client: str, answer: dict[str, Any]) -> list[dict[str, Any]]:
    """What a client that drops reasoning sends back, with the tool's result."""
    if client == "gemini":
        parts = [part for part in answer["candidates"][0]["content"]["parts"] if not part.get("thought")]
        call = parts[0]["functionCall"]
        result = {"functionResponse": {"id": call["id"], "name": call["name"], "response": {"output": "12:00"}}}
        return [{"role": "model", "parts": [{"functionCall": call}]}, {"role": "user", "parts": [result]}]
    if client == "openai_chat":
        message = answer["choices"][0]["message"]
        said = {"role": "assistant", "content": None, "tool_calls": message["tool_calls"]}
        return [said, {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "12:00"}]
    call = next(block for block in answer["content"] if block["type"] == "tool_use")
    block = {"type": "tool_result", "tool_use_id": call["id"], "content": "12:00"}
    return [{"role": "assistant", "content": [call]}, {"role": "user", "content": [block]}]


def first_turn(client: str, store: OpaqueStore, model: str, profile: str) -> list[dict[str, Any]]:
    one = exchange(client, asked(client, []), store, model, profile)
    one.upstream_head(200, {"content-type": "application/json"})
    one.upstream_data(json.dumps(ANSWER).encode())
    return kept(client, json.loads(one.upstream_end().output))


@pytest.mark.parametrize("client", ["gemini", "openai_chat", "anthropic_messages"])
@pytest.mark.parametrize(
    ("profile", "model", "field"),
    [("moonshot", "kimi-k2-thinking", "reasoning_content"), ("vllm", "Qwen/Qwen3-32B", "reasoning")],
)
def test_it_is_put_back(client: str, profile: str, model: str, field: str) -> None:
    store = OpaqueStore()
    history = first_turn(client, store, model, profile)
    sent = json.loads(exchange(client, asked(client, history), store, model, profile).call.body)
    caller = next(message for message in sent["messages"] if message["role"] == "assistant")
    assert caller[field] == THOUGHT
    assert caller["tool_calls"][0]["function"]["name"] == "get_time"
    again = json.loads(exchange(client, asked(client, history), store, model, profile).call.body)
    assert again == sent, "each turn gets the same bytes"


def test_it_is_not_kept_for_a_model_that_refuses_it() -> None:
    store = OpaqueStore()
    history = first_turn("gemini", store, "deepseek-reasoner", "deepseek")
    sent = exchange("gemini", asked("gemini", history), store, "deepseek-reasoner", "deepseek").call.body
    assert THOUGHT.encode() not in sent
    # Nor is it handed to another model that refuses it.
    store = OpaqueStore()
    history = first_turn("gemini", store, "kimi-k2-thinking", "moonshot")
    assert (
        THOUGHT.encode() not in exchange("gemini", asked("gemini", history), store, "deepseek-reasoner", "deepseek").call.body
    )
