"""The classes of what can be wrong with an answer: what makes each, and that a flawless answer belongs to none."""

from __future__ import annotations

import doctest

import pytest

import athena.quality
from athena.model.events import (
    Done,
    Error,
    Event,
    Finish,
    Start,
    TextDelta,
    ThinkingDelta,
    ToolCallComplete,
    ToolCallDelta,
    ToolCallStart,
    Usage,
)
from athena.model.request import Tool
from athena.quality import AnswerOutcome, AnswerReader, Finding, findings

TOOLS = (Tool(name="get_time", schema={"type": "object", "properties": {"tz": {"type": "string"}}, "required": ["tz"]}),)
STOP, CALLED = Done(Finish("stop")), Done(Finish("tool", "tool_calls"))


def call(arguments: str = '{"tz": "UTC"}', *, name: str = "get_time", repaired: bool = False) -> tuple[Event, ...]:
    return (
        ToolCallStart(0, "call_1", name),
        ToolCallDelta(0, arguments),
        ToolCallComplete(0, "call_1", name, arguments, repaired=repaired),
    )


ANSWERS: dict[str, tuple[tuple[Event, ...], list[str]]] = {
    "text": ((Start("a"), TextDelta("Hello"), STOP), []),
    "a call": ((*call(), CALLED), []),
    "reasoning, then a call": ((ThinkingDelta("Hm."), *call(), CALLED), []),
    "arguments are no JSON": (
        (ToolCallStart(0, "c", "get_time"), Error("bad", code="malformed_call", fatal=True, call=0)),
        ["invalid_json"],
    ),
    "unknown name": ((*call(name="get_tme"), CALLED), ["unknown_name"]),
    "off schema": ((*call('{"zone": 1}'), CALLED), ["off_schema"]),
    "repaired": ((*call(repaired=True), CALLED), ["repaired"]),
    "cut stream": ((TextDelta("Hel"), Error("gone", code="upstream_closed")), ["cut"]),
    "cut before the first byte": ((Error("gone", code="upstream_closed"),), ["error:upstream"]),
    "cut inside a call": (
        (ToolCallStart(0, "c", "get_time"), Error("cut", code="truncated_call", fatal=False, call=0), Done(Finish("length"))),
        ["cut"],
    ),
    "reasoning only": ((ThinkingDelta("Hm."), STOP), ["reasoning_only"]),
    "white space only": ((TextDelta("\n "), STOP), ["empty"]),
    "empty": ((Start("a"), STOP), ["empty"]),
    "refused": ((Done(Finish("refusal")),), []),
    "an error": ((Error("slow down", kind="rate_limit", code="upstream_status", status=429),), ["error:rate_limit"]),
    "a quotation": ((TextDelta("x"), Error("quoted", code="quoted_call", fatal=False), STOP), ["echo"]),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_what_makes_a_class(name: str) -> None:
    events, expected = ANSWERS[name]
    reader = AnswerReader(TOOLS)
    reader.feed(events)
    assert [found.label for found in findings(reader.outcome())] == expected


def test_leaks_have_their_format_and_are_no_empty_answer() -> None:
    reader = AnswerReader(TOOLS)
    reader.feed((ThinkingDelta("<|tool_call_begin|>"), Done(Finish("stop"), usage=Usage(3, 4))))
    found = findings(reader.outcome(leaks=("kimi_k2", "kimi_k2")))
    assert [one.label for one in found] == ["leak:kimi_k2"]
    assert reader.usage == Usage(3, 4)


def test_every_class_has_an_answer_that_belongs_to_it() -> None:
    seen = {label.partition(":")[0] for _, labels in ANSWERS.values() for label in labels} | {"leak"}
    assert seen == {finding.value for finding in Finding}
    assert [finding.value for finding in Finding if not finding.is_fault] == ["repaired", "echo"]


def test_what_is_kept_of_the_text_is_bounded() -> None:
    reader = AnswerReader((), most_chars=10)
    reader.feed([TextDelta("abcdefgh")] * 100)
    assert reader.text == "abcdefgh" * 2
    assert findings(AnswerOutcome(has_text=True)) == ()


def test_the_example() -> None:
    assert doctest.testmod(athena.quality).failed == 0
