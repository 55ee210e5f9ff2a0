"""`athena code`: run a coding agent on the gateway, without changing its settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from athena.shells.cli.options import sources

if TYPE_CHECKING:
    from athena.shells.agents import Agent

AGENTS = ("claude", "codex", "gemini", "opencode", "qwen", "goose")


@click.command()
@click.option("--url", metavar="URL", help="Gateway to use. [the one in the background, else one for this run]")
@click.option("--key", metavar="KEY", envvar="ATHENA_CODE_KEY", show_envvar=True, help="Key to present to the gateway.")
@click.option("--model", "-m", metavar="NAME", help="Model to run on. [the first that the gateway lists; claude: its own]")
@click.option("--config", "config_file", metavar="FILE", help="Start a gateway with this configuration for this run.")
@click.option("--base-url", metavar="URL", help="Start a gateway on this upstream for this run.")
@click.option("--api-key-env", metavar="NAME", help="Environment variable that holds that upstream's key.")
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[" + "|".join(AGENTS) + "] [-- ARGUMENTS]...")
def code(
    url: str | None,
    key: str | None,
    model: str | None,
    config_file: str | None,
    base_url: str | None,
    api_key_env: str | None,
    words: tuple[str, ...],
) -> int:
    """Run a coding agent on the gateway.

    Without a gateway in the background, one is started and ends with the agent. Everything after -- goes to the agent, and
    its exit code is returned. The agent's own settings files are not changed.

    \b
    Examples:
      athena code
      athena code codex --model moonshotai/kimi-k2-0905
      athena code claude --base-url http://127.0.0.1:8000/v1 --model Qwen/Qwen3-Coder-30B
      athena code claude -- -p "What does this project do?"
    """
    from athena.shells import agent_run
    from athena.shells.temporary_gateway import Wish

    agent, arguments = _chosen(words)
    flags = {name: value for name, value in (("base_url", base_url), ("api_key_env", api_key_env)) if value is not None}
    wish = Wish(flags, config_file) if flags or config_file else None
    if url and wish:
        raise click.UsageError("--url names a gateway that is there; --config and --base-url start one: give one or the other")
    return agent_run.run(
        agent,
        arguments,
        url=url,
        key=key,
        model=model,
        wish=wish,
        state_dir=_state_dir(),
        tell=lambda text: click.echo(f"athena: {text}", err=True),
    )


def _chosen(words: tuple[str, ...]) -> tuple[Agent, tuple[str, ...]]:
    """The agent and its arguments. Arguments alone are for the first agent."""
    from athena.shells.agents import AGENTS as ROWS

    if words and words[0] in ROWS:
        return ROWS[words[0]], words[1:]
    if not words or words[0].startswith("-"):
        return ROWS[AGENTS[0]], words
    raise click.UsageError(f"there is no agent {words[0]!r}; known: {', '.join(AGENTS)}")


def _state_dir() -> str:
    """Where the background gateway is known. A broken configuration must not hide one that runs."""
    from athena.errors import ConfigError
    from athena.shells.config import Config, load

    try:
        return load(sources({}, None)).config.state_dir
    except ConfigError:
        return Config().state_dir
