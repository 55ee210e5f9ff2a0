"""Requests that no `Serving` serves, shown to those who watch: those that are refused, and those that are passed through.

A refusal is recorded with the client's request as far as it was read and allowed, the answer and its reason. Nothing is done
for a request before its end, unless an upstream is asked for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from athena.errors import AthenaError
from athena.exchange import Head, UpstreamCall
from athena.recording.lines import ExchangeKind
from athena.serving.record import RequestRecord
from athena.serving.settings import Retries
from athena.serving.shared import AnswerSettings
from athena.serving.tap import Asked, Tap
from athena.serving.targets import Target
from athena.serving.trace import passed_on
from athena.shells.gateway.client import Client, Headers
from athena.shells.recorder.recorder import Recorder

if TYPE_CHECKING:
    from athena.shells.gateway.telemetry import Traces


class Unserved(msgspec.Struct, eq=False):
    """One request, from its first byte on."""

    _recorder: Recorder
    _traces: Traces | None
    _client: Client
    _record: RequestRecord
    _began: float
    """By the loop's clock."""
    _wall: float
    """Taken with it and not reckoned back at the end: the loop's clock stands still while one turn of the loop lasts."""
    body: bytes = b""
    """As far as it was read."""
    key: str | None = None
    _taps: tuple[Tap, ...] | None = None
    """None: it has not begun to be shown."""

    @property
    def wants_body(self) -> bool:
        """Is the client's body to be kept?"""
        return self._recorder.wants_bodies()

    def keep(self, body: bytes) -> None:
        """The client's body, once it is read. A `Serving` that gets it shows it to its own taps."""
        self.body = body

    def passes(self, targets: tuple[Target, ...] = ()) -> None:
        """It is passed through, to one of these or by the gateway itself."""
        self._begin("passed", targets)

    def trace_headers(self) -> Headers:
        """What the upstream that is asked next is told of the client's trace."""
        trace = self._record.trace
        return trace.headers(self._record.attempts) if trace is not None else passed_on(self._client.headers)

    def sends(self, target: Target, path: str, headers: Headers, body: bytes) -> None:
        """Note that an upstream is asked."""
        for tap in self._taps or ():
            tap.sent(target, UpstreamCall(path, {}, body), path, headers, self._now())

    def head(self, status: int, headers: Mapping[str, str]) -> None:
        """Note the head of the upstream's answer."""
        for tap in self._taps or ():
            tap.upstream_head(status, headers, self._now())

    def read(self, data: bytes) -> None:
        """The next bytes of its answer."""
        for tap in self._taps or ():
            tap.upstream_bytes(data, self._now())

    def ended(self, failure: AthenaError | None = None) -> None:
        """Its answer ended, or there is none."""
        for tap in self._taps or ():
            tap.upstream_end(failure, self._now())

    def shows(self, status: int, headers: Headers) -> None:
        """Note the head of the client's answer."""
        if self._taps:
            plain = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in headers}
            for tap in self._taps:
                tap.client_head(Head(status, plain), self._now())

    def writes(self, data: bytes) -> None:
        """Note the next bytes of the client's answer."""
        for tap in self._taps or ():
            if data:
                tap.client_bytes(data, self._now())

    def refused(self, status: int, headers: Headers, body: bytes) -> None:
        """The client gets this error, and nothing else."""
        if self._taps is None:
            self._begin("refused", ())
        self.shows(status, headers)
        self.writes(body)

    def answered(self, status: int, body: bytes) -> None:
        """The gateway itself answers with this."""
        self._record.status, self._record.outcome = status, "ok"
        self.passes()
        self.shows(status, [(b"content-type", b"application/json")])
        self.writes(body)
        self.over()

    def over(self) -> None:
        """The request is over and its record complete."""
        taps, self._taps = self._taps, ()
        if taps:
            record = self._record
            record.duration_ms = record.duration_ms or (self._now() - self._began) * 1000
            for tap in taps:
                tap.over(record)

    def _begin(self, kind: ExchangeKind, targets: tuple[Target, ...]) -> None:
        client, record = self._client, self._record
        recording = self._recorder.watch_unserved(record, self.key, kind)
        span = None
        if self._traces is not None and (targets or kind == "refused"):
            self._traces.begin(record, client.headers)
            span = self._traces.span_of(record)
        self._taps = tuple([tap for tap in (recording, span) if tap is not None])
        if not self._taps:
            return
        asked = Asked(
            now=self._began,
            wall=self._wall,
            method=client.method,
            path=client.path,
            query=client.query,
            headers=client.headers,
            body=self.body,
            targets=targets,
            answers=AnswerSettings(),
            retries=Retries(),
            correct=True,
        )
        for tap in self._taps:
            tap.asked(asked)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()
