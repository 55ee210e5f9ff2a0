"""The commands of `athena`, in the order of its help.

A command is a module of this package with a click command of the row's name in it, and a row here. Modules are imported when
their command is used, so that none pays for another. A row whose module is not installed is not shown.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import NamedTuple

import click

PACKAGE = "athena.shells.cli"
DEFAULT = "serve"
"""What `athena` without a command does."""


class Row(NamedTuple):
    """One command of `athena`; its module is imported only when it is used."""

    name: str
    summary: str
    module: str = ""
    """Where it differs from the name."""


ROWS = (
    Row("serve", "Run the gateway in the foreground."),
    Row("start", "Run the gateway in the background.", "background"),
    Row("stop", "Stop the gateway in the background.", "background"),
    Row("status", "Show whether the gateway runs in the background.", "background"),
    Row("logs", "Show the log of the gateway in the background.", "background"),
    Row("code", "Run a coding agent on the gateway."),
    Row("config", "Make, check and show the configuration."),
    Row("parse", "Read tool calls out of model text."),
    Row("formats", "List the tool-call formats that can be read."),
    Row("record", "List, show, export and delete recorded exchanges."),
    Row("replay", "Run recorded exchanges through this version, or answer with them."),
    Row("detect", "Say which format a model writes."),
    Row("demo", "Run only the built-in demo upstream."),
    Row("completion", "Print the completion script for a shell."),
)


class Commands(click.Group):
    """The top of the command line."""

    def list_commands(self, context: click.Context) -> list[str]:
        return [row.name for row in ROWS if _is_there(row)]

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        row = next((row for row in ROWS if row.name == name), None)
        if row is None or not _is_there(row):
            return None
        command = getattr(import_module(_module(row)), name.replace("-", "_"))
        assert isinstance(command, click.Command), f"{_module(row)} holds no command {name}"
        return command

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(row.name, row.summary) for row in ROWS if _is_there(row)])

    def parse_args(self, context: click.Context, arguments: list[str]) -> list[str]:
        # `athena --port 8000` is `athena serve --port 8000`; only --help and --version are the top's own.
        own = arguments[:1] in (["--help"], ["-h"], ["--version"])
        if not context.resilient_parsing and not own and (not arguments or arguments[0].startswith("-")):
            arguments = [DEFAULT, *arguments]
        return super().parse_args(context, arguments)


def _module(row: Row) -> str:
    return f"{PACKAGE}.{row.module or row.name.replace('-', '_')}"


def _is_there(row: Row) -> bool:
    return find_spec(_module(row)) is not None
