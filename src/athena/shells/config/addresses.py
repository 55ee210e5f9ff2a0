"""Addresses of upstreams: one correct URL however the base was written, and what a known host implies.

The hosts are rows of `hosts.toml`; no vendor's name stands in code.
"""

from __future__ import annotations

import ipaddress
import re
import tomllib
from functools import cache
from importlib import resources
from typing import Any
from urllib.parse import SplitResult, parse_qsl, urlsplit

import msgspec

from athena.errors import ConfigError
from athena.typed_values import reader

_ENDPOINTS = ("/chat/completions", "/messages", "/responses")
_SECRET = re.compile(r"key|token|secret|password|signature|\Asig\Z|\Acode\Z", re.IGNORECASE)
"""Names in a query that stand before a credential: those belong where they are masked."""


class KnownHost(msgspec.Struct, frozen=True):
    """What a server's address implies."""

    host: str
    profiles: dict[str, str]
    """Profile by dialect, the usual dialect first."""
    key_env: str | None = None


class StartDefaults(msgspec.Struct, frozen=True):
    """Where a lone key is enough to start."""

    base_url: str
    key_env: str
    model: str


class _Table(msgspec.Struct, frozen=True):
    start: StartDefaults
    hosts: tuple[KnownHost, ...]


_read_start = reader(StartDefaults)


@cache
def _table() -> _Table:
    text = resources.files("athena.shells.config").joinpath("hosts.toml").read_text("utf-8")
    value: dict[str, Any] = tomllib.loads(text)
    hosts = []
    for host, row in value["hosts"].items():
        key_env = row.pop("key_env", None)
        hosts.append(KnownHost(host, row, key_env))
    return _Table(_read_start(value["start"]), tuple(hosts))


def start() -> StartDefaults:
    """The upstream of the short form when no address is given."""
    return _table().start


def known_hosts() -> tuple[KnownHost, ...]:
    return _table().hosts


def known_host(base_url: str) -> KnownHost | None:
    """The row for an address; None for an unknown server."""
    labels = (_split(base_url).hostname or "").lower().split(".")
    for row in _table().hosts:
        wanted = row.host.split(".")
        given = labels[-len(wanted) :]
        if len(given) == len(wanted) and all(want in ("*", label) for want, label in zip(wanted, given, strict=True)):
            return row
    return None


def clean_base_url(text: str) -> str:
    """The address without a trailing slash or endpoint. Raises ConfigError; its message never repeats a password."""
    parts = _split(text.strip())
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError("must be an address such as https://host/v1")
    if parts.username or parts.password or "@" in parts.netloc:
        raise ConfigError("must not hold a user name or password; put the key in api_key or headers")
    if "#" in text:
        raise ConfigError("must not hold a fragment")
    if any(_SECRET.search(name) for name, _ in parse_qsl(parts.query, keep_blank_values=True)):
        raise ConfigError("must not hold a key in its query; put it in api_key")
    if re.search(r"[\x00-\x20\x7f]", text.strip()):
        raise ConfigError("must not hold spaces or control characters")
    try:
        _ = parts.port
    except ValueError:
        raise ConfigError("has a port that is not a number from 0 to 65535") from None
    path = re.sub(r"/{2,}", "/", parts.path).rstrip("/")
    for endpoint in _ENDPOINTS:
        path = path.removesuffix(endpoint)
    query = f"?{parts.query}" if parts.query else ""
    return f"{parts.scheme}://{parts.netloc}{path}{query}"


def is_loopback(host: str) -> bool:
    """Can only this machine reach the host?"""
    name = host.strip("[]").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


def host_of(base_url: str) -> str:
    try:
        return _split(base_url).hostname or ""
    except ConfigError:
        return ""


def _split(text: str) -> SplitResult:
    try:
        return urlsplit(text)
    except ValueError:
        raise ConfigError("is no valid address") from None
