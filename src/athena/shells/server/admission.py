"""Which client connections are let in, and which are closed to make room. Pure: the clock is handed in, nothing is closed here.

    connection | what it does                                     | may be closed for another one
    -----------|--------------------------------------------------|------------------------------------------------------
    FRESH      | it has sent nothing yet                          | when it has been silent for a moment, after all idle ones
    BUSY       | it sends a request, or is being answered         | never
    IDLE       | it was answered and is kept for the next request | at once, the one that is idle for longest first
    REFUSED    | it came when there was no room: it gets a 503    | never; there are few places for these

A connection that comes when all places are taken gets the place of an idle one; where an address has as many as it may, of an
idle one of that address. Where none is idle it is REFUSED. When all places for refused ones are taken too, nothing more is
accepted, and new connections wait in the kernel's queue; from an address that has as many as it may, it is closed at once
(SHUT).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Generic, TypeVar

import msgspec

ConnectionT = TypeVar("ConnectionT")
_FRESH_S = 1.0
"""Seconds of silence after which a connection that never sent anything may be closed for another one."""


class Standing(Enum):
    """Whether a connection is idle, is being answered, or is being refused."""

    FRESH = "fresh"
    BUSY = "busy"
    IDLE = "idle"
    REFUSED = "refused"
    SHUT = "shut"


class Places(msgspec.Struct, frozen=True, kw_only=True):
    """How many connections there may be."""

    connections: int
    per_address: int
    """0: as many as in all."""
    refused: int = 8


class Admission(Generic[ConnectionT]):
    """All client connections of one process."""

    def __init__(self, places: Places, clock: Callable[[], float]) -> None:
        self.places = places
        self._clock = clock
        self._standing: dict[ConnectionT, Standing] = {}
        self._group: dict[ConnectionT, _Group[ConnectionT]] = {}
        """The connections of the same address."""
        self._of_address: dict[str, _Group[ConnectionT]] = {}
        self._all: _Group[ConnectionT] = _Group("")
        self._refused = 0
        self.closed = 0
        """Connections that were closed for another one."""
        self.refusals = 0

    def __len__(self) -> int:
        return len(self._standing)

    @property
    def idle(self) -> int:
        """Connections that are kept for their next request."""
        return len(self._all.idle)

    @property
    def is_full(self) -> bool:
        """Is there no place left, not even for a refusal? Then nothing more is to be accepted."""
        taken = self._all.count >= self.places.connections
        return taken and self._refused >= self.places.refused and not self._all.idle

    def enter(self, connection: ConnectionT, address: str) -> tuple[Standing, ConnectionT | None]:
        """A new connection: FRESH, REFUSED or SHUT, and the connection to close for it, if any. An empty address has no limit.

        One that is to be closed counts as gone from here on.
        """
        group = self._of_address.get(address) if address else None
        crowded = group if group is not None and 0 < self.places.per_address <= group.count else None
        if crowded is None and self._all.count >= self.places.connections:
            crowded = self._all
        victim = crowded.oldest(self._clock() - _FRESH_S) if crowded is not None else None
        if victim is not None:
            self.closed += 1
            self.leave(victim)
        elif crowded is not None:
            self.refusals += 1
            if self._refused >= self.places.refused:
                return Standing.SHUT, None
            self._refused += 1
            self._standing[connection] = Standing.REFUSED
            return Standing.REFUSED, None
        now = self._clock()
        self._standing[connection] = Standing.FRESH
        group = self._of_address.get(address)
        if group is None:
            group = self._of_address[address] = _Group(address)
        self._group[connection] = group
        for each in (group, self._all):
            each.count += 1
            each.fresh[connection] = now
        return Standing.FRESH, victim

    def standing(self, connection: ConnectionT) -> Standing | None:
        """What a connection does; None: it is gone."""
        return self._standing.get(connection)

    def busy(self, connection: ConnectionT) -> None:
        """It has begun to send a request."""
        standing = self._standing.get(connection)
        if standing is Standing.IDLE:
            self._standing[connection] = Standing.BUSY
            del self._group[connection].idle[connection]
            del self._all.idle[connection]
        elif standing is Standing.FRESH:
            self._standing[connection] = Standing.BUSY
            del self._group[connection].fresh[connection]
            del self._all.fresh[connection]

    def rests(self, connection: ConnectionT) -> None:
        """It was answered and is kept."""
        standing = self._standing.get(connection)
        if standing is Standing.FRESH:
            self.busy(connection)
        elif standing is not Standing.BUSY:
            return
        self._standing[connection] = Standing.IDLE
        self._group[connection].idle[connection] = self._all.idle[connection] = None

    def replace(self, connection: ConnectionT, other: ConnectionT) -> None:
        """The same place from now on for another object: the connection speaks another protocol."""
        standing = self._standing.pop(connection, None)
        if standing is None:
            return
        self._standing[other] = standing
        if standing is Standing.REFUSED:
            return
        group = self._group[other] = self._group.pop(connection)
        for each in (group, self._all):
            each.replace(connection, other)

    def leave(self, connection: ConnectionT) -> None:
        standing = self._standing.pop(connection, None)
        if standing is None:
            return
        if standing is Standing.REFUSED:
            self._refused -= 1
            return
        group = self._group.pop(connection)
        for each in (group, self._all):
            each.count -= 1
            each.forget(connection)
        if not group.count:
            del self._of_address[group.address]

    def victim(self) -> ConnectionT | None:
        """A connection to close because the system is out of descriptors, whatever the limits say. It counts as gone."""
        found = self._all.oldest(self._clock() - _FRESH_S)
        if found is not None:
            self.closed += 1
            self.leave(found)
        return found


class _Group(Generic[ConnectionT]):
    """Connections, and those among them that may be closed for another one, the oldest first."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.count = 0
        self.idle: dict[ConnectionT, None] = {}
        self.fresh: dict[ConnectionT, float] = {}

    def forget(self, connection: ConnectionT) -> None:
        self.idle.pop(connection, None)
        self.fresh.pop(connection, None)

    def replace(self, connection: ConnectionT, other: ConnectionT) -> None:
        if connection in self.idle:
            del self.idle[connection]
            self.idle[other] = None
        if connection in self.fresh:
            self.fresh[other] = self.fresh.pop(connection)

    def oldest(self, silent_since: float) -> ConnectionT | None:
        """The connection that has been idle longest."""
        for connection in self.idle:
            return connection
        for connection, since in self.fresh.items():
            return connection if since <= silent_since else None
        return None
