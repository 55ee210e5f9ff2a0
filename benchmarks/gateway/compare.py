"""Compare: run a suite again, or take a run's file, and say what got slower than the last saved run, beyond noise.

Noise is what the repetitions of both runs differ by. A figure is slower when its median moved by more than half the range of
the old repetitions plus half that of the new ones, and by more than a tenth. Exit code 1: something is slower.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.gateway.results import Figure, Run, load, saved_file

SUITES = {
    "gateway": "benchmarks.gateway.suite",
    "micro": "benchmarks.micro",
    "scale": "benchmarks.gateway.scale.suite",
    "peers": "benchmarks.gateway.peers_suite",
}
LEAST = 0.10
"""Smaller differences are within the noise of a machine that does anything else."""


class Moved(msgspec.Struct, frozen=True):
    """A figure that is not what it was."""

    figure: str
    before: float
    after: float
    allowed: float
    unit: str

    @property
    def line(self) -> str:
        """For people."""
        times = f" ({self.after / self.before:.2f}x)" if self.before > 0 else ""
        return f"{self.figure}: {self.before:.4g} -> {self.after:.4g} {self.unit}{times}, noise {self.allowed:.2g}"


def main(arguments: list[str]) -> int:
    """Run or read, compare, print."""
    parser = argparse.ArgumentParser(prog="./dev bench compare", description=__doc__)
    parser.add_argument("suite", nargs="?", default="gateway", choices=sorted(SUITES), help="default: %(default)s")
    parser.add_argument("--new", metavar="FILE", help="a run written by --out; left out: the suite is run now")
    parser.add_argument("--old", metavar="FILE", help="left out: the last saved run")
    options, passed_on = parser.parse_known_args(arguments)
    old_file = Path(options.old) if options.old else saved_file(options.suite)
    if not old_file.exists():
        print(f"bench: no saved run of {options.suite}; ./dev bench {options.suite} --save makes one", file=sys.stderr)
        return 2
    old = load(old_file)
    if options.new:
        return report(old, load(Path(options.new)))
    module: Any = import_module(SUITES[options.suite])
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "new.json"
        if code := module.main([*passed_on, "--out", str(file)]):
            return int(code)
        return report(old, load(file))


def report(old: Run, new: Run) -> int:
    """Print what moved; 1: something got slower."""
    slower, faster, compared = judge(old, new)
    print(f"\ncompared with {old.commit} of {old.made}: {compared} figures")
    if old.machine != new.machine:
        print(f"  another machine: {old.machine}\n              now: {new.machine}")
    for title, found in (("slower", slower), ("faster", faster)):
        for moved in found:
            print(f"  {title}: {moved.line}")
    if not slower:
        print("  nothing got slower beyond noise")
    return 1 if slower else 0


def judge(old: Run, new: Run) -> tuple[list[Moved], list[Moved], int]:
    """What got slower, what faster, and how many figures both runs have."""
    slower, faster, compared = [], [], 0
    for after in new.figures:
        before = old.find(after.case, after.system, after.metric)
        if before is None or not (before.judged and after.judged):
            continue
        compared += 1
        allowed = noise(before, after)
        moved = Moved(after.name, before.middle, after.middle, allowed, after.unit)
        if after.middle - before.middle > allowed:
            slower.append(moved)
        elif before.middle - after.middle > allowed:
            faster.append(moved)
    return slower, faster, compared


def noise(before: Figure, after: Figure) -> float:
    """How far two medians of the same thing may lie apart; a tenth of a target counts for nothing either."""
    least = LEAST * max(before.middle, before.at_most or 0.0)
    return max(least, before.half_range + after.half_range)
