"""Run all benchmarks, or those named on the command line."""

from __future__ import annotations

import sys
from importlib import import_module
from pkgutil import iter_modules

import benchmarks


def main(names: list[str]) -> int:
    """Each module of this package with a `main` is a benchmark."""
    known = [module.name for module in iter_modules(benchmarks.__path__) if not module.name.startswith("_")]
    known = [name for name in known if name != "timing"]
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"unknown benchmark {unknown[0]!r}; known: {', '.join(known)}", file=sys.stderr)
        return 2
    for name in names or known:
        module = import_module(f"benchmarks.{name}")
        print(f"\n== {name}: {(module.__doc__ or '').strip().splitlines()[0]}")
        module.main()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
