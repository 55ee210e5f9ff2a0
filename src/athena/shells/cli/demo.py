"""`athena demo`: a leaked call and what Athena makes of it, side by side; or the demo model as an upstream of its own."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from athena.shells.cli.completing import complete_formats

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console, ConsoleOptions
    from rich.table import Table
    from rich.text import Text

    from athena.shells.showcase import Received, Scene

_NEXT = """\
Nothing left this machine: the texts are scripted, the engine is the real one.
Next steps:
  athena init              set up your own model and agent
  athena serve             run a gateway in front of this demo model
  athena parse answer.txt  read the calls out of a text of your own"""
_MARKER_STYLE, _CALL_STYLE = "red", "bold green"


@click.command()
@click.argument("formats", nargs=-1, metavar="[FORMAT]...", shell_complete=complete_formats)
@click.option("--all", "all_of_them", is_flag=True, help="Show every format that Athena reads.")
@click.option("--pace", type=click.FloatRange(0, 5), default=0.05, show_default=True, help="Seconds between two pieces.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON record per format: the raw text, and what was received.")
@click.option("--serve", is_flag=True, help="Run the demo models as an upstream instead.")
@click.option("--port", type=click.IntRange(0, 65535), help="With --serve: port to listen on; 0: a free one.  [default: 12378]")
@click.option(
    "--plant",
    "planted",
    multiple=True,
    metavar="CLASS=RATE",
    help="With --serve: what demo-planted does wrong how often, such as leak=20% or cut=0.05. Several are possible.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="With --serve: another seed gives other answers.")
def demo(
    formats: tuple[str, ...],
    all_of_them: bool,
    pace: float,
    as_json: bool,
    serve: bool,
    port: int | None,
    planted: tuple[str, ...],
    seed: int,
) -> int:
    """Show leaked tool calls beside the calls that an agent receives.

    Open models write tool calls as text, each family in a format of its own. Where their server does not read it, the agent
    gets prose and stops. On the left is what such a model writes, piece by piece; on the right what an Anthropic client
    receives of it through Athena. FORMAT chooses which (athena formats lists them).

    --serve runs scripted models as an upstream: athena-demo writes its calls as raw Kimi tokens into its reasoning, in the Chat
    API; demo-behaves, demo-leaks, demo-truncates and demo-sloppy answer in all four APIs, for athena verify to tell apart.

    \b
    Examples:
      athena demo
      athena demo harmony glm_xml
      athena demo --serve --port 9000
      athena demo --serve --plant leak=20% --plant cut=5%
      athena serve --base-url http://127.0.0.1:9000/v1
    """
    if serve or port is not None or planted:
        import asyncio

        if formats or all_of_them or as_json:
            raise click.UsageError("--serve, --port and --plant run the demo models; they take no FORMAT, --all or --json")
        return asyncio.run(_serve(12378 if port is None else port, _rates(planted), seed))
    from athena.formats import all_formats
    from athena.shells.showcase import SCENES, scene_of

    chosen = [found.id for found in all_formats()] if all_of_them else list(formats)
    scenes = [scene_of(name) for name in chosen] or list(SCENES)
    if as_json:
        for scene in scenes:
            click.echo(_record(scene))
        return 0
    from athena.shells.cli.terminal import console

    if console().is_terminal:
        _watch(scenes, pace)
    else:
        for scene in scenes:
            click.echo(_plain(scene) + "\n")
    click.echo(_NEXT)
    return 0


# -- on a terminal ---------------------------------------------------------------------------------------------------------


def _watch(scenes: list[Scene], pace: float) -> None:
    """Draw each scene while it streams."""
    from rich.console import Console
    from rich.live import Live

    from athena.shells.showcase import QUESTION, play

    console = Console(highlight=False)
    console.print(f"\n[bold]The user asks:[/] {QUESTION}\n")
    for scene in scenes:
        written = ""
        with Live(console=console, auto_refresh=False) as live:
            for step in play(scene):
                written += step.piece
                live.update(side_by_side(scene, written, step.received), refresh=True)
                time.sleep(pace)
        console.print()


def side_by_side(scene: Scene, written: str, received: Received) -> Table:
    """The table that is drawn for one scene."""
    from rich.box import ROUNDED
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=Text.assemble((scene.format, "bold"), f"  {scene.models}"), title_justify="left", title_style="", box=ROUNDED,
        border_style="dim", header_style="dim", expand=True,
    )  # fmt: skip
    table.add_column("the model writes", ratio=1, overflow="fold")
    table.add_column("your agent receives", ratio=1, overflow="fold")
    seen = Table.grid(padding=(0, 1))
    seen.add_column(style="dim", no_wrap=True)
    seen.add_column(overflow="fold")
    for label, value in _parts(received):
        seen.add_row(label, Text(value, _CALL_STYLE if label == "tool_use" else ""))
    table.add_row(_Leak(scene, written), seen)
    return table


class _Leak:
    """What a model has written: its markers in colour, and neither they nor words between them broken where they fit."""

    def __init__(self, scene: Scene, written: str) -> None:
        self._scene = scene
        self._written = written

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        from rich.cells import cell_len
        from rich.text import Text

        text, line = Text(overflow="fold"), 0
        for piece, style in self._pieces():
            wide = cell_len(piece)
            whole = bool(style) or not any(map(str.isspace, piece))
            if line and whole and line + wide > options.max_width >= wide:
                text.append("\n")
                line = 0
            text.append(piece, style)
            last = piece.rpartition("\n")[2]
            line = cell_len(last) if "\n" in piece else line + wide
            line %= options.max_width
        text.rstrip()
        yield text

    def _pieces(self) -> Iterator[tuple[str, str]]:
        from athena.shells.showcase import MARKER

        before = len(self._scene.before)
        if not MARKER.search(self._written):
            # A call that is written as code: all of it is the leak.
            yield self._written[:before], ""
            yield self._written[before:], _MARKER_STYLE
            return
        at = 0
        for found in MARKER.finditer(self._written):
            yield self._written[at : found.start()], ""
            yield found.group(), _MARKER_STYLE
            at = found.end()
        yield self._written[at:], ""


def _parts(received: Received) -> list[tuple[str, str]]:
    parts = [
        ("thinking", received.thinking.strip()),
        ("text", received.text.strip()),
        ("tool_use", f"{received.name} {received.arguments}" if received.name else ""),
        ("stop", received.stop_reason),
    ]
    return [(label, value) for label, value in parts if value]


# -- elsewhere -------------------------------------------------------------------------------------------------------------


def _played(scene: Scene) -> tuple[str, Received]:
    from athena.shells.showcase import play

    steps = list(play(scene))
    return "".join(step.piece for step in steps), steps[-1].received


def _plain(scene: Scene) -> str:
    written, received = _played(scene)
    lines = [f"{scene.format}: {scene.models}", "  the model writes"]
    lines += [f"    {line}" for line in written.strip("\n").split("\n")]
    lines += ["  your agent receives", *(f"    {label:<9}{value}" for label, value in _parts(received))]
    return "\n".join(lines)


def _record(scene: Scene) -> str:
    import msgspec

    written, received = _played(scene)
    record: dict[str, Any] = {"format": scene.format, "models": scene.models, "written": written, "received": received}
    return msgspec.json.encode(record).decode()


# -- as an upstream --------------------------------------------------------------------------------------------------------


def _rates(planted: tuple[str, ...]) -> dict[str, float] | None:
    from athena.quality import Finding

    known = [finding.value for finding in Finding]
    rates: dict[str, float] = {}
    for text in planted:
        name, _, share = text.partition("=")
        try:
            rate = float(share.rstrip("%")) / (100 if share.endswith("%") else 1)
        except ValueError:
            rate = -1.0
        if name not in known or not 0 <= rate <= 1:
            raise click.UsageError(f"--plant {text}: write CLASS=RATE, such as leak=20%; classes: {', '.join(known)}")
        rates[name] = rate
    return rates or None


async def _serve(port: int, planted: dict[str, float] | None, seed: int) -> int:
    import asyncio
    import signal

    from athena.errors import AthenaError
    from athena.shells.demo_server import DemoServer

    server = DemoServer(planted=planted, seed=seed)
    try:
        await server.start(port)
    except OSError as error:
        raise AthenaError(f"port {port} cannot be used: {error.strerror or error}; choose another with --port") from None
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    click.echo(f"The demo model answers on {server.url}")
    await stopped.wait()
    await server.close()
    return 0
