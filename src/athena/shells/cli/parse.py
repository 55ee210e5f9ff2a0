"""`athena parse`: model text in, tool calls out; one text for a person, or JSON lines for a dataset."""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from athena.errors import AthenaError

if TYPE_CHECKING:
    from athena.batch import Options

_BLOCK_BYTES = 256 * 1024
_LINE_LIMIT = 256 * 1024 * 1024
_NAMED = 10
"""Bad lines that are named one by one."""


@click.command()
@click.argument("file", required=False, type=click.Path(path_type=Path, dir_okay=False, exists=True))
@click.option("--jsonl", is_flag=True, help="Read one JSON record per line, write one per line.")
@click.option(
    "--format", "format_id", default="auto", show_default=True, help="The format to look for; `athena formats` lists them."
)
@click.option("--model", help="A model id: its usual format is looked for first.")
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
    help="Mending of broken arguments.",
)
@click.option("--events", is_flag=True, help="Write the list of events instead of the result.")
@click.option("--workers", type=click.IntRange(1, 256), default=1, show_default=True, help="Processes, with --jsonl.")
@click.option(
    "--output", "-o", type=click.Path(path_type=Path, dir_okay=False), help="File to write to instead of standard output."
)
def parse(
    file: Path | None,
    jsonl: bool,
    format_id: str,
    model: str | None,
    tools_file: Path | None,
    repair: str,
    events: bool,
    workers: int,
    output: Path | None,
) -> int:
    """Read tool calls out of model text.

    Without --jsonl the whole input is one text and the result is for people. With --jsonl every line is a record
    {"id", "format", "model", "tools", "text" or "chunks", "channel", "starts_in_thinking"}, all but the text optional, and
    every line of the output is {"id", "format", "text", "thinking", "tool_calls", "incomplete", "errors"}, in the same order. A
    line that can not be read comes out with the reason, and the exit code is 1.

    \b
    Examples:
      athena parse answer.txt
      athena parse --model moonshotai/kimi-k2 < answer.txt
      athena parse --jsonl --workers 8 log.jsonl -o calls.jsonl
    """
    from athena.batch import Options
    from athena.formats import get_format

    if format_id not in ("auto", "standard"):
        format_id = get_format(format_id).id
    options = Options(format=format_id, repair=repair, events=events)  # type: ignore[arg-type]  # click checked the choice
    with _opened(file) as source, _created(output) as sink:
        if jsonl:
            if model or tools_file:
                raise click.UsageError("--model and --tools belong into the records with --jsonl")
            return _lines(source, sink, options, workers, _size(file))
        return _one(source, sink, options, model, tools_file)


# -- one text --------------------------------------------------------------------------------------------------------------


def _one(source: BinaryIO, sink: BinaryIO, options: Options, model: str | None, tools_file: Path | None) -> int:
    import msgspec

    from athena.batch import parse_line

    record: dict[str, Any] = {"text": source.read().decode("utf-8", "replace"), "model": model}
    if tools_file is not None:
        try:
            record["tools"] = msgspec.json.decode(tools_file.read_bytes())
        except msgspec.DecodeError as error:
            raise AthenaError(f"{tools_file}: not JSON: {error}") from None
    outcome = msgspec.json.decode(parse_line(msgspec.json.encode(record), options))
    if options.events:
        sink.write(b"".join(msgspec.json.encode(event) + b"\n" for event in outcome["events"]))
        return 0
    sink.write(_readable(outcome).encode())
    return 1 if any(problem["code"] == "bad_record" for problem in outcome["errors"]) else 0


def _readable(outcome: dict[str, Any]) -> str:
    lines = [f"format    {outcome['format']}"]
    if outcome["thinking"]:
        lines.append(f"thinking  {_indented(outcome['thinking'])}")
    if outcome["text"]:
        lines.append(f"text      {_indented(outcome['text'])}")
    for call in outcome["tool_calls"]:
        lines.append(f"call      {call['name']}  {call['arguments']}")
    if not outcome["tool_calls"]:
        lines.append("call      none")
    lines += [f"problem   {problem['message']}" for problem in outcome["errors"]]
    return "\n".join(lines) + "\n"


def _indented(text: str) -> str:
    return text.strip().replace("\n", "\n          ")


# -- many ------------------------------------------------------------------------------------------------------------------


def _lines(source: BinaryIO, sink: BinaryIO, options: Options, workers: int, size: int | None) -> int:
    """Blocks of lines in, blocks of lines out, in order; never more than a few blocks in memory."""
    from athena.batch import parse_lines

    total = bad = 0
    with _progress(size) as advance:
        if workers == 1:
            for numbers, block, taken in _blocks(source):
                written, failed = parse_lines(block, options)
                sink.write(written)
                _report(numbers, written, failed, bad)
                total, bad = total + len(block), bad + failed
                advance(taken)
        else:
            total, bad = _spread(source, sink, options, workers, advance)
    sink.flush()
    if bad:
        click.echo(f"athena: {bad} of {total} lines could not be read; their errors are in the output", err=True)
    return 1 if bad else 0


def _spread(
    source: BinaryIO, sink: BinaryIO, options: Options, workers: int, advance: Callable[[int], None]
) -> tuple[int, int]:
    from athena.batch import parse_lines

    total = bad = 0
    waiting: deque[tuple[Future[tuple[bytes, int]], list[int], int]] = deque()

    def finish() -> None:
        nonlocal total, bad
        future, numbers, taken = waiting.popleft()
        written, failed = future.result()
        sink.write(written)
        _report(numbers, written, failed, bad)
        total, bad = total + len(numbers), bad + failed
        advance(taken)

    with ProcessPoolExecutor(workers) as pool:
        for numbers, block, taken in _blocks(source):
            waiting.append((pool.submit(parse_lines, block, options), numbers, taken))
            if len(waiting) >= 2 * workers:
                finish()
        while waiting:
            finish()
    return total, bad


def _report(numbers: list[int], written: bytes, failed: int, before: int) -> None:
    """Name the first lines that could not be read; the rest is only counted."""
    if not failed or before >= _NAMED:
        return
    import msgspec

    from athena.batch import BAD_RECORD

    mark = f'"code":"{BAD_RECORD}"'.encode()
    for number, line in zip(numbers, written.split(b"\n"), strict=False):
        if mark in line and before < _NAMED:
            before += 1
            click.echo(f"athena: line {number}: {msgspec.json.decode(line)['errors'][0]['message']}", err=True)


def _blocks(source: BinaryIO) -> Iterator[tuple[list[int], list[bytes], int]]:
    """(numbers, lines, bytes read): lines without the empty ones, so the numbers may have gaps."""
    numbers: list[int] = []
    block: list[bytes] = []
    size = number = 0
    while line := source.readline(_LINE_LIMIT):
        number += 1
        size += len(line)
        stripped = line.strip()
        if stripped:
            numbers.append(number)
            block.append(stripped)
        if size >= _BLOCK_BYTES:
            yield numbers, block, size
            numbers, block, size = [], [], 0
    if size:
        yield numbers, block, size


def _progress(size: int | None) -> AbstractContextManager[Callable[[int], None]]:
    """A bar on a terminal; nothing elsewhere."""
    if not sys.stderr.isatty():
        return nullcontext(lambda taken: None)
    return _bar(size)


def _bar(size: int | None) -> AbstractContextManager[Callable[[int], None]]:
    from contextlib import contextmanager

    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    from athena.shells.cli.terminal import error_console

    @contextmanager
    def shown() -> Iterator[Callable[[int], None]]:
        columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
        with Progress(*columns, console=error_console(), transient=True) as progress:
            task = progress.add_task("parse", total=size)
            yield lambda taken: progress.advance(task, taken)

    return shown()


def _opened(file: Path | None) -> AbstractContextManager[BinaryIO]:
    if file is not None:
        return file.open("rb")
    if sys.stdin.isatty():
        click.echo("athena: reading from the terminal; end with Ctrl-D", err=True)
    return nullcontext(sys.stdin.buffer)


def _created(output: Path | None) -> AbstractContextManager[BinaryIO]:
    return output.open("wb") if output is not None else nullcontext(sys.stdout.buffer)


def _size(file: Path | None) -> int | None:
    return os.stat(file).st_size if file is not None else None
