"""The circuit breaker, state by state, with a clock of the test's own."""

from __future__ import annotations

from typing import Any

from athena.serving.breaker import Breaker, BreakerState
from athena.shells.config import Health


class Clock:
    """A time that only the test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Bench:
    """A breaker with its clock and what it told."""

    def __init__(self, **settings: Any) -> None:
        self.clock = Clock()
        self.told: list[BreakerState] = []
        self.breaker = Breaker(Health(**settings), self.clock, lambda state, why: self.told.append(state))

    def ask(self, *results: bool) -> None:
        """Requests one after the other, with these results."""
        for ok in results:
            self.breaker.ended(self.breaker.begin(), ok=ok)

    def state(self) -> BreakerState:
        return self.breaker.state

    def is_up(self) -> bool:
        return self.breaker.is_up

    def wait(self, seconds: float) -> None:
        self.clock.now += seconds


def test_failures_in_a_row_open_it() -> None:
    bench = Bench(failures=3, error_rate=0, cooldown_s=10)
    bench.ask(False, False, True, False, False)
    assert bench.state() is BreakerState.CLOSED
    bench.ask(False)
    assert bench.state() is BreakerState.OPEN
    assert not bench.is_up()
    assert bench.breaker.rests_for == 10
    bench.wait(4)
    assert bench.breaker.rests_for == 6


def test_a_share_of_failures_opens_it_once_there_are_enough_requests() -> None:
    bench = Bench(failures=0, error_rate=0.5, min_requests=10, window_s=30)
    bench.ask(*[False, True] * 4, False)
    assert bench.state() is BreakerState.CLOSED, "nine requests are too few to tell"
    bench.ask(True)
    assert bench.state() is BreakerState.CLOSED, "a success opens nothing, whatever the share"
    bench.ask(False)
    assert bench.state() is BreakerState.OPEN


def test_what_was_long_ago_does_not_count() -> None:
    bench = Bench(failures=0, error_rate=0.5, min_requests=10, window_s=30)
    bench.ask(*[False] * 9)
    bench.wait(31)
    bench.ask(False)
    assert bench.state() is BreakerState.CLOSED
    bench.ask(*[True] * 9)
    bench.wait(20)
    bench.ask(*[False] * 7)
    assert bench.state() is BreakerState.CLOSED, "8 of 17 failed"
    bench.ask(False)
    assert bench.state() is BreakerState.OPEN, "9 of 18 failed"


def test_it_can_be_switched_off() -> None:
    bench = Bench(failures=0, error_rate=0)
    bench.ask(*[False] * 1000)
    assert bench.state() is BreakerState.CLOSED


def opened(**settings: Any) -> Bench:
    bench = Bench(**{"failures": 1, "cooldown_s": 10, "cooldown_max_s": 60, **settings})
    bench.ask(False)
    assert bench.state() is BreakerState.OPEN
    return bench


def test_one_probe_at_a_time() -> None:
    bench = opened()
    bench.wait(10)
    assert bench.is_up()
    probe = bench.breaker.begin()
    assert bench.state() is BreakerState.HALF_OPEN
    assert not bench.is_up(), "the probe is under way"
    bench.breaker.ended(probe, ok=True)
    assert bench.is_up()
    assert bench.told == [BreakerState.OPEN, BreakerState.HALF_OPEN, BreakerState.CLOSED]


def test_a_probe_that_answers_counts_before_its_end() -> None:
    bench = opened()
    bench.wait(10)
    probe = bench.breaker.begin()
    bench.breaker.answers(probe)
    assert bench.state() is BreakerState.CLOSED
    bench.breaker.ended(probe, ok=False)
    assert bench.state() is BreakerState.CLOSED, "it has told already"


def test_a_probe_without_a_verdict_makes_room_for_another() -> None:
    bench = opened()
    bench.wait(10)
    probe = bench.breaker.begin()
    bench.breaker.abandoned(probe)
    assert bench.is_up()
    assert bench.state() is BreakerState.HALF_OPEN
    other = bench.breaker.begin()
    bench.breaker.abandoned(probe)
    assert not bench.is_up(), "only the probe itself can give its place up"
    bench.breaker.ended(other, ok=True)
    assert bench.state() is BreakerState.CLOSED


def test_each_failed_probe_doubles_the_rest_up_to_the_longest() -> None:
    bench = opened()
    rests = []
    for _ in range(5):
        rests.append(bench.breaker.rests_for)
        bench.wait(bench.breaker.rests_for)
        bench.ask(False)
        assert bench.state() is BreakerState.OPEN
    assert rests == [10, 20, 40, 60, 60]
    bench.wait(60)
    bench.ask(True)
    bench.ask(False)
    assert bench.breaker.rests_for == 10, "a success makes it short again"


def test_a_request_sent_in_spite_of_it_can_close_it() -> None:
    bench = opened()
    bench.ask(False, False)
    assert bench.breaker.rests_for == 10, "that it fails is no news"
    bench.ask(True)
    assert bench.state() is BreakerState.CLOSED


def test_what_began_earlier_says_nothing_about_now() -> None:
    bench = Bench(failures=2, cooldown_s=10)
    old = bench.breaker.begin()
    late = bench.breaker.begin()
    bench.ask(False, False)
    assert bench.state() is BreakerState.OPEN
    bench.breaker.ended(old, ok=True)
    assert bench.state() is BreakerState.OPEN
    bench.wait(10)
    probe = bench.breaker.begin()
    bench.breaker.ended(late, ok=False)
    bench.breaker.answers(late)
    assert bench.state() is BreakerState.HALF_OPEN
    bench.breaker.ended(probe, ok=True)
    assert bench.state() is BreakerState.CLOSED


def test_the_health_check_decides_at_once() -> None:
    bench = Bench(failures=0, error_rate=0, cooldown_s=10)
    bench.breaker.down("GET /health: 500")
    bench.breaker.down("GET /health: 500")
    assert bench.state() is BreakerState.OPEN
    bench.breaker.up()
    bench.breaker.up()
    assert bench.state() is BreakerState.CLOSED
    assert bench.told == [BreakerState.OPEN, BreakerState.CLOSED]
    bench.breaker.down("x")
    bench.wait(10)
    assert bench.state() is BreakerState.HALF_OPEN
    bench.breaker.up()
    assert bench.state() is BreakerState.CLOSED
