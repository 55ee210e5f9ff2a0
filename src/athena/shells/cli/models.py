"""`athena models`: what the configured upstreams offer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from athena.errors import AthenaError
from athena.shells.cli.completing import complete_models
from athena.shells.cli.options import sources, tell_ignored, upstream_options

if TYPE_CHECKING:
    from athena.shells.config import OfferedModel, Upstream


@click.command()
@click.argument("part", required=False, shell_complete=complete_models)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@upstream_options
def models(part: str | None, as_json: bool, config_file: str | None, **flags: Any) -> int:
    """List the models of the configured upstreams.

    Asks each upstream for its list, and shows how much each model takes and in which format it writes calls as text. PART shows
    only names that contain it. Exit code 1 when no upstream could be asked.

    \b
    Examples:
      athena models
      athena models kimi
      athena models --base-url http://127.0.0.1:11434/v1 --json
    """
    from athena.shells.config import load

    loaded = load(sources(flags, config_file))
    tell_ignored(loaded)
    if not loaded.config.upstreams:
        raise AthenaError("no upstream is configured; athena init sets one up, --base-url URL asks a server directly")
    found: list[tuple[str, OfferedModel]] = []
    failed = 0
    for name, upstream in loaded.config.upstreams.items():
        try:
            found += [(name, model) for model in _offered(name, upstream) if part is None or part.lower() in model.id.lower()]
        except AthenaError as error:
            failed += 1
            click.echo(f"athena: {name}: {error.message}", err=True)
    if not found and not failed and not as_json:
        click.echo("athena: the upstreams list no model" + (f" whose name contains {part!r}" if part else ""), err=True)
    else:
        _show(found, as_json)
    return 1 if failed == len(loaded.config.upstreams) else 0


def _offered(name: str, upstream: Upstream) -> tuple[OfferedModel, ...]:
    from athena.shells.setup import Provider, ask_models

    key = upstream.api_key.reveal() if upstream.api_key is not None else ""
    return ask_models(Provider(id=name, title=name, base_url=upstream.base_url), key, upstream.dialect, upstream=upstream)


def _show(found: list[tuple[str, OfferedModel]], as_json: bool) -> None:
    from athena.formats.machine.detect import detect_format

    if as_json:
        import msgspec

        rows = [
            {"upstream": name, "id": model.id, "context": model.window.context, "output": model.window.output,
             "format": detect_format(model.id)}
            for name, model in found
        ]  # fmt: skip
        click.echo(msgspec.json.encode(rows).decode())
        return
    from rich.table import Table

    from athena.shells.cli.terminal import console

    if not found:
        return
    table = Table(box=None, pad_edge=False)
    for column in ("model", "upstream", "window", "format"):
        table.add_column(column, overflow="fold", justify="right" if column == "window" else "left")
    for name, model in found:
        window = f"{model.window.context:,}" if model.window.context else ""
        table.add_row(model.id, name, window, detect_format(model.id))
    console().print(table)
    if any(detect_format(model.id) == "standard" for _, model in found):
        console().print("\nstandard: structured calls; unmistakable markers of other formats are read too", highlight=False)
