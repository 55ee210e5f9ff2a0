"""Every scenario of source system C, whole, one character at a time and cut at random: same calls, same text, same finish."""

from __future__ import annotations

from typing import Any

import pytest

from athena.prompted import PromptedOptions, PromptPlan
from prompted.prompted_cases import TOOLS, cuts, load_cases, outcome

_CASES = list(load_cases())


@pytest.mark.parametrize("case", [case for _, case in _CASES], ids=[name for name, _ in _CASES])
def test_case(case: dict[str, Any]) -> None:
    options = PromptedOptions(**{"policy": "allow_mixed", **case.get("options", {})})
    plan = PromptPlan(TOOLS, **case.get("plan", {}))
    answer, finish = case["answer"], case.get("upstream_finish", "stop")
    whole = outcome([answer], options, plan, finish=finish)
    calls = tuple((name, arguments) for name, arguments in case.get("calls", ()))
    assert whole.calls == calls
    assert whole.text == case.get("text", "")
    assert whole.error == case.get("error", "")
    assert whole.notes == tuple(case.get("notes", ()))
    assert whole.stopped == case.get("stops", False)
    if not whole.error:
        assert whole.finish == case.get("finish", "tool" if calls else "stop")
    if "order" in case:
        assert whole.order == tuple(case["order"])
    assert outcome(list(answer), options, plan, finish=finish) == whole
    for seed in range(5):
        assert outcome(cuts(answer, seed), options, plan, finish=finish) == whole


def test_there_are_cases() -> None:
    assert len(_CASES) > 90
