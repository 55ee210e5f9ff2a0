"""`athena completion`: what a shell needs to complete our commands."""

from __future__ import annotations

import click

_SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script for a shell.

    \b
    Examples:
      athena completion bash > ~/.local/share/bash-completion/completions/athena
      athena completion zsh > ~/.zfunc/_athena          (with ~/.zfunc in fpath)
      athena completion fish > ~/.config/fish/completions/athena.fish
    """
    from click.shell_completion import get_completion_class

    from athena.shells.cli import COMPLETION_VARIABLE, PROGRAM

    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(context.find_root().command, {}, PROGRAM, COMPLETION_VARIABLE)
    # Formatted here instead of by source(): that asks the installed shell for its version, which need not be this machine's.
    click.echo(script.source_template % script.source_vars())
