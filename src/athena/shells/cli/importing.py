"""`athena config import`: the configuration of another gateway, as ours."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from athena.errors import AthenaError, ConfigError

if TYPE_CHECKING:
    from athena.shells.setup.importing import Imported

_KINDS = ("litellm", "claude-code-router")


@click.command("import")
@click.argument("kind", type=click.Choice(_KINDS))
@click.argument("source", metavar="FILE", type=click.Path(path_type=Path))
@click.option(
    "--output", "-o", type=click.Path(path_type=Path, dir_okay=False), help="File to write; left out: standard output."
)
@click.option("--force", is_flag=True, help="Replace a file that is there.")
@click.option("--json", "as_json", is_flag=True, help="Print what became of every field as JSON, and write nothing else.")
def import_config(kind: str, source: Path, output: Path | None, force: bool, as_json: bool) -> int:
    """Turn another gateway's configuration into an athena.yml.

    Every field becomes something here or is named with what to do instead, on standard error and as comments at the end of the
    file. Variables stay variables; gateway keys are kept as hashes.

    \b
    Examples:
      athena config import litellm config.yaml -o athena.yml
      athena config import claude-code-router ~/.claude-code-router/config.json -o ~/.config/athena/athena.yml
    """
    from athena.shells.setup.claude_code_router import import_claude_code_router
    from athena.shells.setup.litellm import import_litellm

    value = _read(source)
    imported = import_litellm(value) if kind == "litellm" else import_claude_code_router(value)
    if as_json:
        import msgspec

        click.echo(msgspec.json.encode({"mapped": imported.mapped, "unmapped": imported.unmapped}).decode())
        return 0
    text = _text(imported, kind, source)
    if output is None:
        click.echo(text, nl=False)
    else:
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | (os.O_TRUNC if force else os.O_EXCL)
        try:
            output.parent.mkdir(parents=True, exist_ok=True)
            with open(os.open(output, flags, 0o600), "w", encoding="utf-8") as out:
                out.write(text)
        except FileExistsError:
            raise AthenaError(f"{output} is there already; --force replaces it") from None
        except OSError as error:
            raise AthenaError(f"{output} cannot be written: {error.strerror or error}") from None
    _report(imported)
    return 0


def _read(source: Path) -> dict[str, Any]:
    import yaml

    try:
        text = source.read_text("utf-8", "replace")
    except OSError as error:
        raise AthenaError(f"{source} cannot be read: {error.strerror or error}") from None
    try:
        # Comments in JSON are what its users write; YAML reads the rest of it.
        value = yaml.safe_load(re.sub(r"(?m)^\s*//.*$", "", text))
    except yaml.YAMLError as error:
        raise ConfigError(f"{source} can be read neither as YAML nor as JSON: {error}") from None
    if not isinstance(value, dict):
        raise ConfigError(f"{source} holds no settings")
    return value


def _text(imported: Imported, kind: str, source: Path) -> str:
    import yaml

    head = f"# Made of {source.name} by athena config import {kind}. athena config check checks it.\n\n"
    body = yaml.safe_dump(imported.settings, sort_keys=False, allow_unicode=True, width=120)
    rest = "".join(f"#   {one.field}: {one.remedy}\n" for one in imported.unmapped)
    return head + body + (f"\n# Not taken over:\n{rest}" if rest else "")


def _report(imported: Imported) -> None:
    from rich.markup import escape
    from rich.table import Table

    from athena.shells.cli.terminal import error_console

    console = error_console()
    table = Table(box=None, pad_edge=False)
    table.add_column("field", overflow="fold")
    table.add_column("became", overflow="fold")
    for field, became in imported.mapped:
        table.add_row(escape(field), escape(became))
    for one in imported.unmapped:
        table.add_row(f"[yellow]{escape(one.field)}[/]", f"[yellow]not taken over: {escape(one.remedy)}[/]")
    console.print(table)
    console.print(f"{len(imported.mapped)} fields were taken over, {len(imported.unmapped)} were not.")
