"""Marks of many answers as rates with intervals, verdicts, and what Athena adds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from operator import eq
from typing import Literal

import msgspec

from athena.quality import Finding
from athena.verify.cases import BATTERIES, AnswerMode, Battery, VerifyCase
from athena.verify.metrics import METRICS, Metric, can_show
from athena.verify.runs import VerifyRun, VerifyTrial
from athena.verify.statistics import Bar, Decision, Interval, decide, difference, f1, wilson

SideName = Literal["raw", "through"]
SIDES: tuple[SideName, ...] = ("raw", "through")


class Tally:
    """Counts of one run, kept up as answers come in."""

    def __init__(self, cases: Iterable[VerifyCase]) -> None:
        self.cases = {case.id: case for case in cases}
        self.trials: list[VerifyTrial] = []
        self._passed: dict[SideName, dict[str, int]] = {"raw": {}, "through": {}}
        self._count: dict[SideName, dict[str, int]] = {"raw": {}, "through": {}}
        self._tokens: dict[tuple[str, AnswerMode], int] = {}
        self._pairs: dict[str, dict[AnswerMode, list[tuple[str, str]]]] = {}

    def add(self, trial: VerifyTrial) -> None:
        """Count one more answer."""
        self.trials.append(trial)
        for side in SIDES:
            result = trial.raw if side == "raw" else trial.through
            for metric, passed in result.marks.items():
                self._mark(side, metric, passed)
        self._remember(trial)

    def differs(self, trial: VerifyTrial) -> tuple[str, ...]:
        """Metrics that an answer fails beside those that were added before it."""
        return tuple(metric for metric, marks in self._beside(trial).items() if not all(marks.values()))

    def _mark(self, side: SideName, metric: str, passed: bool) -> None:
        count, ok = self._count[side], self._passed[side]
        count[metric] = count.get(metric, 0) + 1
        ok[metric] = ok.get(metric, 0) + passed

    def _beside(self, trial: VerifyTrial) -> dict[str, dict[SideName, bool]]:
        """What an answer says only together with an earlier one: marks by metric and side.

        The same request must be counted as the same number of tokens, whichever replica answers. Of a case with one possible
        answer, the n-th streamed one must make the same call as the n-th whole one.
        """
        found: dict[str, dict[SideName, bool]] = {}
        known = self._tokens.get((trial.case, trial.mode))
        if trial.input_tokens and known is not None:
            found["token_drift"] = {"raw": trial.input_tokens == known}
        if self._is_fixed(trial):
            pairs = self._pairs.get(trial.case, {})
            number = len(pairs.get(trial.mode, ()))
            others = pairs.get("stream" if trial.mode == "whole" else "whole", [])
            if number < len(others):
                mine = (trial.raw.calls, trial.through.calls)
                found["streams_alike"] = dict(zip(SIDES, map(eq, mine, others[number]), strict=True))
        return found

    def _is_fixed(self, trial: VerifyTrial) -> bool:
        """Is only one answer possible, and is nothing wrong with this one that is counted already?"""
        case = self.cases.get(trial.case)
        return case is not None and case.fixed and not trial.raw.classes and not trial.through.classes

    def _remember(self, trial: VerifyTrial) -> None:
        for metric, marks in self._beside(trial).items():
            for side, passed in marks.items():
                self._mark(side, metric, passed)
        if trial.input_tokens:
            self._tokens.setdefault((trial.case, trial.mode), trial.input_tokens)
        if self._is_fixed(trial):
            pairs = self._pairs.setdefault(trial.case, {"whole": [], "stream": []})
            pairs[trial.mode].append((trial.raw.calls, trial.through.calls))

    def interval(self, side: SideName, metric: str) -> Interval:
        """The rate of a metric so far."""
        return wilson(self._passed[side].get(metric, 0), self._count[side].get(metric, 0))

    def count(self, side: SideName, metric: str) -> int:
        """How many answers say something about a metric."""
        return self._count[side].get(metric, 0)

    def decision(self, side: SideName, metric: Metric, bar: Bar) -> Decision:
        """Is the metric's verdict final?"""
        count = self._count[side].get(metric.name, 0)
        return decide(self._passed[side].get(metric.name, 0), count, bar, metric.least)

    def counted(self, side: SideName) -> tuple[str, ...]:
        """Metrics that anything was seen of, in the order of the table."""
        return tuple(name for name in METRICS if self._count[side].get(name))


class MetricVerdict(Enum):
    """What is said of a metric or a battery."""

    PASSED = "passed"
    FAILED = "failed"
    UNDECIDED = "undecided"
    """Not enough answers to tell."""
    NOT_SEEN = "not seen"


class MetricResult(msgspec.Struct, frozen=True, kw_only=True):
    """One row of a report."""

    name: str
    battery: Battery
    meaning: str
    bar: Bar
    raw: Interval
    through: Interval
    verdict: MetricVerdict
    lift: float
    """Points that Athena adds, of 100."""


class ClassResult(msgspec.Struct, frozen=True, kw_only=True):
    """How often answers belong to one class."""

    label: str
    raw: Interval
    through: Interval


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """Times in milliseconds: the middle one, and the one that a tenth exceed."""

    median: float = 0.0
    slow: float = 0.0
    values: tuple[float, ...] = ()


class VerifyReport(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a run says."""

    run: VerifyRun
    judged: SideName
    metrics: tuple[MetricResult, ...]
    classes: tuple[ClassResult, ...]
    batteries: dict[Battery, MetricVerdict]
    formats: dict[str, int]
    """Formats in which calls leaked, and how often."""
    trigger_f1: tuple[float, float]
    """Raw and through, where trigger and restraint were asked."""
    first_byte: Latency
    gaps: Latency
    input_tokens: int
    output_tokens: int
    cost: float
    failures: tuple[VerifyTrial, ...]
    """Answers with a fault on either side."""

    @property
    def verdict(self) -> MetricVerdict:
        """The verdict of all batteries together."""
        found = set(self.batteries.values())
        for verdict in (MetricVerdict.FAILED, MetricVerdict.UNDECIDED, MetricVerdict.PASSED):
            if verdict in found:
                return verdict
        return MetricVerdict.NOT_SEEN


def report_of(
    run: VerifyRun, cases: Iterable[VerifyCase], *, bars: Mapping[str, Bar] | None = None, judged: SideName = "raw"
) -> VerifyReport:
    """The report of a run; `bars` by metric where they differ from the table's."""
    tally = Tally(cases)
    for trial in run.trials:
        tally.add(trial)
    bars = bars or {}
    metrics = []
    for name, metric in METRICS.items():
        raw, through = tally.interval("raw", name), tally.interval("through", name)
        if not raw.count and not through.count:
            continue
        bar = bars.get(name, metric.bar)
        # What only the raw answer shows has no other side.
        side: SideName = judged if (through.count or judged == "raw") else "raw"
        lift = (through.rate - raw.rate) * 100 if raw.count and through.count else 0.0
        metrics.append(
            MetricResult(
                name=name,
                battery=metric.battery,
                meaning=metric.meaning,
                bar=bar,
                raw=raw,
                through=through,
                verdict=_verdict(tally.decision(side, metric, bar), tally.interval(side, name), bar),
                lift=lift,
            )
        )
    classes = _classes(tally)
    head = run.head
    tokens_in, tokens_out = (sum(getattr(trial, name) for trial in run.trials) for name in ("input_tokens", "output_tokens"))
    return VerifyReport(
        run=run,
        judged=judged,
        metrics=tuple(metrics),
        classes=classes,
        batteries={battery: _battery(battery, metrics) for battery in BATTERIES},
        formats=_formats(run.trials),
        trigger_f1=(_trigger_f1(tally, "raw"), _trigger_f1(tally, "through")),
        first_byte=_latency([trial.first_byte_ms for trial in run.trials if trial.first_byte_ms]),
        gaps=_latency([trial.gap_ms for trial in run.trials if trial.mode == "stream" and trial.gap_ms]),
        input_tokens=tokens_in,
        output_tokens=tokens_out,
        cost=(tokens_in * head.price_in + tokens_out * head.price_out) / 1e6,
        failures=tuple(trial for trial in run.trials if is_failure(trial)),
    )


def is_failure(trial: VerifyTrial) -> bool:
    """Is anything wrong with the answer, on either side, or beside an earlier one?"""
    if trial.differs:
        return True
    faults = {finding.value for finding in Finding if finding.is_fault}
    labels = (*trial.raw.classes, *trial.through.classes)
    failed = [*trial.raw.marks.values(), *trial.through.marks.values()]
    return (any(label.partition(":")[0] in faults for label in labels) and "error_form" not in trial.raw.marks) or not all(
        failed
    )


def wrong_with(trial: VerifyTrial, side: SideName) -> tuple[str, ...]:
    """What is wrong with an answer on one side: its classes, or the metrics that it failed, by itself or beside others."""
    result = trial.raw if side == "raw" else trial.through
    failed = tuple(name for name, passed in result.marks.items() if not passed)
    return result.classes or (*failed, *trial.differs)


def _verdict(decision: Decision, seen: Interval, bar: Bar) -> MetricVerdict:
    if not seen.count:
        return MetricVerdict.NOT_SEEN
    if decision is Decision.OPEN:
        # Out of requests: the interval may tell all the same.
        if seen.high < bar.bad:
            return MetricVerdict.FAILED
        return MetricVerdict.PASSED if seen.low > bar.bad else MetricVerdict.UNDECIDED
    return MetricVerdict.PASSED if decision is Decision.PASSED else MetricVerdict.FAILED


def _battery(battery: Battery, metrics: Sequence[MetricResult]) -> MetricVerdict:
    found = {metric.verdict for metric in metrics if metric.battery == battery}
    for verdict in (MetricVerdict.FAILED, MetricVerdict.UNDECIDED, MetricVerdict.PASSED):
        if verdict in found:
            return verdict
    return MetricVerdict.NOT_SEEN


def _classes(tally: Tally) -> tuple[ClassResult, ...]:
    labels: dict[str, None] = {}
    for finding in Finding:
        for trial in tally.trials:
            case = tally.cases.get(trial.case)
            if case is None or not can_show(case, finding):
                continue
            for label in (*trial.raw.classes, *trial.through.classes):
                if label.partition(":")[0] == finding.value:
                    labels[label] = None
    return tuple(
        ClassResult(label=label, raw=class_rate(tally, label, "raw"), through=class_rate(tally, label, "through"))
        for label in labels
    )


def class_rate(tally: Tally, label: str, side: SideName) -> Interval:
    """How often answers that can belong to a class do; a label without its detail stands for all of them."""
    finding = Finding(label.partition(":")[0])
    count = hits = 0
    for trial in tally.trials:
        case = tally.cases.get(trial.case)
        if case is None or not can_show(case, finding):
            continue
        count += 1
        classes = trial.raw.classes if side == "raw" else trial.through.classes
        hits += any(one == label or one.partition(":")[0] == label for one in classes)
    return wilson(hits, count)


def _formats(trials: Iterable[VerifyTrial]) -> dict[str, int]:
    found: dict[str, int] = {}
    for trial in trials:
        for label in trial.raw.classes:
            kind, _, name = label.partition(":")
            if kind == Finding.LEAK.value:
                found[name] = found.get(name, 0) + 1
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def _trigger_f1(tally: Tally, side: SideName) -> float:
    trigger, restraint = tally.interval(side, "trigger"), tally.interval(side, "restraint")
    return f1(trigger.passed, restraint.count - restraint.passed, trigger.count - trigger.passed)


def _latency(values: list[float]) -> Latency:
    if not values:
        return Latency()
    ordered = sorted(values)
    return Latency(
        median=ordered[len(ordered) // 2],
        slow=ordered[min(len(ordered) - 1, int(len(ordered) * 0.9))],
        values=tuple(round(value, 1) for value in ordered),
    )


class Compared(msgspec.Struct, frozen=True):
    """One metric of two runs."""

    name: str
    ours: Interval
    theirs: Interval
    gap: float
    low: float
    high: float

    @property
    def says(self) -> str:
        """Is the difference more than chance?"""
        return "better" if self.low > 0 else "worse" if self.high < 0 else "no difference that can be told"


def compare(ours: VerifyReport, theirs: VerifyReport) -> tuple[Compared, ...]:
    """Two runs, metric by metric, on the side that is judged."""
    others = {metric.name: metric for metric in theirs.metrics}
    found = []
    for metric in ours.metrics:
        other = others.get(metric.name)
        if other is None:
            continue
        mine = metric.through if ours.judged == "through" and metric.through.count else metric.raw
        its = other.through if theirs.judged == "through" and other.through.count else other.raw
        if mine.count and its.count:
            found.append(Compared(metric.name, mine, its, *difference(mine, its)))
    return tuple(found)
