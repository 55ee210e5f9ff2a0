"""`athena config`: make, check and show the configuration, and the keys that stand in it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from athena.errors import AthenaError, ConfigError, ConfigProblem
from athena.shells.cli.completing import complete_models, complete_profiles
from athena.shells.cli.importing import import_config
from athena.shells.cli.options import serving_options, sources, tell_ignored
from athena.shells.cli.trust import trust, trust_own, untrust

if TYPE_CHECKING:
    from athena.shells.config import Loaded


@click.group()
def config() -> None:
    """Make, check and show the configuration.

    \b
    Examples:
      athena config init            write an athena.yml to start from
      athena config check           is it valid?
      athena config trust           use the athena.yml of this directory
      athena config show            what is in force, and where each value comes from
    """


config.add_command(import_config)
config.add_command(trust)
config.add_command(untrust)


@config.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path), default="athena.yml")
@click.option("--force", is_flag=True, help="Replace a file that is there.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object: {file, next_steps}.")
def init(file: Path, force: bool, as_json: bool) -> None:
    """Write a commented athena.yml to start from.

    The one in ~/.config/athena is always used. One in another directory is used there once it is trusted, and has to be
    trusted again when it was edited (athena config trust).

    \b
    Examples:
      athena config init
      athena config init ~/.config/athena/athena.yml
    """
    from athena.shells.config import init_template

    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | (os.O_TRUNC if force else os.O_EXCL)
    text = init_template().encode()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with open(os.open(file, flags, 0o600), "wb") as out:
            out.write(text)
    except FileExistsError:
        raise AthenaError(f"{file} is there already; --force replaces it") from None
    except OSError as error:
        raise AthenaError(f"{file} cannot be written: {error.strerror or error}") from None
    next_steps = ["athena config trust", "athena config check"] if trust_own(file, text) else ["athena config check"]
    if as_json:
        import msgspec

        click.echo(msgspec.json.encode({"file": str(file), "next_steps": next_steps}).decode())
        return
    click.echo(f"Wrote {file}. Edit it, then: {', and '.join(next_steps)}")


@config.command()
@click.argument("file", required=False, metavar="[FILE]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object: {valid, problems, files}.")
def check(file: str | None, as_json: bool) -> int:
    """Check the configuration: exit code 0 when all of it can be used.

    Names every fault with its file, line and key. The gateway starts in spite of unknown keys, with a warning; the check fails
    on them, since most are misspelled. Also says which files are used and why. A file that is not trusted is not looked into,
    unless it is named here.

    \b
    Examples:
      athena config check
      athena config check team.yml
    """
    from athena.shells.config import check_bind, load
    from athena.shells.config.places import UNKNOWN_KEY

    try:
        loaded = load(sources({}, file))
        check_bind(loaded.config.host, loaded.config.keys)
    except ConfigError as error:
        if as_json:
            _report_json((*error.problems,) or (ConfigProblem(error.message),), ())
            return 1
        for problem in error.problems:
            click.echo(f"{'error' if problem.fatal else 'warning'}: {problem}", err=True)
        if not error.problems:
            raise
        return 1
    unread = [warning for warning in loaded.warnings if warning.message == UNKNOWN_KEY]
    if as_json:
        _report_json(loaded.warnings, loaded.files)
        return 1 if unread else 0
    for warning in loaded.warnings:
        click.echo(f"warning: {warning}", err=True)
    if unread:
        click.echo("The configuration has keys that nothing reads; correct or remove them.", err=True)
        return 1
    read = _files_in_use(loaded) or "no file; defaults, variables and flags only"
    click.echo(f"The configuration is valid ({read}).")
    if loaded.is_empty:
        click.echo("No upstream is configured: athena serve would run the demo.")
    for hint in loaded.hints:
        click.echo(hint)
    return 0


def _report_json(problems: Iterable[ConfigProblem], files: Iterable[Path]) -> None:
    import msgspec

    from athena.shells.config.places import UNKNOWN_KEY

    found = [problem._asdict() for problem in problems]
    valid = not any(problem["fatal"] or problem["message"] == UNKNOWN_KEY for problem in found)
    click.echo(msgspec.json.encode({"valid": valid, "problems": found, "files": [str(file) for file in files]}).decode())


def _files_in_use(loaded: Loaded) -> str:
    """The files whose settings count, and why they do."""
    from athena.shells.config.effects import visible

    used = [found for found in loaded.found if found.file in loaded.files]
    return ", ".join(f"{visible(str(found.file))}, {found.standing.value}" for found in used)


@config.command()
@serving_options
@click.option("--set", "only_set", is_flag=True, help="Leave out values that are not set.")
@click.option("--json", "as_json", is_flag=True, help="As JSON: a list of {path, value, source}.")
def show(config_file: str | None, only_set: bool, as_json: bool, **flags: Any) -> None:
    """Show what is in force and where each value comes from. Keys are masked.

    Takes the flags of athena serve, to show what they would change.

    \b
    Examples:
      athena config show --set
      athena config show --json | jq '.[] | select(.source != "default")'
      athena config show --set --base-url http://127.0.0.1:8000
    """
    import msgspec

    from athena.shells.config import effective_values, load
    from athena.shells.config import show as shown

    loaded = load(sources(flags, config_file))
    tell_ignored(loaded)
    if as_json:
        values = [
            {"path": list(value.path), "value": msgspec.Raw(value.text.encode()), "source": value.source}
            for value in effective_values(loaded, defaults=not only_set)
        ]
        click.echo(msgspec.json.format(msgspec.json.encode(values)).decode())
        return
    if loaded.files:
        click.echo(f"# read: {_files_in_use(loaded)}")
    text = shown(loaded, defaults=not only_set)
    click.echo(text if text.strip() else "Nothing is set; all values are defaults.", nl=False)


@config.command()
def schema() -> None:
    """Print the JSON Schema of athena.yml, for editors and checks.

    \b
    Examples:
      athena config schema > athena.schema.json
      # first line of athena.yml, for editors:  # yaml-language-server: $schema=athena.schema.json
    """
    from athena.shells.config import schema_text

    click.echo(schema_text(), nl=False)


@config.command()
@click.argument("name", required=False, shell_complete=complete_profiles)
@click.option(
    "--model", default="", metavar="NAME", shell_complete=complete_models, help="Show the profile as it is for this model."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object: dialects by name, or the fields of one.")
def profiles(name: str | None, model: str, as_json: bool) -> None:
    """List the upstream profiles, or show the quirks that one of them sets.

    \b
    Examples:
      athena config profiles
      athena config profiles openrouter --model moonshotai/kimi-k2-0905
    """
    import msgspec

    from athena.profiles import default_profiles

    table = default_profiles()
    if name is None and as_json:
        click.echo(msgspec.json.encode({known: table.get(known).dialect for known in table.names()}).decode())
        return
    if name is None:
        width = max(map(len, table.names()))
        for known in table.names():
            click.echo(f"{known:<{width}}  {table.get(known).dialect}")
        return
    profile = table.get(name, model)
    defaults = type(profile)(dialect=profile.dialect)
    fields = {
        field: msgspec.to_builtins(getattr(profile, field), order="sorted")
        for field in profile.__struct_fields__
        if field == "dialect" or getattr(profile, field) != getattr(defaults, field)
    }
    if as_json:
        click.echo(msgspec.json.encode(fields).decode())
        return
    for field, value in fields.items():
        click.echo(f"{field}: {msgspec.json.encode(value).decode()}")


@config.command("hash-key")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object: {hash}.")
def hash_key(as_json: bool) -> None:
    """Turn a key into the hash that stands in athena.yml. The key is read from standard input, never from the command line.

    \b
    Examples:
      athena config hash-key                (asks for the key)
      pass show athena | athena config hash-key
    """
    from athena.shells.config import hash_key as hashed

    key = click.prompt("Key", hide_input=True, err=True) if sys.stdin.isatty() else sys.stdin.readline().strip()
    if not key:
        raise AthenaError("no key came on standard input")
    if len(key) < 16:
        click.echo("athena: warning: a key of fewer than 16 characters can be guessed", err=True)
    if as_json:
        import msgspec

        click.echo(msgspec.json.encode({"hash": hashed(key)}).decode())
        return
    click.echo(hashed(key))


@config.command("new-key")
@click.option("--name", default="", help="Whose key it is; shown in logs.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object: {key, name, hash}.")
def new_key(name: str, as_json: bool) -> None:
    """Make a key for a client of the gateway. It is shown once; athena.yml holds only its hash.

    \b
    Examples:
      athena config new-key --name laptop
    """
    from athena.shells.config import hash_key as hashed
    from athena.shells.config import new_key as made

    key = made()
    if as_json:
        import msgspec

        click.echo(msgspec.json.encode({"key": key, "name": name, "hash": hashed(key)}).decode())
        return
    label = f"name: {name}, " if name.replace("-", "").replace("_", "").isalnum() else f"name: {name!r}, " if name else ""
    click.echo(key)
    click.echo(f'\nKeep it; it is not shown again. In athena.yml:\n\nkeys:\n  - {{{label}hash: "{hashed(key)}"}}', err=True)
