"""Responses that are made in the background: begun by one request, polled or followed by others, on any gateway of the store.

Whoever makes a response renews a lease on it; when that ends, the response counts as failed. Its events are written to the
store as they come, a few times a second, so a client can follow the stream from any point, on any process, also afterwards.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import msgspec

from athena.shells.gateway.client import Client
from athena.shells.gateway.inner_client import InnerClient
from athena.shells.gateway.responses_state import ResponsePlan
from athena.shells.store import Store
from athena.state.errors import StoreDown
from athena.state.stored import stored_response
from athena.state.values import OPEN, StoredEvent, StoredResponse
from athena.wire.response_json import response_json

LOG = logging.getLogger("athena")
_WRITE_EVERY_S = 0.25
_LEASE_S = 30.0
QUEUED_S = 60.0
"""Seconds in which a queued response must have been begun."""
_RENEW_EVERY_S = 5.0
_POLL_S = 0.2
_ENDS = frozenset(("response.completed", "response.incomplete", "response.failed", "response.cancelled", "error"))

Serve = Callable[[Client], Awaitable[None]]
"""Serves the request to this client, to its end."""


class _Numbered(msgspec.Struct):
    """What is read of an event."""

    type: str
    sequence_number: int = 0
    response: dict[str, Any] | None = None


_read = msgspec.json.Decoder(_Numbered).decode


class Job(InnerClient):
    """One response that this process makes. To the driver it is the client."""

    def __init__(self, plan: ResponsePlan, store: Store) -> None:
        super().__init__("/v1/responses", {})
        self.plan = plan
        self.events: list[StoredEvent] = []
        self.is_over = False
        self._store = store
        self._rest = b""
        self._refusal = b""
        self._final: dict[str, Any] | None = None
        self._written = 0
        self._changed = asyncio.Event()

    # -- the driver's client -------------------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        if self.status >= 300:
            self._refusal += data
            return
        *frames, self._rest = (self._rest + data).split(b"\n\n")
        for frame in frames:
            payload = frame.partition(b"\ndata: ")[2]
            if not payload:
                continue  # a keep-alive
            event = _read(payload)
            self.events.append(StoredEvent(event.sequence_number, payload))
            if event.type in _ENDS:
                self._final = event.response
        self._tell()

    # -- its life ------------------------------------------------------------------------------------------------------------

    async def run(self, serve: Serve) -> None:
        """Make the response; every way out leaves the store saying what became of it."""
        keeping = asyncio.create_task(self._keep_up())
        try:
            if await self._store.begin_response(self.plan.owner, self.plan.id, time.time() + _LEASE_S):
                await serve(self)
        except Exception:
            LOG.exception("the background response %s failed inside the gateway", self.plan.id)
        finally:
            keeping.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await keeping
            await self._close()

    def cancel(self) -> None:
        """Stop making this response."""
        if self.on_gone is not None:
            self.on_gone()

    async def _keep_up(self) -> None:
        """Write events, renew the lease, and stop when somebody cancelled the response."""
        renewed = time.monotonic()
        while True:
            await asyncio.sleep(_WRITE_EVERY_S)
            try:
                await self._write_events()
                if time.monotonic() - renewed > _RENEW_EVERY_S:
                    renewed = time.monotonic()
                    if not await self._store.renew_lease(self.plan.owner, self.plan.id, time.time() + _LEASE_S):
                        self.cancel()
            except StoreDown:
                continue  # it is tried again; the lease bears a while without

    async def _write_events(self) -> None:
        new = self.events[self._written :]
        if new:
            await self._store.add_events(self.plan.id, new)
            self._written += len(new)

    async def _close(self) -> None:
        try:
            await self._write_events()
            if self._final is None or self._final.get("status") == "failed":
                await self._store.finish_response(self._failed())
        except StoreDown as error:
            LOG.error("what became of the background response %s cannot be kept: %s", self.plan.id, error.message)
        finally:
            self.is_over = True
            self._tell()

    def _failed(self) -> StoredResponse:
        """It was not answered: the response as the store is to show it."""
        final = self._final or {**queued_object(self.plan, "failed"), "error": self._error()}
        plan = self.plan
        return stored_response(
            final, response_json(final), owner=plan.owner, created=time.time(), asked=plan.asked, added=plan.added
        )

    def _error(self) -> dict[str, Any]:
        try:
            said = msgspec.json.decode(self._refusal)["error"]
            return {"code": said.get("code") or "server_error", "message": said["message"]}
        except (msgspec.DecodeError, KeyError, TypeError):
            return {"code": "server_error", "message": "The response was not finished."}

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def more(self, count: int, within_s: float) -> None:
        """Wait until there are more events than that, or it is over, or so long."""
        if len(self.events) > count or self.is_over:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._changed.wait()


def queued_object(plan: ResponsePlan, status: str) -> dict[str, Any]:
    """The response object before anything was said."""
    return {**plan.shown(), "status": status}


async def follow(
    store: Store, job: Job | None, owner: str, name: str, after: int, keep_alive_s: float
) -> AsyncGenerator[bytes, None]:
    """The frames of a response's stream after a number, until its end; a comment where nothing comes for long."""
    sent, quiet_since = after, time.monotonic()
    position = 0
    while True:
        over = job.is_over if job is not None else await _is_over(store, owner, name)
        if job is not None:
            events = job.events[position:]
            position += len(events)
        else:
            events = await store.events(name, sent)
        for event in events:
            if event.number > sent:
                sent, quiet_since = event.number, time.monotonic()
                kind = _read(event.body).type
                yield b"event: %b\ndata: %b\n\n" % (kind.encode(), event.body)
                if kind in _ENDS:
                    return
        if over and not events:
            return
        if time.monotonic() - quiet_since > keep_alive_s:
            quiet_since = time.monotonic()
            yield b": keep-alive\n\n"
        if job is not None:
            await job.more(position, keep_alive_s)
        elif not events:
            await asyncio.sleep(_POLL_S)


async def _is_over(store: Store, owner: str, name: str) -> bool:
    found = await store.response(owner, name)
    return found is None or found.status not in OPEN
