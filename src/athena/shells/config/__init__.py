"""Athena's configuration: `athena.yml`, `ATHENA_*` and flags as one `Config`; see `sources.py` for what wins over what."""

from __future__ import annotations

from athena.shells.config.addresses import is_loopback, upstream_url
from athena.shells.config.display import ShownValue, effective_values, show
from athena.shells.config.keys import check_bind, hash_key, new_key, verify
from athena.shells.config.load import ConfigWatcher, Loaded, load, needs_restart
from athena.shells.config.model import (
    Config,
    Fallback,
    FormatSettings,
    GatewayKey,
    Health,
    HealthCheck,
    Limits,
    Log,
    Metrics,
    ModelRule,
    Retries,
    TimeoutOverrides,
    Timeouts,
    ToolAdapter,
    Upstream,
)
from athena.shells.config.routing import ListedModel, ResolvedRoute, Router
from athena.shells.config.secret import Secret
from athena.shells.config.shipped import init_template, schema_text
from athena.shells.config.sources import FLAGS, Sources

__all__ = [
    "FLAGS",
    "Config",
    "ConfigWatcher",
    "Fallback",
    "FormatSettings",
    "GatewayKey",
    "Health",
    "HealthCheck",
    "Limits",
    "ListedModel",
    "Loaded",
    "Log",
    "Metrics",
    "ModelRule",
    "ResolvedRoute",
    "Retries",
    "Router",
    "Secret",
    "ShownValue",
    "Sources",
    "TimeoutOverrides",
    "Timeouts",
    "ToolAdapter",
    "Upstream",
    "check_bind",
    "effective_values",
    "hash_key",
    "init_template",
    "is_loopback",
    "load",
    "needs_restart",
    "new_key",
    "schema_text",
    "show",
    "upstream_url",
    "verify",
]
