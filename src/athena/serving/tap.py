"""How anything watches: one protocol for the request line, the numbers, raw streams, recordings and whatever comes later.

A `Watcher` is asked once for each request and gives a `Tap`, or None where it does not want to see that request. Where no one
wants to see the bytes, nothing is done for them.
"""

from __future__ import annotations

from typing import Protocol

from athena.exchange import Head, UpstreamCall
from athena.model.events import Event
from athena.model.request import Request
from athena.serving.record import Record
from athena.serving.targets import Target


class Tap:
    """What watches one request. Every method does nothing unless a subclass says otherwise, and none may raise."""

    sees_bytes = False
    """Are `upstream_bytes`, `events` and `client_bytes` to be called?"""

    def client_request(self, body: bytes) -> None:
        """The client's request, as it came; empty unless its watcher wants bodies."""

    def upstream_request(self, target: Target, call: UpstreamCall) -> None:
        """A request that goes to an upstream; there may be several."""

    def upstream_head(self, status: int) -> None:
        """An upstream's answer begins."""

    def upstream_bytes(self, data: bytes) -> None:
        """The next bytes of its body, as they came."""

    def events(self, events: tuple[Event, ...]) -> None:
        """What was understood of them."""

    def client_head(self, head: Head) -> None:
        """The client's answer begins."""

    def client_bytes(self, data: bytes) -> None:
        """The next bytes of its body."""

    def answered(self) -> None:
        """An upstream's answer is over, or given up; another one may follow."""

    def over(self, record: Record) -> None:
        """The request is over, and this is what is known of it."""


class Watcher(Protocol):
    """Asked once for each request whether it wants to watch it."""

    def wants_bodies(self) -> bool:
        """Are the bodies of clients' requests to be kept until the taps have seen them?"""

    def watch(self, record: Record, request: Request, key: str | None) -> Tap | None:
        """What is to watch this request, if anything. `key` is the one that the client sent: it may go to the upstream."""
