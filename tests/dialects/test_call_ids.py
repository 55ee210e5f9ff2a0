"""Ids of calls are unique in a conversation, whatever models and servers number."""

from __future__ import annotations

import json
from typing import Any

import pytest

import athena
from athena import translate_request, translate_response

LEAK = (
    "<|tool_calls_section_begin|><|tool_call_begin|>functions.bash:0<|tool_call_argument_begin|>"
    '{"command": "ls"}<|tool_call_end|><|tool_calls_section_end|>'
)
ANSWER = {
    "id": "c", "object": "chat.completion", "choices": [
        {"index": 0, "message": {"role": "assistant", "content": LEAK}, "finish_reason": "stop"}
    ],
}  # fmt: skip
NATIVE = {
    "id": "c", "object": "chat.completion", "choices": [{"index": 0, "finish_reason": "tool_calls", "message": {
        "role": "assistant", "content": None,
        "tool_calls": [{"id": "call_0", "type": "function", "function": {"name": "bash", "arguments": "{}"}}],
    }}],
}  # fmt: skip
TOOL = {"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}


@pytest.mark.parametrize("answer", [ANSWER, NATIVE], ids=["leaked", "native"])
def test_a_chat_client_never_sees_an_id_twice(answer: dict[str, Any]) -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Go"}]
    seen: list[str] = []
    for turn in range(4):
        request = {"model": "kimi-k2", "messages": messages, "tools": [TOOL]}
        answered = translate_response(
            answer, source="openai_chat", target="openai_chat", request=request, format="kimi_k2", seed=f"req_{turn}"
        )
        message = answered.body["choices"][0]["message"]
        (call,) = message["tool_calls"]
        seen.append(call["id"])
        messages = [*messages, message, {"role": "tool", "tool_call_id": call["id"], "content": "ok"}]
    assert len(set(seen)) == 4
    assert seen[0] in ("functions.bash:0", "call_0"), "an id that nobody has used yet stays as it is"
    sent = translate_request(
        {"model": "kimi-k2", "messages": messages, "tools": [TOOL]}, source="openai_chat", target="openai_chat"
    )
    ids = [call["id"] for message in sent.body["messages"] for call in message.get("tool_calls") or ()]
    assert ids == [f"functions.bash:{number}" for number in range(4)], "the model gets its own numbers, counted on"


def test_a_gemini_client_never_sees_an_id_twice() -> None:
    contents: list[dict[str, Any]] = [{"role": "user", "parts": [{"text": "Go"}]}]
    seen: list[str] = []
    for turn in range(3):
        answered = translate_response(
            NATIVE, source="openai_chat", target="gemini", request={"model": "m", "contents": contents}, seed=f"req_{turn}"
        )
        content = answered.body["candidates"][0]["content"]
        call = content["parts"][0]["functionCall"]
        seen.append(call["id"])
        answer = {"functionResponse": {"id": call["id"], "name": "bash", "response": {"output": "ok"}}}
        contents = [*contents, content, {"role": "user", "parts": [answer]}]
    assert len(set(seen)) == 3


TEXTS = [f'<tool_call>{{"name": "get_time", "arguments": {{"n": {number}}}}}</tool_call>' for number in range(3)]


def test_parse_makes_ids_of_the_text_or_of_a_seed() -> None:
    ids = [athena.parse(text).calls[0].id for text in TEXTS]
    assert len(set(ids)) == 3
    assert [athena.parse(text).calls[0].id for text in TEXTS] == ids, "the same text, the same ids"
    assert athena.parse(TEXTS[0], seed="a").calls[0].id != athena.parse(TEXTS[0], seed="b").calls[0].id
    assert athena.parse(TEXTS[0], seed="a").calls[0].id == athena.parse(TEXTS[1], seed="a").calls[0].id


def test_batches_make_ids_of_the_text_however_it_is_cut() -> None:
    whole = [outcome["tool_calls"][0]["id"] for outcome in athena.parse_batch({"text": text} for text in TEXTS)]
    pieces = [outcome["tool_calls"][0]["id"] for outcome in athena.parse_batch({"chunks": list(text)} for text in TEXTS)]
    assert len(set(whole)) == 3
    assert whole == pieces == [athena.parse(text).calls[0].id for text in TEXTS]
    seeded = [outcome["tool_calls"][0]["id"] for outcome in athena.parse_batch([{"text": TEXTS[0]}], seed="x")]
    assert seeded != whole[:1]


def test_events_of_a_stream_take_a_seed() -> None:
    def first_id(seed: str) -> str:
        bare = json.loads(json.dumps(NATIVE))
        del bare["choices"][0]["message"]["tool_calls"][0]["id"]
        return athena.events_from(json.dumps(bare), dialect="openai_chat", seed=seed).read().calls[0].id

    assert first_id("a") != first_id("b")
    assert first_id("a") == first_id("a")
