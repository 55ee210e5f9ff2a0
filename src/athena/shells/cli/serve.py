"""`athena serve`: the gateway in the foreground."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from athena.shells.cli.options import serving_options, sources

if TYPE_CHECKING:
    from athena.shells.config import Loaded
    from athena.shells.server import Started

_QUESTION = """{"model": "athena-demo", "max_tokens": 200,
    "messages": [{"role": "user", "content": "What is the weather in Tokyo?"}],
    "tools": [{"name": "get_weather", "input_schema": {"type": "object",
      "properties": {"city": {"type": "string"}}, "required": ["city"]}}]}"""
DEMO_WRITES = (
    "<|tool_call_begin|>functions.get_weather:0",
    '<|tool_call_argument_begin|>{"city":"Tokyo"}<|tool_call_end|>',
)
DEMO_GIVES = 'tool_use get_weather {"city":"Tokyo"}'
"""What the demo model writes to this question, and what comes of it. Kept as text, so that starting need not make it; in lines
that a narrow terminal has room for."""


@click.command()
@serving_options
@click.option("--demo", is_flag=True, help="Answer with the built-in demo model, whatever is configured.")
@click.option("--detached", type=int, hidden=True, help="Descriptor of the lock that `athena start` holds.")
def serve(config_file: str | None, demo: bool, detached: int | None, **flags: Any) -> int:
    """Run the gateway in the foreground.

    Point the base URL of any agent or SDK at it. Settings come from flags, then ATHENA_* variables, then athena.yml here, if it
    is trusted (athena config trust), or in ~/.config/athena; OPENROUTER_API_KEY alone is enough to start. Without any upstream
    a demo model answers.

    A changed athena.yml is taken up while it runs, and SIGHUP asks for it. Ctrl-C, SIGTERM or closing the terminal lets open
    answers finish (timeouts.drain_s); a second one ends them at once.

    \b
    Examples:
      athena serve
      athena serve --base-url http://127.0.0.1:8000/v1
      athena serve --base-url https://openrouter.ai/api --api-key-env OPENROUTER_API_KEY --model moonshotai/kimi-k2-0905
      athena serve --config team.yml --workers 4 --log-format json
      ANTHROPIC_BASE_URL=http://127.0.0.1:12377 claude
    """
    from athena.shells.config import load
    from athena.shells.daemon import serve_detached, serve_in_terminal
    from athena.shells.server import Plan

    where = sources(flags, config_file)
    loaded = load(where)
    for warning in loaded.warnings:
        click.echo(f"athena: warning: {warning}", err=True)
    if detached is not None:
        return serve_detached(Plan(sources=where, loaded=loaded, demo=demo), detached)
    same_screen = sys.stdout.isatty() and sys.stderr.isatty() and not loaded.config.log.file
    plan = Plan(sources=where, loaded=loaded, demo=demo, greets=same_screen, on_started=lambda started: _greet(started, loaded))
    return serve_in_terminal(plan)


def _greet(started: Started, loaded: Loaded) -> None:
    """What a person wants to know now."""
    lines = [f"Athena listens on {_styled(started.url, bold=True)}"]
    lines += [f"  configuration: {', '.join(map(str, loaded.files))}"] if loaded.files else []
    lines += [f"  inspector: {started.url}{started.inspector}"] if started.inspector else []
    if started.demo:
        first, rest = (_styled(line, fg="red") for line in DEMO_WRITES)
        lines += [
            "",
            "No upstream is set, so the built-in demo model answers. As open models do, it",
            "leaks its tool calls as text:",
            f"  it writes    {first}",
            f"               {rest}",
            f"  you receive  {_styled(DEMO_GIVES, fg='green', bold=True)}",
            "Ask it yourself (athena demo shows other models' formats):",
            "",
            demo_command(started),
            "",
            *(loaded.hints or ("For a real model: athena init, or", "  athena serve --base-url URL --api-key-env NAME")),
        ]
    else:
        lines += [f"  upstreams: {', '.join(started.config.upstreams)}"]
        lines += [f"  try: ANTHROPIC_BASE_URL={started.url} claude"]
    click.echo("\n".join(lines))


def _styled(text: str, **style: Any) -> str:
    """Text with colours where people see them; click itself takes them out of what is not a terminal."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return text if plain else click.style(text, **style)


def demo_command(started: Started) -> str:
    """One command for a shell that shows a repaired call, on lines that a narrow terminal has room for."""
    key = " -H 'x-api-key: YOUR-KEY'" if started.config.keys else ""
    return f"  curl -s {started.url}/v1/messages{key} \\\n    -H 'content-type: application/json' \\\n    -d '{_QUESTION}'"
