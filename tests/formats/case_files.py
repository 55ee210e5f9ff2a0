"""Case files of text formats: how they are read, run, and what they must cover. Schema: docs/adding-a-format.md."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from athena.formats.machine.engine import TextParser
from athena.formats.machine.policies import Policies
from athena.formats.machine.speech import Channel
from athena.model.events import (
    Error,
    Event,
    TextDelta,
    ThinkingDelta,
    ToolCallComplete,
    ToolCallDelta,
    ToolCallStart,
)  # fmt: skip
from athena.model.limits import Limits
from athena.model.request import Tool

FOLDER = Path(__file__).parents[1] / "cases" / "formats"

MANDATORY = (
    "plain_text", "one_call", "parallel_calls", "no_arguments", "rich_arguments", "text_around", "look_alike",
    "marker_in_string", "truncated_head", "truncated_body", "malformed",
)  # fmt: skip


class CaseTool(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    parameters: str = '{"type": "object", "properties": {}}'
    description: str = ""


class Case(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    name: str
    text: str
    expect: list[dict[str, Any]] = []
    covers: tuple[str, ...] = ()
    format: str = ""
    channel: Channel = "text"
    starts_in_thinking: bool = False
    ended_well: bool = False
    was_cut: bool = False
    any_tool: bool = False
    others: bool = False
    policies: Policies = Policies()
    limits: Limits = Limits()
    repairs: int | None = None


class CaseFile(msgspec.Struct, forbid_unknown_fields=True):
    case: list[Case]
    tools: list[CaseTool] = []
    more_tools: list[CaseTool] = []
    """Declared besides those of every case."""


def tool(name: str, properties: dict[str, Any], required: Sequence[str] = ()) -> Tool:
    return Tool(name=name, schema={"type": "object", "properties": properties, "required": list(required)})


TOOLS = (
    tool("get_weather", {"city": {"type": "string"}, "days": {"type": "integer"}}, ["city"]),
    tool("get_time", {"tz": {"type": "string"}}),
    tool("search", {"q": {"type": "string"}, "tags": {"type": "array", "items": {"type": "string"}}}, ["q"]),
    tool(
        "f",
        {
            "a": {"type": "integer"},
            "s": {"type": "string"},
            "t": {"type": "string"},
            "x": {"type": "number"},
            "b": {"type": "boolean"},
            "o": {"type": "object"},
            "l": {"type": "array"},
            "n": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
            "any": {},
        },
    ),
)
"""Declared in every case unless its file has tools of its own."""


def load(path: Path) -> CaseFile:
    return msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), CaseFile)


def case_files() -> list[Path]:
    return sorted(FOLDER.glob("*.toml"))


def declared(file: CaseFile) -> tuple[Tool, ...]:
    return (*(map(_tool, file.tools) if file.tools else TOOLS), *map(_tool, file.more_tools))


def _tool(one: CaseTool) -> Tool:
    return Tool(name=one.name, description=one.description or None, schema=msgspec.json.decode(one.parameters))


def parse(case: Case, format_id: str, tools: tuple[Tool, ...], chunks: Iterable[str]) -> tuple[list[Event], TextParser]:
    parser = TextParser(
        case.format or format_id,
        tools=None if case.any_tool else tools,
        channel=case.channel,
        starts_in_thinking=case.starts_in_thinking,
        policies=case.policies,
        limits=case.limits,
        recognise_others=case.others,
    )
    events: list[Event] = []
    for chunk in chunks:
        events.extend(parser.feed(chunk))
    events.extend(parser.close(ended_well=case.ended_well, was_cut=case.was_cut))
    return events, parser


def folded(events: Iterable[Event]) -> list[dict[str, Any]]:
    """Events as a case file writes them; checks the grammar of calls on the way."""
    items: list[dict[str, Any]] = []
    running: dict[int, tuple[dict[str, Any], list[str]]] = {}
    for event in events:
        if isinstance(event, TextDelta | ThinkingDelta):
            key = "text" if isinstance(event, TextDelta) else "thinking"
            if items and key in items[-1]:
                items[-1][key] += event.text
            else:
                items.append({key: event.text})
        elif isinstance(event, ToolCallStart):
            item = {"call": event.name, "id": event.id}
            assert event.call == len(running), "calls are numbered in order of appearance"
            running[event.call] = (item, [])
            items.append(item)
        elif isinstance(event, ToolCallDelta):
            assert "arguments" not in running[event.call][0], "a delta after the end"
            running[event.call][1].append(event.arguments)
        elif isinstance(event, ToolCallComplete):
            item, pieces = running[event.call]
            assert "arguments" not in item, "a call ends once"
            assert "".join(pieces) == event.arguments, "deltas are the arguments"
            assert isinstance(msgspec.json.decode(event.arguments), dict)
            item["arguments"] = event.arguments
        elif isinstance(event, Error):
            if event.call is not None:
                item = running[event.call][0]
                item["broken"] = item.pop("call")
                item["error"] = event.code
            else:
                items.append({"error": event.code})
        else:
            raise AssertionError(f"a parser does not say {event!r}")
    return items


def shown(items: list[dict[str, Any]], expected: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The items with ids left out where the expectation names none."""
    result = []
    for position, item in enumerate(items):
        wanted = expected[position] if position < len(expected) else {}
        result.append({key: value for key, value in item.items() if key != "id" or "id" in wanted})
    return result


def cuts(text: str, most: int = 400) -> Iterable[int]:
    """Places to cut a text in two: all, or evenly many of a long one."""
    step = max(1, len(text) // most)
    return range(1, len(text), step)


def chunked(text: str, size: int) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]
