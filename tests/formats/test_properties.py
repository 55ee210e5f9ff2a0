"""What holds for every format, whatever the text and however it is cut."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import athena
from athena.errors import UsageError
from athena.formats import all_formats, format_names, get_format
from athena.formats.machine.engine import TextParser
from athena.formats.machine.policies import Policies
from athena.model.events import Event, TextDelta, ToolCallComplete
from athena.model.parts import Text as TextPart
from athena.model.parts import ToolCall, ToolResult
from athena.model.request import Tool
from formats.case_files import TOOLS, case_files, chunked, folded, load
from formats.strategies import fragments, prose, tools_and_calls
from support.examples import examples

NAMES = (*format_names(), "auto")
_MARKERS = {marker for known in all_formats() for marker in (*known.closers, *(opener.marker for opener in known.openers))}
MARKUP = tuple(sorted(_MARKERS - {""}))
"""What begins and ends calls, of all formats."""


def events_of(
    format_id: str,
    chunks: list[str],
    tools: tuple[Tool, ...] | None = TOOLS,
    policies: Policies = Policies(),  # noqa: B008
) -> list[Event]:
    parser = TextParser(format_id, tools=tools, policies=policies)
    events: list[Event] = []
    for chunk in chunks:
        events.extend(parser.feed(chunk))
    events.extend(parser.close())
    return events


def calls_of(events: list[Event]) -> list[tuple[str, object]]:
    return [(event.name, msgspec.json.decode(event.arguments)) for event in events if isinstance(event, ToolCallComplete)]


def split_at(text: str, cuts: list[int]) -> list[str]:
    places = sorted({cut % (len(text) + 1) for cut in cuts})
    return [text[start:end] for start, end in zip([0, *places], [*places, len(text)], strict=True)]


@pytest.mark.parametrize("format_id", NAMES)
@examples(16)
@given(text=fragments, cuts=st.lists(st.integers(0, 10_000), max_size=8), held=st.booleans(), named=st.booleans())
def test_chunking_changes_nothing(format_id: str, text: str, cuts: list[int], held: bool, named: bool) -> None:
    policies = Policies(arguments="hold" if held else "stream")
    tools = TOOLS if named else None
    whole = folded(events_of(format_id, [text], tools, policies))
    assert folded(events_of(format_id, split_at(text, cuts), tools, policies)) == whole
    assert folded(events_of(format_id, list(text), tools, policies)) == whole


@pytest.mark.parametrize("format_id", NAMES)
@examples(10)
@given(text=prose, size=st.integers(1, 9))
def test_prose_comes_out_unchanged(format_id: str, text: str, size: int) -> None:
    events = events_of(format_id, chunked(text, size))
    assert all(isinstance(event, TextDelta) for event in events)
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == text


@pytest.mark.parametrize("format_id", NAMES)
@examples(10)
@given(text=fragments, size=st.integers(1, 9))
def test_without_tools_nothing_is_parsed(format_id: str, text: str, size: int) -> None:
    events = events_of(format_id, chunked(text, size), ())
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == text


@pytest.mark.parametrize("format_id", format_names())
@examples(8)
@given(sample=tools_and_calls(), size=st.sampled_from([1, 3, 7, 64, 100_000]), auto=st.booleans())
def test_rendered_calls_come_back(
    format_id: str, sample: tuple[tuple[Tool, ...], tuple[ToolCall, ...]], size: int, auto: bool
) -> None:
    known = get_format(format_id)
    tools, calls = sample
    calls = tuple(call for call in calls if known.inexpressible(call) is None)
    if not calls:
        return
    text = known.render_calls(calls)
    events = events_of(format_id, chunked(text, size), tools)
    wanted = [(call.name, msgspec.json.decode(call.arguments)) for call in calls]
    assert calls_of(events) == wanted
    assert not [item for item in folded(events) if "text" in item and item["text"].strip()]
    if auto and any(opener.auto and text.startswith(opener.marker) for opener in known.openers):
        assert calls_of(events_of("auto", chunked(text, size), tools)) == wanted


@pytest.mark.parametrize("format_id", format_names())
@examples(8)
@given(sample=tools_and_calls(), markup=st.sampled_from(MARKUP), place=st.integers(0, 2))
def test_a_call_is_written_right_or_refused(
    format_id: str, sample: tuple[tuple[Tool, ...], tuple[ToolCall, ...]], markup: str, place: int
) -> None:
    """Also where a value holds the markup of a format, its own or another's."""
    tools, calls = sample
    changed = [_with_markup(call, markup) if number == place else call for number, call in enumerate(calls)]
    try:
        text = athena.render_calls(changed, format=format_id)
    except UsageError:
        return
    wanted = [(call.name, msgspec.json.decode(call.arguments)) for call in changed]
    assert calls_of(events_of(format_id, [text], tools)) == wanted, text


def _with_markup(call: ToolCall, markup: str) -> ToolCall:
    arguments = msgspec.json.decode(call.arguments)
    strings = [key for key, value in arguments.items() if isinstance(value, str)]
    fresh = arguments | dict.fromkeys(strings[:1], f"a {markup} b")
    return msgspec.structs.replace(call, arguments=msgspec.json.encode(fresh).decode())


@pytest.mark.parametrize("format_id", format_names())
@examples(6)
@given(sample=tools_and_calls())
@example(sample=((Tool(name="A"),), (ToolCall(id="", name="A", arguments='{"A": "<start_function_call>"}'),)))
@example(sample=((Tool(name="A"),), (ToolCall(id="", name="A", arguments='{"A": ["x</tool_call> y"]}'),)))
def test_a_cut_call_never_completes(format_id: str, sample: tuple[tuple[Tool, ...], tuple[ToolCall, ...]]) -> None:
    known = get_format(format_id)
    tools, calls = sample
    calls = tuple(call for call in calls if known.inexpressible(call) is None)
    if not calls:
        return
    text = known.render_calls(calls)
    wanted = [(call.name, msgspec.json.decode(call.arguments)) for call in calls]
    step = max(1, len(text) // 80)
    for end in range(0, len(text), step):
        found = calls_of(events_of(format_id, [text[:end]], tools))
        assert found == wanted[: len(found)], f"cut at {end}: {text[:end]!r}"


@pytest.mark.parametrize("format_id", NAMES)
def test_no_prefix_of_a_case_raises(format_id: str) -> None:
    for path in case_files():
        if format_id not in ("auto", path.stem):
            continue
        for case in load(path).case:
            # All cases of all formats go through `auto`: fewer places each.
            for end in range(0, len(case.text), max(1, len(case.text) // (8 if format_id == "auto" else 40))):
                folded(events_of(format_id, [case.text[:end]]))


def test_feeding_after_the_end_is_an_error_and_closing_twice_is_not() -> None:
    parser = TextParser("kimi_k2")
    parser.feed("x")
    parser.close()
    assert parser.close() == []
    with pytest.raises(UsageError):
        parser.feed("y")


@pytest.mark.parametrize("known", all_formats(), ids=format_names())
def test_results_and_tools_are_rendered(known) -> None:  # type: ignore[no-untyped-def]  # parametrized
    result = ToolResult(call_id="c1", name="get_weather", parts=(TextPart(text='21 °C\n"sunny"'),))
    rendered = known.render_results([result, result])
    assert rendered.count("21 °C") == 2
    tools = known.render_tools(TOOLS)
    assert all(tool.name in tools for tool in TOOLS)
