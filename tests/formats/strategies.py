"""Texts and calls for property tests: values full of quotes, scripts, line breaks and the markers of every format."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import strategies as st

from athena.formats import all_formats
from athena.formats.machine.base import Format
from athena.model.parts import ToolCall
from athena.model.request import Tool


def own_markers(known: Format) -> tuple[str, ...]:
    """What begins and ends calls, reasoning and turns in a format."""
    markers = (
        *(opener.marker for opener in known.openers),
        *known.closers,
        *known.turn_ends,
        *(delimiter for pair in known.thinking for delimiter in pair),
    )
    return tuple(dict.fromkeys(marker for marker in markers if marker))


MARKERS = tuple(sorted({marker for known in all_formats() for marker in own_markers(known)}))

BITS = (
    "get_time", "get_weather", "functions.get_time:0", "{", "}", "[", "]", '"', "'", "\\", "\n", "\n\n", " ",
    "`", "```", "```json\n", '{"name": "get_time", "arguments": {}}', '{"tz": "UTC"}', "{}", '"tz"', ":", ",",
    "=", ">", "<", "|", "(", ")", "/", "name=", '"get_time">', "get_time>", "tz", "UTC", "true", "True", "null",
    "-1.5e3", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "<function=", "<parameter=tz>",
    "</parameter>", "</function>", "<parameter name=", "</invoke>", "<|message|>", "<|constrain|>json",
    "commentary to=functions.get_time ", "analysis", "final", "<|tool_call_argument_begin|>", "<｜tool▁sep｜>",
    "[ARGS]", "[CALL_ID]", "a", "東京", "😀", "\u2028", "\x00", "é", "<think>", "</think>", "<![CDATA[", "]]>",
)  # fmt: skip

fragments = st.lists(st.sampled_from(MARKERS + BITS), max_size=24).map("".join)
"""Texts that are nearly, partly or wholly markup."""

_SIGNS = "<[]{}`>|✿(｜"
_MARKING_WORDS = tuple({marker.strip() for marker in MARKERS if not set(marker) & set(_SIGNS)} - {""})
"""Markers that are words, such as `Thought:` in ReAct."""
prose = st.text(st.characters(exclude_categories=["Cs"], exclude_characters=_SIGNS), max_size=200).filter(
    lambda text: not any(word in text for word in _MARKING_WORDS)
)
"""Texts without a character or a word that begins a marker."""

_words = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    fragments,
    st.sampled_from(["", " ", "\n", "3", "true", "null", '"', "\\", "None", "{}", "[]", "1.0", "a\nb\n", "\r\n", "\t"]),
)
numbers = st.one_of(
    st.integers(), st.integers(-(2**70), 2**70), st.floats(allow_nan=False, allow_infinity=False), st.just(9007199254740993)
)
_json = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, _words),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_words, inner, max_size=3)),
    max_leaves=8,
)

_TYPES: dict[str, st.SearchStrategy[Any]] = {
    "string": _words,
    "integer": st.integers(-(2**70), 2**70),
    "number": st.floats(allow_nan=False, allow_infinity=False),
    "boolean": st.booleans(),
    "null": st.none(),
    "array": st.lists(_json, max_size=3),
    "object": st.dictionaries(_words, _json, max_size=3),
}
_names = st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]{0,20}", fullmatch=True)


def _text(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_text(str(key))}: {_text(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_text, value)) + "]"
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return msgspec.json.encode(value).decode()


@st.composite
def tools_and_calls(draw: st.DrawFn) -> tuple[tuple[Tool, ...], tuple[ToolCall, ...]]:
    """Declared tools and calls of them that fit their schemas."""
    tools: list[Tool] = []
    calls: list[ToolCall] = []
    for name in draw(st.lists(_names, min_size=1, max_size=3, unique=True)):
        kinds = draw(st.dictionaries(_names, st.sampled_from(sorted(_TYPES)), max_size=4))
        tools.append(
            Tool(name=name, schema={"type": "object", "properties": {key: {"type": kind} for key, kind in kinds.items()}})
        )
        given = {key: draw(_TYPES[kind]) for key, kind in kinds.items() if draw(st.booleans())}
        calls.append(ToolCall(id="", name=name, arguments=_text(given)))
    return tuple(tools), tuple(calls)
