"""The configuration of a gateway in front of the faulty upstream."""

from __future__ import annotations

from typing import Any

from support.fault_scripts.registry import SHORT_IDLE
from support.patience import FOR_EVER

DIALECTS = {
    "chat": "openai_chat",
    "anthropic": "anthropic_messages",
    "responses": "openai_responses",
    "gemini": "gemini",
}
"""Upstreams of the fault tests by name; a client asks for `<name>/<fault>`. `<name>-clean` may pass through untouched."""
UPSTREAM_KEY = "sk-canary-5d41402abc4b2a76b9719d911017c592"
SHORT = {"first_byte": {"first_byte_s": 0.5}, "idle": {"idle_s": SHORT_IDLE}, "total": {"total_s": 1.0}}
"""Limits in seconds for models whose names end in `~first_byte`, `~idle` or `~total`: for faults that end at such a limit,
whatever happened before it."""


def fault_config(upstream_url: str, **settings: Any) -> dict[str, Any]:
    """A configuration that leads to the faulty upstream, without limits but those of `SHORT`; `settings` lie over it."""
    upstreams: dict[str, Any] = {}
    models: list[dict[str, Any]] = []
    for name, dialect in DIALECTS.items():
        common = {"base_url": upstream_url, "dialect": dialect, "api_key": UPSTREAM_KEY}
        upstreams[name] = dict(common)
        upstreams[f"{name}-clean"] = {**common, "quirks": {"clean": True}}
        for place, fields in ((name, {}), (f"{name}-clean", {"format": "standard"})):
            models += [
                {"match": f"{place}/*~{limit}", "use": f"{place}/*", "timeouts": short, **fields}
                for limit, short in SHORT.items()
            ]
            models.append({"match": f"{place}/*", "use": f"{place}/*", **fields})
    value: dict[str, Any] = {
        "upstreams": upstreams,
        "models": models,
        "timeouts": {
            **dict.fromkeys(("connect_s", "first_byte_s", "idle_s", "total_s", "hold_head_s", "keep_alive_s"), FOR_EVER),
            **dict.fromkeys(("client_headers_s", "client_body_s", "client_write_s"), FOR_EVER),
            "drain_s": 1,
        },
        "retries": {"attempts": 0},
        # More than the largest answers of the catalogue need, and little more: endless ones are read up to here.
        "limits": {"event_bytes": 3 * 512 * 1024, "answer_bytes": 4 * 1024 * 1024},
        "envelope_key": "test",
    }
    for key, setting in settings.items():
        value[key] = {**value[key], **setting} if isinstance(setting, dict) and isinstance(value.get(key), dict) else setting
    return value
