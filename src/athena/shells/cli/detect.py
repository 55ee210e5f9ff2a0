"""`athena detect`: which text format a model writes its calls in."""

from __future__ import annotations

import click


@click.command()
@click.argument("models", nargs=-1, required=True, metavar="MODEL...")
def detect(models: tuple[str, ...]) -> int:
    """Say which format a model writes.

    `standard` means that nothing is known but native, structured calls; unmistakable markers of other formats are still read.

    \b
    Examples:
      athena detect moonshotai/kimi-k2-0905
      athena detect qwen3-coder deepseek-v3.1 gpt-4.1
    """
    from athena.formats.machine.detect import detect_format

    for model in models:
        found = detect_format(model)
        click.echo(found if len(models) == 1 else f"{model}\t{found}")
    return 0
