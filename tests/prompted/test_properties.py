"""What holds for every text (issue 5): cuts do not matter, text without a call comes out byte for byte, nothing raises, other
JSON is never a call, and a model that follows the prompt to the letter gets every call through.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from athena.calls.ids import fitting_id
from athena.formats.machine.value_types import ToolBook
from athena.model.events import Done, Event, Finish, FinishKind, TextDelta, ToolCallComplete, ToolCallStart
from athena.model.parts import Text
from athena.model.request import Request, Tool, Turn
from athena.prompted import POLICIES, PromptedOptions, PromptedStage, PromptPlan, render_request
from athena.prompted.scanner import JsonReader
from prompted.prompted_cases import TOOLS, cuts, outcome, parsed_lines
from support.examples import examples
from support.grammar import check_grammar

CALL = '{"name": "f", "parameters": {"n": 1}}'
PIECES = st.sampled_from(
    [
        CALL, f"[{CALL}]", f"[{CALL},{CALL}]", '{"name": "get_weather", "parameters": {"city": "x"}}', "```json\n", "```",
        "\n```\n", "`", "``", "{", "}", "[", "]", '"', "\\", ",", ":", '{"name": ', '"f"', '"parameters": ', "{}", "null",
        "<think>", "</think>", " ", "\n", "text", "é🌦️", '{"a": 1}', "[1, 2]", '{"tool_calls": [', "]}", "'", "x" * 60,
        '{"parameters": {"n": 2}, "name": "f"}',
    ]
)  # fmt: skip
TEXTS = st.one_of(st.text(max_size=80), st.lists(PIECES, max_size=12).map("".join))
OPTIONS = st.builds(
    PromptedOptions,
    policy=st.sampled_from(sorted(POLICIES)),
    max_calls=st.sampled_from([0, 1, 3, 8]),
    collect_bytes=st.sampled_from([0, 30, 37, 38, 80, 1 << 20]),
    stream_buffer_bytes=st.sampled_from([0, 20, 1 << 20]),
    early_detection_chars=st.sampled_from([0, 4, 50]),
    invalid=st.sampled_from(["pass", "text", "error"]),
    repair=st.sampled_from(["off", "syntax", "schema"]),
    cancel_upstream=st.booleans(),
)
FINISHES = st.sampled_from(["stop", "length", "tool", "filter"])


@examples(50)
@given(TEXTS, OPTIONS, FINISHES, st.booleans(), st.integers(0, 1 << 30))
def test_cuts_do_not_matter(text: str, options: PromptedOptions, finish: FinishKind, required: bool, seed: int) -> None:
    plan = PromptPlan(TOOLS, required=required)
    whole = outcome([text], options, plan, finish=finish)
    assert outcome(list(text), options, plan, finish=finish) == whole
    assert outcome(cuts(text, seed), options, plan, finish=finish) == whole


@examples(40)
@given(TEXTS, OPTIONS)
def test_without_a_call_the_text_is_exact(text: str, options: PromptedOptions) -> None:
    result = outcome(cuts(text, 7), options, PromptPlan(TOOLS))
    if not result.calls and not result.error:
        assert result.text == text
        assert result.finish == "stop"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=12,
)


@examples(40)
@given(JSON, st.booleans())
def test_other_json_is_never_a_call(value: Any, fenced: bool) -> None:
    text = json.dumps(value, indent=2 if fenced else None)
    text = f"```json\n{text}\n```" if fenced else f"Here: {text}."
    result = outcome([text], PromptedOptions(policy="drain_all"), PromptPlan(TOOLS))
    assert result.calls == ()
    assert result.text == text


@examples(40)
@given(
    st.lists(
        st.tuples(st.sampled_from(["f", "srv.search", "Get_Time"]), st.dictionaries(st.text(max_size=8), JSON)),
        min_size=1,
        max_size=4,
    ),
    st.sampled_from(["", "```json\n%s\n```", "`%s`", "Sure:\n%s\nDone."]),
    st.booleans(),
    st.integers(0, 1 << 30),
)
def test_a_model_that_follows_the_prompt_is_understood(
    calls: list[tuple[str, dict[str, Any]]], frame: str, ascii_only: bool, seed: int
) -> None:
    """The scripted model reads the rendered prompt, and writes what that asks for."""
    request = Request(dialect="openai_chat", model="m", tools=TOOLS, turns=(Turn(role="user", parts=(Text(text="Hi"),)),))
    rendered = render_request(request, PromptedOptions())
    part = rendered.request.turns[0].parts[0]
    assert isinstance(part, Text)
    known = {line["name"] for line in parsed_lines(part.text) if isinstance(line, dict) and "parameters" in line}
    assert {name for name, _ in calls} <= known
    written = [(name, json.dumps(value, ensure_ascii=ascii_only)) for name, value in calls]
    array = "[" + ", ".join(f'{{"name": {json.dumps(name)}, "parameters": {text}}}' for name, text in written) + "]"
    answer = frame.replace("%s", array) if frame else array
    assert rendered.plan is not None
    result = outcome(cuts(answer, seed), PromptedOptions(), rendered.plan)
    assert result.calls == tuple(written)
    assert result.finish == "tool"


@examples(40)
@given(st.lists(st.tuples(st.integers(0, 3), PIECES), max_size=40), OPTIONS)
def test_choices_are_read_on_their_own(parts: list[tuple[int, str]], options: PromptedOptions) -> None:
    stage = PromptedStage(options, PromptPlan(TOOLS), choices=4, seed="s")
    events: list[Event] = []
    for choice, text in parts:
        events += stage.feed([TextDelta(text, choice)])
    for choice in range(4):
        events += stage.feed([Done(Finish(), choice, last=choice == 3)])
    check_grammar(events)
    if options.invalid == "error" and any(note.code == "schema_mismatch" for note in stage.notes):
        return
    for choice in range(4):
        alone = outcome(["".join(text for index, text in parts if index == choice)], options, PromptPlan(TOOLS))
        mine = [event for event in events if isinstance(event, ToolCallComplete) and event.choice == choice]
        assert tuple((event.name, event.arguments) for event in mine) == alone.calls


def test_a_hundred_choices_have_ids_of_their_own() -> None:
    stage = PromptedStage(PromptedOptions(), PromptPlan(TOOLS), choices=120, seed="s")
    events: list[Event] = []
    for choice in range(120):
        events += stage.feed([TextDelta(f"[{CALL}]", choice)])
    check_grammar(events)
    ids = [event.id for event in events if isinstance(event, ToolCallStart)]
    assert len(set(ids)) == 120
    assert all(len(call_id) <= 40 and fitting_id(call_id, "chat") == call_id for call_id in ids)


@pytest.mark.parametrize(
    "unit",
    ["[", "{", '{"parameters":', '[{"name":"f","parameters":{}},', "`", "``` ", '{"a":[', '{"name":"f","x":1} ', "{'a ", "[{",
     "word ", '{"name": "'],
)  # fmt: skip
def test_work_is_linear(unit: str) -> None:
    def work(times: int) -> int:
        reader = JsonReader(ToolBook(TOOLS), byte_limit=1 << 20)
        text = unit * times
        for start in range(0, len(text), 64):
            reader.feed(text[start : start + 64])
        reader.close()
        return reader.work

    assert work(4000) <= 3 * work(2000) + 1000


def test_a_huge_call_and_deep_parameters() -> None:
    text = json.dumps([{"name": "srv.search", "parameters": {"q": "x" * 500_000}}])
    assert len(outcome(cuts(text, 3), PromptedOptions(), PromptPlan(TOOLS)).calls[0][1]) > 500_000
    deep = '{"name": "f", "parameters": ' + '{"a":' * 600 + "1" + "}" * 601
    result = outcome([deep], PromptedOptions(), PromptPlan(TOOLS))
    assert result.calls == ()
    assert result.text == deep


def test_tools_of_any_name_are_matched_exactly() -> None:
    names = ["a", "A", "a-b", "a_b", "a.b", "x" * 64, "functions.x", "0", "ab", "tool"]
    tools = tuple(Tool(name=name) for name in names)
    for name in names:
        result = outcome([json.dumps({"name": name, "parameters": {}})], PromptedOptions(), PromptPlan(tools))
        assert result.calls == ((name, "{}"),)
    for stranger in ["b", "aa", "a b", "a ", "x" * 63, "x" * 65, "x" * 2000, "Functions.x", "é", "a\u200b", "", "\n"]:
        text = json.dumps({"name": stranger, "parameters": {}})
        assert outcome([text], PromptedOptions(), PromptPlan(tools)).text == text
