"""`athena detect`: which text format a model writes its calls in."""

from __future__ import annotations

import click

from athena.shells.cli.completing import complete_models


@click.command()
@click.argument("models", nargs=-1, required=True, metavar="MODEL...", shell_complete=complete_models)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def detect(models: tuple[str, ...], as_json: bool) -> int:
    """Say which format a model writes.

    `standard` means that nothing is known but native, structured calls; unmistakable markers of other formats are still read.
    With one MODEL only the format is printed, for scripts.

    \b
    Examples:
      athena detect moonshotai/kimi-k2-0905
      athena detect qwen3-coder deepseek-v3.1 gpt-4.1
    """
    from athena.formats.machine.detect import detect_format

    found = {model: detect_format(model) for model in models}
    if as_json:
        import msgspec

        click.echo(msgspec.json.encode(found).decode())
    elif len(models) == 1:
        click.echo(found[models[0]])
    else:
        width = max(map(len, models))
        for model, name in found.items():
            click.echo(f"{model:<{width}}  {name}")
        if "standard" in found.values():
            click.echo("standard: structured calls; unmistakable markers of other formats are read too")
    return 0
