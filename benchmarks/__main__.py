"""Run the suites and benchmarks named on the command line: `NAME...`, or one suite and its options."""

from __future__ import annotations

import signal
import sys
from importlib import import_module
from typing import Any

SUITES = {
    "micro": "benchmarks.micro",
    "agent": "benchmarks.agent",
    "gateway": "benchmarks.gateway.suite",
    "peers": "benchmarks.gateway.peers_suite",
    "leaks": "benchmarks.leaks",
    "scale": "benchmarks.gateway.scale.suite",
    "answers": "benchmarks.gateway.answers",
    "chunk": "benchmarks.chunk",
    "machine": "benchmarks.machine",
    "batch": "benchmarks.batch",
    "schemas": "benchmarks.schemas",
    "recording": "benchmarks.recording",
    "state": "benchmarks.state",
    "walk": "benchmarks.walk.suite",
    "compare": "benchmarks.gateway.compare",
    "report": "benchmarks.gateway.report",
    "all": "benchmarks.gateway.everything",
}
"""Take options and end with an exit code."""
SMALL = (
    "translator",
    "formats",
    "echo",
    "peer_parsers",
    "prompted",
    "startup",
    "upstream_client",
    "transport",
    "memory",
    "inspector",
    "recording",
)
"""Print and end; all of them run when nothing is named."""


def main(arguments: list[str]) -> int:
    """A suite takes all that follows it."""
    if arguments and arguments[0] in SUITES:
        module = _announced(arguments[0], SUITES[arguments[0]])
        return int(module.main(arguments[1:]))
    if unknown := [name for name in arguments if name not in SMALL]:
        print(f"bench: unknown benchmark {unknown[0]!r}; known: {', '.join([*SUITES, *SMALL])}", file=sys.stderr)
        return 2
    for name in arguments or SMALL:
        _announced(name, f"benchmarks.{name}").main()
    return 0


def _announced(name: str, path: str) -> Any:
    module = import_module(path)
    print(f"\n== {name}: {(module.__doc__ or '').strip().splitlines()[0]}", flush=True)
    return module


if __name__ == "__main__":
    # Ended from outside, a bench still ends what it started.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    sys.exit(main(sys.argv[1:]))
