"""Gateway: CPU per request and chunk, first byte, chunk delay, memory and start-up, beside nginx and a byte relay."""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterable
from statistics import median

from benchmarks.gateway.bench import Bench, Pass, Running
from benchmarks.gateway.cases import CASES, CHUNKS, Case
from benchmarks.gateway.errors import CannotMeasure
from benchmarks.gateway.output import add_output_options, deliver
from benchmarks.gateway.results import Figure, Run, new_run
from benchmarks.gateway.systems import USUAL, System, system_named

Passes = dict[tuple[str, str], list[Pass]]
"""By case and system, one per repetition."""
NOISY = 0.15
"""A pass during which others took more of the core than this is made again, once."""
TRIES_IN_VAIN = 8


def main(arguments: list[str]) -> int:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(prog="./dev bench gateway", description=__doc__)
    parser.add_argument("--cases", default=",".join(CASES), help="comma separated; all: %(default)s")
    parser.add_argument("--systems", default=",".join(USUAL), help="comma separated (see systems.py); default: %(default)s")
    parser.add_argument("--repeats", type=int, default=5, help="repetitions; medians are reported (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="two repetitions of a quarter of the requests")
    add_output_options(parser)
    options = parser.parse_args(arguments)
    try:
        cases = chosen_cases(options.cases)
        systems = [system_named(name) for name in options.systems.split(",")]
        run = measure(
            "gateway", systems, cases, repeats=2 if options.quick else options.repeats, share=0.25 if options.quick else 1
        )
    except CannotMeasure as problem:
        print(f"bench: {problem}", file=sys.stderr)
        return 2
    print_tables(run, cases)
    deliver(run, options)
    return 0


def chosen_cases(names: str) -> list[Case]:
    """Those named, separated by commas."""
    for name in names.split(","):
        if name not in CASES:
            raise CannotMeasure(f"no case {name!r}; there are {', '.join(CASES)}")
    return [CASES[name] for name in names.split(",")]


def measure(suite: str, systems: list[System], cases: list[Case], *, repeats: int, share: float) -> Run:
    """All systems through all cases, interleaved."""
    passes: Passes = defaultdict(list)
    run = new_run(suite)
    quiet = Quiet()
    with Bench() as bench:
        running = _start_all(bench, systems)
        for one in running:
            print(f"  {one.system.name} answers after {one.startup_s:.2f} s, {one.idle_mib:.0f} MiB", file=sys.stderr)
            _warm_up(bench, one)
        for repeat in range(repeats):
            for case in cases:
                for one in running if repeat % 2 == 0 else reversed(running):
                    passes[case.name, one.system.name].append(_pass(bench, one, case, share, quiet))
            print(f"  repetition {repeat + 1} of {repeats} done", file=sys.stderr)
        run.notes.append(f"{repeats} interleaved repetitions; medians")
        run.notes.append(_noise(passes))
        run.notes += _failures(passes)
        run.figures += _start_figures(running)
    run.figures += figures(passes, systems, cases)
    return run


def _start_all(bench: Bench, systems: list[System]) -> list[Running]:
    """A peer that does not start is left out; anything else ends the run."""
    running = []
    for system in systems:
        try:
            running.append(bench.start(system))
        except CannotMeasure as problem:
            if not system.slow:
                raise
            print(f"  {problem}", file=sys.stderr)
    return running


def _warm_up(bench: Bench, one: Running) -> None:
    for streamed, stamps in ((False, 1), (True, CHUNKS)):
        requests = 16 if one.system.slow else 500 if not streamed else 48
        bench.ask(one, "fake-p0", streamed=streamed, requests=requests, concurrent=16, stamps=stamps)


def _pass(bench: Bench, one: Running, case: Case, share: float, quiet: Quiet) -> Pass:
    best = _once(bench, one, case, share)
    if best.foreign > NOISY and quiet.expected and not one.system.slow:
        again = _once(bench, one, case, share)
        quiet.seen(again.foreign <= NOISY)
        best = min(best, again, key=lambda found: (found.load.errors, found.foreign))
    return best


def _once(bench: Bench, one: Running, case: Case, share: float) -> Pass:
    found = bench.ask(
        one,
        case.model,
        streamed=case.streamed,
        requests=case.count(slow=one.system.slow, share=share),
        concurrent=case.concurrent,
        stamps=CHUNKS if case.streamed else 1,
    )
    if found.load.errors:
        print(f"  {one.system.name} {case.name}: {found.load.errors} errors: {found.load.error[:160]}", file=sys.stderr)
    return found


class Quiet:
    """Is it worth trying again? Not on a machine that was never quiet the last times."""

    def __init__(self) -> None:
        self._in_vain = 0

    @property
    def expected(self) -> bool:
        """May a second try be quieter?"""
        return self._in_vain < TRIES_IN_VAIN

    def seen(self, quiet: bool) -> None:
        """How the second try was."""
        self._in_vain = 0 if quiet else self._in_vain + 1


def _noise(passes: Passes) -> str:
    foreign = [one.foreign for found in passes.values() for one in found]
    return (
        f"other processes took {median(foreign):.0%} of the measured core in the median pass, {max(foreign):.0%} in the worst"
    )


def _failures(passes: Passes) -> list[str]:
    found = {key: sum(one.load.errors for one in made) for key, made in passes.items()}
    return [f"{system} in {case}: {errors} errors, so no figures" for (case, system), errors in found.items() if errors]


def _start_figures(running: Iterable[Running]) -> list[Figure]:
    found = []
    for one in running:
        if one.process is not None:
            found.append(Figure("start", one.system.name, "startup", "s", [one.startup_s]))
            found.append(Figure("start", one.system.name, "memory idle", "MiB", [one.idle_mib]))
            found.append(Figure("start", one.system.name, "memory after", "MiB", [one.memory_kib() / 1024]))
    return found


def figures(passes: Passes, systems: list[System], cases: list[Case]) -> list[Figure]:
    """What the tables show and a later run is compared by."""
    found: list[Figure] = []
    for case in cases:
        for system in systems:
            if made := passes[case.name, system.name]:
                found += _case_figures(case, system, made, passes)
    return found


def _case_figures(case: Case, system: System, made: list[Pass], passes: Passes) -> list[Figure]:
    def figure(metric: str, unit: str, values: list[float], *, judged: bool = False, at_most: float | None = None) -> Figure:
        return Figure(case.name, system.name, metric, unit, values, judged, at_most)

    loads = [one.load for one in made]
    found = [figure("errors", "", [float(load.errors) for load in loads])]
    if any(load.errors for load in loads):
        return found  # what failing costs is not what serving costs
    if system.launch is not None:
        costs = [_cost(case, one) for one in made]
        found.append(figure("cpu", "us", costs))
        reference = passes.get((case.name, system.reference), [])
        if reference and system.reference != system.name and not any(base.load.errors for base in reference):
            ratios = [cost / _cost(case, base) for cost, base in zip(costs, reference, strict=True)]
            found.append(figure("cpu ratio", "x", ratios, judged=True, at_most=target(system, case)))
    if direct := passes.get((case.name, "direct"), []):
        added = [(one.first_p50 - base.load.first_p50) / 1000 for one, base in zip(loads, direct, strict=True)]
        found.append(figure("first byte added", "ms", added, at_most=1.0 if system.name.startswith("athena") else None))
    found.append(figure("first byte p50", "ms", [load.first_p50 / 1000 for load in loads]))
    found.append(figure("first byte p99", "ms", [load.first_p99 / 1000 for load in loads]))
    found.append(figure("delay p50", "us", [load.delay_p50 for load in loads]))
    found.append(figure("delay p99", "us", [load.delay_p99 for load in loads]))
    rate = "chunks" if case.streamed else "requests"
    found.append(figure("rate", f"{rate}/s", [load.chunks_per_s if case.streamed else load.requests_per_s for load in loads]))
    found.append(figure("busy", "", [one.cpu_s / one.load.seconds for one in made]))
    found.append(figure("load core", "", [one.load_core_busy for one in made]))
    return found


def target(system: System, case: Case) -> float | None:
    """How many times nginx's CPU athena may take: fewer where nothing is translated."""
    if not system.name.startswith("athena"):
        return None
    if not case.streamed:
        return 4.0
    if case.pace_us:
        return 1.5
    return 2.0 if system.name.startswith("athena-pass") else 3.0


def _cost(case: Case, one: Pass) -> float:
    return one.cpu_us_per_chunk if case.streamed else one.cpu_us_per_request


COLUMNS = (
    ("cpu", "CPU us", 9, 1),
    ("cpu ratio", "x nginx", 9, 2),
    ("first byte added", "first +ms", 10, 2),
    ("delay p50", "delay us", 10, 0),
    ("delay p99", "p99 us", 10, 0),
    ("rate", "per s", 10, 0),
    ("busy", "busy", 7, 2),
    ("load core", "load", 7, 2),
    ("errors", "errors", 8, 0),
)


def print_tables(run: Run, cases: list[Case]) -> None:
    """For the terminal; behind a ratio its spread over the repetitions."""
    for case in cases:
        print(f"\n{case.name}: per {'chunk' if case.streamed else 'request'}")
        print(f"  {'system':<22}" + "".join(f"{title:>{width}}" for _, title, width, _ in COLUMNS) + "   ratio from-to")
        for system in dict.fromkeys(figure.system for figure in run.figures if figure.case == case.name):
            row = ""
            for metric, _, width, digits in COLUMNS:
                figure = run.find(case.name, system, metric)
                row += f"{figure.middle:>{width}.{digits}f}" if figure else f"{'-':>{width}}"
            ratio = run.find(case.name, system, "cpu ratio")
            spread = f"   {min(ratio.values):.2f}-{max(ratio.values):.2f}" if ratio else ""
            print(f"  {system:<22}{row}{spread}")
    print(f"\nstart\n  {'system':<22}{'seconds':>9}{'MiB idle':>10}{'MiB after':>11}")
    for system in dict.fromkeys(figure.system for figure in run.figures if figure.case == "start"):
        values = [run.find("start", system, metric) for metric in ("startup", "memory idle", "memory after")]
        print(f"  {system:<22}" + "".join(f"{one.middle:>10.2f}" for one in values if one))
    print("\n" + "; ".join(run.notes))
