"""Output for people: colours and tables on a terminal, plain text elsewhere; NO_COLOR is heeded."""

from __future__ import annotations

import sys
from typing import TextIO

from rich.console import Console

_WIDE = 1000
"""Columns of what is no terminal: whoever reads it there folds it by himself."""


def console() -> Console:
    return _console(sys.stdout)


def error_console() -> Console:
    return _console(sys.stderr)


def _console(file: TextIO) -> Console:
    return Console(file=file, highlight=False, soft_wrap=True, width=None if file.isatty() else _WIDE)
