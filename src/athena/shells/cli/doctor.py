"""`athena doctor`: say what is wrong between here and the model, step by step, and what to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from athena.shells.cli.completing import complete_upstreams
from athena.shells.cli.options import serving_options, sources

if TYPE_CHECKING:
    from rich.text import Text

    from athena.shells.doctor import CheckStep

_MARKS = {"ok": ("ok", "green"), "note": ("note", "yellow"), "failed": ("FAILED", "bold red"), "skipped": ("-", "dim")}


@click.command()
@serving_options
@click.option(
    "--upstream",
    default="",
    metavar="NAME",
    shell_complete=complete_upstreams,
    help="Only this upstream of the configuration. [all]",
)
@click.option(
    "--timeout", "seconds", type=click.FloatRange(0.1, 3600), default=30.0, show_default=True, help="Seconds to wait."
)
@click.option("--free", is_flag=True, help="Send nothing that could cost anything: no completion, no stream, no tool call.")
@click.option("--verbose", "-v", is_flag=True, help="Show what was tried and what came back also where all is well.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per step.")
def doctor(
    config_file: str | None,
    upstream: str,
    seconds: float,
    free: bool,
    verbose: bool,
    as_json: bool,
    model: str | None,
    **flags: Any,
) -> int:
    """Say what is wrong between here and the model, and what to do about it.

    Looks at the configuration, the gateway's port, and for each upstream at its name, port, TLS, proxy, address, dialect, key,
    model list and context window, then asks for one tiny answer, one stream and one tool call. Each step says what was tried,
    what came back and the remedy. It takes the flags of athena serve, works on a broken configuration and changes nothing.

    Exit code 0: everything works. 1: a step failed.

    \b
    Examples:
      athena doctor
      athena doctor --base-url http://127.0.0.1:8000/v1 --model Qwen/Qwen3-8B
      athena doctor --upstream openrouter --verbose
      athena doctor --json | jq 'select(.state == "failed")'
    """
    import asyncio

    from athena.shells.doctor import CheckWish, check_up

    where = sources({**flags, "model": None}, config_file)
    wish = CheckWish(upstream=upstream, model=model or "", seconds=seconds, free=free)

    async def run() -> int:
        code = 0
        async for step in check_up(where, wish):
            code = max(code, int(step.state.value == "failed"))
            show_step(step, verbose=verbose, as_json=as_json)
        return code

    code = asyncio.run(run())
    if not as_json:
        click.echo("\nEverything works." if code == 0 else "\nThe first step that failed is the one to fix.")
    return code


def show_step(step: CheckStep, *, verbose: bool, as_json: bool) -> None:
    """Print one step for a person, or as one line of JSON."""
    if as_json:
        import msgspec

        click.echo(msgspec.json.encode(step).decode())
        return
    from rich.text import Text

    word, style = _MARKS[step.state.value]
    name = f"{step.upstream}: {step.name}" if step.upstream else step.name
    _show_line(Text(f"{word:<7} ", style) + Text(f"{name:<24} "), _plain(step.said))
    is_wrong = bool(step.problem)
    for label, text in (("tried", step.tried), ("came", step.came)):
        if text and (verbose or step.state.value == "failed"):
            _show_line(Text(" " * 10) + Text(f"{label + ':':<7} ", "dim"), _plain(text))
    if step.remedy and is_wrong:
        _show_line(Text(" " * 10) + Text(f"{'remedy:':<7} ", "bold"), _plain(step.remedy))


def _show_line(head: Text, said: str) -> None:
    """A head and what is said beside it: on a terminal in a column of its own, elsewhere on one line."""
    from rich.table import Table
    from rich.text import Text

    from athena.shells.cli.terminal import console

    out = console()
    if not out.is_terminal:
        out.print(head + Text(said))
        return
    row = Table.grid()
    row.add_column(no_wrap=True, width=head.cell_len)
    row.add_column(overflow="fold")
    row.add_row(head, Text(said))
    out.print(row)


def _plain(text: str) -> str:
    """Nothing that an upstream sent may move the cursor or hide what stands before it."""
    return "".join(letter if letter.isprintable() else " " for letter in text)
