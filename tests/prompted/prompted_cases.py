"""How prompted cases are run: a text through a `PromptedStage`, cut in any way, folded into what a client gets."""

from __future__ import annotations

import json
import random
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from athena.model.events import Done, Error, Event, Finish, TextDelta, ToolCallComplete, Usage
from athena.model.request import Tool
from athena.prompted import PromptedOptions, PromptedStage, PromptPlan
from support.grammar import check_grammar

CASES = Path(__file__).parent.parent / "cases" / "prompted"
TOOLS = (
    Tool(name="f", schema={"type": "object", "properties": {"n": {"type": "integer"}}}),
    Tool(
        name="get_weather",
        schema={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    ),
    Tool(name="srv.search", schema={"type": "object"}),
    Tool(name="Get_Time"),
)


def parsed_lines(text: str) -> list[Any]:
    """The JSON values that stand on lines of their own: what was rendered, read back."""
    values: list[Any] = []
    for line in text.split("\n"):
        if line.startswith(("{", "[")):
            try:
                values.append(json.loads(line))
            except ValueError:
                continue
    return values


class Outcome(msgspec.Struct, frozen=True):
    """What a client sees of an answer."""

    text: str
    calls: tuple[tuple[str, str], ...]
    finish: str
    error: str
    order: tuple[str, ...]
    notes: tuple[str, ...]
    stopped: bool
    """The policy ended the answer before the upstream did."""


def load_cases() -> Iterator[tuple[str, dict[str, Any]]]:
    for path in sorted(CASES.glob("*.toml")):
        for case in tomllib.loads(path.read_text(encoding="utf-8")).get("case", ()):
            yield f"{path.stem}: {case['name']}", case


def outcome(
    pieces: Sequence[str],
    options: PromptedOptions,
    plan: PromptPlan,
    *,
    finish: Any = "stop",
    seed: str = "s",
) -> Outcome:
    """Run an answer that arrives in these pieces."""
    stage = PromptedStage(options, plan, seed=seed)
    events: list[Event] = []
    for piece in pieces:
        events += stage.feed([TextDelta(piece)])
    stopped = any(isinstance(event, Done) for event in events)
    events += stage.feed([Done(Finish(finish), usage=Usage(10, 5))])
    check_grammar(events)
    return folded(events, stage, stopped)


def folded(events: list[Event], stage: PromptedStage, stopped: bool) -> Outcome:
    last = events[-1]
    kinds = ["text" if isinstance(e, TextDelta) else "call" for e in events if isinstance(e, TextDelta | ToolCallComplete)]
    order = [kind for index, kind in enumerate(kinds) if kind == "call" or index == 0 or kinds[index - 1] != "text"]
    return Outcome(
        text="".join(event.text for event in events if isinstance(event, TextDelta)),
        calls=tuple((event.name, event.arguments) for event in events if isinstance(event, ToolCallComplete)),
        finish=last.finish.kind if isinstance(last, Done) else "",
        error=last.code if isinstance(last, Error) else "",
        order=tuple(order),
        notes=tuple(note.code for note in stage.notes),
        stopped=stopped,
    )


def cuts(text: str, seed: int) -> list[str]:
    """The text cut at random, white space and single characters included."""
    chance = random.Random(seed)
    pieces: list[str] = []
    at = 0
    while at < len(text):
        size = chance.choice((1, 1, 2, 3, 5, 11, 40))
        pieces.append(text[at : at + size])
        at += size
    return pieces
