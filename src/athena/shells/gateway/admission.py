"""Who may ask for what: gateway keys, and what only the person who runs the gateway may see or do."""

from __future__ import annotations

import hmac
from collections.abc import Callable

from athena.errors import ClientError
from athena.serving.endpoints import Endpoint, credential
from athena.shells.config import Config, is_loopback, verify
from athena.shells.gateway.client import Client
from athena.shells.gateway.inspect_api import is_foreign_page

_PROXY_HEADERS = ("forwarded", "x-forwarded-for", "x-real-ip", "via")
"""What a proxy adds to a request that it passes on."""


def admit_key(config: Config, key: str | None, endpoint: Endpoint) -> str:
    """The name of the presented gateway key. Raises where one is asked for and none fits."""
    keys = config.keys
    if not keys or (endpoint.action == "metrics" and not config.metrics.needs_key):
        return ""
    found = verify(key, keys) if key else None
    if found is None:
        raise ClientError(
            "this gateway asks for a key: send it as a bearer token or x-api-key"
            if key is None
            else "the key is not one of this gateway",
            kind="auth",
            code="invalid_api_key",
            status=401,
        )
    return found.name or found.hash[7:15]


def admit_owner(config: Config, owner: str) -> str:
    """The same for a request that was taken in under a key. Raises where that key is not one of this gateway any more."""
    keys = config.keys
    if keys and owner not in {key.name or key.hash[7:15] for key in keys}:
        message = "the key of this batch is no key of this gateway any more"
        raise ClientError(message, kind="auth", code="invalid_api_key", status=401)
    return owner


def may_know_upstreams(config: Config, client: Client) -> bool:
    """With keys, whoever has one; without, programs of this machine, but not whoever a proxy on it speaks for."""
    if config.keys:
        key = credential(client.headers, client.query)
        return key is not None and verify(key, config.keys) is not None
    return is_loopback(client.peer) and not any(name in client.headers for name in _PROXY_HEADERS)


def check_operator(config: Config, client: Client, token: Callable[[], str]) -> None:
    """Raises unless it is the person who runs this gateway: whoever has the inspector's token; without keys, programs of this
    machine, too. `token` is asked for only where one is shown: it may have to be read from its file."""
    if is_foreign_page(client.headers):
        message = "no other site's page does this"
        raise ClientError(message, kind="permission", code="origin_not_allowed", status=403)
    shown = credential(client.headers, "")
    if shown and hmac.compare_digest(shown.encode(), token().encode()):
        return
    if config.keys or not may_know_upstreams(config, client):
        raise ClientError(
            "only the operator does this, with the inspector's token: `athena status --forget` on the gateway's machine",
            kind="permission",
            code="operator_only",
            status=403,
        )
