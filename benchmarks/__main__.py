"""Run the suites and benchmarks named on the command line; options go to the one before them."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

SUITES = {
    "micro": "benchmarks.micro",
    "gateway": "benchmarks.gateway.suite",
    "scale": "benchmarks.gateway.scale.suite",
    "peers": "benchmarks.gateway.peers_suite",
}
"""Take options and end with an exit code."""
SMALL = ("translator", "formats", "prompted", "startup", "upstream_client")
"""Print and end; all of them run when nothing is named."""


def main(arguments: list[str]) -> int:
    """`NAME...` or `NAME OPTIONS`."""
    names = arguments[: next((at for at, word in enumerate(arguments) if word.startswith("-")), len(arguments))]
    options = arguments[len(names) :]
    unknown = [name for name in names if name not in SUITES and name not in SMALL]
    if unknown or (options and len(names) != 1):
        wrong = f"unknown benchmark {unknown[0]!r}" if unknown else "options need one benchmark before them"
        print(f"bench: {wrong}; known: {', '.join([*SUITES, *SMALL])}", file=sys.stderr)
        return 2
    code = 0
    for name in names or SMALL:
        module: Any = import_module(SUITES.get(name, f"benchmarks.{name}"))
        print(f"\n== {name}: {(module.__doc__ or '').strip().splitlines()[0]}")
        if name in SUITES:
            code = max(code, module.main(options))
        else:
            module.main()
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
