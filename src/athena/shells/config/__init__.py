"""Athena's configuration: `athena.yml`, `ATHENA_*` and flags as one `Config`; see `sources.py` for what wins over what."""

from __future__ import annotations

from athena.serving.settings import Health, Retries
from athena.shells.config.addresses import is_loopback
from athena.shells.config.certificates import listener_context
from athena.shells.config.display import ShownValue, effective_values, show
from athena.shells.config.keys import check_bind, hash_key, new_key, verify
from athena.shells.config.load import ConfigWatcher, Loaded, load, needs_restart
from athena.shells.config.model import (
    BatchSettings,
    Config,
    Fallback,
    FormatSettings,
    GatewayKey,
    HealthCheck,
    LimitSettings,
    Log,
    MetricsSettings,
    ModelRule,
    RecordSettings,
    SharedTarget,
    SocketSettings,
    StoreSettings,
    Telemetry,
    TimeoutOverrides,
    TimeoutSettings,
    Tls,
    ToolAdapterSettings,
    Upstream,
)
from athena.shells.config.routing import ListedModel, ResolvedRoute, Router
from athena.shells.config.secret import Secret
from athena.shells.config.shipped import init_template, schema_text
from athena.shells.config.sources import FLAGS, Sources
from athena.shells.config.trust import FoundFile, TrustStanding, TrustStore
from athena.shells.config.web_access import ADMITTED, Admitted, Preflight, WebAccess, WebRefusal
from athena.shells.config.windows import OfferedModel, Window, read_models

__all__ = [
    "ADMITTED",
    "FLAGS",
    "Admitted",
    "BatchSettings",
    "Config",
    "ConfigWatcher",
    "Fallback",
    "FormatSettings",
    "FoundFile",
    "GatewayKey",
    "Health",
    "HealthCheck",
    "LimitSettings",
    "ListedModel",
    "Loaded",
    "Log",
    "MetricsSettings",
    "ModelRule",
    "OfferedModel",
    "Preflight",
    "RecordSettings",
    "ResolvedRoute",
    "Retries",
    "Router",
    "Secret",
    "SharedTarget",
    "ShownValue",
    "SocketSettings",
    "Sources",
    "StoreSettings",
    "Telemetry",
    "TimeoutOverrides",
    "TimeoutSettings",
    "Tls",
    "ToolAdapterSettings",
    "TrustStanding",
    "TrustStore",
    "Upstream",
    "WebAccess",
    "WebRefusal",
    "Window",
    "check_bind",
    "effective_values",
    "hash_key",
    "init_template",
    "is_loopback",
    "listener_context",
    "load",
    "needs_restart",
    "new_key",
    "read_models",
    "schema_text",
    "show",
    "verify",
]
