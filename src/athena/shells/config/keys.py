"""Keys that clients present to the gateway: kept as hashes, compared in constant time, asked for on every public address."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterable

from athena.errors import ConfigError, ConfigProblem
from athena.shells.config.addresses import is_loopback
from athena.shells.config.model import GatewayKey


def new_key() -> str:
    """A key to hand to a client; only its hash goes into the configuration."""
    return "ath_" + secrets.token_urlsafe(32)


def hash_key(key: str) -> str:
    """How a key is written in the configuration. Keys are long and random, so a plain digest cannot be guessed back."""
    return "sha256:" + hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()


def verify(key: str, keys: Iterable[GatewayKey]) -> GatewayKey | None:
    """The configured key that was presented, or None. Takes as long for a wrong key as for a right one."""
    presented = hash_key(key).encode()
    found: GatewayKey | None = None
    for known in keys:
        if hmac.compare_digest(presented, known.hash.encode()):
            found = known
    return found


def check_bind(host: str, keys: Iterable[GatewayKey]) -> None:
    """Raises ConfigError for an address that others can reach while no key is asked for."""
    if is_loopback(host) or any(True for _ in keys):
        return
    raise ConfigError.of(
        (
            ConfigProblem(
                f"{host} can be reached from other machines and no gateway key is set",
                key="host",
                remedy="listen on 127.0.0.1, or add a key (athena config new-key)",
            ),
        )
    )
