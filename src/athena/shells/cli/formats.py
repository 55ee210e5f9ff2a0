"""`athena formats`: every way of writing tool calls as text that Athena reads."""

from __future__ import annotations

from typing import NamedTuple

import click


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.argument("name", required=False)
def formats(name: str | None, as_json: bool) -> int:
    """List the tool-call formats that can be read.

    With a NAME, show that format: its models, a sample, and where it comes from.

    \b
    Examples:
      athena formats
      athena formats kimi_k2
      athena formats --json
    """
    from athena.formats import all_formats, get_format

    chosen = [get_format(name)] if name else list(all_formats())
    if as_json:
        import msgspec

        click.echo(msgspec.json.encode([_row(one.id)._asdict() for one in chosen]).decode())
    elif name:
        row = _row(chosen[0].id)
        click.echo(f"{row.id}\n\n{row.about}\n\nmodels     {', '.join(row.models) or 'none by name'}")
        click.echo(f"streams    {_STREAMS[row.streams]}\nreasoning  {'read too' if row.in_reasoning else 'not read'}")
    else:
        _table([_row(one.id) for one in chosen])
    return 0


_STREAMS = {
    "yes": "arguments as they come",
    "str": "text values as they come, others when they end",
    "value": "each value when it ends",
    "call": "each call when it ends",
}


class Row(NamedTuple):
    """What is shown of one format."""

    id: str
    models: tuple[str, ...]
    streams: str
    reserved: bool
    in_reasoning: bool
    about: str


def _row(format_id: str) -> Row:
    import inspect
    from importlib import import_module

    from athena.formats import get_format

    found = get_format(format_id)
    about = inspect.getdoc(import_module(f"athena.formats.{format_id}")) or ""
    return Row(found.id, found.models, found.streams, found.reserved, found.read_in_reasoning, about)


def _table(rows: list[Row]) -> None:
    from rich.table import Table

    from athena.shells.cli.terminal import console

    table = Table(box=None, pad_edge=False)
    for column in ("format", "streams", "in reasoning", "models"):
        table.add_column(column, overflow="fold")
    for row in rows:
        models = ", ".join(row.models[:4]) + (", ..." if len(row.models) > 4 else "")
        table.add_row(row.id, row.streams, "yes" if row.in_reasoning else "", models)
    console().print(table)
