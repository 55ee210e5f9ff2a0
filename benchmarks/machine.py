"""Machine: what a jump and a step of Python's cost on this machine, to read the other figures by.

Everything here is Python, and nginx is not. Python reads from memory where to jump with each of its steps, nginx hardly ever
does; so a processor, or a host of virtual machines, that does not predict such jumps makes every ratio to nginx larger.
"""

from __future__ import annotations

import subprocess
import sys
import time
from statistics import median

from benchmarks.gateway.errors import CannotMeasure
from benchmarks.gateway.tools import tool
from benchmarks.steps import count_steps

_ADDITIONS = 1_000_000


def _added(count: int = _ADDITIONS) -> int:
    total = 0
    for number in range(count):
        total += number
    return total


def main(arguments: list[str] | None = None) -> int:
    """Measure and print."""
    times = []
    for _ in range(5):
        began = time.process_time()
        _added()
        times.append(time.process_time() - began)
    steps = (count_steps(lambda: _added(1100)) - count_steps(lambda: _added(100))) / 1000
    print(f"a step of Python {sys.version.split()[0]} in its tightest loop: {median(times) / _ADDITIONS / steps * 1e9:.1f} ns")
    try:
        program = tool("jumps")
    except CannotMeasure as problem:
        print(f"bench: {problem}", file=sys.stderr)
        return 2
    rows = [line.split() for line in subprocess.run([program], capture_output=True, text=True, check=True).stdout.splitlines()]
    same, mixed = (median(float(row[place]) for row in rows) for place in (0, 1))
    print(f"a jump to a place read from memory: {same:.1f} ns to always the same one, {mixed:.1f} ns to eight in turn")
    guess = (
        "are not predicted here: ratios to compiled programs are larger than elsewhere" if mixed > 3 * same else "are predicted"
    )
    print(f"jumps of interpreters {guess}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
