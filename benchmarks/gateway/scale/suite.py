"""Scale: large requests, TLS, idle streams, long answers, loop lag, memory over a long run, two workers."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import replace

from msgspec import structs

from benchmarks.gateway.bench import Bench
from benchmarks.gateway.errors import CannotMeasure
from benchmarks.gateway.output import add_output_options, deliver
from benchmarks.gateway.results import Figure, load, new_run, saved_file
from benchmarks.gateway.scale import hostile, idle, large, long_answers, soak, tls, workers
from benchmarks.gateway.scale.effort import QUICK, Effort

PARTS = {
    "large": large,
    "tls": tls,
    "idle": idle,
    "long": long_answers,
    "lag": hostile,
    "soak": soak,
    "workers": workers,
}


def main(arguments: list[str]) -> int:
    """Measure the parts named; saved figures of the others stay."""
    parser = argparse.ArgumentParser(prog="./dev bench scale", description=__doc__)
    parser.add_argument("--parts", default=",".join(PARTS), help="comma separated; all: %(default)s")
    parser.add_argument("--repeats", type=int, default=3, help="repetitions (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="one repetition, 500 streams, 5,000 requests")
    parser.add_argument("--suffix", default="", help="of the athena systems measured, as in -2w")
    add_output_options(parser)
    options = parser.parse_args(arguments)
    names = options.parts.split(",")
    if unknown := [name for name in names if name not in PARTS]:
        print(f"bench: no part {unknown[0]!r}; there are {', '.join(PARTS)}", file=sys.stderr)
        return 2
    effort = replace(QUICK if options.quick else Effort(repeats=options.repeats), suffix=options.suffix)
    run = new_run("scale")
    failed = False
    for name in names:
        try:
            with Bench(patience_s=600) as bench:
                found = PARTS[name].measure(bench, effort)
        except (CannotMeasure, RuntimeError) as problem:
            print(f"bench: {name} could not be measured: {problem}", file=sys.stderr)
            failed = True
            continue
        run.figures += [structs.replace(figure, case=f"{name}: {figure.case}") for figure in found]
        print(f"\n{name}: {(PARTS[name].__doc__ or '').splitlines()[0]}")
        for figure in found:
            print(f"  {line(figure)}")
    measured = sorted({part_of(figure) for figure in run.figures})
    busy = f"load average {os.getloadavg()[1]:.1f} on {os.cpu_count()} cores"
    run.notes += [f"{part}: {run.made}, {run.commit}, {busy}" for part in measured]
    if (options.save or options.write_docs) and saved_file("scale").exists():
        kept = load(saved_file("scale"))
        run.figures += [figure for figure in kept.figures if part_of(figure) not in measured]
        run.notes += [note for note in kept.notes if note.partition(":")[0] not in measured]
    deliver(run, options)
    return 1 if failed else 0


def part_of(figure: Figure) -> str:
    """The name of the part that measured it."""
    return figure.case.partition(":")[0]


def line(figure: Figure) -> str:
    """A figure, its spread, and how it stands to its target."""
    text = f"{figure.case:<48}{figure.system:<18}{figure.metric:<30}{figure.middle:>10.2f} {figure.unit}"
    if len(figure.values) > 1:
        text += f" ({min(figure.values):.2f}-{max(figure.values):.2f})"
    if figure.at_most is not None:
        text += f", target {figure.at_most:g}: {'met' if figure.middle <= figure.at_most else 'MISSED'}"
    return text
