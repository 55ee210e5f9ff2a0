"""`athena config trust` and `untrust`: which configuration files of other directories are obeyed."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from athena.errors import AthenaError
from athena.shells.cli.options import sources

if TYPE_CHECKING:
    from athena.shells.config.effects import Effect

_WHERE = "PATH is a file named athena.yml, or a directory that holds one; left out: the current directory."


@click.command(epilog=_WHERE)
@click.argument("path", required=False, type=click.Path(path_type=Path))
@click.option("--yes", "-y", is_flag=True, help="Do not ask; for scripts.")
@click.option("--list", "listing", is_flag=True, help="List the trusted files, and whether they are still as they were.")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print JSON: what the file does, and nothing is asked; or the list.",
)
def trust(path: Path | None, yes: bool, listing: bool, as_json: bool) -> int:
    """Use the athena.yml of a directory, as it is now.

    A configuration file decides where prompts and keys go and which files are written, so the one of a directory is used only
    after this command: you may have got it with another person's repository. It shows what the file does, then asks. A file
    that changes afterwards, by a single byte, has to be trusted again. Files in ~/.config/athena need no such step, and a file
    that is named by --config or ATHENA_CONFIG does not either.

    \b
    Examples:
      athena config trust
      athena config trust ~/project/athena.yml
      athena config trust --list
      athena config trust --json | jq .effects      (looks into the file; exit code 1 while it is not trusted)
    """
    if listing:
        _list(as_json)
        return 0
    from athena.shells.config.bad_file import BadYaml
    from athena.shells.config.effects import visible
    from athena.shells.config.sources import read_bytes
    from athena.shells.config.trust import digest, lies_in

    file = _file(path)
    name = visible(str(file))
    where = sources({}, None)
    if lies_in(file, where.own_directories):
        if as_json:
            _print_json({"file": str(file), "trusted": True, "own_directory": True})
        else:
            click.echo(f"{name} lies in a configuration directory: it is used without being trusted.")
        return 0
    store = where.trust_store
    try:
        data, _ = read_bytes(file, name)
        found, settings = _effects(name, data)
    except BadYaml as error:
        raise AthenaError(f"not trusted: {error.problem}") from None
    if not as_json:
        _show(name, len(data), found, settings)
    try:
        known = store.find(file)
        already = known is not None and known.sha256 == digest(data)
        if not already and not yes and not as_json and not _agreed():
            raise AthenaError(f"{name} is not trusted")
        trusted = already or yes or not as_json
        if trusted and not already:
            # The bytes that were shown, not what the file may hold by now.
            store.trust(file, data, datetime.now(UTC).isoformat(timespec="seconds"))
    except OSError as error:
        raise AthenaError(f"what is trusted cannot be kept: {error}", code="state_dir") from None
    if as_json:
        told = [effect._asdict() for effect in found]
        _print_json({"file": str(file), "trusted": trusted, "bytes": len(data), "settings": settings, "effects": told})
        return 0 if trusted else 1
    if already:
        click.echo(f"{name} is trusted already.")
    else:
        click.echo(f"{name} is trusted as it is now. athena config untrust takes that back.")
    return 0


@click.command(epilog=_WHERE)
@click.argument("path", required=False, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object: {file, trusted}.")
def untrust(path: Path | None, as_json: bool) -> None:
    """No longer use the athena.yml of a directory.

    A gateway that runs on it keeps its settings until it is started again.

    \b
    Examples:
      athena config untrust
      athena config untrust ~/project/athena.yml
    """
    from athena.shells.config.effects import visible

    file = _file(path)
    name = visible(str(file))
    try:
        forgotten = sources({}, None).trust_store.forget(file)
    except OSError as error:
        raise AthenaError(f"what is trusted cannot be changed: {error}", code="state_dir") from None
    if not forgotten:
        raise AthenaError(f"{name} was not trusted; athena config trust --list shows the files that are")
    if as_json:
        _print_json({"file": str(file), "trusted": False})
        return
    click.echo(f"{name} is no longer trusted.")


def trust_own(file: Path, data: bytes) -> bool:
    """Trust a file that a command of ours has just written. False: where it lies, files are used anyway."""
    from athena.shells.config.sources import FILE_NAME
    from athena.shells.config.trust import lies_in

    where = sources({}, None)
    if file.name != FILE_NAME or lies_in(file, where.own_directories):
        return False
    try:
        where.trust_store.trust(file, data, datetime.now(UTC).isoformat(timespec="seconds"))
    except OSError as error:
        click.echo(f"athena: warning: {file} is not trusted yet: {error}", err=True)
    return True


def _file(path: Path | None) -> Path:
    from athena.shells.config.sources import FILE_NAME

    file = path if path is not None else Path(FILE_NAME)
    if file.is_dir():
        file = file / FILE_NAME
    if file.name != FILE_NAME:
        raise AthenaError(f"only files named {FILE_NAME} are searched for; use {file} with: athena serve --config {file}")
    return Path.cwd() / file


def _effects(name: str, data: bytes) -> tuple[list[Effect], int]:
    """What the file does that matters, and how many settings it has. Raises BadYaml."""
    from athena.shells.config.effects import count_settings, effects
    from athena.shells.config.sources import decode_text
    from athena.shells.config.yaml_lines import read_yaml

    tree, lines = read_yaml(decode_text(data, name), name)
    return effects(tree, lines), count_settings(tree)


def _show(name: str, size: int, found: list[Effect], settings: int) -> None:
    click.echo(f"{name}, {size} bytes:")
    for kind, members in groupby(found, key=lambda effect: effect.kind):
        click.echo(f"  {kind}:")
        for effect in members:
            click.echo(f"    {effect.setting}" + (f"  (line {effect.line})" if effect.line else ""))
    if not found:
        click.echo("  names no server, variable, file or header.")
    click.echo(f"  settings in all: {settings}")


def _agreed() -> bool:
    if not sys.stdin.isatty():
        raise AthenaError("there is no terminal to ask on; read what the file does, then say --yes")
    return bool(click.confirm("Use this file?", default=False))


def _list(as_json: bool) -> None:
    from athena.shells.config.bad_file import BadYaml
    from athena.shells.config.effects import visible
    from athena.shells.config.sources import read_bytes
    from athena.shells.config.trust import digest

    try:
        approvals = sources({}, None).trust_store.approvals()
    except OSError as error:
        raise AthenaError(f"what is trusted cannot be told: {error}", code="state_dir") from None
    if not approvals and not as_json:
        click.echo("No file is trusted.")
    for approval in approvals:
        try:
            same = digest(read_bytes(Path(approval.path), "")[0]) == approval.sha256
            state = "trusted" if same else "changed since, not used"
        except BadYaml:
            state = "gone or not readable"
        if as_json:
            _print_json({"file": approval.path, "state": state, "since": approval.since})
            continue
        click.echo(f"{visible(approval.path)}  {state}  (trusted {approval.since})")


def _print_json(record: dict[str, Any]) -> None:
    import msgspec

    click.echo(msgspec.json.encode(record).decode())
