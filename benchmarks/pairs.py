"""What two ways of doing the same cost a process, measured by turns in small groups: whatever else the machine does meets both.

A group is short beside the seconds in which a machine's speed changes, so the two figures of a pair belong together and their
ratio is sharper than either of them; the median of many ratios is sharper still.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence

from benchmarks.gateway import processes
from benchmarks.gateway.results import Figure, Run

Pair = tuple[float, float]
"""What the first way cost, and the second."""


def rested(pids: list[int], quiet_s: float = 0.002) -> float:
    """CPU seconds of the processes, once they have run nothing for so long."""
    before = -1.0
    while (now := processes.cpu_seconds(pids)) != before:
        before = now
        time.sleep(quiet_s)
    return now


def show(run: Run, title: str, pairs: Sequence[Pair], at_most: float | None = None) -> None:
    """What each of two ways cost in each round."""
    ratios = [second / first for first, second in pairs]
    run.figures.append(Figure(title, "athena", "CPU", "ratio", ratios, judged=at_most is not None, at_most=at_most))
    lower, ratio, upper = statistics.quantiles(ratios, n=4)
    usual = [statistics.median(pair[side] for pair in pairs) for side in (0, 1)]
    print(
        f"{title}: {usual[0]:.0f} us and {usual[1]:.0f} us, ratio {ratio:.2f} "
        f"(median of {len(pairs)} rounds, quartiles {lower:.2f} and {upper:.2f})",
        flush=True,
    )


def surely(values: Sequence[float]) -> tuple[float, float]:
    """Between these lies the median that ever more values would have, in 19 of 20 cases: by their order alone."""
    ordered = sorted(values)
    away = 0.98 * len(ordered) ** 0.5
    middle = (len(ordered) - 1) / 2
    return ordered[max(0, int(middle - away))], ordered[min(len(ordered) - 1, int(middle + away + 1))]
