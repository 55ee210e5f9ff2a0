"""`athena record`: what was recorded, listed, shown, exported, imported, redacted and deleted."""

from __future__ import annotations

import re
import secrets
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from athena.errors import AthenaError
from athena.shells.cli.options import Function, config_option, sources

if TYPE_CHECKING:
    from rich.text import Text

    from athena.recording.filters import Filter
    from athena.recording.lines import Header, Recording
    from athena.recording.view import ExchangeRow, View
    from athena.shells.config import Config
    from athena.shells.recorder.sources import RecordingSource

Step = TypeVar("Step")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_AGO = re.compile(r"([0-9]+)([smhd])")
_MANY = 20
"""Steps from which on it is shown how far they are."""
_BATCH = 50
"""Exchanges that are deleted in one step."""
_ALWAYS = ("time", "id", "model", "result")
"""Columns of a list that are there on every terminal."""
_READABLE = {"id": 28, "model": 20, "upstream": 20, "result": 12}
"""How far columns are cut before any of them is cut further."""
_COMFORTABLE = 24
"""As wide as a long name should be before another column takes its room."""
_WIDEST = 40
_SHORT_SESSION = 8

_FILTERS = (
    click.option("--session", default="", help="Only exchanges of the session whose id begins so."),
    click.option("--model", default="", metavar="PATTERN", help="Only these models, by the client's or the upstream's name."),
    click.option("--outcome", default="", help="Only this result, as shown: ok, repaired, refused, 404, an error's code, ..."),
    click.option(
        "--repaired", is_flag=True, help="Only answers in which calls were found in text, repaired or held as quotes."
    ),
    click.option("--since", default="", metavar="TIME", help="Not older than this: 90s, 15m, 2h, 7d, or 2026-11-16T10:00."),
    click.option("--until", default="", metavar="TIME", help="Not newer than this."),
    click.option(
        "--url",
        default="",
        metavar="URL",
        help="Ask the gateway there, with the token in URL or in ATHENA_INSPECT_TOKEN, which may also be a key. "
        "[the archive on disk and this machine's gateway]",
    ),
)


def _filters(function: Function) -> Function:
    for option in reversed(_FILTERS):
        function = option(function)
    return config_option(function)


def _written_json(function: Function) -> Function:
    told = "Print one JSON object about the file that --output names: {file, ids, notes}."
    return click.option("--json", "as_json", is_flag=True, help=told)(function)


@click.group()
def record() -> None:
    """List, show, export and delete recorded exchanges.

    A gateway on a loopback address keeps the last exchanges in memory; with `record: on` they are kept on disk. An exchange
    is everything about one request: what the client asked, what the upstream sent, what was made of it.

    \b
    Examples:
      athena record list --repaired
      athena record show req_5f0a
      athena record export req_5f0a -o report.athena      redacted, for a bug report
      athena replay report.athena
    """


@record.command("list")
@_filters
@click.option("--limit", type=click.IntRange(1, 500), default=30, show_default=True, help="How many.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def list_command(config_file: str | None, limit: int, as_json: bool, url: str, **wanted: Any) -> int:
    """List exchanges, the newest first.

    \b
    Examples:
      athena record list --since 1h --outcome error
      athena record list --model 'kimi*' --json
    """
    import msgspec

    with _source(config_file, url) as source:
        found = source.rows(_filter(wanted), limit + 1)
    rows = found[:limit]
    if as_json:
        for row in rows:
            click.echo(msgspec.json.encode(row).decode())
    elif rows:
        _table(rows)
        if len(found) > limit:
            click.echo(f"athena: there are more than these {limit}; --limit shows more, a filter fewer", err=True)
    else:
        click.echo("no exchanges")
    return 0


@record.command()
@_filters
@click.argument("names", metavar="[ID | FILE]...", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="Print the inspector's JSON.")
@click.option("--width", type=click.IntRange(60, 400), help="Columns. [the terminal's]")
def show(config_file: str | None, names: tuple[str, ...], as_json: bool, width: int | None, url: str, **wanted: Any) -> int:
    """Show exchanges: what the upstream sent, what Athena understood, what the client received, side by side.

    Ids may be cut short where they stay clear; a FILE of `athena record export` works as well.

    \b
    Examples:
      athena record show req_5f0a
      athena record show report.athena --json
    """
    import msgspec

    from athena.recording.show import view_of

    for number, recording in enumerate(_chosen(config_file, url, names, wanted)):
        view = view_of(recording)
        if as_json:
            click.echo(msgspec.json.encode(view).decode())
        else:
            if number:
                click.echo()
            _print_view(view, width)
    return 0


@record.command()
@_filters
@click.argument("names", metavar="[ID | FILE]...", nargs=-1)
@click.option("--output", "-o", type=click.Path(path_type=Path, dir_okay=False), help="File to write to. [standard output]")
@click.option("--keep-text", is_flag=True, help="Keep prompts, answers and values as they are.")
@click.option("--html", "as_html", is_flag=True, help="Write one page that shows them as the inspector does.")
@_written_json
def export(
    config_file: str | None,
    names: tuple[str, ...],
    output: Path | None,
    keep_text: bool,
    as_html: bool,
    as_json: bool,
    url: str,
    **wanted: Any,
) -> int:
    """Write exchanges as *.athena: one self-contained text, redacted unless --keep-text is given.

    Redacted, words are replaced by others of the same length; names of tools, markers, schemas and the boundaries of chunks
    stay, so that it still reproduces the same events. Where it does not, the file and this command say so.

    \b
    Examples:
      athena record export req_5f0a -o report.athena
      athena record export --session 7f3a --keep-text > session.athena
      athena record export req_5f0a --html -o report.html
      athena record export report.athena --html -o report.html
      athena record export --session 7f3a --html -o session.html
    """
    from athena.recording.redact import redacted

    # No bar where the exchanges go to the same terminal.
    has_bar = output is not None or not sys.stdout.isatty()
    chosen = _chosen(config_file, url, names, wanted, has_bar=has_bar)
    key = secrets.token_bytes(32)  # one for all of them: what belongs to one session still does afterwards
    made = ((recording, recording if keep_text else redacted(recording, key)) for recording in chosen)
    _check_output(output, as_json)
    count = _write_page(output, list(made), as_json) if as_html else _write(output, (shown for _, shown in made), as_json)
    if count > 1 and not as_json:
        click.echo(f"athena: {count} exchanges were exported", err=True)
    return 0


@record.command("import")
@config_option
@click.argument("files", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object: {ids}.")
def import_command(config_file: str | None, files: tuple[Path, ...], as_json: bool) -> int:
    """Put exchanges of *.athena files into the archive on disk, to list and show them there.

    \b
    Examples:
      athena record import report.athena
    """
    from athena.shells.recorder.recorder import DATABASE, open_archive

    with open_archive(Path(_config(config_file).state_dir).expanduser() / DATABASE) as archive:
        added: list[str] = []
        for path in files:
            for row in archive.add(_read(path)):
                added.append(row.id)
                if not as_json:
                    click.echo(row.id)
    if as_json:
        _print_json({"ids": added})
    return 0


@record.command()
@click.argument("files", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option("--output", "-o", type=click.Path(path_type=Path, dir_okay=False), help="File to write to. [standard output]")
@_written_json
def redact(files: tuple[Path, ...], output: Path | None, as_json: bool) -> int:
    """Redact *.athena files that were exported with --keep-text.

    \b
    Examples:
      athena record redact session.athena -o report.athena
    """
    from athena.recording.redact import redacted

    _check_output(output, as_json)
    # All of them at first: the output may be one of them.
    read = [recording for path in files for recording in _read(path)]
    key = secrets.token_bytes(32)  # one for all of them: what belongs to one session still does afterwards
    _write(output, (redacted(recording, key) for recording in read), as_json)
    return 0


@record.command()
@_filters
@click.argument("names", metavar="[ID]...", nargs=-1)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object: {deleted}, how many there were.")
def delete(config_file: str | None, names: tuple[str, ...], yes: bool, as_json: bool, url: str, **wanted: Any) -> int:
    """Delete exchanges: those named, or all that the filters mean.

    \b
    Examples:
      athena record delete req_5f0a
      athena record delete --until 7d --yes
    """
    if not names and not any(wanted.values()):
        raise click.UsageError("name exchanges, or give a filter")
    with _source(config_file, url) as source:
        found = [row.id for row in _rows(source, names, wanted)]
        if not found:
            raise AthenaError("no such exchange", code="no_recordings")
        if not yes and not click.confirm(f"Delete {len(found)} {'exchange' if len(found) == 1 else 'exchanges'}?", err=True):
            return 1
        batches = [found[start : start + _BATCH] for start in range(0, len(found), _BATCH)]
        deleted = sum(source.delete(batch) for batch in _with_progress(batches, "deleting exchanges"))
    if as_json:
        _print_json({"deleted": deleted})
    else:
        click.echo(f"deleted {deleted}")
    return 0


# -- what is meant -----------------------------------------------------------------------------------------------------------


def _config(config_file: str | None) -> Config:
    from athena.shells.config import load

    return load(sources({}, config_file)).config


def _source(config_file: str | None, url: str) -> RecordingSource:
    import contextlib

    from athena.shells.daemon import Home
    from athena.shells.recorder.sources import source_of

    config = _config(config_file)
    running: list[str] = []
    if not url:
        home = Home(config.state_dir)
        with contextlib.suppress(AthenaError):  # none runs in the background
            running.append(home.running().url)
        running += [state.url for state in home.in_terminals()]
    return source_of(config, url, [address for address in running if address])


def _filter(wanted: dict[str, Any]) -> Filter:
    from athena.recording.filters import Filter

    return Filter(**{**wanted, "since": _time(wanted["since"]), "until": _time(wanted["until"])})


def _time(text: str) -> float:
    """A moment, or how long ago it was; in seconds since 1970."""
    if not text:
        return 0.0
    ago = _AGO.fullmatch(text.strip())
    if ago:
        return time.time() - int(ago.group(1)) * _UNITS[ago.group(2)]
    from datetime import datetime

    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise click.UsageError(f"{text!r} is no time: write 90s, 15m, 2h, 7d, or 2026-11-16T10:00") from None


def _rows(source: RecordingSource, names: tuple[str, ...], wanted: dict[str, Any]) -> list[ExchangeRow]:
    import msgspec

    given = _filter(wanted)
    if not names:
        # What is in flight can neither be read nor deleted yet.
        return [row for row in source.rows(given) if row.state == "done"]
    found: list[ExchangeRow] = []
    for name in names:
        # The exact id first: any number of others may begin with it.
        exact = [row for row in source.rows(msgspec.structs.replace(given, name=name), 1) if row.id == name]
        rows = exact or source.rows(msgspec.structs.replace(given, id=name), 3)
        if not rows:
            raise AthenaError(f"no exchange {name}; `athena record list` lists them", code="no_recordings")
        if len(rows) > 1:
            raise AthenaError(f"several exchanges begin with {name}: {', '.join(row.id for row in rows)}", code="no_recordings")
        found.append(rows[0])
    return found


def _chosen(
    config_file: str | None, url: str, names: tuple[str, ...], wanted: dict[str, Any], *, has_bar: bool = False
) -> Iterator[Recording]:
    files = [name for name in names if name.endswith(".athena") or Path(name).is_file()]
    # All of them at first: the output may be one of them.
    read = [recording for name in files for recording in _read(Path(name))]
    others = tuple(name for name in names if name not in files)
    if names and not others:
        yield from read
        return
    if not names and not any(wanted.values()):
        raise click.UsageError("name exchanges, or give a filter")
    with _source(config_file, url) as source:
        rows = _rows(source, others, wanted)
        yield from read
        for row in _with_progress(rows, "reading exchanges") if has_bar else rows:
            recording = source.load(row.id)
            if recording is not None:
                yield recording


def _with_progress(steps: list[Step], doing: str) -> Iterator[Step]:
    """The same steps; where they are many, a bar on the terminal shows how far they are."""
    if len(steps) < _MANY or not sys.stderr.isatty():
        yield from steps
        return
    from rich.progress import track

    from athena.shells.cli.terminal import error_console

    yield from track(steps, doing, console=error_console(), transient=True)


def _read(path: Path) -> list[Recording]:
    from athena.recording import file

    try:
        return file.decode(path.read_bytes(), str(path))
    except OSError as error:
        raise AthenaError(f"{path} cannot be read: {error.strerror or error}", code="unreadable_recording") from None


def _check_output(output: Path | None, as_json: bool) -> None:
    if as_json and output is None:
        raise click.UsageError("--json tells of the file that was written: name one with --output")


def _write(output: Path | None, recordings: Iterator[Recording], as_json: bool) -> int:
    """Write them one by one, since all of them may be more than fits into memory. Returns how many there were."""
    from athena.recording import file

    headers: list[Header] = []
    _save(output, (file.encode(recording) for recording in _noted(recordings, headers)))
    _tell(output, headers, as_json)
    return len(headers)


def _write_page(output: Path | None, exchanges: list[tuple[Recording, Recording]], as_json: bool) -> int:
    """The same as one page. Of each exchange: as it was recorded, and as it is shown."""
    from athena.recording.show import views_of
    from athena.shells.inspector import shared_page

    headers = [shown.header for _, shown in exchanges]
    _save(output, iter([shared_page(views_of(exchanges)).encode()] if exchanges else []))
    _tell(output, headers, as_json)
    return len(headers)


def _noted(recordings: Iterator[Recording], headers: list[Header]) -> Iterator[Recording]:
    """The same, with the header of each added to those seen."""
    for recording in recordings:
        headers.append(recording.header)
        yield recording


def _tell(output: Path | None, written: list[Header], as_json: bool) -> None:
    """What has to be said about the exchanges that were written."""
    if as_json:
        notes = {header.id: list(header.notes) for header in written if header.notes}
        _print_json({"file": str(output), "ids": [header.id for header in written], "notes": notes})
        return
    for header in written:
        for note in header.notes:
            click.echo(f"athena: {header.id}: {note}", err=True)


def _print_json(answer: dict[str, Any]) -> None:
    import msgspec

    click.echo(msgspec.json.encode(answer).decode())


def _save(output: Path | None, parts: Iterator[bytes]) -> None:
    import os

    from athena.shells.own_files import open_own

    first = next(parts, None)
    if first is None:
        raise AthenaError("no such exchange", code="no_recordings")
    if output is None:
        click.echo(first, nl=False)
        for part in parts:
            click.echo(part, nl=False)
        return
    try:
        with open(open_own(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "wb") as opened:
            opened.write(first)
            opened.writelines(parts)
    except OSError as error:
        raise AthenaError(f"{output} cannot be written: {error.strerror or error}") from None


# -- what is shown -----------------------------------------------------------------------------------------------------------


def _table(rows: list[ExchangeRow]) -> None:
    from athena.shells.cli.terminal import console

    out = console()
    for line in _table_lines(rows, out.width if sys.stdout.isatty() else None):
        out.print(line)


def _table_lines(rows: list[ExchangeRow], width: int | None) -> list[Text]:
    """A heading and one line for each exchange. On a terminal of that width long names are cut, and columns that matter less
    are there where they have room; without a width nothing is cut."""
    from rich.cells import cell_len
    from rich.text import Text

    colours = {"ok": "green", "repaired": "yellow", "echo": "yellow", "error": "red", "left": "dim", "live": "cyan"}
    told = [_cells(row, is_short=width is not None) for row in rows]
    columns = [column for column in told[0] if column != "session" or any(row.session for row in rows)]
    widths = {column: max(len(column), min(max(cell_len(cells[column]) for cells in told), _WIDEST)) for column in columns}
    if width is not None:
        widths = _fitted(widths, width)
    lines = [Text("  ".join(column.ljust(wide) for column, wide in widths.items()).rstrip(), style="bold")]
    for row, cells in zip(rows, told, strict=True):
        line = Text()
        for column, wide in widths.items():
            text = cells[column] if width is None else _cut(cells[column], wide, in_middle=column in ("model", "upstream"))
            line.append(text, style=colours[row.verdict] if column == "result" else "")
            line.append(" " * (wide - cell_len(text) + 2))
        line.rstrip()
        lines.append(line)
    return lines


def _cells(row: ExchangeRow, *, is_short: bool) -> dict[str, str]:
    """What is told of an exchange, by column, each on one line."""
    from athena.shells.cli.terminal import safe_text

    kind = f"{row.kind} " if row.kind != "served" else ""
    cells = {
        "time": time.strftime("%m-%d %H:%M:%S", time.localtime(row.at)),
        "id": row.id,
        "model": row.model or row.path,
        "upstream": f"{row.upstream}/{row.upstream_model}" if row.upstream else "",
        "session": row.session[:_SHORT_SESSION] if is_short else row.session,
        "result": f"{row.status} {kind}{row.error or ('' if kind else row.verdict)}".strip(),
        "calls": f"{row.calls}" + (f", {row.text_calls} in text" if row.text_calls else "") if row.calls else "",
        "seconds": f"{row.duration_ms / 1000:.2f}",
    }
    return {column: safe_text(text).replace("\n", " ").replace("\t", " ") for column, text in cells.items()}


def _fitted(widths: dict[str, int], most: int) -> dict[str, int]:
    """The columns that a terminal has room for, with widths that add up to no more than it has."""
    fitted = {column: wide for column, wide in widths.items() if column in _ALWAYS}

    def needed(columns: dict[str, int], comfortable: int = _WIDEST) -> int:
        return sum(min(wide, max(comfortable, _READABLE.get(column, 0))) + 2 for column, wide in columns.items()) - 2

    for column in ("seconds", "calls", "session", "upstream"):
        more = {**fitted, column: widths[column]} if column in widths else fitted
        if needed(more, _COMFORTABLE) <= most:
            fitted = more
    for least in (_READABLE, dict.fromkeys(_READABLE, 6)):
        while needed(fitted) > most:
            room = {column: wide for column, wide in fitted.items() if wide > least.get(column, wide)}
            if not room:
                break
            fitted[max(room, key=room.__getitem__)] -= 1
    return {column: fitted[column] for column in widths if column in fitted}


def _cut(text: str, wide: int, *, in_middle: bool) -> str:
    """The text in that many columns, with an ellipsis for what is left out."""
    from rich.cells import cell_len, set_cell_size

    if cell_len(text) <= wide:
        return text
    # The end of a model's name tells more than its beginning.
    tail = (wide - 1) * 2 // 3 if in_middle else 0
    end = set_cell_size(text[::-1], tail)[::-1] if tail else ""
    return f"{set_cell_size(text, wide - 1 - tail)}\N{HORIZONTAL ELLIPSIS}{end}"


def _print_view(view: View, width: int | None) -> None:
    import shutil

    from athena.shells.cli.lanes import printed

    columns = width or max(shutil.get_terminal_size((120, 24)).columns, 60)
    click.echo(printed(view, columns))
