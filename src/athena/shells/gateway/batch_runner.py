"""Answers the requests of batches, a few at a time, on every process that shares the store.

Each request goes through the gateway like one of a client: the same targets, limits, taps and numbers. The processes share the
work by taking requests from the store; one that is killed loses its requests to the others after a while, and results that were
written stay.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Awaitable, Callable

from athena.bulk.values import BatchResult, RequestState
from athena.shells.config import BatchSettings
from athena.shells.gateway.client import Client, Headers
from athena.shells.gateway.inner_client import InnerClient
from athena.shells.store.batches import BatchStore, Taken
from athena.state.errors import StoreDown

LOG = logging.getLogger("athena")
_SWEEP_S = 30.0
_AGAIN = frozenset((408, 409, 425, 429, 500, 502, 503, 504, 529))
"""Statuses after which a request is asked once more, later."""
_ATTEMPTS = 4
_FIRST_PAUSE_S = 2.0

ServeBatched = Callable[[Client, str], Awaitable[None]]
"""Answers a request to this client, as one of the key of that name."""


class BatchRequest(InnerClient):
    """One request of a batch, as the gateway's client."""

    def __init__(self, taken: Taken) -> None:
        headers = {
            **taken.batch.headers,
            "content-type": "application/json",
            "content-length": str(len(taken.body)),
            "user-agent": "athena-batch",
        }
        super().__init__(taken.batch.endpoint, headers, taken.body)
        self.answer_headers: dict[str, str] = {}

    def start(self, status: int, headers: Headers, length: int | None) -> None:
        super().start(status, headers, length)
        self.answer_headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in headers}


class BatchRunner:
    """The part of a gateway that works on batches."""

    def __init__(self, batches: BatchStore, settings: BatchSettings, serve: ServeBatched, max_age_s: float) -> None:
        self._batches = batches
        self._settings = settings
        self._serve = serve
        self._max_age_s = max_age_s
        self._holder = secrets.token_hex(8)
        self._tasks: set[asyncio.Task[None]] = set()
        self._poked = asyncio.Event()
        self._main: asyncio.Task[None] | None = None
        self._stopping = False

    def start(self) -> None:
        self._main = asyncio.get_running_loop().create_task(self._run())

    def poke(self) -> None:
        """There is something to do: do not wait until it is found."""
        self._poked.set()

    def stop(self) -> None:
        """Begin no further requests; those under way finish."""
        self._stopping = True
        self.poke()

    async def close(self) -> None:
        """End now. What is under way is given back and asked again by another process, or after the next start."""
        self.stop()
        # An ended task keeps what ended it, and that keeps the runner: they are let go of, not left in a cycle.
        main, self._main = self._main, None
        if main is not None:
            main.cancel()
            await asyncio.wait([main])
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(tuple(self._tasks))
        with contextlib.suppress(StoreDown):
            await self._batches.release(self._holder)

    async def _run(self) -> None:
        swept = renewed = 0.0
        is_used = False
        while True:
            self._poked.clear()
            try:
                now = time.monotonic()
                is_used = is_used or await self._batches.is_used()
                if self._tasks and now - renewed >= self._settings.lease_s / 3:
                    renewed = now
                    await self._batches.renew(self._holder, self._settings.lease_s)
                if is_used and (now - swept >= _SWEEP_S or not swept):
                    swept = now
                    await self._batches.sweep(self._max_age_s)
                room = self._settings.concurrency - len(self._tasks)
                if is_used and room > 0 and not self._stopping and await self._batches.is_work():
                    taken = await self._batches.take(self._holder, room, self._settings.lease_s)
                    for each in taken:
                        self._begin(each)
            except StoreDown:
                pass  # it was logged; the next look may find it again
            except Exception:
                LOG.exception("batches could not be worked on")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(self._settings.poll_s, self._settings.lease_s / 3)):
                    await self._poked.wait()

    def _begin(self, taken: Taken) -> None:
        task = asyncio.get_running_loop().create_task(self._answer(taken))
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (failure := task.exception()) is not None:
            LOG.error("a request of a batch failed outside the gateway's own care", exc_info=failure)
        self.poke()

    async def _answer(self, taken: Taken) -> None:
        client = BatchRequest(taken)
        await self._serve(client, taken.batch.owner)
        status, body = client.status, client.body
        if client.is_cut or not status or not body:
            status, body = 500, b'{"error":{"type":"server_error","code":"internal_error","message":"there was no answer"}}'
        if status in _AGAIN and taken.attempts < _ATTEMPTS and client.answer_headers.get("x-should-retry") != "false":
            pause = _FIRST_PAUSE_S * 4 ** (taken.attempts - 1)
            given = client.answer_headers.get("retry-after", "")
            if given.replace(".", "", 1).isdigit():
                pause = max(pause, min(float(given), 600.0))
            await self._batches.postpone(self._holder, taken, time.time() + pause)
            return
        result = BatchResult(
            custom_id=taken.custom_id,
            position=taken.position,
            state=RequestState.SUCCEEDED if status < 300 else RequestState.ERRORED,
            status=status,
            request_id=client.answer_headers.get("request-id", ""),
            body=body,
        )
        await self._batches.finish(self._holder, taken, result)
