"""What a shell offers for an argument that is a name of something Athena knows. Nothing here asks the network."""

from __future__ import annotations

import click


def complete_formats(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Ids of formats."""
    from athena.formats import format_names

    return [name for name in ("auto", "standard", *format_names()) if name.startswith(incomplete)]


def complete_models(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Names of models that the configuration lists. A broken configuration offers none, since a shell is no place to say so."""
    from athena.errors import AthenaError
    from athena.shells.config import Router, Sources, load

    try:
        config = load(Sources.here({}, context.params.get("config_file"))).config
        names = {entry.id for entry in Router(config).listed_models()}
    except AthenaError:
        return []
    return sorted(name for name in names if name.startswith(incomplete))


def complete_targets(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Names of upstreams that are configured, each with the slash that a model's name follows."""
    return [f"{name}/" for name in complete_upstreams(context, parameter, "") if f"{name}/".startswith(incomplete)]


def complete_upstreams(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Names of upstreams that are configured."""
    from athena.errors import AthenaError
    from athena.shells.config import Sources, load

    try:
        names = load(Sources.here({}, context.params.get("config_file"))).config.upstreams
    except AthenaError:
        return []
    return sorted(name for name in names if name.startswith(incomplete))


def complete_providers(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Names of providers that `athena init` knows."""
    from athena.shells.setup import known_providers

    return [row.id for row in known_providers() if row.id.startswith(incomplete)]


def complete_profiles(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Names of profiles."""
    from athena.profiles import default_profiles

    return [name for name in default_profiles().names() if name.startswith(incomplete)]


def complete_agents(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Names of coding agents, as the first word."""
    from athena.shells.cli.code import AGENTS

    return [] if context.params.get("words") else [name for name in AGENTS if name.startswith(incomplete)]
