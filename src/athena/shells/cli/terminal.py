"""Output for people: colours and tables on a terminal, plain text elsewhere; NO_COLOR is heeded."""

from __future__ import annotations

import re
import sys
from typing import TextIO

from rich.console import Console

_WIDE = 1000
"""Columns of what is no terminal: whoever reads it there folds it by himself."""
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]")


def safe_text(text: str) -> str:
    """Text of strangers on a terminal: nothing in it moves the cursor or changes the direction of writing."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def console() -> Console:
    return _console(sys.stdout)


def error_console() -> Console:
    return _console(sys.stderr)


def _console(file: TextIO) -> Console:
    return Console(file=file, highlight=False, soft_wrap=True, width=None if file.isatty() else _WIDE)
