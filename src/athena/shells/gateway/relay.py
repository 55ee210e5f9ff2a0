"""Upstream bytes through the exchange to the client, inside the upstream's own read callback.

No task, queue or future per chunk stands between the two sockets: the one coroutine that serves the request wakes up when the
attempt is over. What the client does not take fast enough stays in the upstream's socket.

Other streams go on whatever one upstream sends: a burst is worked on for a moment in each turn of the loop, and the end of a
whole answer or of a single event of some size goes into a thread. Nothing more is taken from the upstream until that is done.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial

from athena.errors import UpstreamError
from athena.exchange import Exchange, Step
from athena.model.events import Event
from athena.shells.gateway.client import Client
from athena.shells.gateway.holding import AnswerMemory, out_of_memory
from athena.shells.gateway.recorder import StreamRecorder
from athena.shells.gateway.silence import SilenceWatch, says_something
from athena.shells.upstream import Timeouts, UpstreamResponse

_SLICE = 32 * 1024
"""Bytes of a burst after which the clock is looked at."""
_TURN_S = 0.01
"""How long a burst is worked on in one turn of the loop."""
_LARGE = 256 * 1024
_LARGE_TEXT = 16 * 1024
"""Bytes without an event, of a whole answer or of one event, above which their end is worked on in a thread: in any case, and
where calls are looked for in the text, in which a hostile one takes longest."""


class Relay:
    """One attempt's answer. `run` ends with the step that was not shown, if the attempt failed before anything was."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        exchange: Exchange,
        response: UpstreamResponse,
        client: Client,
        *,
        memory: AnswerMemory,
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
        self._memory = memory
        self._recorder = recorder
        self._show = show
        self._note = note
        self._silence: SilenceWatch | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._quiet = 0
        """Bytes since the last event."""
        self._rest = b""
        """Of a burst, for the next turn of the loop."""
        self._work: asyncio.Future[Step] | None = None
        """What a thread is doing with the exchange."""
        self._failure: BaseException | None = None
        """A fault of ours. It is no result of the future: what a future raises would be tied to this object for ever."""
        self._over: asyncio.Future[Step | None] = loop.create_future()

    @property
    def is_working(self) -> bool:
        """Is a thread at the exchange? Nobody else may touch it then."""
        return self._work is not None

    async def run(self, timeouts: Timeouts) -> Step | None:
        """Until the answer is complete, the model is to be asked again, or the attempt has failed with nothing shown."""
        exchange, client = self._exchange, self._client
        self._silence = SilenceWatch(
            self._loop,
            timeouts,
            finished=lambda: exchange.finished,
            waits_for_us=lambda: client.blocked or bool(self._rest) or self._work is not None,
            has_backlog=lambda: self._response.has_backlog,
            on_silence=self._on_end,
        )
        client.on_drained = self._drained
        try:
            self._response.deliver_to(self._on_data, self._on_end)
            shown = await self._over
            if self._failure is not None:
                self._raise()
            return shown
        except asyncio.CancelledError:
            if self._work is not None:
                await asyncio.wait([self._work])
            raise
        finally:
            client.on_drained = None
            self._silence.stop()
            self._silence = None
            self._failure = None
            self._memory.close()
            if self._timer is not None:
                self._timer.cancel()
            self._recorder.close()

    def _raise(self) -> None:
        failure, self._failure = self._failure, None
        assert failure is not None
        try:
            raise failure
        finally:
            del failure  # it knows this frame: the frame must not know it

    # -- callbacks ---------------------------------------------------------------------------------------------------------

    def _on_data(self, data: bytes) -> None:
        if self._over.done():
            return
        self._recorder.write(data)
        self.chunks += 1
        self._feed(data)

    def _feed(self, data: bytes) -> None:
        # The loop's own clock is too coarse for microseconds.
        now, worked_from = self._loop.time(), time.perf_counter()
        try:
            if len(data) <= _SLICE and self._quiet <= _LARGE_TEXT:
                self._take(self._fed(data, now), now)
            else:
                self._feed_slices(data, now, worked_from + _TURN_S)
        except Exception as failure:
            self._fail(failure)
        self.own_time += time.perf_counter() - worked_from

    def _on_end(self, failure: UpstreamError | None) -> None:
        if not self._over.done():
            try:
                if self._is_large():
                    self._work_aside(partial(self._exchange.upstream_end, failure), b"")
                else:
                    self._take(self._exchange.upstream_end(failure), self._loop.time())
            except Exception as error:
                self._fail(error)

    def _give_up(self) -> None:
        """There is no room for more of this answer. A thread that works on it will find that out again."""
        if not self._over.done() and self._work is None:
            try:
                self._take(self._exchange.upstream_end(out_of_memory()), self._loop.time())
            except Exception as error:
                self._fail(error)

    def _on_time(self) -> None:
        self._timer = None
        if not self._over.done() and self._work is None:
            # What the rest of a burst says comes later: the deadline is looked at again behind it.
            now = self._loop.time()
            try:
                self._take(self._exchange.tick(now), now)
            except Exception as failure:
                self._fail(failure)

    def _drained(self) -> None:
        self.blocked_since = 0.0
        self._go_on()

    def _go_on(self) -> None:
        """With what waits here, then with what the upstream sends, unless somebody has to wait still."""
        if self._rest and not self._must_wait():
            rest, self._rest = self._rest, b""
            self._feed(rest)
        if not self._rest and not self._must_wait():
            self._response.resume()

    def _must_wait(self) -> bool:
        return self._work is not None or self._client.blocked or self._over.done()

    # -- inside ------------------------------------------------------------------------------------------------------------

    def _fed(self, data: bytes, now: float) -> Step:
        step = self._exchange.upstream_data(data, now)
        self._heed(data, step, now)
        return step

    def _heed(self, data: bytes, step: Step, now: float) -> None:
        self._quiet = 0 if step.events else self._quiet + len(data)
        if step.output:
            if self._memory.held:
                self._memory.shown()
        elif not step.done and not self._memory.hold(len(data)):
            self._response.pause()
            self._loop.call_soon(self._give_up)
        if says_something(data, step.events) and self._silence is not None:
            self._silence.heard(now)

    def _feed_slices(self, data: bytes, now: float, until: float) -> None:
        """A burst slice by slice while there is time, written to the client in one go."""
        written: list[Step] = []
        at, large = 0, False
        while at < len(data):
            part = data[at : at + _SLICE]
            large = self._is_large() and (b"\n" in part or b"\r" in part)
            if large or (at and time.perf_counter() > until):
                break
            at += len(part)
            step = self._fed(part, now)
            if step.head is None and not step.done and step.again is None:
                written.append(step)
                continue
            self._take(_joined(written), now)
            written.clear()
            self._take(step, now)
            if self._over.done():
                return
        self._take(_joined(written), now)
        rest = data[at:]
        if large:
            self._work_aside(partial(self._exchange.upstream_data, rest, now), rest)
        elif rest:
            self._rest = rest
            self._response.pause()
            self._loop.call_soon(self._go_on)

    def _is_large(self) -> bool:
        return self._quiet > _LARGE_TEXT and (self._quiet > _LARGE or self._exchange.reads_text)

    def _work_aside(self, work: Callable[[], Step], data: bytes) -> None:
        self._response.pause()
        self._work = self._loop.run_in_executor(None, work)
        self._work.add_done_callback(partial(self._worked, data, time.perf_counter()))

    def _worked(self, data: bytes, worked_from: float, work: asyncio.Future[Step]) -> None:
        self._work = None
        self.own_time += time.perf_counter() - worked_from
        failure = work.exception()
        if self._over.done():
            # The request was ended meanwhile, but this is its answer.
            if failure is None and work.result().done:
                self._show(work.result())
        elif failure is not None:
            self._fail(failure)
        else:
            now = self._loop.time()
            try:
                self._heed(data, work.result(), now)
                self._take(work.result(), now)
            except Exception as error:
                self._fail(error)
            self._go_on()

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

    def _fail(self, failure: BaseException) -> None:
        """A fault of ours: the coroutine that waits has to deal with it."""
        if not self._over.done():
            self._failure = failure
            self._over.set_result(None)


def _joined(steps: list[Step]) -> Step:
    """Steps in the middle of an answer as one."""
    if len(steps) == 1:
        return steps[0]
    return Step(output=b"".join(step.output for step in steps), events=tuple(event for step in steps for event in step.events))
