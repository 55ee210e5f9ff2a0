"""The command `athena`. Exit codes: 0 success, 1 failure, 2 wrong usage."""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from athena import __version__
from athena.errors import AthenaError
from athena.shells.cli.argv import hide_keys
from athena.shells.cli.registry import Commands

PROGRAM = "athena"
COMPLETION_VARIABLE = "_ATHENA_COMPLETE"
_NO_ARGUMENTS: Any = getattr(click.exceptions, "NoArgsIsHelpError", ())
"""A group without a command: its message is its help. Releases of click before 8.2 print that by themselves."""

_HELP = """Tool calling that works between any client and any model.

Athena is a gateway: point the base URL of any agent or SDK at it, and any model behind any API answers in the dialect that
the client speaks, with tool calls that are whole and right.

\b
Examples:
  athena demo                          see leaked tool calls and what an agent receives
  athena init                          set up your own model and agent
  athena                               serve; without an upstream a demo model answers
  athena serve --base-url http://127.0.0.1:8000/v1
  athena start                         keep it running in the background

Without a command, athena serves. Every command explains itself: athena COMMAND --help.

Exit codes of every command: 0 success, 1 failure, 2 wrong usage. athena code returns the agent's own, and athena verify
returns 3 where its budget was too small to decide.
"""


@click.command(cls=Commands, help=_HELP, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, "-V", "--version", prog_name=PROGRAM, message="%(prog)s %(version)s")
def cli() -> None:
    pass


def main() -> int:
    """The program; returns its exit code."""
    arguments = hide_keys(sys.argv)
    try:
        result = cli.main(args=arguments, prog_name=PROGRAM, complete_var=COMPLETION_VARIABLE, standalone_mode=False)
        return result if isinstance(result, int) else 0
    except click.UsageError as error:
        if isinstance(error, _NO_ARGUMENTS):
            click.echo(error.format_message(), err=True)
            return 2
        hint = f"\nTry '{error.ctx.command_path} --help'." if error.ctx is not None else ""
        _complain(_usage_words(error) + hint)
        return 2
    except click.ClickException as error:
        _complain(error.format_message())
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        _complain("stopped")
        return 1
    except AthenaError as error:
        _complain(error.message)
        return 1
    except BrokenPipeError:
        # The reader of our output has seen enough. What is still buffered has nowhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        if os.environ.get("ATHENA_TRACEBACK"):
            raise
        _complain(f"this is a fault in athena: {type(error).__name__}: {error}\nSet ATHENA_TRACEBACK=1 to see where.")
        return 1


def _usage_words(error: click.UsageError) -> str:
    """What is wrong with a command line, in one look for click's words and ours."""
    if isinstance(error, click.NoSuchOption):
        near = " or ".join(sorted(error.possibilities or ()))
        return f"there is no option {error.option_name}{f'; did you mean {near}?' if near else ''}"
    words = " ".join(error.format_message().split())
    return words[:1].lower() + words[1:].removesuffix(".")


def _complain(message: str) -> None:
    """One block on standard error, red where a person looks."""
    if sys.stderr.isatty() and not os.environ.get("NO_COLOR"):
        from athena.shells.cli.terminal import error_console

        error_console().print(f"[bold red]athena:[/] {_escaped(message)}", highlight=False, soft_wrap=True)
    else:
        click.echo(f"{PROGRAM}: {message}", err=True)


def _escaped(message: str) -> str:
    from rich.markup import escape

    return escape(message)
