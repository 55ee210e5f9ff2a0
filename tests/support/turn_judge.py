"""Is all of a tool loop's first turn in what an upstream is sent next: to the same model, and to one of another family?"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from support.tool_loops import CHAT_DETAILS, FINAL, STATE, TEXT, THOUGHT, WEATHER, Conversation, Entry, history

UPSTREAMS = {
    "anthropic_messages": ("anthropic", "claude-sonnet-4-5"),
    "openai_chat": ("openrouter", "x-ai/grok-4"),
    "openai_responses": ("openai_responses", "gpt-5"),
    "gemini": ("gemini", "gemini-3-pro"),
}
"""Each dialect's profile and a model of it whose state has a family."""
SENTINEL = "skip_thought_signature_validator"
TAKES_ID: dict[str, Callable[[str], object]] = {
    "anthropic_messages": re.compile(r"[a-zA-Z0-9_-]{1,128}").fullmatch,
    "openai_chat": re.compile(r"[!-~]{1,40}").fullmatch,
    "openai_responses": re.compile(r"[!-~]{1,64}").fullmatch,
    "gemini": lambda call_id: True,
}


def run_loop(talk: Conversation, model: str) -> None:
    """A question, two results, the final answer."""
    talk.say("Weather and time?")
    talk.ask(model)
    assert [name for _, name in talk.calls] == ["get_weather", "get_time"]
    talk.give_results("sunny", "12:00")
    talk.ask(model)
    assert talk.calls == []


def readable(entries: list[Entry]) -> list[tuple[str, str, str]]:
    """Everything but thinking, without ids and state."""
    found: list[tuple[str, str, str]] = []
    for entry in entries:
        if entry.kind == "thinking" or (entry.kind == "text" and not entry.text):
            continue
        if entry.kind == "text" and found and found[-1][0] == "text":
            # Clients of Gemini streams replay each piece as a part of its own.
            found[-1] = ("text", found[-1][1] + entry.text, "")
        else:
            found.append((entry.kind, entry.text, entry.name if entry.kind == "call" else ""))
    return found


TURN = [
    ("user", "Weather and time?", ""),
    ("text", TEXT, ""),
    ("call", WEATHER, "get_weather"),
    ("call", "{}", "get_time"),
    ("result", "sunny", ""),
    ("result", "12:00", ""),
]


def check_turn(dialect: str, entries: list[Entry], *, ids: bool = True) -> None:
    """All of the turn is there, in order, its ids paired and as the dialect takes them."""
    assert readable(entries)[: len(TURN)] == TURN
    calls = [entry.id for entry in entries if entry.kind == "call"]
    results = [entry.id for entry in entries if entry.kind == "result"]
    assert calls == results
    assert len(set(calls)) == 2 or not ids
    assert all(TAKES_ID[dialect](call_id) for call_id in calls)


def states(entries: list[Entry]) -> list[str]:
    return [entry.state for entry in entries if entry.state]


def check_state_came_home(upstream: str, body: dict[str, Any], entries: list[Entry]) -> None:
    """The state is where its family looks for it, byte for byte, once."""
    assert str(body).count(STATE[upstream]) == 1
    if upstream == "anthropic_messages":
        assert entries[1] == Entry("thinking", THOUGHT, state=STATE[upstream])
    elif upstream == "openai_responses":
        assert entries[1] == Entry("thinking", THOUGHT, "rs_1", state=STATE[upstream])
    elif upstream == "openai_chat":
        assert body["messages"][1]["reasoning_details"] == CHAT_DETAILS
    else:
        signed = [entry for entry in entries if entry.state]
        assert [(entry.name, entry.state) for entry in signed] == [("get_weather", STATE[upstream])]


def check_state_stayed_home(upstream: str, other: str, body: dict[str, Any]) -> None:
    """After a change of model from `upstream` to `other`: everything readable, nothing that only the first one can read."""
    entries = history(other, body)
    check_turn(other, entries)
    assert readable(entries)[len(TURN) :] == [("text", FINAL, ""), ("user", "And now?", "")]
    text = str(body)
    assert STATE[upstream] not in text, "state of another family was sent"
    assert "gw1." not in text, "an envelope was sent to an upstream"
    assert set(states(entries)) <= {SENTINEL}
