"""A long run: how much memory is kept after so many requests, half of them plain, half streamed and a fifth of those left.

Resident anonymous memory and swap, after a warm-up, per 100,000 requests.
"""

from __future__ import annotations

from benchmarks.gateway.bench import Bench, Running
from benchmarks.gateway.results import Figure
from benchmarks.gateway.scale.effort import Effort

STEPS = 10
LEAVE_PERCENT = 20


def measure(bench: Bench, effort: Effort) -> list[Figure]:
    """The growth over the run, and from its middle on."""
    with bench.running(effort.athena("msg")) as one:
        _requests(bench, one, max(2_000, effort.soak_requests // 20))
        sizes = [_kept_kib(one)]
        for _ in range(STEPS):
            _requests(bench, one, effort.soak_requests // STEPS)
            sizes.append(_kept_kib(one))
        case, name = f"{effort.soak_requests} requests", one.system.name
        to_mib = 100_000 / effort.soak_requests / 1024
        second_half = (sizes[-1] - sizes[STEPS // 2]) * 2 * to_mib
        return [
            Figure(case, name, "growth per 100,000", "MiB", [(sizes[-1] - sizes[0]) * to_mib], judged=True, at_most=8),
            Figure(case, name, "of the second half", "MiB", [second_half]),
            Figure(case, name, "memory at the start", "MiB", [sizes[0] / 1024]),
            Figure(case, name, "memory at the end", "MiB", [sizes[-1] / 1024]),
        ]


def _kept_kib(one: Running) -> int:
    return one.memory_kib("Anonymous") + one.memory_kib("Swap")


def _requests(bench: Bench, one: Running, count: int) -> None:
    plain = bench.ask(one, "fake-p0", streamed=False, requests=count // 2, concurrent=16, stamps=1)
    streamed = bench.ask(
        one, "fake-n10", streamed=True, requests=count // 2, concurrent=16, stamps=10, leave_percent=LEAVE_PERCENT
    )
    for made in (plain, streamed):
        if made.load.errors:
            raise RuntimeError(made.load.error)
