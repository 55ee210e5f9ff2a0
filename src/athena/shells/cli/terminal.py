"""Output for people: colours and tables on a terminal, plain text elsewhere; NO_COLOR is heeded."""

from __future__ import annotations

import sys

from rich.console import Console


def console() -> Console:
    return Console(file=sys.stdout, highlight=False, soft_wrap=True)


def error_console() -> Console:
    return Console(file=sys.stderr, highlight=False, soft_wrap=True)
