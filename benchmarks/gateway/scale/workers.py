"""Two workers against one: what a second one brings, and what this machine lets it bring.

With four cores or more the workers have two of their own and the load two others. With fewer the load takes its share of the
same cores; if a request costs the gateway S and the load L of CPU, two cores can do no more than 2S / (S + L) times as many
requests as one worker with a core to itself, and the figure to read is how much of that was reached.
"""

from __future__ import annotations

import os

from benchmarks.gateway import processes
from benchmarks.gateway.bench import Bench, Pass, Running
from benchmarks.gateway.cases import CASES, CHUNKS, Case
from benchmarks.gateway.results import Figure
from benchmarks.gateway.scale.effort import Effort
from benchmarks.gateway.systems import system_named

SHOWN = ("n16", "s128")


def measure(bench: Bench, effort: Effort) -> list[Figure]:
    """One and two, interleaved."""
    found = []
    systems = (effort.athena("msg"), system_named(f"athena-msg-2w{effort.suffix}"))
    with bench.running(systems[0]) as one, bench.running(systems[1]) as two:
        for name in SHOWN:
            case = CASES[name]
            single, double = [], []
            for _ in range(effort.repeats):
                single.append(_pass(bench, one, case, 1))
                double.append(_pass(bench, two, case, 2))
            speeds = [b.load.requests_per_s / a.load.requests_per_s for (a, _), (b, _) in zip(single, double, strict=True)]
            bounds = [_bound(made, load_cpu) for made, load_cpu in single]
            cpu = [b.cpu_us_per_request / a.cpu_us_per_request for (a, _), (b, _) in zip(single, double, strict=True)]
            enough = len(os.sched_getaffinity(0)) >= 4
            found.append(Figure(name, "2 workers", "speed by 1 worker", "x, more is better", speeds))
            found.append(Figure(name, "2 workers", "the machine allows", "x", [2.0] * len(bounds) if enough else bounds))
            found.append(Figure(name, "2 workers", "CPU per request by 1 worker", "x", cpu, judged=True))
    return found


def _pass(bench: Bench, running: Running, case: Case, workers: int) -> tuple[Pass, float]:
    """With the CPU the load took, generator and upstream together."""
    before = processes.cpu_seconds([bench.upstream_pid])
    with bench.load_on(spare_cores(workers)):
        made = bench.ask(
            running,
            case.model,
            streamed=case.streamed,
            requests=case.requests,
            concurrent=case.concurrent,
            stamps=CHUNKS if case.streamed else 1,
        )
    if made.load.errors:
        raise RuntimeError(made.load.error)
    upstream = processes.cpu_seconds([bench.upstream_pid]) - before
    return made, upstream + made.load.cpu_s


def spare_cores(workers: int) -> set[int]:
    """For the load: those the workers leave, or all when they leave none."""
    cores = sorted(os.sched_getaffinity(0))
    return set(cores[workers:]) or set(cores)


def _bound(made: Pass, load_cpu: float) -> float:
    return max(1.0, min(2.0, 2 * made.cpu_s / (made.cpu_s + load_cpu)))
