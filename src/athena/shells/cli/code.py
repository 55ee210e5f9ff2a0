"""`athena code`: run a coding agent on the gateway, without changing its settings."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

import click

from athena.shells.cli.completing import complete_agents, complete_models
from athena.shells.cli.options import tell_ignored

if TYPE_CHECKING:
    from athena.shells.agents import Agent
    from athena.shells.config import Loaded
    from athena.shells.temporary_gateway import Wish

AGENTS = ("claude", "codex", "gemini", "opencode", "qwen", "goose", "kimi", "pi", "cline", "continue", "vibe", "crush")


@click.command()
@click.option("--url", metavar="URL", help="Gateway to use. [one that runs on this machine, else one for this run]")
@click.option("--key", metavar="KEY", envvar="ATHENA_CODE_KEY", show_envvar=True, help="Key to present to the gateway.")
@click.option(
    "--model",
    "-m",
    metavar="NAME",
    shell_complete=complete_models,
    help="Model to run on. [the first that the gateway lists; claude: its own]",
)
@click.option("--config", "config_file", metavar="FILE", help="Start a gateway with this configuration for this run.")
@click.option("--base-url", metavar="URL", help="Start a gateway on this upstream for this run.")
@click.option("--api-key-env", metavar="NAME", help="Environment variable that holds that upstream's key.")
@click.option(
    "--context", type=click.IntRange(1), metavar="TOKENS", help="Tokens that the model takes. [what the gateway knows]"
)
@click.option("--output", type=click.IntRange(1), metavar="TOKENS", help="Tokens of its longest answer. [likewise]")
@click.option("--no-check", is_flag=True, help="Start the agent although no upstream answers.")
@click.option("--demo", is_flag=True, help="Run on the built-in demo model, which calls only tools that read.")
@click.argument("words", nargs=-1, type=click.UNPROCESSED, shell_complete=complete_agents, metavar="[AGENT] [-- ARGUMENTS]...")
def code(
    url: str | None,
    key: str | None,
    model: str | None,
    config_file: str | None,
    base_url: str | None,
    api_key_env: str | None,
    context: int | None,
    output: int | None,
    no_check: bool,
    demo: bool,
    words: tuple[str, ...],
) -> int:
    """Run a coding agent on the gateway.

    AGENT is claude (the default), codex, gemini, opencode, qwen, goose, kimi, pi, cline, continue, vibe or crush.

    A gateway of yours that runs on this machine is used; without one, one is started and ends with the agent. It needs an
    upstream: --base-url, OPENROUTER_API_KEY or a configuration. The athena.yml of the current directory counts only when it is
    trusted (athena config trust). Whether the upstream answers is checked first. Everything after -- goes to the agent, and its
    exit code is returned. The agent's own settings files are not changed.

    \b
    Examples:
      athena code
      athena code codex --model moonshotai/kimi-k2-0905
      athena code claude --base-url http://127.0.0.1:8000/v1 --model Qwen/Qwen3-Coder-30B
      athena code claude -- -p "What does this project do?"
    """
    from athena.shells import agent_run
    from athena.shells.config import Window
    from athena.shells.temporary_gateway import Wish

    agent, arguments = _chosen(words)
    flags = {name: value for name, value in (("base_url", base_url), ("api_key_env", api_key_env)) if value is not None}
    wish = Wish(flags, config_file, demo) if flags or config_file or demo else None
    if url and wish:
        raise click.UsageError("--url names a gateway that is there; --config, --base-url and --demo start one: not both")
    choice = agent_run.RunOptions(
        url=url, key=key, model=model, window=Window(context, output), wish=wish, check=not no_check and not demo
    )
    return agent_run.run(
        agent,
        arguments,
        choice,
        loaded=lambda: _loaded(wish or Wish()),
        tell=lambda text: click.echo(f"athena: {text}", err=True),
    )


def _chosen(words: tuple[str, ...]) -> tuple[Agent, tuple[str, ...]]:
    """The agent and its arguments. Arguments alone are for the first agent."""
    from athena.shells.agents import AGENTS as ROWS

    if words and words[0] in ROWS:
        return ROWS[words[0]], words[1:]
    if not words or words[0].startswith("-"):
        return ROWS[AGENTS[0]], words
    raise click.UsageError(no_agent(words[0]))


def no_agent(wanted: str) -> str:
    """What to say about an agent that is not known."""
    near = get_close_matches(wanted, AGENTS, 1)
    known = ", ".join(AGENTS)
    return f"there is no agent {wanted!r}; {f'did you mean {near[0]}?' if near else f'known: {known}'}"


def _loaded(wish: Wish) -> Loaded | None:
    """The configuration, with a word on files that are not used. A broken one must not hide a gateway that runs: None."""
    from athena.errors import ConfigError
    from athena.shells.config import load

    try:
        loaded = load(wish.sources())
    except ConfigError:
        return None
    tell_ignored(loaded)
    return loaded
