"""`athena formats`: every way of writing tool calls as text that Athena reads, and new ones from chat templates."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import click
from click.shell_completion import CompletionItem

from athena.errors import AthenaError


class _Formats(click.Group):
    """A word that is no subcommand is a format's name: `athena formats kimi_k2`."""

    def shell_complete(self, context: click.Context, incomplete: str) -> list[CompletionItem]:
        from athena.formats import format_names

        names = [CompletionItem(name) for name in format_names() if name.startswith(incomplete)]
        return [*super().shell_complete(context, incomplete), *names]

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        def show(as_json: bool) -> int:
            return _show(name, as_json or bool(context.obj))

        option = click.Option(["--json", "as_json"], is_flag=True, help="Print JSON.")
        return super().get_command(context, name) or click.Command(name, callback=show, params=[option])


@click.group(cls=_Formats, invoke_without_command=True, subcommand_metavar="[NAME | learn TEMPLATE]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def formats(context: click.Context, as_json: bool) -> int:
    """List the tool-call formats that can be read.

    With a NAME, show that format: its models, a sample, and where it comes from. `athena formats learn` makes a format of a
    model's chat template.

    \b
    Examples:
      athena formats
      athena formats kimi_k2
      athena formats --json
      athena formats learn chat_template.jinja > acme.toml
    """
    context.obj = as_json
    return _show(None, as_json) if context.invoked_subcommand is None else 0


@formats.command()
@click.argument("template", type=click.Path(exists=True, path_type=Path))
@click.option("--name", help="The format's id; left out: made of the file's name.")
@click.option(
    "--output", "-o", type=click.Path(path_type=Path, dir_okay=False), help="File to write to instead of standard output."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object: {id, about, toml}, or file in place of toml.")
def learn(template: Path, name: str | None, output: Path | None, as_json: bool) -> int:
    """Learn a format from a model's chat template.

    TEMPLATE is a Jinja file, a tokenizer_config.json, or the folder of a checkpoint. Probe calls are rendered through it in a
    sandbox; what the template writes around them is the format, and it counts only if it reads the template's own calls back,
    however they are cut. Writes a format file (TOML) for `format: {file: ...}` in athena.yml. Exit code 1, with the reason,
    where no format can be learnt.

    Needs jinja2: pip install 'athena-gateway[learn]'

    \b
    Examples:
      athena formats learn chat_template.jinja > acme.toml
      athena formats learn ./checkpoint --name acme -o acme.toml
    """
    from athena.shells.templates.learn import learn_format

    learnt = learn_format(template, name=name)
    text = learnt.to_toml()
    if output is not None:
        try:
            output.write_text(text, encoding="utf-8")
        except OSError as error:
            raise AthenaError(f"{output} cannot be written: {error.strerror or error}") from None
    if as_json:
        import msgspec

        made = {"toml": text} if output is None else {"file": str(output)}
        click.echo(msgspec.json.encode({"id": learnt.id, "about": learnt.about, **made}).decode())
        return 0
    if output is None:
        click.echo(text, nl=False)
    click.echo(f"athena: {learnt.about}", err=True)
    return 0


def _show(name: str | None, as_json: bool) -> int:
    from athena.formats import all_formats, get_format

    chosen = [get_format(name)] if name else list(all_formats())
    if as_json:
        import msgspec

        click.echo(msgspec.json.encode([_row(one.id)._asdict() for one in chosen]).decode())
    elif name:
        _describe(_row(chosen[0].id))
    else:
        _table([_row(one.id) for one in chosen])
    return 0


_STREAMS = {
    "yes": "arguments as they come",
    "str": "text values as they come, others when they end",
    "value": "each value when it ends",
    "call": "each call when it ends",
}


def _describe(row: FormatRow) -> None:
    """One format for a person. Paragraphs are laid out anew for the terminal; indented samples stay as they are."""
    import shutil
    import textwrap

    columns = min(100, shutil.get_terminal_size().columns)
    paragraphs = [
        part if part.startswith(" ") else textwrap.fill(part, columns, break_long_words=False, break_on_hyphens=False)
        for part in row.about.split("\n\n")
    ]
    models = textwrap.fill(
        ", ".join(row.models) or "none by name", columns, initial_indent="models     ", subsequent_indent=" " * 11,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
    click.echo("\n\n".join([row.id, *paragraphs, models]))
    click.echo(f"streams    {_STREAMS[row.streams]}\nreasoning  {'read too' if row.in_reasoning else 'not read'}")


class FormatRow(NamedTuple):
    """What is shown of one format."""

    id: str
    models: tuple[str, ...]
    streams: str
    reserved: bool
    in_reasoning: bool
    about: str


def _row(format_id: str) -> FormatRow:
    import inspect
    from importlib import import_module

    from athena.formats import get_format
    from athena.formats.machine.detect import models_of

    found = get_format(format_id)
    about = inspect.getdoc(import_module(f"athena.formats.{format_id}")) or ""
    return FormatRow(found.id, models_of(found.id), found.streams, found.reserved, found.read_in_reasoning, about)


def _table(rows: list[FormatRow]) -> None:
    from rich.table import Table

    from athena.shells.cli.terminal import console

    table = Table(box=None, pad_edge=False)
    for column in ("format", "streams", "in reasoning", "models"):
        table.add_column(column, overflow="fold")
    for row in rows:
        models = ", ".join(row.models[:4]) + (", ..." if len(row.models) > 4 else "")
        table.add_row(row.id, row.streams, "yes" if row.in_reasoning else "", models)
    console().print(table)
    console().print(
        "\nstreams: what of a call is shown while the model still writes it\n"
        "  yes: all of it; str: texts as they come; value: whole values; call: nothing\n"
        "in reasoning: calls are also read where the model thinks\n"
        "athena formats NAME shows more of one."
    )
