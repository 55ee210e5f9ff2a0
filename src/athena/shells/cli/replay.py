"""`athena replay`: recorded exchanges through this version, as an upstream, or as a regression case."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from athena.errors import AthenaError
from athena.shells.cli.completing import complete_formats
from athena.shells.cli.names import DIALECTS
from athena.shells.cli.options import config_option, sources

if TYPE_CHECKING:
    from athena.recording.cases import Case
    from athena.recording.lines import Recording
    from athena.recording.replay import Changes
    from athena.serving.targets import Target

_REPAIRS = ("off", "syntax", "schema")
_POLICIES = ("stop_on_first", "collect_then_stop", "drain_all", "allow_mixed")
_CHANGING = ("client", "format_id", "repair", "policy", "chunks")
_USED = {"serve": ("pace", "port"), "as_case": ("keep_text", *_CHANGING), "": ("route", "as_json", "config_file", *_CHANGING)}
"""By the option that chooses what is done, the options that then have an effect."""


@click.command()
@click.argument("files", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option("--client", type=click.Choice(DIALECTS), help="Answer in this dialect instead of the client's own.")
@click.option(
    "--format", "format_id", metavar="NAME", shell_complete=complete_formats, help="Look for this text format; off: for none."
)
@click.option("--repair", type=click.Choice(_REPAIRS), help="Repair arguments at this level.")
@click.option("--policy", type=click.Choice(_POLICIES), help="The policy of prompted tools.")
@click.option("--chunks", default="recorded", metavar="1|7|random|recorded", help="Bytes in each read. [recorded]")
@click.option(
    "--pace",
    type=click.Choice(("recorded", "fast")),
    default="fast",
    help="With --serve only: wait as the upstream did, or not at all. [fast]",
)
@click.option("--serve", is_flag=True, help="Answer requests with what was recorded, until interrupted.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="With --serve: the port; 0 takes a free one. [0]")
@click.option("--case", "as_case", is_flag=True, help="Print a regression case, redacted.")
@click.option("--keep-text", is_flag=True, help="With --case: keep the words.")
@click.option("--route", is_flag=True, help="Ask the models as the configuration says now, not as it said then.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per exchange.")
@config_option
@click.pass_context
def replay(
    context: click.Context,
    files: tuple[Path, ...],
    client: str | None,
    format_id: str | None,
    repair: str | None,
    policy: str | None,
    chunks: str,
    pace: str,
    serve: bool,
    port: int,
    as_case: bool,
    keep_text: bool,
    route: bool,
    as_json: bool,
    config_file: str | None,
) -> int:
    """Run recorded exchanges through this version and say what differs.

    FILES are *.athena files of `athena record export`, or cases (*.toml). Without options, the answer is held against the
    recorded one, byte by byte and event by event. With other settings, the events are held against those of the recorded
    settings. Exit code 1 where anything differs.

    \b
    Examples:
      athena replay report.athena
      athena replay report.athena --format hermes --chunks 7
      athena replay --case report.athena > leak.toml
      athena replay --serve session.athena --port 9000
    """
    _check_options(context, "serve" if serve else "as_case" if as_case else "")
    changes = _changes(client, format_id, repair, policy, chunks)
    if serve:
        return _serve([recording for path in files for recording in _recordings(path)], pace, port)
    if as_case:
        from athena.recording.cases import case_of

        recordings = [recording for path in files for recording in _recordings(path)]
        if len(recordings) != 1:
            raise click.UsageError(f"a case is made of one exchange; these files hold {len(recordings)}")
        click.echo(case_of(recordings[0], changes, redact_with=None if keep_text else secrets.token_bytes(32)), nl=False)
        return 0
    router = _targets(config_file) if route or config_file else None
    differing = 0
    for path in files:
        differing += (
            _run_case(path, changes, router, as_json) if path.suffix == ".toml" else _run(path, changes, router, as_json)
        )
    return 1 if differing else 0


def _check_options(context: click.Context, mode: str) -> None:
    """An option that would have no effect is wrong usage: whoever gives it expects one."""
    for parameter in context.command.params:
        name, flag = parameter.name or "", parameter.opts[0]
        if name in (mode, "files", *_USED[mode]):
            continue
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            needed = "without --serve" if name in _USED["serve"] else "without --case"
            given = {"serve": "with --serve", "as_case": "with --case", "": needed}[mode]
            raise click.UsageError(f"{flag} has no effect {given}")


def _changes(client: str | None, format_id: str | None, repair: str | None, policy: str | None, chunks: str) -> Changes:
    from athena.formats import ALIASES, format_names
    from athena.recording.replay import Changes

    if format_id is not None and format_id not in ("off", "auto", "standard", *ALIASES, *format_names()):
        raise click.UsageError(f"--format: {format_id!r} is unknown; `athena formats` lists them")
    if chunks not in ("recorded", "random") and not (chunks.isdigit() and int(chunks) > 0):
        raise click.UsageError("--chunks: write a number of bytes, random or recorded")
    return Changes(
        client=client or "",
        format=format_id or "",
        repair=repair or "",  # type: ignore[arg-type]  # click has checked it
        policy=policy or "",
        chunks=int(chunks) if chunks.isdigit() else chunks,  # type: ignore[arg-type]
    )


def _recordings(path: Path) -> list[Recording]:
    from athena.recording import file
    from athena.recording.cases import case_recording

    if path.suffix == ".toml":
        return [case_recording(_case(path), str(path))]
    return file.decode(_content(path), str(path))


def _case(path: Path) -> Case:
    from athena.recording.cases import read_case

    return read_case(_content(path).decode("utf-8", "replace"), str(path))


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise AthenaError(f"{path} cannot be read: {error.strerror or error}", code="unreadable_recording") from None


def _targets(config_file: str | None) -> Any:
    from athena.shells.config import Router, load
    from athena.shells.config.ready import KnownTargets

    return KnownTargets(Router(load(sources({}, config_file)).config))


def _asked(router: Any, recording: Recording) -> tuple[Target, ...] | None:
    from athena.recording.replay import decoded_request

    return None if router is None else router.of(decoded_request(recording)[0].model)


def _run(path: Path, changes: Changes, router: Any, as_json: bool) -> int:
    import msgspec

    from athena.recording.compare import difference, differences_of_settings
    from athena.recording.replay import NO_CHANGES
    from athena.recording.replay import replay as run

    differing = 0
    for recording in _recordings(path):
        if recording.header.kind != "served":
            click.echo(f"{recording.header.id}: {recording.header.kind}, nothing to replay", err=True)
            continue
        targets = _asked(router, recording)
        now = run(recording, changes, targets=targets)
        if changes == NO_CHANGES and targets is None:
            found = difference(recording, now).differences
        else:
            apart = differences_of_settings(run(recording), now, changes)
            found = [f"event {each.at}: was {_words(each.was)}, is {_words(each.now)}" for each in apart]
        differing += bool(found)
        is_foreign = changes.client not in ("", recording.request.dialect)
        if as_json:
            line = {"file": str(path), "id": recording.header.id, "equal": not found, "differences": found}
            if is_foreign:
                line["received"] = now.output.decode("utf-8", "replace")
            click.echo(msgspec.json.encode(line).decode())
            continue
        click.echo(f"{recording.header.id}: " + ("equal" if not found else _counted(found)))
        for each in found:
            click.echo(f"  {each}")
        if is_foreign:
            size = len(now.output)
            click.echo(
                f"  the client would receive {size} bytes of {changes.client}, which are not compared; --json prints them"
            )
    return differing


def _run_case(path: Path, changes: Changes, router: Any, as_json: bool) -> int:
    import msgspec

    from athena.recording.cases import run_case

    (recording,) = _recordings(path)
    case = _case(path)
    found = run_case(case, changes, _asked(router, recording))
    if as_json:
        click.echo(
            msgspec.json.encode({"file": str(path), "name": case.name, "equal": not found, "differences": found}).decode()
        )
        return bool(found)
    click.echo(f"{case.name}: " + ("as expected" if not found else _counted(found)))
    for each in found:
        click.echo(f"  event {each.at}: expected {_words(each.was)}, is {_words(each.now)}")
    return bool(found)


def _counted(found: Sequence[object]) -> str:
    return "1 difference" if len(found) == 1 else f"{len(found)} differences"


def _words(event: Any) -> str:
    if event is None:
        return "nothing"
    fields = ", ".join(f"{name}={value!r}" for name, value in event.items() if name != "event")
    text = f"{event.get('event', '')}({fields})"
    return text if len(text) <= 300 else text[:297] + "..."


def _serve(recordings: list[Recording], pace: str, port: int) -> int:
    import asyncio
    import contextlib

    from athena.recording.playback import Playlist
    from athena.shells.recorder.replay_server import ReplayServer

    def tell(path: str, body: bytes, name: str) -> None:
        click.echo(f"{time.strftime('%H:%M:%S')} {path} {name or 'no recording fits'}", err=True)

    async def run() -> None:
        server = ReplayServer(Playlist(recordings), recorded_pace=pace == "recorded", on_request=tell)
        try:
            await server.start(port=port)
        except OSError as error:
            raise AthenaError(f"cannot listen on 127.0.0.1:{port}: {os.strerror(error.errno or 0)}") from None
        click.echo(f"athena: {len(recordings)} recorded exchanges answer at http://127.0.0.1:{server.port}", err=True)
        try:
            await asyncio.Event().wait()
        finally:
            await server.close()

    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(run())
    return 0
