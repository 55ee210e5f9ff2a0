"""The flags that `serve`, `start` and `config` share, and how they become sources of the configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from athena.shells.cli.completing import complete_models, complete_profiles
from athena.shells.cli.names import DIALECTS, LEVELS

if TYPE_CHECKING:
    from athena.shells.config import Loaded

Function = TypeVar("Function", bound=Callable[..., Any])

_CONFIG = click.option("--config", "config_file", metavar="FILE", help="Read only this file; left out: athena.yml is searched.")
_UPSTREAM = (
    click.option("--base-url", metavar="URL", help="Send all traffic to this upstream, with or without /v1."),
    click.option("--api-key-env", metavar="NAME", help="Environment variable that holds the upstream's key."),
    click.option("--api-key", metavar="KEY", help="The upstream's key itself. Others may see it: prefer --api-key-env."),
)
_SPOKEN = (
    click.option("--dialect", type=click.Choice(DIALECTS), help="API of the upstream. [by its address, else openai_chat]"),
    click.option(
        "--profile",
        metavar="NAME",
        shell_complete=complete_profiles,
        help="Quirks of the upstream (athena config profiles). [by its address]",
    ),
)
_SERVING = (
    _CONFIG,
    click.option("--host", metavar="ADDRESS", help="Address to listen on; any but this machine's own needs a key. [127.0.0.1]"),
    click.option("--port", type=click.IntRange(0, 65535), help="Port to listen on; 0 takes a free one. [12377]"),
    *_UPSTREAM,
    click.option(
        "--model",
        metavar="NAME",
        shell_complete=complete_models,
        help='Model for every name without a "/"; left out: names pass unchanged.',
    ),
    *(
        click.option(
            f"--model-{name}",
            f"{name}_model",
            metavar="NAME",
            shell_complete=complete_models,
            help=f"Model for names that contain {name}.",
        )
        for name in ("opus", "sonnet", "haiku")
    ),
    *_SPOKEN,
    click.option("--workers", type=click.IntRange(1, 256), help="Serving processes. [1]"),
    click.option("--tls-cert", metavar="FILE", help="Certificate in PEM form: serve https."),
    click.option("--tls-key", metavar="FILE", help="Its private key in PEM form. [in the file of --tls-cert]"),
    click.option("--log-format", type=click.Choice(("text", "json")), help="Form of log lines. [text]"),
    click.option("--log-level", type=click.Choice(LEVELS), help="What to log; debug shows bodies, redacted. [info]"),
    click.option("--log-file", metavar="FILE", help="Log to this file instead of standard error."),
)


def config_option(function: Function) -> Function:
    return _CONFIG(function)


def serving_options(function: Function) -> Function:
    """All that `athena serve` takes."""
    return _with(function, _SERVING)


def upstream_options(function: Function) -> Function:
    """Which upstream to ask, for a command that serves nothing."""
    return _with(function, (_CONFIG, *_UPSTREAM, *_SPOKEN))


def _with(function: Function, options: tuple[Callable[[Function], Function], ...]) -> Function:
    for option in reversed(options):
        function = option(function)
    return function


def tell_ignored(loaded: Loaded) -> None:
    """One line on standard error for each configuration file that is there and not used."""
    for problem in loaded.ignored:
        click.echo(f"athena: warning: {problem}", err=True)


def sources(flags: Mapping[str, Any], config_file: str | None) -> Any:
    """Where the configuration comes from, for flags as the options above name them."""
    from athena.shells.config import Sources

    return Sources.here(flags, Path(config_file) if config_file else None)
