"""Run `athena serve` and write down every function of `athena` that is entered: `traced.py SOURCE OUTPUT ARGUMENTS...`.

Each line of the output is one call: the time by the machine's monotonic clock, the module, the function.
"""

from __future__ import annotations

import runpy
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any


def main(source: str, output: str, arguments: list[str]) -> None:
    """Serve until a signal ends it; then write the calls."""
    inside = str(Path(source).resolve() / "athena") + "/"
    calls: list[tuple[float, str, str]] = []

    def note(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(inside):
            calls.append((time.monotonic(), code.co_filename[len(inside) :], code.co_qualname))

    sys.path.insert(0, source)
    sys.argv = ["athena", *arguments]
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        runpy.run_module("athena", run_name="__main__")
    finally:
        sys.setprofile(None)
        Path(output).write_text("".join(f"{now:.6f}\t{module}\t{name}\n" for now, module, name in calls))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
