"""What single answers are marked with: a choice of tools by the choice, values by the values, each fault once."""

from __future__ import annotations

from typing import Any

import pytest

from athena.quality import AnswerOutcome
from athena.verify.cases import VerifyCase, shipped_cases
from athena.verify.judging import SeenCall, Side, judge

CASES = {case.id: case for case in shipped_cases()}
OSLO = SeenCall("get_weather", '{"city": "Oslo"}')
BERGEN = SeenCall("get_weather", '{"city": "Bergen"}')
TOKYO = SeenCall("get_time", '{"tz": "Asia/Tokyo"}')
UTC = SeenCall("get_time", '{"tz": "UTC"}')
BOOKED = SeenCall("book_table", '{"restaurant": "Luigi", "people": 4, "date": "2026-12-24"}')


def marks(case: VerifyCase, *calls: SeenCall, **more: Any) -> dict[str, bool]:
    finish = "tool_calls" if calls else "stop"
    text = "" if calls else "Hello."
    outcome = AnswerOutcome(calls=len(calls), has_text=bool(text), finish="tools" if calls else "end")
    return judge(case, "whole", Side(outcome=outcome, calls=calls, text=text, finish=finish, **more))


@pytest.mark.parametrize(
    ("case", "calls", "choice", "values"),
    [
        ("schema-simple", (OSLO,), True, True),
        ("schema-simple", (BERGEN,), True, False),  # the call was forced and made: what it holds is another question
        ("schema-simple", (OSLO, BERGEN), True, False),
        ("schema-simple", (), False, None),
        ("schema-strict", (BOOKED,), True, True),
        ("choice-named", (TOKYO,), True, True),
        ("choice-named", (UTC,), True, False),
        ("choice-named", (OSLO,), False, None),
        ("choice-named", (TOKYO, OSLO), False, None),
        ("choice-named", (), False, None),
        ("choice-none", (), True, None),
        ("choice-none", (OSLO,), False, None),
    ],
)
def test_a_choice_is_judged_by_the_choice_and_values_by_themselves(
    case: str, calls: tuple[SeenCall, ...], choice: bool, values: bool | None
) -> None:
    found = marks(CASES[case], *calls)
    assert (found["tool_choice"], found.get("values")) == (choice, values)


def test_a_forced_call_without_wanted_values_says_nothing_about_values() -> None:
    """As walle's cases, which any arguments pass that fit the schema."""
    case = CASES["schema-simple"]
    bare = VerifyCase(id="bare", battery="engineering", metric="tool_choice", body=case.body, expects="call")
    assert "values" not in marks(bare, OSLO)
    assert marks(bare, OSLO)["tool_choice"] is True
