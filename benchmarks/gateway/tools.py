"""The C programs (`upstream.c`, `load.c`, `jumps.c`), compiled into `.build` at first use and when their source changes."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from benchmarks.gateway.errors import CannotMeasure

HERE = Path(__file__).parent
BUILD = HERE / ".build"


def tool(name: str) -> str:
    """The path of the compiled program."""
    source, program = HERE / f"{name}.c", BUILD / name
    if program.exists() and program.stat().st_mtime >= source.stat().st_mtime:
        return str(program)
    compiler = os.environ.get("CC", "cc")
    if shutil.which(compiler) is None:
        raise CannotMeasure(
            f"no C compiler {compiler!r}: the load generator and the fake upstream are written in C. "
            "Install one (Debian: apt-get install gcc libc6-dev) or name one in CC."
        )
    BUILD.mkdir(exist_ok=True)
    made = subprocess.run(
        [compiler, "-O2", "-Wall", "-Wextra", "-Wno-unused-result", "-o", str(program), str(source)],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode:
        raise CannotMeasure(f"{compiler} cannot compile {source.name}:\n{made.stderr.strip()}")
    return str(program)
