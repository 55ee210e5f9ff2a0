"""The tap that sees both sides of a request, and the client that makes it without a socket of its own."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from athena.errors import AthenaError
from athena.exchange import UpstreamCall
from athena.model.events import Event
from athena.model.request import Request
from athena.serving.record import RequestRecord
from athena.serving.tap import Tap
from athena.serving.targets import Target
from athena.shells.gateway.inner_client import InnerClient


class WatchedAttempt(msgspec.Struct):
    """One request to the upstream and what it sent."""

    target: Target
    call: UpstreamCall
    sent_at: float = 0.0
    status: int = 0
    headers: Mapping[str, str] = {}
    pieces: list[tuple[float, bytes]] = []
    failure: AthenaError | None = None
    is_over: bool = False
    """The upstream ended it, well or not; False: the gateway had all that it needed before."""

    @property
    def body(self) -> bytes:
        return b"".join(data for _, data in self.pieces)


class BothSides(Tap):
    """Keeps what an upstream sent, and what was understood of it."""

    sees_bytes = True

    def __init__(self, request: Request) -> None:
        self.request = request
        self.attempts: list[WatchedAttempt] = []
        self.events_seen: list[Event] = []
        self.record: RequestRecord | None = None

    def sent(self, target: Target, call: UpstreamCall, path: str, headers: list[tuple[bytes, bytes]], now: float) -> None:
        # The exchange forgets what it sent as soon as it is answered.
        self.attempts.append(WatchedAttempt(target, call, now))
        self.events_seen = []

    def upstream_head(self, status: int, headers: Mapping[str, str], now: float) -> None:
        attempt = self.attempts[-1]
        attempt.status, attempt.headers = status, dict(headers)

    def upstream_bytes(self, data: bytes, now: float) -> None:
        self.attempts[-1].pieces.append((now, data))

    def upstream_end(self, failure: AthenaError | None, now: float) -> None:
        if self.attempts:
            self.attempts[-1].failure, self.attempts[-1].is_over = failure, True

    def events(self, events: tuple[Event, ...]) -> None:
        self.events_seen += events

    def over(self, record: RequestRecord) -> None:
        self.record = record


class Watching:
    """The watcher that gives a `BothSides` to each request, by the request's id."""

    def __init__(self) -> None:
        self.taps: dict[str, BothSides] = {}

    def wants_bodies(self) -> bool:
        return False

    def watch(self, record: RequestRecord, request: Request, key: str | None) -> Tap:
        tap = self.taps[record.request_id] = BothSides(request)
        return tap


class MemoryClient(InnerClient):
    """A client of the gateway inside of this process: one request, and its answer kept."""

    def __init__(self, path: str, body: bytes, request_id: str) -> None:
        headers = {"content-type": "application/json", "x-request-id": request_id, "host": "127.0.0.1"}
        super().__init__(path, headers, body, peer="127.0.0.1")
