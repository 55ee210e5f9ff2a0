"""Responses that are made in the background: begun by one request, polled or followed by others, on any gateway of the store.

Whoever makes a response renews a lease on it; when that ends, the response counts as failed. Its events are written to the
store as they come, a few times a second, so a client can follow the stream from any point, on any process, also afterwards.
Every stream begins when the response is queued and ends with an event that says what became of it: the last events are written
together with that, so whoever finds a response that is over finds the end of its stream.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import msgspec

from athena.errors import AthenaError
from athena.shells.gateway.client import Client
from athena.shells.gateway.inner_client import InnerClient
from athena.shells.gateway.responses_state import ResponsePlan
from athena.shells.store import Store
from athena.state.errors import StoreDown
from athena.state.stored import last_event, response_object
from athena.state.values import StoredEvent, StoredItem, StoredResponse
from athena.wire.response_json import response_json
from athena.wire.surrogates import encode_json

LOG = logging.getLogger("athena")
_WRITE_EVERY_S = 0.25
_LEASE_S = 30.0
QUEUED_S = 60.0
"""Seconds in which a queued response must have been begun."""
_RENEW_EVERY_S = 5.0
_POLL_S = 0.2
_PATIENCE_S = 30.0
"""Seconds in which a store that is away is tried again when a response ends: nobody waits, and the answer would be lost."""
_AGAIN_S = 0.5
_ENDS = frozenset(("response.completed", "response.incomplete", "response.failed", "response.cancelled", "error"))

Serve = Callable[[Client], Awaitable[None]]
"""Serves the request to this client, to its end."""


class _Kind(msgspec.Struct):
    """What is read of an event that goes on as it is."""

    type: str


_read = msgspec.json.Decoder(_Kind).decode
_read_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_read_text = msgspec.json.Decoder(str).decode


class Job(InnerClient):
    """One response that this process makes. To the driver it is the client."""

    def __init__(self, plan: ResponsePlan, store: Store) -> None:
        super().__init__("/v1/responses", {})
        self.plan = plan
        queued = queued_object(plan, "queued")
        self.queued = plan.stored(queued, response_json(queued))
        self.events: list[StoredEvent] = []
        self.is_over = False
        self.is_cancelled = False
        self.is_hurried = False
        """Does the gateway end, so that a store that is away is not waited for?"""
        self._store = store
        self._is_ending = False
        """Is what became of the response being kept?"""
        self._has_ended = False
        """Is the last event of the stream there?"""
        self._rest = b""
        self._refusal = b""
        self._failure: AthenaError | None = None
        self._final: dict[str, Any] | None = None
        self._written = 0
        self._changed = asyncio.Event()
        for kind in ("response.created", "response.queued"):
            self._add({"type": kind, "response": response_object(self.queued)})
        plan.finish = self._keep_end

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
            event = _read_fields(payload)
            kind = _read_text(event["type"])
            if kind in _ENDS:  # the stream ends when what became of the response is kept
                self._final = msgspec.json.decode(event["response"]) if "response" in event else None
            elif kind != "response.created":  # there was one when it was queued
                self._add(event)
        self._tell()

    def _add(self, event: dict[str, Any]) -> None:
        """Add an event to the stream, with the number that it has there."""
        number = len(self.events)
        self.events.append(StoredEvent(number, encode_json({**event, "sequence_number": number})))

    # -- its life ------------------------------------------------------------------------------------------------------------

    async def run(self, serve: Serve) -> None:
        """Make the response; every way out leaves the store saying what became of it."""
        keeping = asyncio.create_task(self._keep_up())
        try:
            if await self._store.begin_response(self.plan.owner, self.plan.id, time.time() + _LEASE_S):
                await serve(self)
        except AthenaError as error:
            self._failure = error
            LOG.warning("the background response %s could not be made: %s", self.plan.id, error.message)
        except Exception:
            LOG.exception("the background response %s failed inside the gateway", self.plan.id)
        finally:
            keeping.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await keeping
            await self._close()

    def cancel(self) -> None:
        """Stop making this response."""
        self.is_cancelled = True
        if self.on_gone is not None:
            self.on_gone()

    async def _keep_up(self) -> None:
        """Write events, renew the lease, and stop when somebody cancelled the response."""
        renewed = time.monotonic()
        while True:
            await asyncio.sleep(_WRITE_EVERY_S)
            try:
                is_open = await self._write_events()
                if time.monotonic() - renewed > _RENEW_EVERY_S:
                    renewed = time.monotonic()
                    is_open = await self._store.renew_lease(self.plan.owner, self.plan.id, time.time() + _LEASE_S)
                if not is_open and not self._is_ending:
                    self.cancel()
            except StoreDown:
                continue  # it is tried again; the lease bears a while without
            except Exception:
                LOG.exception("events of the background response %s could not be written", self.plan.id)

    async def _write_events(self) -> bool:
        """Write those that the store does not have. False: the response is over there."""
        new = self.events[self._written :]
        if not new:
            return True
        is_open = await self._store.add_events(self.plan.id, new)
        self._written += len(new)
        return is_open

    async def _keep_end(self, response: StoredResponse, items: list[StoredItem]) -> None:
        """Keep what became of the response, with the events that are not written yet; then its stream has its end. A store that
        is away is waited for. Raises StoreDown."""
        self._is_ending = True
        give_up = time.monotonic() + _PATIENCE_S
        while True:
            try:
                if await self._store.finish_response(response, items=items, events=self.events[self._written :]):
                    self._end(response)
                return
            except StoreDown:
                if self.is_hurried or time.monotonic() > give_up:
                    raise
            await asyncio.sleep(_AGAIN_S)

    def _end(self, response: StoredResponse | None) -> None:
        """Add the last event; None: the response was deleted."""
        number = len(self.events)
        self.events.append(StoredEvent(number, _gone(number) if response is None else last_event(response, number)))
        self._has_ended = True
        self._tell()

    async def _close(self) -> None:
        """Keep that the response failed, where nothing else became of it, and end the stream of those who follow it here."""
        try:
            if not self._has_ended:
                await self._keep_end(self._failed(), [])
            if not self._has_ended:  # it was cancelled or deleted
                self._end(await self._store.response(self.plan.owner, self.plan.id))
        except StoreDown as error:
            LOG.error("what became of the background response %s cannot be kept: %s", self.plan.id, error.message)
        finally:
            if not self._has_ended:
                self._end(self._failed())
            self.is_over = True
            self._tell()

    def _failed(self) -> StoredResponse:
        """It was not answered: the response as the store is to show it."""
        final = self._final
        if final is None or final.get("status") != "failed":
            final = {**queued_object(self.plan, "failed"), "error": self._error()}
        return self.plan.stored(final, response_json(final))

    def _error(self) -> dict[str, Any]:
        if self._failure is not None:
            return {"code": "server_error", "message": self._failure.message}
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
        if job is not None:
            is_over = job.is_over
            events = job.events[position:]
            position += len(events)
        else:
            # It is looked at before its events, so that the events of one that is over are all of them.
            is_over = not await store.is_open(owner, name)
            events = await store.events(name, sent)
        for event in events:
            if event.number > sent:
                sent, quiet_since = event.number, time.monotonic()
                yield _frame(event.body)
                if _read(event.body).type in _ENDS:
                    return
        if is_over and not events:
            if job is None:
                async for frame in _missing_end(store, await store.response(owner, name), name, sent):
                    yield frame
            return
        if time.monotonic() - quiet_since > keep_alive_s:
            quiet_since = time.monotonic()
            yield b": keep-alive\n\n"
        if job is not None:
            await job.more(position, keep_alive_s)
        elif not events:
            await asyncio.sleep(_POLL_S)


async def _missing_end(store: Store, found: StoredResponse | None, name: str, sent: int) -> AsyncGenerator[bytes, None]:
    """The end of a stream to which nobody else will write one: its response was deleted, or its maker died, or the client has
    seen events that were never stored. Nothing where the client has seen the end."""
    number = sent + 1
    if found is None:
        yield _frame(_gone(number))
        return
    shown = response_object(found)
    written = response_json(shown)
    found = msgspec.structs.replace(found, body=written.rest, output=written.output)
    if await store.finish_response(found):
        # It was open, and its maker died: from now on it is over, with these events.
        for event in await store.events(name, sent):
            yield _frame(event.body)
        return
    seen = await store.events(name, sent - 1, 1)
    if not seen or _read(seen[0].body).type not in _ENDS:
        yield _frame(last_event(found, number))


def _gone(number: int) -> bytes:
    """The last event of a response of which nothing is known any more."""
    said = {"code": "response_not_found", "message": "The response is not there any more.", "param": None}
    return encode_json({"type": "error", "sequence_number": number, **said, "error": {"type": "server_error", **said}})


def _frame(event: bytes) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (_read(event).type.encode(), event)
