"""Figures of a run, and their small JSON files in `benchmarks/results`: the last saved run of each suite."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

import msgspec

import athena

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "benchmarks" / "results"


class Figure(msgspec.Struct, omit_defaults=True):
    """One thing measured, once per repetition. Lower is better."""

    case: str
    system: str
    metric: str
    unit: str
    values: list[float]
    judged: bool = False
    """A later run is compared by it: a ratio or a CPU figure, hardly moved by what else the machine does."""
    at_most: float | None = None
    """The target, where there is one."""

    @property
    def middle(self) -> float:
        """The median."""
        return median(self.values)

    @property
    def half_range(self) -> float:
        """How far the repetitions lie apart: half of largest minus smallest."""
        return (max(self.values) - min(self.values)) / 2

    @property
    def name(self) -> str:
        """For people."""
        return " ".join(part for part in (self.case, self.system, self.metric) if part)


class Run(msgspec.Struct):
    """One run of a suite."""

    suite: str
    made: str
    commit: str
    machine: str
    notes: list[str]
    figures: list[Figure]

    def find(self, case: str, system: str, metric: str) -> Figure | None:
        """One of them."""
        for figure in self.figures:
            if (figure.case, figure.system, figure.metric) == (case, system, metric):
                return figure
        return None


def new_run(suite: str) -> Run:
    """An empty run of now, on this machine. Made before measuring: others may commit meanwhile."""
    machine = f"{_processor()}, {len(os.sched_getaffinity(0))} cores, {platform.system()} {platform.release()}"
    made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return Run(suite, made, measured_source(), f"{machine}, Python {platform.python_version()}", [], [])


def measured_source() -> str:
    """The commit of the source that is imported (PYTHONPATH may have put it elsewhere); `-dirty`: changed since."""
    source = Path(athena.__file__).parents[1]
    found = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=source, capture_output=True, text=True, check=False
    ).stdout.strip()
    if source != ROOT / "src":
        return f"a copy of the source at {found}" if found else "a copy of the source, of no known commit"
    return found or "unknown"


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def saved_file(suite: str) -> Path:
    """Where a suite's last saved run is kept."""
    return FOLDER / f"{suite}.json"


def save(run: Run, file: Path) -> None:
    """Four digits are more than a measurement is good for."""
    file.parent.mkdir(parents=True, exist_ok=True)
    short = msgspec.structs.replace(
        run, figures=[msgspec.structs.replace(f, values=[float(f"{value:.4g}") for value in f.values]) for f in run.figures]
    )
    lines = [msgspec.json.encode(figure).decode() for figure in short.figures]
    head = msgspec.json.encode({**msgspec.to_builtins(msgspec.structs.replace(short, figures=[])), "figures": 0}).decode()
    # One figure per line: a saved run can be read and its changes seen.
    file.write_text(head.removesuffix("0}") + "[\n" + ",\n".join(lines) + "\n]}\n")


def load(file: Path) -> Run:
    """A saved run."""
    return msgspec.json.decode(file.read_bytes(), type=Run)
