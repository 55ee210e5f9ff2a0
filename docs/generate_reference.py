"""Writes docs/configuration.md from the configuration's own schema, docs/formats.md from the formats themselves, and
docs/command-line.md from the commands' own help.

Run `python docs/generate_reference.py` after a change; `--check` only says whether the pages are current.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from itertools import groupby
from pathlib import Path
from textwrap import dedent
from typing import Any

import click

from athena.formats import all_formats
from athena.formats.machine.detect import model_table, models_of
from athena.shells.cli import cli
from athena.shells.config import init_template, schema_text

HERE = Path(__file__).parent
STREAMS = {
    "yes": "arguments as they come",
    "str": "text values as they come, others when they end",
    "value": "each value when it ends",
    "call": "each call when it ends",
}


TRUST = """\
## Which files are used

A configuration file is as powerful as a program: it decides where your prompts and keys go and which files are written. So a
file counts only when you placed it or approved it, and never because it happens to lie in the repository you work in.

| file | used |
|---|---|
| named by `--config` or `ATHENA_CONFIG` | yes |
| `~/.config/athena/athena.yml` | yes; the start stops when it belongs to another user or others can write it |
| `./athena.yml`, trusted as it is now | yes |
| `./athena.yml`, changed since it was trusted | no, with a line that says so |
| any other `./athena.yml` | no, with a line that says so; it is not even opened |

`athena config trust` shows what the `athena.yml` of the current directory does that matters (the servers it sends to, the
environment variables and files it reads, the headers it adds, the files it writes, the protection it takes away) and asks. It
remembers the file's absolute path and a hash of its content in `trusted` of the state directory (`~/.local/state/athena`, or
below `ATHENA_STATE_DIR` where that variable is set; no configuration file decides it); after a change of a single byte the file
has to be trusted again. The path of a file or directory may be given, `--yes` answers the question in a script, `--list` lists
what is trusted, and `athena config untrust` takes it back. `athena config check` and `athena config show` say which files are
in use and why, and `athena config check athena.yml` checks a file without trusting it.

This holds for every command, for `athena code` in particular, for `athena.asgi.create_app()` and for `athena.transport`. A
running gateway takes up a changed file only when it was named by `--config` or is trusted again; otherwise it says so and keeps
its settings. `.env` files are not read.

Files that Athena writes follow rules of their own. `log.file` must be a new file, an empty one or a log of Athena's;
`log.sse_dir` and `state_dir` must be directories that belong to you and that no other user can write to. Symbolic links are not
followed, and everything is written with mode 600. A start or a reload that would break one of these rules is refused, with the
command that fixes it.\
""".splitlines()


def configuration_page() -> str:
    """Every key of `athena.yml`, from the JSON Schema that ships with the package."""
    schema: dict[str, Any] = json.loads(schema_text())
    definitions: dict[str, Any] = schema["$defs"]
    lines = [
        "# Configuration",
        "",
        "<!-- Written by docs/generate_reference.py from the schema in the package. Do not edit. -->",
        "",
        "`athena.yml` is looked for in `~/.config/athena/`, and in the current directory, where it counts only when it is",
        "[trusted](#which-files-are-used). Flags win over `ATHENA_*` variables, those over files, those over defaults;",
        "`--config FILE` reads only that file. Every key has a variable: `ATHENA_PORT`, `ATHENA_LIMITS__BODY_BYTES`. `${NAME}`",
        "takes a value from the environment, `${NAME:-default}` with a default.",
        "`athena config check` finds all problems at once, `athena config show` prints every value in force and where it came",
        "from, `athena config init` writes this to start from:",
        "",
        "```yaml",
        init_template().rstrip(),
        "```",
        "",
        *TRUST,
        "",
        "## Top level",
        "",
        *_table(schema["properties"]),
    ]
    for name in sorted(definitions):
        definition = definitions[name]
        if definition.get("properties"):
            lines += ["", f"## {name}", "", definition.get("description", ""), "", *_table(definition["properties"])]
    return "\n".join(lines) + "\n"


def _table(properties: dict[str, Any]) -> list[str]:
    rows = ["| key | value | default | meaning |", "|---|---|---|---|"]
    for key, value in properties.items():
        default = "" if "default" not in value or "$ref" in value else f"`{json.dumps(value['default'])}`"
        rows.append(f"| `{key}` | {_kind(value)} | {_cell(default)} | {_cell(value.get('description', ''))} |")
    return rows


def _kind(value: dict[str, Any]) -> str:
    if "$ref" in value:
        name = value["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "enum" in value:
        return _cell(" or ".join(f"`{option}`" for option in value["enum"]))
    if "anyOf" in value:
        return " or ".join(dict.fromkeys(_kind(option) for option in value["anyOf"] if option.get("type") != "null"))
    if value.get("type") == "array":
        return f"list of {_kind(value['items'])}" if isinstance(value.get("items"), dict) else "list"
    if value.get("type") == "object" and isinstance(value.get("additionalProperties"), dict):
        return f"map to {_kind(value['additionalProperties'])}"
    return str(value.get("type", "any"))


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def formats_page() -> str:
    """Every text format: its models, a sample, what streams."""
    known = all_formats()
    lines = [
        "# Text formats",
        "",
        "<!-- Written by docs/generate_reference.py from the formats themselves. Do not edit. -->",
        "",
        f"Athena reads tool calls that models write as text in {len(known)} formats. A format is found by the configuration,",
        "by the model's name (`athena detect MODEL`), or, where its markers are unmistakable, in the text itself. *reserved*:",
        "the markers are control tokens, so a well-formed call counts even when its tool was not declared; all other formats",
        "need a declared name. What real models do wrong is in the [format notes](reference/format-notes.md).",
        "",
        "| format | reserved | read in reasoning | streams | models |",
        "|---|---|---|---|---|",
    ]
    for one in known:
        models = _cell(", ".join(f"`{model}`" for model in models_of(one.id))) or "by prompt"
        marks = ("yes" if one.reserved else "", "yes" if one.read_in_reasoning else "")
        lines.append(f"| [{one.id}](#{one.id}) | {marks[0]} | {marks[1]} | {STREAMS[one.streams]} | {models} |")
    for one in known:
        about = inspect.getdoc(import_module(f"athena.formats.{one.id}")) or ""
        lines += ["", f"## {one.id}", "", _as_markdown(about), "", f"[How models deviate](reference/format-notes.md#{one.id})."]
    return "\n".join([*lines, *_names()]) + "\n"


def _names() -> Iterator[str]:
    """Which model writes which format, and who says so."""
    table = model_table()
    yield from (
        "",
        "## Which model writes which format",
        "",
        "`athena detect MODEL` goes by this table: the longest pattern that matches from the start of a word of the name wins.",
        "Each row names its source, the list and the name that the list has for it:",
        "",
        *(f"- `{key}`: {meaning}" for key, meaning in table.sources.items()),
        "",
        "| models | format | source |",
        "|---|---|---|",
    )
    for format_id, patterns in table.formats.items():
        for source, rows in groupby(patterns.items(), key=lambda row: row[1]):
            names = ", ".join(f"`{pattern}`" for pattern, _ in rows)
            yield f"| {_cell(names)} | [{format_id}](#{format_id}) | {_cell(source)} |"


def _as_markdown(docstring: str) -> str:
    """A docstring's indented samples as fenced blocks; angle brackets outside them must not be read as tags."""
    shown: list[str] = []
    for is_sample, group in groupby(docstring.splitlines(), key=_belongs_to_sample()):
        lines = list(group)
        if is_sample:
            blank = len(lines) - len("\n".join(lines).rstrip().splitlines())
            sample = dedent("\n".join(lines[: len(lines) - blank]))
            shown += ["````text", sample, "````", *[""] * blank]
        else:
            shown += [line if "`" in line else line.replace("<", "&lt;") for line in lines]
    return "\n".join(shown).rstrip()


def _belongs_to_sample() -> Callable[[str], bool]:
    """Lines indented by four, and the empty ones between and behind them."""
    inside = False

    def belongs(line: str) -> bool:
        nonlocal inside
        inside = line.startswith("    ") or (inside and not line.strip())
        return inside

    return belongs


def commands_page() -> str:
    """Every command of `athena`, as its own help says it."""
    lines = [
        "# Command line",
        "",
        "<!-- Written by docs/generate_reference.py from the commands' own help. Do not edit. -->",
        "",
        "Exit codes: 0 success, 1 failure, 2 wrong usage; `athena code` and `athena verify` have others besides. "
        "`athena completion SHELL` prints a completion script.",
    ]
    for path, command in _commands(cli, ("athena",)):
        settings = {**cli.context_settings, "max_content_width": 100, "terminal_width": 100}
        with click.Context(command, info_name=" ".join(path), **settings) as context:
            lines += [
                "",
                f"{'#' * min(len(path) + 1, 3)} {' '.join(path)}",
                "",
                "````console",
                command.get_help(context),
                "````",
            ]
    return "\n".join(lines) + "\n"


def _commands(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=path[-1])
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            if inner is not None and not inner.hidden:
                yield from _commands(inner, (*path, name))


PAGES = {"configuration.md": configuration_page, "formats.md": formats_page, "command-line.md": commands_page}


def main(arguments: list[str]) -> int:
    """Write the pages, or say which are stale."""
    stale = [name for name, page in PAGES.items() if not (HERE / name).exists() or (HERE / name).read_text("utf-8") != page()]
    if "--check" in arguments:
        if stale:
            sys.stderr.write(f"stale: {', '.join(stale)}; run python docs/generate_reference.py\n")
        return 1 if stale else 0
    for name in stale:
        (HERE / name).write_text(PAGES[name](), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
