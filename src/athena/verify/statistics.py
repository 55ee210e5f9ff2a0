"""Rates with intervals, and tests that stop as soon as enough is known. Numbers only."""

from __future__ import annotations

import math
from enum import Enum
from functools import lru_cache

import msgspec

Z = 2.576
"""Width of the stated intervals. It is that of 99 % for a number of requests that is fixed beforehand. A run stops when a rate
looks good or bad enough, which makes extreme rates likelier: of intervals of this width at least 95 % hold nevertheless, as
`tests/verify/test_statistics.py` measures."""
LEAST = 30
"""Observations of a metric before its test may stop."""


class Interval(msgspec.Struct, frozen=True):
    """A rate and where the true one lies, in 95 % of runs at least."""

    passed: int
    count: int
    low: float
    high: float

    @property
    def rate(self) -> float:
        """What was seen; 0 where nothing was."""
        return self.passed / self.count if self.count else 0.0


def wilson(passed: int, count: int, z: float = Z) -> Interval:
    """Wilson's score interval; everything is possible where nothing was seen."""
    if not count:
        return Interval(0, 0, 0.0, 1.0)
    share = passed / count
    scale = 1 + z * z / count
    middle = (share + z * z / (2 * count)) / scale
    half = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count)) / scale
    # At the ends the formula gives 0 and 1 but for rounding.
    low = 0.0 if passed == 0 else max(0.0, middle - half)
    high = 1.0 if passed == count else min(1.0, middle + half)
    return Interval(passed, count, low, high)


def difference(ours: Interval, theirs: Interval) -> tuple[float, float, float]:
    """How much higher our rate is, with the ends of its interval (Newcombe's, from the two Wilson intervals)."""
    gap = ours.rate - theirs.rate
    low = gap - math.hypot(ours.rate - ours.low, theirs.high - theirs.rate)
    high = gap + math.hypot(ours.high - ours.rate, theirs.rate - theirs.low)
    return gap, max(-1.0, low), min(1.0, high)


class Bar(msgspec.Struct, frozen=True):
    """What a rate is held against: `good` is what a sound upstream reaches, `bad` what is no longer acceptable.

    Between the two either verdict is right. The nearer they are, the more requests it takes.
    """

    good: float = 0.99
    bad: float = 0.95
    false_alarm: float = 0.05
    """How often an upstream as good as `good` fails."""
    missed: float = 0.10
    """How often one as bad as `bad` passes."""


class Decision(Enum):
    """What a test says so far."""

    PASSED = "passed"
    FAILED = "failed"
    OPEN = "open"


def decide(passed: int, count: int, bar: Bar, least: int = LEAST) -> Decision:
    """Wald's sequential probability ratio test of `bad` against `good`: as few requests as possible for these error rates."""
    if count < least:
        return Decision.OPEN
    per_failure, per_pass, fails_at, passes_at = _weights(bar)
    evidence = (count - passed) * per_failure + passed * per_pass
    if evidence >= fails_at:
        return Decision.FAILED
    return Decision.PASSED if evidence <= passes_at else Decision.OPEN


@lru_cache(maxsize=256)
def _weights(bar: Bar) -> tuple[float, float, float, float]:
    """What a failure and a pass say, and the two ends of the test."""
    return (
        math.log((1 - bar.bad) / (1 - bar.good)),
        math.log(bar.bad / bar.good),
        math.log((1 - bar.missed) / bar.false_alarm),
        math.log(bar.missed / (1 - bar.false_alarm)),
    )


def f1(true_positive: int, false_positive: int, false_negative: int) -> float:
    """The harmonic mean of precision and recall; 0 where nothing was right."""
    doubled = 2 * true_positive
    total = doubled + false_positive + false_negative
    return doubled / total if total else 0.0
