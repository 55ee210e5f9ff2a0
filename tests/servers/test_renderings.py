"""What a template itself writes for a call is read back as that call, however it is cut.

The server renders a history with calls by its own Jinja engine; what stands behind the prompt is what the model was trained to
write. `judged.toml` names the turns that a template cannot write: values that it loses or leaves ambiguous.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from athena.parsing import parse_pieces
from servers.conftest import Scores
from servers.llama_server import (
    CHAT_TOOLS,
    TEMPLATES,
    Family,
    LlamaServer,
    Refused,
    answer_in,
    chat_call,
    opens_thought,
    turn_end,
    without_end,
)

pytestmark = pytest.mark.servers

LISBON = ("get_weather", {"city": "Lisbon", "unit": "celsius", "days": 3})
TURNS: dict[str, tuple[str, list[tuple[str, dict[str, Any]]]]] = {
    "one": ("", [LISBON]),
    "no arguments": ("", [("now", {})]),
    "all types": ("", [("note", {"tags": ["a b", "ü"], "done": False, "place": {"line": 4, "near": -0.5}})]),
    "two": ("", [LISBON, ("note", {"tags": [], "done": True})]),
    "text before": ("I look it up.", [LISBON]),
    "awkward": ("", [("get_weather", {"city": "Sã\"o\\n\n<b>&amp;'", "unit": "fahrenheit", "days": 14})]),
}


@pytest.mark.parametrize("name", TEMPLATES)
def test_renderings_read_back(name: str, family: Callable[[str], Family], judged: list[dict[str, Any]], scores: Scores) -> None:
    reasons = {
        turn: row["reason"]
        for row in judged
        if row["test"] == "renderings" and row["template"] == name
        for turn in row["turns"]
    }
    wrong = []
    with family(name).served() as server:
        end = turn_end(server)
        for turn, (content, calls) in TURNS.items():
            answer = written(server, content, calls, end)
            if answer is None:
                scores.count("renderings", "refused by the template")
                continue
            prompt, text = answer
            if content not in text or not all(call[0] in text for call in calls):
                scores.count("renderings", "not written by the template", f"{name}, {turn}")
                continue
            problem = misread(name, prompt, text, content, calls)
            if problem is None:
                scores.count("renderings", "read back")
            elif turn in reasons:
                scores.count("renderings", "lost by the template", f"{name}, {turn}: {reasons.pop(turn)}")
            else:
                scores.count("renderings", "WRONG", f"{name}, {turn}: {problem}")
                wrong.append(turn)
    assert not wrong
    assert not reasons, "judged, and read back now"


def written(server: LlamaServer, content: str, calls: list[tuple[str, dict[str, Any]]], end: str) -> tuple[str, str] | None:
    """The prompt and what the template writes behind it; None when it raises an error of its own."""
    made = [chat_call(number, *call) for number, call in enumerate(calls)]
    try:
        prompt, answer = answer_in(server, {"role": "assistant", "content": content, "tool_calls": made})
    except Refused:
        return None
    return prompt, without_end(answer, end)


def misread(name: str, prompt: str, text: str, content: str, calls: list[tuple[str, dict[str, Any]]]) -> str | None:
    """What is wrong with our reading; None: nothing."""
    for pieces in ([text], list(text), [text[at : at + 3] for at in range(0, len(text), 3)]):
        parsed = parse_pieces(pieces, model=name, tools=CHAT_TOOLS, starts_in_thinking=opens_thought(prompt))
        found = [(call.name, json.loads(call.arguments)) for call in parsed.calls]
        if found != calls or parsed.text.strip() != content:
            return f"{found!r} and text {parsed.text!r} from {text!r} behind {prompt[-40:]!r} ({parsed.format})"
    return None
