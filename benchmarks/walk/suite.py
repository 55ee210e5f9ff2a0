"""How far a request and each piece of its answer walk through the code, and what that code is made of.

    ./dev bench walk [CHECKOUT...]

prints one table with a column for each checkout (`git worktree add`); without any, for this one. A call is a function of
`athena` that is entered; a return is control that comes back to a module which it had left. Times play no part: a busy machine
changes nothing. References that lead nowhere and settings that nothing reads are found by this checkout's own tests.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from benchmarks.walk.steps import walk
from benchmarks.walk.structure import counts

ROOT = Path(__file__).parents[2]
_REFERENCES = """
import sys
from pathlib import Path
import support.code_blocks
support.code_blocks.ROOT = Path(sys.argv[1])
from docs import test_references
from support.repository_texts import texts
print(sum(len(test_references.dangling(name, text)) for name, text in texts()))
"""
_SETTINGS = """
import sys
from pathlib import Path
from architecture import test_settings_are_read
print(len(test_settings_are_read.unread(Path(sys.argv[1]) / "src" / "athena")))
"""


def main(arguments: list[str]) -> int:
    """Print the table."""
    checkouts = [Path(argument).resolve() for argument in arguments] or [ROOT]
    columns = [_column(checkout) for checkout in checkouts]
    print(f"| | {' | '.join(checkout.name for checkout in checkouts)} |")
    print("|---" * (len(columns) + 1) + "|")
    for name in columns[0]:
        print(f"| {name} | {' | '.join(column.get(name, '') for column in columns)} |")
    return 0


def _column(checkout: Path) -> dict[str, str]:
    walked = {
        f"{name}: calls, modules, returns": f"{step.calls}, {step.modules}, {step.returns}"
        for name, step in walk(checkout).items()
    }
    counted = {name: f"{count:,}" for name, count in counts(checkout / "src" / "athena").items()}
    return walked | counted | {
        "references that lead nowhere": _asked(checkout, _REFERENCES),
        "settings that nothing reads": _asked(checkout, _SETTINGS),
    }  # fmt: skip


def _asked(checkout: Path, program: str) -> str:
    """What a test of this checkout finds in that one."""
    path = os.pathsep.join(map(str, (checkout / "src", ROOT / "tests")))
    done = subprocess.run(
        [sys.executable, "-c", program, str(checkout)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()
