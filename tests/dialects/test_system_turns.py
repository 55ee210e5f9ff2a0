"""System messages where strict chat templates take them: the first message and no other."""

from __future__ import annotations

from typing import Any

import pytest

from athena import translate_request

STRICT = "Qwen3.5-35B-A3B"
"""From this family on the template answers "System message must be at the beginning"."""

CLAUDE_CODE: dict[str, Any] = {
    "model": "m",
    "max_tokens": 10,
    "system": [{"type": "text", "text": "You are an agent."}, {"type": "text", "text": "Be brief."}],
    "messages": [
        {"role": "user", "content": "Hi"},
        {"role": "system", "content": "The date is new."},
        {"role": "assistant", "content": "Hello."},
        {"role": "user", "content": "Go"},
    ],
}
CODEX: dict[str, Any] = {
    "model": "m",
    "instructions": "You are an agent.",
    "input": [
        {"role": "developer", "content": "Sandbox."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello."},
        {"role": "developer", "content": "<model_switch>"},
        {"role": "user", "content": "Go"},
    ],
}
CHAT: dict[str, Any] = {
    "model": "m",
    "messages": [
        {"role": "system", "content": "You are an agent."},
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
        {"role": "system", "content": "The date is new."},
        {"role": "user", "content": "Go"},
    ],
}
BODIES = [
    pytest.param("anthropic_messages", CLAUDE_CODE, id="claude_code"),
    pytest.param("openai_responses", CODEX, id="codex"),
    pytest.param("openai_chat", CHAT, id="chat"),
]


@pytest.mark.parametrize(("source", "body"), BODIES)
def test_strict_templates_get_one_system_message_and_get_it_first(source: str, body: dict[str, Any]) -> None:
    sent = translate_request(body, source=source, target="openai_chat", model=STRICT)
    roles = [message["role"] for message in sent.body["messages"]]
    assert roles[0] == "system"
    assert not set(roles[1:]) & {"system", "developer"}
    tagged = [message["content"] for message in sent.body["messages"] if "<system-reminder>" in str(message["content"])]
    assert len(tagged) == 1, "a late instruction keeps its words and its place"
    assert any(loss.action == "emulated" and "mid-conversation" in loss.reason for loss in sent.warnings)


def test_several_leading_messages_become_one_with_all_their_words() -> None:
    sent = translate_request(CHAT, source="openai_chat", target="openai_chat", model=STRICT)
    words = [part["text"] for part in sent.body["messages"][0]["content"]]
    assert words == ["You are an agent.", "Be brief."]


def test_one_leading_message_stays_as_it_is() -> None:
    body = {"model": "m", "messages": [{"role": "system", "content": "A", "x": 1}, {"role": "user", "content": "Hi"}]}
    sent = translate_request(body, source="openai_chat", target="openai_chat", model=STRICT)
    assert sent.body["messages"] == body["messages"]


@pytest.mark.parametrize(("source", "body"), BODIES)
def test_other_models_keep_their_system_messages(source: str, body: dict[str, Any]) -> None:
    sent = translate_request(body, source=source, target="openai_chat", model="gpt-4.1")
    assert sum(message["role"] in ("system", "developer") for message in sent.body["messages"]) >= 2
    assert "<system-reminder>" not in str(sent.body)
