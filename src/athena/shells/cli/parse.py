"""`athena parse`: model text in, tool calls out; one text for a person, or JSON lines for a dataset."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, nullcontext
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, cast

import click

from athena.errors import AthenaError
from athena.shells.cli.completing import complete_formats, complete_models

if TYPE_CHECKING:
    from athena.formats.declared.description import FormatDescription
    from athena.formats.machine.policies import EchoRule, RepairLevel
    from athena.parsing import Parsed
    from athena.shells.cli.json_lines import LineParserSettings

_NAMED = 10
"""Bad lines that are named one by one."""
_TRIED_CHARS = 100_000
"""The longest text without a call on which every format is tried."""


@click.command()
@click.argument("file", required=False, type=click.Path(path_type=Path, dir_okay=False, exists=True, allow_dash=True))
@click.option("--jsonl", is_flag=True, help="Read one JSON record per line, write one per line.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, as a line of --jsonl has it.")
@click.option(
    "--format",
    "format_id",
    default="auto",
    show_default=True,
    shell_complete=complete_formats,
    help="The format to look for (`athena formats` lists them), or a format file (.toml).",
)
@click.option("--model", shell_complete=complete_models, help="A model id: its usual format is looked for first.")
@click.option(
    "--tools",
    "tools_file",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="JSON file with the declared tools, in any API's shape.",
)
@click.option(
    "--repair",
    type=click.Choice(["off", "syntax", "schema"]),
    default="syntax",
    show_default=True,
    help="Repair of broken arguments.",
)
@click.option(
    "--untrusted",
    "untrusted_files",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    multiple=True,
    help="File with a text that the model was given and did not write: calls that stand in it are quotations. Repeatable.",
)
@click.option(
    "--echo",
    type=click.Choice(["text", "error", "allow"]),
    default="text",
    show_default=True,
    help="What becomes of quotations: text, an error, or calls.",
)
@click.option("--events", is_flag=True, help="Write the list of events instead of the result.")
@click.option("--workers", type=click.IntRange(1, 256), default=1, show_default=True, help="Processes, with --jsonl.")
@click.option(
    "--output", "-o", type=click.Path(path_type=Path, dir_okay=False), help="File to write to instead of standard output."
)
def parse(
    file: Path | None,
    jsonl: bool,
    as_json: bool,
    format_id: str,
    model: str | None,
    tools_file: Path | None,
    repair: str,
    untrusted_files: tuple[Path, ...],
    echo: str,
    events: bool,
    workers: int,
    output: Path | None,
) -> int:
    """Read tool calls out of model text.

    Without --jsonl the whole input is one text and the result is for people; exit code 1 where a call is cut or broken. With
    --jsonl every line is a record
    {"id", "format", "model", "tools", "text" or "chunks", "channel", "starts_in_thinking", "untrusted"}, all but the text
    optional, and every line of the output is {"id", "format", "text", "thinking", "tool_calls", "incomplete", "errors"}, in the
    same order. "untrusted" is a list of texts that the model was given: calls that stand in them are quotations. A line that
    cannot be read comes out with its number and the reason, the others are done, and the exit code is 1. Output follows input
    at once: a log that is still growing may be piped in.

    \b
    Examples:
      athena parse answer.txt
      athena parse --model moonshotai/kimi-k2 < answer.txt
      athena parse --json answer.txt | jq .tool_calls
      athena parse --jsonl --workers 8 log.jsonl -o calls.jsonl
      tail -f log.jsonl | athena parse --jsonl -
    """
    from athena.formats import get_format
    from athena.shells.cli.json_lines import LineParserSettings

    file = None if file == Path("-") else file
    declared = None
    if format_id.endswith(".toml"):
        from athena.shells.templates.learn import load_format

        if jsonl:
            raise click.UsageError("a format file is for one text: with --jsonl the records name shipped formats")
        declared = load_format(format_id)
    elif format_id not in ("auto", "standard"):
        format_id = get_format(format_id).id
    settings = LineParserSettings(
        format=format_id, repair=cast("RepairLevel", repair), echo=cast("EchoRule", echo), writes_events=events
    )
    if as_json and (jsonl or events):
        raise click.UsageError("--json is for the result of one text: --jsonl and --events write JSON by themselves")
    with _opened(file) as source, _created(output) as sink:
        if jsonl:
            if model or tools_file or untrusted_files:
                raise click.UsageError("--model, --tools and --untrusted belong into the records with --jsonl")
            return _lines(source, sink, settings, workers, _size(file))
        return _one(source, sink, settings, declared or format_id, model, tools_file, untrusted_files, as_json=as_json)


# -- one text --------------------------------------------------------------------------------------------------------------


def _one(
    source: BinaryIO,
    sink: BinaryIO,
    settings: LineParserSettings,
    known: str | FormatDescription,
    model: str | None,
    tools_file: Path | None,
    untrusted_files: tuple[Path, ...],
    *,
    as_json: bool,
) -> int:
    import msgspec

    from athena.batch.records import tool_book
    from athena.parsing import Parser, parse_pieces, quotations

    text = source.read().decode("utf-8", "replace")
    tools = None
    if tools_file is not None:
        try:
            tools = tool_book(msgspec.json.decode(tools_file.read_bytes()))
        except msgspec.DecodeError as error:
            raise AthenaError(f"{tools_file}: not JSON: {error}") from None
        except AthenaError as error:
            raise AthenaError(f"{tools_file}: {error.message}") from None
    given: dict[str, Any] = {
        "format": known,
        "model": model,
        "tools": tools,
        "repair": settings["repair"],
        "echo": settings["echo"],
        "untrusted": [path.read_text(encoding="utf-8", errors="replace") for path in untrusted_files],
    }
    if settings["writes_events"]:
        parser = Parser(**given)
        found = [*parser.feed(text), *parser.close(), *quotations(parser.notes)]
        sink.write(b"".join(msgspec.json.encode(event) + b"\n" for event in found))
        return 0
    parsed = parse_pieces((text,), **given)
    sink.write(_as_json(parsed) if as_json else _readable(parsed).encode("utf-8", "replace"))
    if not parsed.calls and not parsed.errors and not as_json:
        click.echo(f"athena: {_no_call(text, settings['format'], given)}", err=True)
    return 1 if any(error.code != "quoted_call" for error in parsed.errors) else 0


def _as_json(parsed: Parsed) -> bytes:
    from athena.batch.lines import encode_outcome

    shown: dict[str, Any] = {
        "format": parsed.format,
        "text": parsed.text,
        "thinking": parsed.thinking,
        "tool_calls": [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in parsed.calls],
        "incomplete": parsed.incomplete,
        "errors": [{"code": error.code, "message": error.message} for error in parsed.errors],
    }
    return encode_outcome(shown) + b"\n"


def _no_call(text: str, format_id: str, given: dict[str, Any]) -> str:
    """Why there is no call in a text, and what to try."""
    if not text.strip():
        return "the text is empty"
    looked = "in a format that is looked for unasked" if format_id == "auto" else f"in the format {format_id}"
    more = " that names a declared tool" if given["tools"] is not None else ""
    readers = _readers(text, given) if len(text) <= _TRIED_CHARS else []
    if readers:
        return f"nothing in the text is a call {looked}{more}; with --format {readers[0]} it is one" + (
            f" (also with {', '.join(readers[1:])})" if readers[1:] else ""
        )
    hint = "" if given["model"] else "; --model NAME says which model wrote it"
    return f"nothing in the text is a call in any of the known formats{more}{hint}"


def _readers(text: str, given: dict[str, Any]) -> list[str]:
    """The formats that read a whole call in a text when they are asked to."""
    from athena.formats import all_formats
    from athena.parsing import parse_pieces

    found = ((one.id, parse_pieces((text,), **{**given, "format": one.id, "model": None})) for one in all_formats())
    names = [name for name, parsed in found if parsed.calls and not parsed.errors]
    return sorted(names, key=lambda name: name != "json_generic")


def _readable(parsed: Parsed) -> str:
    lines = [f"format    {parsed.format}"]
    if parsed.thinking:
        lines.append(f"thinking  {_indented(parsed.thinking)}")
    if parsed.text:
        lines.append(f"text      {_indented(parsed.text)}")
    lines += [f"call      {call.name}  {call.arguments}" for call in parsed.calls] or ["call      none"]
    lines += [f"problem   {error.message}" for error in parsed.errors]
    return "\n".join(lines) + "\n"


def _indented(text: str) -> str:
    return text.strip().replace("\n", "\n          ")


# -- many ------------------------------------------------------------------------------------------------------------------


def _lines(source: BufferedReader, sink: BinaryIO, settings: LineParserSettings, workers: int, size: int | None) -> int:
    """Blocks of lines in, blocks of lines out, in order; never more than a few blocks in memory."""
    from athena.shells.cli.json_lines import parsed_by_processes, parsed_here

    total = bad = calls = 0
    parsed = parsed_here(source, settings) if workers == 1 else parsed_by_processes(source, settings, workers)
    with _progress(size, sink is sys.stdout.buffer) as progress, closing(parsed):
        for block, taken in parsed:
            sink.write(block.output)
            sink.flush()
            for line in block.bad[: max(0, _NAMED - bad)]:
                progress.say(f"athena: {line.message}")
            total, bad, calls = total + block.records, bad + len(block.bad), calls + block.calls
            progress.advance(taken)
    if bad:
        click.echo(f"athena: {bad} of {total} lines could not be read; their errors are in the output", err=True)
    elif sys.stderr.isatty() and not settings["writes_events"]:
        click.echo(
            f"athena: {total} {'line' if total == 1 else 'lines'}, {calls} {'call' if calls == 1 else 'calls'}", err=True
        )
    return 1 if bad else 0


class _Progress(NamedTuple):
    """What is shown while lines are read."""

    advance: Callable[[int], None]
    """So many bytes more were read."""
    say: Callable[[str], None]
    """A line for a person, which does not run into the bar."""


def _progress(size: int | None, to_standard_output: bool) -> AbstractContextManager[_Progress]:
    """A bar on a terminal; nothing elsewhere, nor where the records go to the same terminal."""
    if not sys.stderr.isatty() or (to_standard_output and sys.stdout.isatty()):
        return nullcontext(_Progress(lambda taken: None, lambda line: click.echo(line, err=True)))
    return _bar(size)


def _bar(size: int | None) -> AbstractContextManager[_Progress]:
    from contextlib import contextmanager

    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    from athena.shells.cli.terminal import error_console

    @contextmanager
    def shown() -> Iterator[_Progress]:
        columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
        with Progress(*columns, console=error_console(), transient=True) as progress:
            task = progress.add_task("parse", total=size)
            yield _Progress(
                lambda taken: progress.advance(task, taken),
                lambda line: progress.console.print(line, markup=False, soft_wrap=True),
            )

    return shown()


def _opened(file: Path | None) -> AbstractContextManager[BufferedReader]:
    if file is not None:
        return file.open("rb")
    if sys.stdin.isatty():
        click.echo("athena: reading from the terminal; end with Ctrl-D", err=True)
    return nullcontext(cast("BufferedReader", sys.stdin.buffer))


def _created(output: Path | None) -> AbstractContextManager[BinaryIO]:
    return output.open("wb") if output is not None else nullcontext(sys.stdout.buffer)


def _size(file: Path | None) -> int | None:
    return os.stat(file).st_size if file is not None else None
