"""The commands of `athena`, in the order of its help.

A command is a module of this package with a click command of the row's name in it, and a row here. Modules are imported when
their command is used, so that none pays for another. A row whose module is not installed is not shown.
"""

from __future__ import annotations

from difflib import get_close_matches
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
    Row("init", "Set up your own model and agent."),
    Row("serve", "Run the gateway in the foreground."),
    Row("start", "Run the gateway in the background.", "background"),
    Row("stop", "Stop the gateway in the background.", "background"),
    Row("status", "Show the gateways that run here, their upstreams and counts.", "background"),
    Row("logs", "Show the log of the gateway in the background.", "background"),
    Row("code", "Run a coding agent on the gateway."),
    Row("config", "Make, check, import and show the configuration."),
    Row("models", "List the models of the configured upstreams."),
    Row("doctor", "Say what is wrong between here and the model, step by step."),
    Row("verify", "Measure what an upstream really does with tool calls."),
    Row("parse", "Read tool calls out of model text."),
    Row("formats", "List the tool-call formats that can be read."),
    Row("record", "List, show, export and delete recorded exchanges."),
    Row("replay", "Run recorded exchanges through this version, or answer with them."),
    Row("store", "Check, migrate and tidy up what is kept of Responses."),
    Row("detect", "Say which format a model writes."),
    Row("demo", "Show leaked tool calls beside the calls that an agent receives."),
    Row("help", "Explain a command, or the code of an error.", "explain"),
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

    def resolve_command(
        self, context: click.Context, arguments: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = arguments[0]
        if not context.resilient_parsing and self.get_command(context, name) is None:
            near = get_close_matches(name, self.list_commands(context), 1)
            raise click.UsageError(f"there is no command {name!r}{f'; did you mean {near[0]}?' if near else ''}", context)
        return super().resolve_command(context, arguments)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(row.name, row.summary) for row in ROWS if _is_there(row)])

    def parse_args(self, context: click.Context, arguments: list[str]) -> list[str]:
        # `athena --port 8000` is `athena serve --port 8000`; only --help and --version are the top's own.
        if arguments[:1] == ["help"] and not context.resilient_parsing and self._are_commands(context, arguments[1:]):
            arguments = [*arguments[1:], "--help"]
        elif arguments[:1] == ["version"]:
            arguments = ["--version"]
        own = arguments[:1] in (["--help"], ["-h"], ["--version"], ["-V"])
        if not context.resilient_parsing and not own and (not arguments or arguments[0].startswith("-")):
            arguments = [DEFAULT, *arguments]
        return super().parse_args(context, arguments)

    def _are_commands(self, context: click.Context, words: list[str]) -> bool:
        """Do the words of `athena help WORDS` name a command? Else `athena help` itself looks for an error's code."""
        return not words or self.get_command(context, words[0]) is not None


def _module(row: Row) -> str:
    return f"{PACKAGE}.{row.module or row.name.replace('-', '_')}"


def _is_there(row: Row) -> bool:
    return find_spec(_module(row)) is not None
