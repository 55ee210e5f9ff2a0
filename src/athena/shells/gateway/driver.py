"""One request of a client moved between two sockets: the IO of what `Serving` decides.

Upstream bytes pass through inside the upstream's own read callback: no task, queue or future per chunk stands between the two
sockets, and the one coroutine that serves the request wakes up when an attempt is over. What the client does not take fast
enough stays in the upstream's socket.

Other streams go on whatever one upstream sends: a burst is worked on for a moment in each turn of the loop, and the end of a
whole answer or of a single event of some size goes into a thread. Nothing more is taken from the upstream until that is done.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from functools import partial
from itertools import repeat
from math import inf
from typing import Any, Protocol

from athena.dialects.plain_reads import PlainSplice
from athena.errors import AthenaError, UpstreamError
from athena.exchange import NOTHING, Step
from athena.serving.actions import Build, Keep, Pause, Send, Stop, Tell
from athena.serving.call_checks import CallChecks
from athena.serving.retries import with_relative_wait
from athena.serving.serving import Serving, ServingState
from athena.shells.gateway.client import Client, Headers
from athena.shells.gateway.lanes import Lanes, leave
from athena.shells.gateway.plain_relay import PlainRelay
from athena.shells.upstream import UpstreamClient, UpstreamResponse
from athena.wire.response_json import ResponseJson

LOG = logging.getLogger("athena")

_SLICE = 32 * 1024
"""Bytes of a burst after which the clock is looked at."""
_TURN_S = 0.01
"""How long a burst is worked on in one turn of the loop."""
_LARGE = 256 * 1024
_LARGE_TEXT = 16 * 1024
"""Bytes without an event, of a whole answer or of one event, above which their end is worked on in a thread: in any case, and
where calls are looked for in the text, in which a hostile one takes longest."""
_LOOK_AGAIN_S = 0.05
"""Seconds after which time is looked at again when a thread is at work."""


Keeping = Coroutine[Any, Any, dict[str, Any] | None]
"""Returns fields of a kept response that came out otherwise, or raises what the client is to be told."""


class Keeper(Protocol):
    """Where the response of one request is kept."""

    def keep(self, response: dict[str, Any], written: ResponseJson) -> Keeping | None:
        """Keep the finished response. None: it is kept; otherwise it is once what is returned was awaited."""


class Driver:
    """Serves one request over a client and an upstream."""

    _stop: Stop | None = None
    _response: UpstreamResponse | None = None
    _timer: asyncio.TimerHandle | None = None
    _timer_at = inf
    _chunks = 0
    _own_time = 0.0
    _quiet = 0
    """Bytes since the last event."""
    _rest = b""
    """Of a burst, for the next turn of the loop."""
    _work: asyncio.Future[Step] | None = None
    """What a thread is doing with the answer."""
    _fault: BaseException | None = None
    """A fault of ours. It is no result of the future: what a future raises would be tied to this object for ever."""
    _read: asyncio.Future[None] | None = None
    """Done when the upstream's answer is over."""
    _relay: PlainRelay | None = None
    """Passes reads of plain text on, from one socket to the other; all else here happens after `_leave_relay`."""
    _splice: PlainSplice | None = None
    """What it was made for."""
    _relays = False
    """Has the connection been told of it?"""

    def __init__(
        self,
        serving: Serving,
        client: Client,
        upstreams: UpstreamClient,
        lanes: Lanes,
        headers: Headers,
        keeper: Keeper | None = None,
        *,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        """`headers` are added to those of the answer; `keeper` keeps the response of a request that asks for it. `loop` is the
        running one, for those who know it already."""
        self._keeper = keeper
        self._serving = serving
        self._client = client
        self._upstreams = upstreams
        self._lanes = lanes
        self._headers = headers
        self._loop = loop or asyncio.get_running_loop()
        self._task = asyncio.current_task(self._loop)

    # -- from outside ------------------------------------------------------------------------------------------------------

    @property
    def held(self) -> int:
        """Bytes that wait in this request."""
        return self._serving.held

    def stop(self, reason: Stop) -> None:
        """End the request now; the reason decides what the client still gets."""
        self._leave_relay()
        if self._stop is None and self._task is not None and self._serving.state is not ServingState.OVER:
            self._stop = reason
            self._task.cancel()

    # -- the request ---------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Serve the request; every way out leaves the client with an answer, or gone."""
        client, serving = self._client, self._serving
        client.on_gone, client.on_doubt, client.on_drained = partial(self.stop, "client_closed"), self._probe, self._drained
        self._set_timer()
        try:
            await self._serve()
            if serving.checks is not None and serving.checks.has_late:
                await self._check_late(serving.checks)
        except asyncio.CancelledError:
            if self._stop is None or self._task is None:
                raise
            self._leave_relay()
            self._task.uncancel()
            self._show(serving.stop(self._stop, self._loop.time()))
            if self._stop == "client_stalled":
                # What it did not read would be kept for as long as its connection stays.
                client.cut_off()
        except Exception:
            LOG.exception("request %s failed inside the gateway", serving.record.request_id)
            self._leave_relay()
            self._show(serving.stop("internal_error", self._loop.time()))
        finally:
            client.on_gone = client.on_doubt = client.on_drained = None
            if self._timer is not None:
                self._timer.cancel()
            self._close()
            # Nothing that this object held waits for the collector.
            self._task = self._timer = self._read = self._fault = None

    def _close(self) -> None:
        if self._relays:
            self._leave_relay()
        self._relay = self._splice = None
        record = self._serving.record
        record.chunks = self._chunks
        if self._chunks:
            record.own_us_per_chunk = self._own_time * 1e6 / self._chunks
        try:
            self._serving.close(self._loop.time())
        except Exception:
            # The answer is out: what is written about it cannot change it any more.
            LOG.exception("request %s could not be counted", record.request_id)

    async def _serve(self) -> None:
        serving = self._serving
        while serving.state is not ServingState.OVER:
            match serving.next(self._loop.time()):
                case Build() as build:
                    if build.heavy:
                        await self._in_thread(serving.build)
                    else:
                        serving.build()
                case Send() as request:
                    await self._send(request)
                case Keep() as keep:
                    assert self._keeper is not None, "a request whose answer waits has a keeper"
                    keeping = self._keeper.keep(keep.response, keep.written)
                    if keeping is None:
                        self._show(serving.kept(self._loop.time()))
                    else:
                        await self._keep(keeping)
                case Pause(until=until):
                    await asyncio.sleep(until - self._loop.time())
                case Tell(step=step):
                    self._show(step)

    async def _keep(self, keeping: Keeping) -> None:
        try:
            changed = await keeping
        except AthenaError as failure:
            self._show(self._serving.kept(self._loop.time(), failure=failure))
        else:
            self._show(self._serving.kept(self._loop.time(), changed))

    async def _in_thread(self, work: Callable[[], None]) -> None:
        """Code that ends the request meanwhile waits for the thread: nothing else may touch what it works on."""
        working = self._loop.run_in_executor(None, work)
        try:
            await asyncio.shield(working)
        except asyncio.CancelledError:
            await asyncio.wait([working])
            raise

    async def _send(self, request: Send) -> None:
        serving, target = self._serving, request.target
        lane = self._lanes.enter_now(target.upstream)
        if lane is None:
            try:
                lane = await self._lanes.enter(target.upstream, serving.record.key)
            except UpstreamError as refusal:
                self._show(serving.failed(refusal, self._loop.time()))
                return
        try:
            serving.sending(self._loop.time())
            try:
                response = await self._upstreams.send(
                    "POST", target.origin, request.path, request.headers, request.body, target.timeouts, target.pool
                )
            except UpstreamError as failure:
                self._show(serving.failed(failure, self._loop.time()))
                return
            del request
            self._response = response
            serving.head(response.status, with_relative_wait(response.headers, time.time()), self._loop.time())
            body = None if serving.request.stream else response.take_whole(_LARGE_TEXT)
            if body is not None:
                self._take_whole(body)
            else:
                await self._answer(response)
        finally:
            leave(lane)
            if self._response is not None:
                self._response.leave() if serving.keeps_connection else self._response.close()
                self._response = None

    async def _answer(self, response: UpstreamResponse) -> None:
        """Until the answer is complete, the model is to be asked again, or the attempt has failed."""
        self._quiet, self._rest = 0, b""
        over = self._read = self._loop.create_future()
        try:
            # Whole answers are often there already, and then need no limit of time: none is set until that is known.
            timer_at, self._timer_at = self._timer_at, -inf
            response.deliver_to(self._on_data, self._on_end)
            self._timer_at = timer_at
            if not over.done():
                if self._serving.clock.deadline < self._timer_at:
                    self._set_timer()
                await over
        except asyncio.CancelledError:
            if self._work is not None:
                await asyncio.wait([self._work])
            raise
        finally:
            self._read = None
        if self._fault is not None:
            self._raise_fault()

    def _take_whole(self, body: bytes) -> None:
        """What `_on_data` and `_on_end` do, for an answer that is short, not streamed, and has come to its end."""
        self._chunks += 1
        serving, worked_from, now = self._serving, time.perf_counter(), self._loop.time()
        step = serving.data(body, now)
        self._own_time += time.perf_counter() - worked_from
        self._show(step)
        if serving.state is ServingState.READING:
            self._show(serving.end(None, now))

    def _raise_fault(self) -> None:
        fault, self._fault = self._fault, None
        assert fault is not None
        try:
            raise fault
        finally:
            del fault  # it knows this frame: the frame must not know it

    async def _check_late(self, checks: CallChecks) -> None:
        """The checks of calls that would have kept others waiting. The client has its answer."""
        late = checks.late()
        if late is not None:
            for verdict in await asyncio.to_thread(late):
                checks.judge(verdict)

    # -- the upstream's bytes ------------------------------------------------------------------------------------------------

    def _on_data(self, data: bytes) -> None:
        read = self._read
        if read is None or read.done():
            return
        if self._relays:
            self._leave_relay()
        self._chunks += 1
        # The loop's own clock is too coarse for microseconds.
        worked_from, now = time.perf_counter(), self._loop.time()
        try:
            output = self._serving.plain(data, now)
            if output is not None:
                # What `_take` does, for pieces in the middle of an answer that are only text.
                self._quiet = 0
                client, clock = self._client, self._serving.clock
                client.write(output)
                if client.blocked:
                    clock.blocked(now)
                    self._pause()
                if clock.deadline < self._timer_at:
                    self._set_timer()
                if self._relay is not None:
                    self._enter_relay()
                self._own_time += time.perf_counter() - worked_from
                return
        except Exception as fault:
            self._fail(fault)
            return
        self._feed(data, now, worked_from)
        if not self._quiet:
            self._enter_relay()

    def _feed(self, data: bytes, now: float, worked_from: float) -> None:
        try:
            if len(data) <= _SLICE and self._quiet <= _LARGE_TEXT:
                step = self._serving.data(data, now)
                self._quiet = 0 if step.events else self._quiet + len(data)
                self._take(step, now)
            else:
                self._feed_slices(data, now, worked_from + _TURN_S)
        except Exception as fault:
            self._fail(fault)
        self._own_time += time.perf_counter() - worked_from

    def _on_end(self, failure: UpstreamError | None) -> None:
        if self._is_over():
            return
        if self._relays:
            self._leave_relay()
        now = self._loop.time()
        try:
            if self._is_large():
                self._work_aside(partial(self._serving.work_end, failure), partial(self._serving.ended, failure))
            else:
                self._take(self._serving.end(failure, now), now)
        except Exception as fault:
            self._fail(fault)

    # -- past this object ------------------------------------------------------------------------------------------------------

    def _enter_relay(self) -> None:
        """After a read that was plain text: where nothing else is going on, those that follow need not come by here."""
        splice, response = self._serving.splice, self._response
        if splice is None:
            self._relay = self._splice = None
            return
        if response is None or self._stop is not None or self._rest or self._must_wait():
            return
        if splice is not self._splice:
            self._splice, self._relay = splice, None
            write = self._client.chunk_writer()
            if write is not None:
                self._relay = PlainRelay(splice, self._loop.time, write, self._client, self._on_blocked)
        if self._relay is not None:
            self._relay.tell(self._serving.reads_noted)
            self._relays = response.pass_by(self._relay.take)

    def _leave_relay(self) -> None:
        """Everything that was passed on counts, and what comes next is for this object."""
        if not self._relays:
            return
        self._relays = False
        assert self._relay is not None
        if self._response is not None:
            self._response.pass_by(None)
        strings, times, own_time, last = self._relay.settle()
        if strings:
            self._chunks += len(strings)
            self._own_time += own_time
            self._serving.relayed(strings, times, last)

    def _on_blocked(self) -> None:
        """The client has stopped taking its bytes, which the relay saw."""
        self._leave_relay()
        self._serving.clock.blocked(self._loop.time())
        self._pause()
        if self._serving.clock.deadline < self._timer_at:
            self._set_timer()

    # -- bursts ----------------------------------------------------------------------------------------------------------------

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
            step = self._serving.data(part, now)
            self._quiet = 0 if step.events else self._quiet + len(part)
            if step.head is None and self._serving.state is ServingState.READING:
                written.append(step)
                continue
            self._take(_joined(written), now)
            written.clear()
            self._take(step, now)
            if self._is_over():
                return
        self._take(_joined(written), now)
        rest = data[at:]
        if large:
            self._work_aside(partial(self._serving.work, rest, now), partial(self._serving.worked, rest), len(rest))
        elif rest:
            self._rest = rest
            self._pause()
            self._loop.call_soon(self._continue)

    def _is_large(self) -> bool:
        return self._quiet > _LARGE_TEXT and (self._quiet > _LARGE or self._serving.reads_text)

    def _work_aside(self, work: Callable[[], Step], take: Callable[[Step, float], Step], size: int = 0) -> None:
        """Do the work in a thread; `take` is then told what it brought, of so many bytes."""
        self._pause()
        self._work = self._loop.run_in_executor(None, work)
        self._work.add_done_callback(partial(self._worked, take, size, time.perf_counter()))

    def _worked(self, take: Callable[[Step, float], Step], size: int, worked_from: float, work: asyncio.Future[Step]) -> None:
        self._work = None
        self._own_time += time.perf_counter() - worked_from
        fault = work.exception()
        if fault is not None:
            self._fail(fault)
        elif self._read is not None or work.result().done:
            # Where the request was ended meanwhile, a whole answer still is its answer.
            now = self._loop.time()
            try:
                step = take(work.result(), now)
                self._quiet = 0 if step.events else self._quiet + size
                self._take(step, now)
            except Exception as error:
                self._fail(error)
            self._continue()

    def _take(self, step: Step, now: float) -> None:
        if step.output or step.head is not None or step.done:
            self._show(step)
            if self._client.blocked and not step.done:
                self._serving.clock.blocked(now)
                self._pause()
        if self._serving.state is not ServingState.READING:
            if self._read is not None and not self._read.done():
                self._read.set_result(None)
        elif self._serving.clock.deadline < self._timer_at:
            self._set_timer()

    def _drained(self) -> None:
        self._serving.clock.drained()
        self._continue()

    def _continue(self) -> None:
        """With what waits here, then with what the upstream sends, unless it still has to wait."""
        if self._rest and not self._must_wait():
            rest, self._rest = self._rest, b""
            self._feed(rest, self._loop.time(), time.perf_counter())
        if not self._rest and not self._must_wait() and self._response is not None:
            self._response.resume()

    def _must_wait(self) -> bool:
        return self._work is not None or self._client.blocked or self._is_over()

    def _pause(self) -> None:
        if self._response is not None:
            self._response.pause()

    def _is_over(self) -> bool:
        return self._read is None or self._read.done()

    def _fail(self, fault: BaseException) -> None:
        """A fault of ours: the coroutine that waits has to deal with it."""
        if not self._is_over():
            assert self._read is not None
            self._fault = fault
            self._read.set_result(None)

    # -- the client ----------------------------------------------------------------------------------------------------------

    def _show(self, step: Step) -> None:
        """Write a step's head and bytes."""
        if step is NOTHING:
            return
        client = self._client
        if step.head is not None:
            given = step.head.headers
            names = map(str.encode, given, repeat("latin-1"))
            values = map(str.encode, given.values(), repeat("latin-1"), repeat("replace"))
            headers = [*zip(names, values, strict=True), *self._headers]
            client.start(step.head.status, headers, len(step.output) if step.done else None)
        if step.done:
            client.finish(step.output)
        elif step.output:
            client.write(step.output)

    def _probe(self) -> None:
        """The client may have left: send what it would pass over, so that its absence shows."""
        self._leave_relay()
        if self._serving.has_head and self._work is None:
            self._show(self._serving.keep_alive(self._loop.time()))

    # -- time ----------------------------------------------------------------------------------------------------------------

    def _set_timer(self, at: float | None = None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = self._serving.clock.deadline if at is None else at
        self._timer = self._loop.call_at(self._timer_at, self._on_time) if self._timer_at < inf else None

    def _on_time(self) -> None:
        self._timer, self._timer_at = None, inf
        self._leave_relay()
        now, serving = self._loop.time(), self._serving
        if self._work is not None:
            self._set_timer(now + _LOOK_AGAIN_S)
            return
        response = self._response
        waits_for_us = self._client.blocked or bool(self._rest)
        try:
            step = serving.tick(now, waits_for_us=waits_for_us, has_unread=response is not None and response.has_backlog)
            self._take(step, now)
        except Exception as fault:
            self._fail(fault)
            return
        if serving.state is ServingState.OVER:
            if serving.record.outcome == "client_stalled" and self._task is not None:
                self._stop = "client_stalled"
                self._task.cancel()
        elif self._timer is None:
            self._set_timer()


def _joined(steps: list[Step]) -> Step:
    """Steps in the middle of an answer as one."""
    if len(steps) == 1:
        return steps[0]
    if not steps:
        return NOTHING
    return Step(output=b"".join(step.output for step in steps), events=tuple(event for step in steps for event in step.events))
