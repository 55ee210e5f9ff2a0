"""Calls of a public benchmark, written in every format and read back exactly, however the text is cut."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from athena.formats import format_names, get_format
from athena.formats.machine.engine import TextParser
from athena.model.events import Event, ToolCallComplete
from athena.model.parts import ToolCall
from athena.model.request import Tool

SAMPLE = Path(__file__).parents[1] / "recordings" / "bfcl_sample.jsonl"
SIZES = (1, 3, 7, 64, 1 << 30)

# What a format has no form for, over the whole sample: named here so that a new loss is noticed. Everything else is exact.
INEXPRESSIBLE: dict[str, str] = {}


@cache
def entries() -> tuple[tuple[str, tuple[Tool, ...], tuple[ToolCall, ...]], ...]:
    found = []
    for line in SAMPLE.read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        tools = tuple(Tool(name=tool["name"], schema=tool["parameters"]) for tool in entry["tools"])
        calls = tuple(
            ToolCall(id=f"functions.{call['name']}:{number}", name=call["name"], arguments=json.dumps(call["arguments"]))
            for number, call in enumerate(entry["calls"])
        )
        found.append((entry["id"], tools, calls))
    return tuple(found)


def read(format_id: str, text: str, tools: tuple[Tool, ...], size: int) -> list[tuple[str, Any]]:
    parser = TextParser(format_id, tools=tools)
    events: list[Event] = []
    for start in range(0, len(text), size):
        events += parser.feed(text[start : start + size])
    events += parser.close(ended_well=True)
    return [(event.name, json.loads(event.arguments)) for event in events if isinstance(event, ToolCallComplete)]


@pytest.mark.parametrize("format_id", format_names())
def test_every_call_comes_back_exactly(format_id: str) -> None:
    known = get_format(format_id)
    expressed = 0
    for name, tools, calls in entries():
        sayable = [call for call in calls if known.inexpressible(call) is None]
        if not sayable:
            continue
        expressed += len(sayable)
        text = known.render_calls(sayable)
        wanted = [(call.name, json.loads(call.arguments)) for call in sayable]
        for size in SIZES:
            assert read(format_id, text, tools, size) == wanted, f"{name} at {size} characters a piece: {text}"
    total = sum(len(calls) for _, _, calls in entries())
    if format_id not in INEXPRESSIBLE:
        assert expressed == total, f"only {expressed} of {total} calls can be written; say in INEXPRESSIBLE why"
