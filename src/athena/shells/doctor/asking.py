"""Requests of a check-up: each sent once, never repeated, with everything kept that came back."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence

import msgspec

from athena.errors import AthenaError, UpstreamError
from athena.exchange import Exchange, Options
from athena.model.events import Event
from athena.model.request import Request
from athena.quality import AnswerOutcome, AnswerReader
from athena.serving.network import Origin, PoolLimits, Timeouts
from athena.serving.targets import Target
from athena.shells.upstream import UpstreamClient

_SHOWN = 200
_MOST_BYTES = 4 * 1024 * 1024
_POOL = PoolLimits(name="doctor", max_connections=4, max_idle=2)


class ProbeReply(msgspec.Struct, frozen=True, kw_only=True):
    """What a probe was answered with, or why it was not."""

    method: str
    url: str
    status: int = 0
    """0: no answer came."""
    headers: dict[str, str] = {}
    body: bytes = b""
    failure: UpstreamError | None = None
    """Why there is no answer, or no end of it."""
    seconds: float = 0.0

    @property
    def tried(self) -> str:
        return f"{self.method} {self.url}"

    @property
    def kind(self) -> str:
        """The content type, without its parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    @property
    def is_page(self) -> bool:
        """Is it a web page?"""
        start = self.body[:200].lstrip().lower()
        return self.kind == "text/html" or start.startswith((b"<!doctype", b"<html"))

    def came(self, secrets: Sequence[str]) -> str:
        """Status, content type and first bytes, in one line that repeats no secret."""
        if self.failure is not None and not self.status:
            text = f"no answer: {self.failure.message}"
        else:
            shown = self.body[: 4 * _SHOWN].decode("utf-8", "replace")
            shown = "".join(letter if letter.isprintable() else " " for letter in shown)
            start = " ".join(shown.split())
            text = f"status {self.status}, {self.kind or 'no content type'}, {len(self.body)} bytes"
            text += f": {start[:_SHOWN]}{'...' if len(start) > _SHOWN else ''}" if start else ""
            text += f"; then {self.failure.message}" if self.failure is not None else ""
        for secret in secrets:
            text = text.replace(secret, "***")
        return text


class ModelAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What a model answered, with what Athena makes of it."""

    reply: ProbeReply
    events: tuple[Event, ...]
    """As a client of Athena gets them."""
    exchange: Exchange
    reader: AnswerReader
    outcome: AnswerOutcome


class Asker:
    """Sends requests of a check-up to one upstream."""

    def __init__(self, client: UpstreamClient, seconds: float) -> None:
        self._client = client
        self._timeouts = Timeouts(connect=min(5.0, seconds), first_byte=seconds, idle=seconds, total=4 * seconds)

    async def send(
        self, method: str, origin: Origin, path: str, headers: Sequence[tuple[bytes, bytes]] = (), body: bytes = b""
    ) -> ProbeReply:
        """One request; whatever goes wrong is part of the reply."""
        url = f"{origin}{path.partition('?')[0]}"
        began = time.monotonic()
        status, came, found = 0, b"", {}
        failure: UpstreamError | None = None
        try:
            response = await self._client.send(method, origin, path, headers, body, self._timeouts, _POOL)
            status, found = response.status, dict(response.headers)
            with contextlib.closing(response):
                while len(came) < _MOST_BYTES and (piece := await response.read()):
                    came += piece
        except UpstreamError as error:
            failure = error
        except AthenaError as error:
            failure = UpstreamError(error.message, code=error.code)
        return ProbeReply(
            method=method,
            url=url,
            status=status,
            headers=found,
            body=came,
            failure=failure,
            seconds=time.monotonic() - began,
        )

    async def ask(self, target: Target, request: Request) -> ModelAnswer:
        """Ask the model, as the gateway would, but only once."""
        exchange = Exchange(request, target.route, Options(seed="doctor", secrets=target.secrets, limits=target.limits))
        call = exchange.call
        path = target.path(call.path)
        headers = target.headers(call.headers, request, {}, None)
        reply = await self.send("POST", target.origin, path, headers, call.body)
        events: list[Event] = []
        if reply.status:
            events += exchange.upstream_head(reply.status, reply.headers).events
            events += exchange.upstream_data(reply.body).events
        events += exchange.upstream_end(reply.failure).events
        reader = AnswerReader(request.tools)
        reader.feed(events)
        leaks = tuple(name for name in exchange.format_found.split("+") if name) if exchange.prompted is None else ()
        return ModelAnswer(
            reply=reply,
            events=tuple(events),
            exchange=exchange,
            reader=reader,
            outcome=reader.outcome(leaks=leaks, echoes=exchange.echoes),
        )
