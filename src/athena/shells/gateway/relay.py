"""Upstream bytes through the exchange to the client, inside the upstream's own read callback.

No task, queue or future per chunk stands between the two sockets: the one coroutine that serves the request wakes up when the
attempt is over. What the client does not take fast enough stays in the upstream's socket.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from athena.errors import UpstreamError
from athena.exchange import Exchange, Step
from athena.model.events import Event
from athena.shells.gateway.client import Client
from athena.shells.gateway.recorder import StreamRecorder
from athena.shells.gateway.silence import SilenceWatch, says_something
from athena.shells.logs import log_body
from athena.shells.upstream import Timeouts, UpstreamResponse


class Relay:
    """One attempt's answer. `run` ends with the step that was not shown, if the attempt failed before anything was."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        exchange: Exchange,
        response: UpstreamResponse,
        client: Client,
        *,
        request_id: str,
        recorder: StreamRecorder,
        show: Callable[[Step], None],
        note: Callable[[tuple[Event, ...]], None],
    ) -> None:
        self.chunks = 0
        self.own_time = 0.0
        self.blocked_since = 0.0
        """Since when the client has not taken its bytes; 0: it does."""
        self._loop = loop
        self._exchange = exchange
        self._response = response
        self._client = client
        self._recorder = recorder
        self._show = show
        self._note = note
        self._request_id = request_id
        self._silence: SilenceWatch | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._over: asyncio.Future[Step | None] = loop.create_future()

    async def run(self, timeouts: Timeouts) -> Step | None:
        """Until the answer is complete, the model is to be asked again, or the attempt has failed with nothing shown."""
        exchange, client = self._exchange, self._client
        self._silence = SilenceWatch(
            self._loop,
            timeouts,
            finished=lambda: exchange.finished,
            waits_for_us=lambda: client.blocked,
            has_backlog=lambda: self._response.has_backlog,
            on_silence=self._on_end,
        )
        client.on_drained = self._drained
        try:
            self._response.deliver_to(self._on_data, self._on_end)
            return await self._over
        finally:
            client.on_drained = None
            self._silence.stop()
            self._silence = None
            if self._timer is not None:
                self._timer.cancel()
            self._recorder.close()

    # -- callbacks ---------------------------------------------------------------------------------------------------------

    def _on_data(self, data: bytes) -> None:
        if self._over.done():
            return
        # The loop's own clock is too coarse for microseconds.
        now, worked_from = self._loop.time(), time.perf_counter()
        self._recorder.write(data)
        log_body("upstream answer", self._request_id, data)
        self.chunks += 1
        try:
            step = self._exchange.upstream_data(data, now)
            if says_something(data, step.events) and self._silence is not None:
                self._silence.heard(now)
            self._take(step, now)
        except Exception as failure:
            self._fail(failure)
        self.own_time += time.perf_counter() - worked_from

    def _on_end(self, failure: UpstreamError | None) -> None:
        if not self._over.done():
            try:
                self._take(self._exchange.upstream_end(failure), self._loop.time())
            except Exception as error:
                self._fail(error)

    def _on_time(self) -> None:
        self._timer = None
        if not self._over.done():
            now = self._loop.time()
            try:
                self._take(self._exchange.tick(now), now)
            except Exception as failure:
                self._fail(failure)

    def _drained(self) -> None:
        self.blocked_since = 0.0
        self._response.resume()

    # -- inside ------------------------------------------------------------------------------------------------------------

    def _take(self, step: Step, now: float) -> None:
        if step.events:
            self._note(step.events)
        if step.again is not None:
            self._over.set_result(None)
            return
        if step.done:
            hidden = step.head is not None and self._exchange.outcome == "error"
            if not hidden:
                self._show(step)
            self._over.set_result(step if hidden else None)
            return
        if step.output or step.head is not None:
            self._show(step)
            if self._client.blocked and not self.blocked_since:
                self.blocked_since = now
                self._response.pause()
        deadline = self._exchange.deadline
        if deadline is not None and self._timer is None:
            self._timer = self._loop.call_at(deadline, self._on_time)

    def _fail(self, failure: Exception) -> None:
        """A fault of ours: the coroutine that waits has to deal with it."""
        if not self._over.done():
            self._over.set_exception(failure)
