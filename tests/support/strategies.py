"""Hypothesis strategies for what the core works on: answers as events, conversations as neutral requests, broken JSON."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from hypothesis import strategies as st

from athena.model.events import (
    Done,
    Event,
    Finish,
    FinishKind,
    Start,
    TextDelta,
    ThinkingDelta,
    ToolCallComplete,
    ToolCallDelta,
    ToolCallStart,
    Usage,
)
from athena.model.parts import Base64, Image, Opaque, Part, Text, Thinking, ToolCall, ToolResult
from athena.model.request import Reasoning, Request, Tool, ToolChoice, Turn

# Half characters cannot be encoded and are replaced by all encoders alike; they have a test of their own.
words = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
"""Any text, control characters and emoji included."""

json_scalars = (
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats(allow_nan=False, allow_infinity=False) | words
)
json_values = st.recursive(
    json_scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3), max_leaves=8
)


@st.composite
def arguments(draw: st.DrawFn) -> str:
    """JSON text of an object, in any spelling."""
    value = draw(st.dictionaries(words, json_values, max_size=3))
    return json.dumps(value, ensure_ascii=draw(st.booleans()), indent=draw(st.sampled_from([None, 1])))


@st.composite
def pieces(draw: st.DrawFn, text: str) -> list[str]:
    """The text cut anywhere."""
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=4)))
    return [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]


class Story(msgspec.Struct):
    """An answer as events, and what it says."""

    events: list[Event]
    finish: FinishKind


NATIVE: dict[str, Opaque] = {
    "anthropic_messages": Opaque(family="anthropic", kind="signature", payload="c2ln+/=="),
    "openai_chat": Opaque(family="anthropic", kind="signature", payload="c2ln+/==", format="anthropic-claude-v1"),
    "openai_responses": Opaque(family="openai", kind="encrypted", payload="gAAAA-_=", item_id="rs_1"),
    "gemini": Opaque(family="gemini", kind="thought_signature", payload="c2lnbmVk"),
}


@st.composite
def stories(draw: st.DrawFn, dialect: str, *, cut: bool = True) -> Story:
    """Any answer of one choice: text, thinking with and without state, calls one by one and interleaved.

    `cut`: it may end by its length behind calls.
    """
    events: list[Event] = [Start("up_1", "m", 5)]
    number = 0
    for kind in draw(st.lists(st.sampled_from(["text", "thinking", "signed", "calls"]), max_size=5)):
        if kind == "text":
            events += [TextDelta(piece) for piece in draw(pieces(draw(words)))]
        elif kind == "thinking":
            events += [ThinkingDelta(piece) for piece in draw(pieces(draw(words)))]
        elif kind == "signed":
            events += [ThinkingDelta(piece) for piece in draw(pieces(draw(words)))]
            events.append(ThinkingDelta(signature=NATIVE[dialect]))
        else:
            count = draw(st.integers(1, 3))
            events += draw(_calls(number, count))
            number += count
    kinds: list[FinishKind] = ["stop", "length", "filter"]
    if number:
        kinds = ["tool", "length"] if cut else ["tool"]
    finish: FinishKind = draw(st.sampled_from(kinds))
    counts = st.integers(0, 10**6)
    usage = Usage(input_total=draw(counts), output_total=draw(counts)) if draw(st.booleans()) else None
    events.append(Done(Finish(finish), usage=usage))
    return Story(events, finish)


@st.composite
def _calls(draw: st.DrawFn, first: int, count: int) -> list[Event]:
    events: list[Event] = []
    steps: list[list[Event]] = []
    for number in range(first, first + count):
        name, text = draw(st.sampled_from(["a", "get_weather", "x-1"])), draw(arguments())
        steps.append(
            [
                ToolCallStart(number, f"call_{number}", name),
                *(ToolCallDelta(number, piece) for piece in draw(pieces(text))),
                ToolCallComplete(number, f"call_{number}", name, text),
            ]
        )
    events += [step.pop(0) for step in steps]
    while steps:
        step = draw(st.sampled_from(steps))
        events.append(step.pop(0))
        if not step:
            steps.remove(step)
    return events


# -- requests --------------------------------------------------------------------------------------------------------------

odd_names = st.sampled_from(
    ["a", "get_weather", "mcp__server__tool", "a" * 70, "über-tool", "9lives", "srv.tool:run", "a b", "工具"]
)
call_ids = st.sampled_from(["call_1", "toolu_01Ab", "functions.a:0", "x" * 70, "id with space", "ünïcode", "c/1"])
states = st.none() | st.sampled_from(list(NATIVE.values()))
PNG = "iVBORw0KGgo="
spoken = words.map(lambda text: f"w{text}w")
"""Text of a turn: some targets refuse what is only blanks, and it is said otherwise there."""


@st.composite
def requests(draw: st.DrawFn, dialect: str) -> Request:
    """A conversation of a client of `dialect`, in neutral form and without raw JSON."""
    names = draw(st.lists(odd_names, min_size=1, max_size=4, unique=True))
    tools = tuple(Tool(name=name, description=draw(st.none() | words), schema=draw(schemas())) for name in names)
    turns: list[Turn] = [Turn(role="user", parts=(Text(text=draw(spoken)),))]
    for _ in range(draw(st.integers(0, 3))):
        ids = draw(st.lists(call_ids, max_size=3, unique=True))
        said: list[Part] = []
        if draw(st.booleans()):
            said.append(Thinking(text=draw(spoken), signature=draw(states)))
        if draw(st.booleans()) or not ids:
            said.append(Text(text=draw(spoken)))
        calls = [ToolCall(id=call_id, name=draw(st.sampled_from(names)), arguments=draw(arguments())) for call_id in ids]
        turns.append(Turn(role="assistant", parts=(*said, *calls)))
        answered: list[Part] = [
            ToolResult(call_id=call.id, name=call.name, parts=(Text(text=draw(spoken)),), is_error=draw(st.booleans()))
            for call in draw(st.permutations(calls))
        ]
        if draw(st.booleans()) or not answered:
            answered.append(Text(text=draw(spoken)))
        if draw(st.booleans()):
            answered.append(Image(source=Base64("image/png", PNG)))
        turns.append(Turn(role="user", parts=tuple(answered)))
    choice: ToolChoice | None = draw(
        st.sampled_from(
            [None, ToolChoice("auto"), ToolChoice("none"), ToolChoice("required"), ToolChoice("named", (names[0],))]
        )
    )
    return Request(
        dialect=dialect,
        model="m",
        system=tuple(Text(text=text) for text in draw(st.lists(spoken, max_size=2))),
        turns=tuple(turns),
        tools=tools,
        tool_choice=choice,
        parallel=draw(st.sampled_from([None, False, True])),
        max_output=draw(st.none() | st.integers(16, 10**6)),
        temperature=draw(st.none() | st.floats(0, 2)),
        stop=tuple(draw(st.lists(st.sampled_from(["END", "\n\n", "x", "y", "z", "w"]), max_size=6, unique=True))),
        reasoning=draw(
            st.sampled_from([Reasoning(), Reasoning("on", budget=4096), Reasoning(effort="high"), Reasoning("off")])
        ),
    )


_LINK = {"type": "object", "properties": {"city": {"type": "string", "format": "uri"}}, "required": ["city"]}
_REFERENCE = {
    "type": "object",
    "properties": {"x": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/y"}]}},
    "$defs": {"y": {"type": "number"}},
}
_EITHER = {"anyOf": [{"type": "object", "properties": {"a": {"const": 1}}}, {"type": "object"}]}


def schemas() -> st.SearchStrategy[dict[str, Any] | None]:
    """Tool parameters, plain to odd."""
    return st.sampled_from([None, {}, {"type": "object"}, _LINK, _REFERENCE, _EITHER])


# -- damage ------------------------------------------------------------------------------------------------------------------


@st.composite
def damaged(draw: st.DrawFn, value: Any) -> Any:
    """The JSON value with one node replaced, removed or doubled."""
    value = json.loads(json.dumps(value))
    places: list[tuple[Any, Any]] = []
    _collect(value, places)
    if not places:
        return draw(json_values)
    container, key = draw(st.sampled_from(places))
    action = draw(st.sampled_from(["replace", "remove", "double", "rename"]))
    if action == "replace":
        container[key] = draw(json_values)
    elif action == "remove":
        del container[key]
    elif action == "double" and isinstance(container, list):
        container.insert(key, container[key])
    elif isinstance(container, dict):
        container[draw(words)] = container.pop(key)
    else:
        container.append(draw(json_values))
    return value


def _collect(value: Any, places: list[tuple[Any, Any]]) -> None:
    if isinstance(value, dict | list):
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            places.append((value, key))
            _collect(value[key], places)
