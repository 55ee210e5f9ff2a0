"""`athena help`: what a command does, or what an error's code means and what to do about it."""

from __future__ import annotations

import re
import tomllib
from difflib import get_close_matches
from functools import cache
from importlib import resources
from typing import NamedTuple

import click

_LINK = re.compile(r"\[([^\]]+)\]\(([\w-]+)\.md[^)]*\)")


class ErrorCode(NamedTuple):
    """A row of `error_codes.toml`, which docs/errors.md is made of as well."""

    name: str
    section: str
    when: str
    remedy: str


@cache
def error_codes() -> dict[str, ErrorCode]:
    """Every code that an error of ours can carry."""
    text = resources.files("athena.shells.cli").joinpath("error_codes.toml").read_text("utf-8")
    return {
        name: ErrorCode(name, section["title"], *row)
        for section in tomllib.loads(text).values()
        for name, row in section.items()
        if name != "title"
    }


def complete_topics(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Names of commands, then codes of errors."""
    top = context.find_root().command
    commands = top.list_commands(context) if isinstance(top, click.Group) else []
    return [name for name in (*commands, *error_codes()) if name.startswith(incomplete)]


@click.command("help")
@click.argument("topic", metavar="[COMMAND | CODE]", shell_complete=complete_topics)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object: {code, section, when, remedy}. For a CODE only.")
@click.pass_context
def help(context: click.Context, topic: str, as_json: bool) -> int:  # noqa: A001 - the registry finds a command by its name
    """Explain a command, or the code of an error.

    With a COMMAND, this is the same as athena COMMAND --help. With the CODE that an error carries, it says when that error
    comes and what to do about it.

    \b
    Examples:
      athena help serve
      athena help upstream_unreachable
    """
    found = error_codes().get(topic.strip("`'\".,").lower().replace("-", "_"))
    if found is None:
        top = context.find_root().command
        commands = top.list_commands(context) if isinstance(top, click.Group) else []
        near = get_close_matches(topic, [*commands, *error_codes()], 3)
        raise click.UsageError(
            f"there is no command and no error code {topic!r}{f'; did you mean {_listed(near)}?' if near else ''}", context
        )
    if as_json:
        import msgspec

        row = {"code": found.name, "section": found.section, "when": _plain(found.when), "remedy": _plain(found.remedy)}
        click.echo(msgspec.json.encode(row).decode())
        return 0
    click.echo(f"{found.name} ({found.section})")
    click.echo(f"  When:       {_plain(found.when)}.")
    click.echo(f"  What to do: {_plain(found.remedy)}.")
    return 0


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def _plain(text: str) -> str:
    """Without the links of the page: a terminal cannot follow them, and the installed package has no pages."""
    return _LINK.sub(r"\1 (docs/\2.md)", text).rstrip(".")
