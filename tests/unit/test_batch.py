"""Many records: one outcome each, in order, whatever is wrong with one; JSON lines cut and numbered right."""

from __future__ import annotations

import itertools
import json
from collections import UserDict
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import athena
from athena.batch import lines as batch_lines
from athena.batch.lines import BlockCutter, LineBlock, LineParser, encode_outcome
from athena.errors import InvalidRequest, UsageError
from athena.model.request import Tool
from support.batch_records import as_lines, records

CALL = '<tool_call>{"name": "f", "arguments": {"a": "1"}}</tool_call>'


# -- mappings --------------------------------------------------------------------------------------------------------------


def test_every_record_has_its_outcome_in_order_and_bad_ones_say_their_number() -> None:
    given_records = list(records(60, unreadable_every=7))
    outcomes = list(athena.parse_batch(given_records))
    assert [outcome["id"] for outcome in outcomes] == list(range(60))
    bad = [outcome for outcome in outcomes if outcome["errors"] and outcome["errors"][0]["code"] == "bad_record"]
    assert [outcome["id"] for outcome in bad] == list(range(6, 60, 7))
    for outcome in bad:
        assert outcome["errors"][0]["message"].startswith(f"record {outcome['id'] + 1}: ")
        assert (outcome["text"], outcome["tool_calls"], outcome["format"]) == ("", [], "")


def test_an_outcome_is_what_parse_finds() -> None:
    for record in records(9):
        [outcome] = athena.parse_batch([record])
        parsed = athena.parsing.parse_pieces(
            record.get("chunks") or [record["text"]],
            format=record.get("format", "auto"),
            model=record.get("model"),
            tools=record.get("tools"),
            channel=record.get("channel") or "text",
            starts_in_thinking=record.get("starts_in_thinking", False),
        )
        assert (outcome["text"], outcome["thinking"], outcome["format"]) == (parsed.text, parsed.thinking, parsed.format)
        assert outcome["incomplete"] is parsed.incomplete
        assert [tuple(call.values()) for call in outcome["tool_calls"]] == [
            (call.id, call.name, call.arguments) for call in parsed.calls
        ]
        assert [tuple(problem.values()) for problem in outcome["errors"]] == [
            (error.code, error.message) for error in parsed.errors
        ]


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (5, "Expected `object`, got `int`"),
        ({"id": "a", "text": 5}, "$.text"),
        ({"id": "a", "chunks": ["x", None]}, "$.chunks[1]"),
        ({"id": "a", "text": "x", "channel": "voice"}, "$.channel"),
        ({"id": "a", "text": "x", "format": "hermies"}, "unknown format 'hermies'"),
        ({"id": "a", "text": "x", "tools": [3]}, "tools[0]"),
        ({"id": "a", "text": "x", "tools": "{"}, "tools: not JSON"),
        ({"id": "a", "text": "x", "tools": [{"title": "no name"}]}, "tools[0].name"),
        ({"id": "a", "text": "x", "tools": [{"name": "f", "parameters": {"f": open}}]}, "tools: "),
        ({"id": "a", "txet": "x"}, 'neither "text" nor "chunks"'),
    ],
)
def test_what_is_wrong_is_named_and_the_next_record_is_done(record: Any, message: str) -> None:
    bad, good = athena.parse_batch([record, {"text": CALL}])
    assert bad["errors"][0]["code"] == "bad_record"
    assert message in bad["errors"][0]["message"]
    assert bad["id"] == ("a" if isinstance(record, dict) else None)
    assert [call["name"] for call in good["tool_calls"]] == ["f"]


def test_defaults_hold_for_records_that_do_not_say() -> None:
    declared = [{"name": "g"}]
    first, second = athena.parse_batch([{"text": CALL}, {"text": CALL, "tools": [{"name": "f"}]}], tools=declared)
    assert (first["tool_calls"], first["text"]) == ([], CALL)
    assert [call["name"] for call in second["tool_calls"]] == ["f"]
    [named] = athena.parse_batch([{"text": "plain"}], model="moonshotai/kimi-k2")
    assert named["format"] == "kimi_k2"


def test_tools_are_read_as_values_as_json_text_and_as_values_of_ours() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    for tools in (
        [{"name": "f", "input_schema": schema}],
        {"functionDeclarations": [{"name": "f", "parameters": schema}]},
        json.dumps([{"type": "function", "function": {"name": "f", "parameters": schema}}]),
        [Tool(name="f", schema=schema)],
        (Tool(name="f", schema=schema),),
    ):
        [outcome] = athena.parse_batch([{"text": CALL, "tools": tools}], repair="schema")
        assert [json.loads(call["arguments"]) for call in outcome["tool_calls"]] == [{"a": 1}], tools


@pytest.mark.parametrize("wrong", [5, "f", None, [{"name": "f"}]])
def test_a_tool_that_is_none_is_named(wrong: Any) -> None:
    with pytest.raises(InvalidRequest, match=r"tools\[1\]: expected a tool as an object"):
        athena.parse(CALL, tools=[{"name": "f"}, wrong])


def test_any_mapping_will_do() -> None:
    [outcome] = athena.parse_batch([UserDict(id=1, text=CALL)])
    assert outcome["tool_calls"][0]["name"] == "f"


def test_wrong_settings_are_errors_before_the_first_record() -> None:
    with pytest.raises(UsageError, match="unknown format"):
        athena.parse_batch([], format="hermies")
    with pytest.raises(InvalidRequest, match=r"tools\[0\]"):
        athena.parse_batch([], tools=[3])  # type: ignore[list-item]  # the mistake under test


def test_records_are_taken_as_outcomes_are_asked_for() -> None:
    taken: list[int] = []

    def endless() -> Iterator[dict[str, Any]]:
        for number in itertools.count():
            taken.append(number)
            yield {"id": number, "text": CALL}

    outcomes = athena.parse_batch(endless())
    assert [next(outcomes)["id"] for _ in range(3)] == [0, 1, 2]
    assert taken == [0, 1, 2]


# -- lines -----------------------------------------------------------------------------------------------------------------


def parsed(lines: bytes, **settings: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in LineParser(**settings).parse(LineBlock(lines, 1)).output.splitlines()]


def test_lines_and_mappings_come_out_the_same_but_for_the_place() -> None:
    given_records = list(records(40, unreadable_every=5))
    wanted = [json.loads(encode_outcome(outcome)) for outcome in athena.parse_batch(given_records)]
    for number, outcome in enumerate(wanted, start=1):
        for problem in outcome["errors"]:
            problem["message"] = problem["message"].replace(f"record {number}: ", f"line {number}: ")
    assert parsed(as_lines(given_records)) == wanted


def test_bad_lines_keep_their_id_and_number() -> None:
    block = LineParser().parse(LineBlock(b'{"text": "a"}\n\n{"id": 7, "text": 5}\r\nnope\n \n[]\n{"id": 8, "text": "b"}', 11))
    outcomes = [json.loads(line) for line in block.output.splitlines()]
    assert [outcome["id"] for outcome in outcomes] == [None, 7, None, None, 8]
    assert block.records == 5
    assert [line.number for line in block.bad] == [13, 14, 16]
    assert [line.message for line in block.bad] == [outcome["errors"][0]["message"] for outcome in outcomes[1:4]]
    assert block.bad[1].message.startswith("line 14: the record cannot be read: JSON is malformed")


def test_a_line_too_long_is_refused_and_the_next_one_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_lines, "LINE_LIMIT", 100)
    given_lines = as_lines([{"id": 1, "text": "a"}, {"id": 2, "text": "b" * 1000}, {"id": 3, "text": "c"}])
    cutter = BlockCutter()
    blocks = [block for start in range(0, len(given_lines), 30) if (block := cutter.feed(given_lines[start : start + 30]))]
    assert max(len(block.lines) for block in blocks) < 200
    assert cutter.close() is None
    outcomes = [json.loads(line) for block in blocks for line in LineParser().parse(block).output.splitlines()]
    assert [outcome["text"] for outcome in outcomes] == ["a", "", "c"]
    assert outcomes[1]["errors"][0]["message"].startswith("line 2: longer than")


def test_half_characters_cost_themselves_and_not_the_record() -> None:
    assert parsed(rb'{"text": "a\ud83d"}')[0]["text"] == "a\ufffd"
    [outcome] = athena.parse_batch([{"text": "a\ud83d"}])
    assert json.loads(encode_outcome(outcome))["text"] == "a\ud83d"


def test_deep_nesting_is_a_bad_record() -> None:
    deep = b'{"text": "a", "tools": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    [outcome, after] = parsed(deep + b'\n{"text": "b"}')
    assert outcome["errors"][0]["code"] == "bad_record"
    assert after["text"] == "b"


def test_events_are_written_on_request() -> None:
    [outcome, bad] = parsed(as_lines([{"id": 1, "text": CALL}, {"id": 2}]), writes_events=True)
    assert [event["event"] for event in outcome["events"]][-1] == "ToolCallComplete"
    assert bad["errors"][0]["code"] == "bad_record"


@given(st.lists(st.sampled_from([b"a", b"\n", b"bc", b"\r\n"]), max_size=30), st.data())
def test_however_input_is_cut_blocks_are_whole_lines_with_their_numbers(pieces: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(pieces)
    cutter = BlockCutter()
    blocks: list[LineBlock] = []
    at = 0
    while at < len(whole):
        size = data.draw(st.integers(1, len(whole) - at))
        blocks += [block] if (block := cutter.feed(whole[at : at + size])) else []
        at += size
    blocks += [block] if (block := cutter.close()) else []
    assert b"".join(block.lines for block in blocks) == whole
    for before, block in itertools.pairwise(blocks):
        assert before.lines.endswith(b"\n")
        assert block.first == before.first + before.lines.count(b"\n")
    assert not blocks or blocks[0].first == 1
