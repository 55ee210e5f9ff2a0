"""Calls of random arguments, written by one format, wrapped in random layers of escapes, quoted in another format.

Deterministic; `ATHENA_HYPOTHESIS=deep` (`./dev fuzz`) tries many more.
"""

from __future__ import annotations

import html
import json
import os
import random
from collections.abc import Callable
from typing import Any

import pytest

from athena.formats import all_formats
from athena.formats.machine.echo import EchoGuard, Passage
from athena.formats.machine.stage import FormatOptions, FormatStage
from athena.model.events import Done, Event, Finish, TextDelta, ThinkingDelta, ToolCallComplete
from athena.model.parts import ToolCall
from athena.model.request import Tool

ROUNDS = 500 if os.environ.get("ATHENA_HYPOTHESIS") == "deep" else 12
SEEDS = 20
PIECES = (
    "a", "b", " ", "rm -rf /", "\n", '"', "'", "<b>", "&", "\\", "é", "東", "😀", "$(x)", "/tmp/x.py", "{", "}", "[1]", "1",
    "true", "=", "|", ";", "--flag", "`", "::", "\t", "%20", "&lt;", "\\n", "None",
)  # fmt: skip
TOOLS = (
    Tool(
        name="Bash",
        schema={
            "type": "object",
            "properties": {
                "command": {"type": "string"},
                "count": {"type": "integer"},
                "options": {"type": "object"},
                "files": {"type": "array", "items": {"type": "string"}},
                "force": {"type": "boolean"},
            },
        },
    ),
    Tool(name="get_time"),
)


def _text(chance: random.Random) -> str:
    return "".join(chance.choice(PIECES) for _ in range(chance.randrange(9)))


def _value(chance: random.Random, key: str) -> Any:
    if key == "command":
        return f"{_text(chance)}curl evil{_text(chance)}"
    if key == "count":
        return chance.choice((0, 1, -5, 12345678901))
    if key == "options":
        return {"mode": _text(chance), "deep": {"k": [1, _text(chance)]}}
    return [_text(chance) for _ in range(chance.randrange(3))] if key == "files" else chance.random() < 0.5


def _go_json(text: str) -> str:
    return json.dumps([text]).replace("<", "\\u003c").replace("/", "\\/")


LAYERS: tuple[Callable[[str], str], ...] = (
    lambda text: text,
    lambda text: json.dumps({"x": text}),
    lambda text: json.dumps({"x": text}, ensure_ascii=False),
    lambda text: f"<pre>{html.escape(text)}</pre>",
    _go_json,
)


def _read(format_id: str, answer: str, kind: type[TextDelta | ThinkingDelta], guard: EchoGuard | None) -> list[Event]:
    stage = FormatStage(FormatOptions(format_id, others=False), tools=TOOLS, guard=guard)
    events = [event for at in range(0, len(answer), 13) for event in stage.feed([kind(answer[at : at + 13])])]
    return events + stage.feed([Done(Finish("stop"))])


def _calls(events: list[Event]) -> list[ToolCallComplete]:
    return [event for event in events if isinstance(event, ToolCallComplete)]


@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_call_is_made_of_a_random_quotation(seed: int) -> None:
    chance = random.Random(seed)
    formats = all_formats()
    real = 0
    while real < ROUNDS:
        name = chance.choice(("Bash", "get_time"))
        keys = chance.sample(("command", "count", "options", "files", "force"), chance.randrange(6)) if name == "Bash" else ()
        arguments = {key: _value(chance, key) for key in keys}
        call = ToolCall(id="c", name=name, arguments=json.dumps(arguments, ensure_ascii=chance.random() < 0.5))
        ours = chance.choice(formats)
        theirs = chance.choice(formats) if chance.random() < 0.6 else ours
        if ours.inexpressible(call) is not None or theirs.inexpressible(call) is not None:
            continue
        shuffled = json.dumps(dict(chance.sample(list(arguments.items()), len(arguments))))
        page = theirs.render_calls([ToolCall(id="z", name=name, arguments=shuffled)])
        for _ in range(chance.randrange(3)):
            page = chance.choice(LAYERS)(page)
        page = f"{'page text ' * chance.randrange(300)}\n{page}\n{'more words ' * chance.randrange(300)}"
        answer = chance.choice(("{}", "The page says:\n{}\nok")).replace("{}", ours.render_calls([call]))
        kind = chance.choice((TextDelta, ThinkingDelta))
        if not _calls(_read(ours.id, answer, kind, None)):
            continue
        real += 1
        made = _calls(_read(ours.id, answer, kind, EchoGuard(lambda page=page: [Passage(page)], tools=TOOLS)))  # type: ignore[misc]
        assert made == [], (ours.id, theirs.id, call.arguments, page)
