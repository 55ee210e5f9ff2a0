"""How long a failed attempt waits for the next one."""

from __future__ import annotations

import subprocess
import sys

import pytest

from athena.model.events import Error
from athena.serving.retries import pause_before

FAILED = Error("no answer", kind="upstream")


@pytest.mark.parametrize(("attempt", "longest"), [(0, 0.25), (1, 0.5), (3, 2.0), (9, 8.0)])
def test_pauses_grow_up_to_a_bound_and_are_spread_over_their_second_half(attempt: int, longest: float) -> None:
    pauses = [pause_before(FAILED, attempt, f"req_{number}") for number in range(500)]
    assert longest / 2 <= min(pauses) < longest * 0.55
    assert longest * 0.95 < max(pauses) <= longest


def test_the_upstreams_own_word_wins() -> None:
    assert pause_before(Error("busy", kind="overloaded", retry_after=7.0), 0, "req_1") == 7.0


def test_a_request_waits_as_long_in_every_process() -> None:
    program = (
        "from athena.model.events import Error; from athena.serving.retries import pause_before; "
        "print(pause_before(Error('no answer', kind='upstream'), 1, 'req_1'))"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert float(done.stdout) == pause_before(FAILED, 1, "req_1")
