"""Who gets how many of the process's file descriptors. Pure.

A client connection in work may need a descriptor for its upstream. Some are kept for recordings, other
files and name lookups, some to tell clients that there is no room for them.
"""

from __future__ import annotations

import msgspec

from athena.shells.config import Config
from athena.shells.server.admission import Places

_PLENTY = 1 << 20
"""Descriptors where the system names no limit."""
_FEW = 8
_ONE_IN = 64
_MANY = 256


class Division(msgspec.Struct, frozen=True, kw_only=True):
    """How many file descriptors are for clients, for upstreams, and kept in reserve."""

    places: Places
    upstreams: int
    """Connections to all upstreams together."""
    shares_loopback: bool
    """Clients on this machine are counted per address as well."""
    short: bool
    """More connections were configured than there are descriptors for."""


def divide(config: Config, descriptors: int, in_use: int) -> Division:
    """The division of that many descriptors (0: no limit), of which some are in use before any client has come."""
    total = descriptors or _PLENTY
    reserve = min(_MANY, _FEW + total // _ONE_IN)
    free = max(2, total - in_use - 2 * reserve)
    most = max(1, free // 2)
    wanted = config.limits.connections
    connections = min(wanted or most, most)
    return Division(
        places=Places(
            connections=connections,
            per_address=config.limits.connections_per_address or max(1, connections // 2),
            refused=reserve,
        ),
        upstreams=max(1, free - connections),
        shares_loopback=bool(config.limits.connections_per_address),
        short=wanted > most,
    )
