"""Counters, gauges and histograms: what Prometheus reads, over several processes and over the death of one."""

from __future__ import annotations

import os
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from athena.shells.gateway.numbers import Area, Numbers


def read(numbers: Numbers) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Every sample, as the format's own reader understands it."""
    families = text_string_to_metric_families(numbers.render().decode())
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value for family in families for sample in family.samples
    }


def test_the_text_is_prometheus() -> None:
    numbers = Numbers()
    asked = numbers.counter("asked", "How often", ("by", "at"))
    asked.labels('a "quoted"\\name\n', "x").inc()
    asked.labels('a "quoted"\\name\n', "x").inc(2)
    numbers.gauge("open", "Right now").labels().inc()
    numbers.gauge("warm", "Told when asked").set_function(lambda: 36.5)
    took = numbers.histogram("took_seconds", "Time", ("by",), (0.1, 1.0))
    for value in (0.05, 0.1, 0.5, 7):
        took.labels("a").observe(value)
    samples = read(numbers)
    assert samples["asked_total", (("at", "x"), ("by", 'a "quoted"\\name\n'))] == 3
    assert samples["open", ()] == 1
    assert samples["warm", ()] == 36.5
    by = ("by", "a")
    assert [samples["took_seconds_bucket", (by, ("le", edge))] for edge in ("0.1", "1.0", "+Inf")] == [2, 3, 4]
    assert samples["took_seconds_count", (by,)] == 4
    assert samples["took_seconds_sum", (by,)] == pytest.approx(7.65)
    assert b"# TYPE asked_total counter\n" in numbers.render()
    assert b"# HELP took_seconds Time\n# TYPE took_seconds histogram\n" in numbers.render()


def families(numbers: Numbers) -> Any:
    return (
        numbers.counter("asked", "How often", ("by",)),
        numbers.gauge("open", "Right now"),
        numbers.gauge("up", "Is it well", ("name",), lowest=True),
        numbers.histogram("took", "Time", (), (1.0,)),
    )


def test_processes_are_added_up_and_one_that_dies_is_counted_once() -> None:
    areas = [Area(), Area()]
    first = Numbers(areas, 0)
    asked, _, up, _ = families(first)
    asked.labels("me").inc(5)
    up.labels("a").set(1)

    def live_and_die(place: int, up_now: float) -> None:
        child = os.fork()
        if child == 0:
            try:
                asked, still_open, up, took = families(Numbers(areas, place))
                asked.labels("me").inc(2)
                asked.labels("you").inc()
                still_open.labels().inc(7)
                up.labels("a").set(up_now)
                took.labels().observe(0.5)
            finally:
                os._exit(0)
        os.waitpid(child, 0)

    live_and_die(1, 0.0)
    samples = read(first)
    assert samples["asked_total", (("by", "me"),)] == 7
    assert samples["asked_total", (("by", "you"),)] == 1
    assert samples["open", ()] == 7
    assert samples["up", (("name", "a"),)] == 0
    # The next process in that place counts on; what was open in the one before is not open any more.
    live_and_die(1, 1.0)
    samples = read(first)
    assert samples["asked_total", (("by", "me"),)] == 9
    assert samples["asked_total", (("by", "you"),)] == 2
    assert samples["open", ()] == 7
    assert samples["up", (("name", "a"),)] == 1
    assert samples["took_count", ()] == 2
    assert read(first) == read(reader_of(areas)), "everybody gives the same answer"


def reader_of(areas: list[Area]) -> Numbers:
    numbers = Numbers([Area(), *areas], 0)
    families(numbers)
    return numbers


def test_a_gauge_of_the_dead_is_forgotten() -> None:
    areas = [Area()]
    _, still_open, up, _ = families(Numbers(areas, 0))
    still_open.labels().inc(3)
    up.labels("gone").set(0)
    after = Numbers(areas, 0)
    families(after)
    assert read(after)["open", ()] == 0
    assert ("up", (("name", "gone"),)) not in read(after)


def test_a_full_area_drops_series_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    numbers = Numbers([Area(4096)], 0)
    asked = numbers.counter("asked", "How often", ("by",))
    for number in range(500):
        asked.labels(str(number)).inc()
        asked.labels(str(number)).inc()
    samples = read(numbers)
    assert 50 < len(samples) < 500
    assert set(samples.values()) == {2.0}
    assert caplog.text.count("no room for more series") == 1
