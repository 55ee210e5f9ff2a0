"""Intervals that hold, tests that stop early, and whole plans on planted faults: seeded, and all of them by `./dev fuzz`."""

from __future__ import annotations

import random
import statistics

import msgspec
import pytest

from athena.quality import Finding
from athena.verify.cases import shipped_cases
from athena.verify.metrics import METRICS
from athena.verify.planning import Planner, RunBudget, read_budget
from athena.verify.runs import RunHead, SideResult, VerifyRun, VerifyTrial
from athena.verify.statistics import Bar, Decision, decide, difference, f1, wilson
from athena.verify.verdicts import MetricVerdict, Tally, class_rate, is_failure, report_of
from support.examples import IS_DEEP
from support.simulated_answers import CASES, drawn, result, run_plan

RUNS = 200
RATES = (0.005, 0.02, 0.05, 0.2, 0.5)
DIALECTS = ("openai_chat", "openai_responses", "anthropic_messages", "gemini")
HEAD = RunHead(upstream="u", model="m", dialect="openai_chat", base_url="http://127.0.0.1:1")


def test_wilson_is_wilsons() -> None:
    """Against values from the literature (Newcombe 1998, table I, method 3)."""
    for passed, count, low, high in ((81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611)):
        interval = wilson(passed, count, 1.959964)
        assert (interval.low, interval.high) == pytest.approx((low, high), abs=1e-4)
    assert (wilson(0, 0).low, wilson(0, 0).high) == (0.0, 1.0)
    assert wilson(5, 5).high == 1.0


def test_newcombes_difference() -> None:
    """Newcombe 1998, example (a): 56/70 against 48/80."""
    gap, low, high = difference(wilson(56, 70, 1.959964), wilson(48, 80, 1.959964))
    assert (gap, low, high) == pytest.approx((0.2, 0.0524, 0.3339), abs=1e-4)


def sequential(rate: float, rng: random.Random, most: int = 10_000) -> tuple[int, int, Decision]:
    """One metric asked until it is decided: failures, requests, decision."""
    failed = count = 0
    while count < most:
        count += 1
        failed += rng.random() < rate
        decision = decide(count - failed, count, Bar())
        if decision is not Decision.OPEN:
            return failed, count, decision
    return failed, count, Decision.OPEN


def test_stated_intervals_hold_after_a_sequential_stop() -> None:
    """At least 95 % of them, at every rate: the width is chosen for that."""
    for rate in (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5):
        rng = random.Random(f"intervals {rate}")
        hits = 0
        for _ in range(RUNS):
            failed, count, _ = sequential(rate, rng)
            interval = wilson(failed, count)
            hits += interval.low <= rate <= interval.high
        assert hits >= 0.95 * RUNS, rate


def test_95_from_99_percent_takes_at_most_100_requests_in_the_median() -> None:
    for rate, right, allowed in ((0.05, Decision.FAILED, 0.10), (0.01, Decision.PASSED, 0.05)):
        rng = random.Random(f"told apart {rate}")
        runs = [sequential(rate, rng) for _ in range(RUNS)]
        assert statistics.median(count for _, count, _ in runs) <= 100
        wrong = sum(decision is not right for _, _, decision in runs)
        # The stated error rate, and what chance adds to it in so many runs.
        assert wrong <= RUNS * allowed + 2.6 * (RUNS * allowed * (1 - allowed)) ** 0.5


def test_the_same_for_a_whole_plan() -> None:
    """The engineering battery on an upstream whose calls are off schema in 5 % of answers, until that is told."""
    cases = [case for case in shipped_cases() if case.battery == "engineering"]
    takes, told = [], 0
    for seed in range(RUNS if IS_DEEP else 25):
        planner = Planner(cases, seed=seed, budget=RunBudget(1000), only=("schema",))
        run_plan(planner, {"off_schema": 0.05}, seed)
        takes.append(len(planner.tally.trials))
        told += planner.tally.decision("raw", METRICS["schema"], Bar()) is Decision.FAILED
    assert statistics.median(takes) <= 100
    assert told >= 0.8 * len(takes)


@pytest.mark.parametrize("ignores_name", [False, True])
def test_a_choice_is_told_from_the_values_of_a_model_that_guesses(ignores_name: bool) -> None:
    """Forced calls with random values pass `tool_choice` and fail `values`; one that ignores names fails it."""

    def guessed(trial: VerifyTrial) -> VerifyTrial:
        marks = dict(trial.raw.marks)
        if "values" in marks:
            marks["values"] = False
        if ignores_name and trial.case == "choice-named":
            marks = {name: passed for name, passed in marks.items() if name != "values"} | {"tool_choice": False}
        side = msgspec.structs.replace(trial.raw, marks=marks)
        return msgspec.structs.replace(trial, raw=side, through=side)

    planner = Planner(shipped_cases(), seed=1)
    rng = random.Random(1)
    while (question := planner.next()) is not None:
        planner.done(guessed(drawn(*question, {}, rng)))
    report = report_of(VerifyRun(HEAD, tuple(planner.tally.trials)), shipped_cases())
    verdicts = {metric.name: metric.verdict for metric in report.metrics}
    assert verdicts["values"] is MetricVerdict.FAILED
    assert verdicts["tool_choice"] is (MetricVerdict.FAILED if ignores_name else MetricVerdict.PASSED)
    assert report.batteries["engineering"] is verdicts["tool_choice"]


def test_no_false_alarm_on_a_clean_upstream() -> None:
    for seed in range(RUNS if IS_DEEP else 20):
        dialect = DIALECTS[seed % 4]
        planner = Planner(shipped_cases(), seed=seed)
        run_plan(planner, {}, seed, dialect)
        report = report_of(VerifyRun(HEAD, tuple(planner.tally.trials)), shipped_cases())
        assert report.verdict is MetricVerdict.PASSED, (
            dialect,
            [m for m in report.metrics if m.verdict is not MetricVerdict.PASSED],
        )
        assert report.classes == ()
        assert report.failures == ()


@pytest.mark.fuzz
def test_every_planted_class_is_found_at_its_rate() -> None:
    """Every class at every rate: 200 seeded runs in a deep run, a few in the gate; in all dialects by turns."""
    runs = RUNS if IS_DEEP else 2
    missed: list[tuple[str, float, int]] = []
    outside: list[tuple[str, float, int]] = []
    planted = [finding for finding in Finding if finding is not Finding.REPAIRED]  # raw, that is arguments that are no JSON
    for finding in planted:
        for rate in RATES if IS_DEEP else (0.05,):
            hits = seen = 0
            for seed in range(runs):
                cases = (
                    [case for case in shipped_cases() if case.metric == "echo"] if finding is Finding.ECHO else shipped_cases()
                )
                planner = Planner(cases, seed=seed, budget=RunBudget(200))
                run_plan(planner, {finding.value: rate}, seed, DIALECTS[seed % 4])
                interval = class_rate(planner.tally, finding.value, "raw")
                hits += interval.low <= rate <= interval.high
                seen += interval.passed > 0
            if hits < 0.95 * runs:
                outside.append((finding.value, rate, hits))
            if rate >= 0.2 and seen < runs:
                missed.append((finding.value, rate, seen))
    assert missed == []
    assert outside == []


def test_each_class_in_each_dialect_is_what_was_planted() -> None:
    """The raw answer with a planted fault belongs to that class and to no other."""
    for dialect in DIALECTS:
        for case in CASES.values():
            for mode in case.modes:
                assert result(case.id, mode, "", dialect).classes == () or case.expects == "refusal", (dialect, case.id)
        for finding in Finding:
            case = CASES["echo-quoted"] if finding is Finding.ECHO else CASES["schema-strict"]
            for mode in ("whole", "stream"):
                labels = {label.partition(":")[0] for label in result(case.id, mode, finding.value, dialect).classes}
                wanted = {finding.value}
                if finding is Finding.REPAIRED:
                    wanted = {"leak"} if dialect == "gemini" else {"invalid_json"}
                assert labels == wanted, (dialect, finding, mode)


def test_budgets_are_read_and_kept() -> None:
    assert read_budget("300") == RunBudget(300)
    assert read_budget("200k tokens") == RunBudget(0, tokens=200_000)
    assert read_budget("50 requests, $2.50") == RunBudget(50, money=2.5)
    for text in ("", "many", "3 horses", "-1"):
        with pytest.raises(Exception, match="no budget"):
            read_budget(text)
    for budget in (RunBudget(30), RunBudget(0, tokens=300), RunBudget(0, money=0.0003)):
        planner = Planner(shipped_cases(), budget=budget, price_in=1, price_out=1)
        run_plan(planner, {"leak": 0.3}, 1)
        assert 10 <= len(planner.tally.trials) <= 31


def test_a_plan_is_resumed_where_it_ended() -> None:
    whole = Planner(shipped_cases(), seed=5)
    run_plan(whole, {"cut": 0.1}, 3)
    first = Planner(shipped_cases(), seed=5)
    first.resume(whole.tally.trials[:40])
    asked = {(trial.case, trial.mode) for trial in whole.tally.trials[:40]}
    question = first.next()
    assert question is not None
    assert (question[0].id, question[1]) not in asked
    assert first.requests == 41


def test_what_differs_from_an_earlier_answer_is_named() -> None:
    """Tokens of the same request, and the calls of a streamed and a whole answer of which only one is possible."""
    tally = Tally(shipped_cases())
    made, other = SideResult(calls="[1]"), SideResult(calls="[2]")
    first = VerifyTrial(case="wire-forced-call", mode="whole", raw=made, through=made, input_tokens=9)
    assert tally.differs(first) == ()
    tally.add(first)
    same = VerifyTrial(case="wire-forced-call", mode="stream", raw=made, through=made, input_tokens=7)
    assert tally.differs(same) == ()  # another mode is another request
    assert tally.differs(msgspec.structs.replace(same, through=other)) == ("streams_alike",)
    assert tally.differs(msgspec.structs.replace(first, input_tokens=8)) == ("token_drift",)
    cut = SideResult(classes=("cut",))
    assert tally.differs(msgspec.structs.replace(same, raw=cut, through=cut)) == ()
    assert tally.count("raw", "streams_alike") == 0  # asking counts nothing
    tally.add(msgspec.structs.replace(same, raw=other))
    assert (tally.interval("raw", "streams_alike").passed, tally.interval("through", "streams_alike").passed) == (0, 1)
    assert is_failure(msgspec.structs.replace(same, differs=("streams_alike",)))


def test_a_case_whose_first_answers_are_spoilt_is_asked_again() -> None:
    """Both answers to the only case of a metric are errors: it is asked again, and not for ever where all of them are."""

    def counts(errors: int) -> tuple[int, int]:
        planner, asked = Planner(shipped_cases(), seed=4), 0
        while (question := planner.next()) is not None:
            spoils = question[0].id == "echo-quoted" and asked < errors
            asked += question[0].id == "echo-quoted"
            side = result(question[0].id, question[1], "error" if spoils else "")
            planner.done(VerifyTrial(case=question[0].id, mode=question[1], raw=side, through=side, input_tokens=10))
        return asked, planner.tally.count("raw", "echo")

    assert counts(0)[1] >= METRICS["echo"].least
    assert counts(2)[1] >= METRICS["echo"].least
    assert counts(1000) == (6, 0)  # each mode three times


def test_f1_and_tally() -> None:
    assert f1(8, 2, 2) == pytest.approx(0.8)
    assert f1(0, 0, 0) == 0.0
    assert Tally(()).counted("raw") == ()
