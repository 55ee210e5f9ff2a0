"""`athena code`: run a coding agent on the gateway, without changing its settings."""

from __future__ import annotations

import sys

import click

from athena.shells import agent_run
from athena.shells.agents import AGENTS, Agent
from athena.shells.temporary_gateway import Wish

_DEFAULT = "claude"


@click.command()
@click.option("--url", metavar="URL", help="Gateway to use; left out: the one in the background, else one for this run.")
@click.option("--key", metavar="KEY", envvar="ATHENA_CODE_KEY", show_envvar=True, help="Key to present to the gateway.")
@click.option("--model", "-m", metavar="NAME", help="Model to run on; left out: the first the gateway lists.")
@click.option("--config", metavar="FILE", help="Start a gateway with this configuration for this run.")
@click.option("--base-url", metavar="URL", help="Start a gateway on this upstream for this run.")
@click.option("--api-key-env", metavar="NAME", help="Variable that holds the key of that upstream.")
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[" + "|".join(AGENTS) + "] [-- ARGUMENTS]...")
def code(
    url: str | None,
    key: str | None,
    model: str | None,
    config: str | None,
    base_url: str | None,
    api_key_env: str | None,
    words: tuple[str, ...],
) -> None:
    """Run a coding agent on the gateway.

    Everything after -- goes to the agent. Its own settings files are not changed.

    \b
      athena code
      athena code codex
      athena code --model kimi-k2 claude -- -p "What does this project do?"
    """
    agent, arguments = _chosen(words)
    flags = {name: value for name, value in (("base_url", base_url), ("api_key_env", api_key_env)) if value is not None}
    wish = Wish(flags, config) if flags or config else None
    if url and wish:
        raise click.UsageError("--url names a gateway that is there; --config and --base-url start one: give one or the other")

    def tell(text: str) -> None:
        click.echo(f"athena: {text}", err=True)

    try:
        sys.exit(agent_run.run(agent, arguments, url=url, key=key, model=model, wish=wish, tell=tell))
    except agent_run.CanNotRun as reason:
        raise click.ClickException(str(reason)) from None


def _chosen(words: tuple[str, ...]) -> tuple[Agent, tuple[str, ...]]:
    """The agent and its arguments. Arguments alone are for the default agent."""
    if words and words[0] in AGENTS:
        return AGENTS[words[0]], words[1:]
    if not words or words[0].startswith("-"):
        return AGENTS[_DEFAULT], words
    raise click.UsageError(f"there is no agent {words[0]!r}; known: {', '.join(AGENTS)}")
