"""One answer of an upstream: its head, then its body, by `read` or by callback.

What `data_received` brings is appended to a list and wakes at most one future. It is handed out in portions, to a callback as
many as a moment allows in one turn of the loop: whatever a consumer makes of an upstream's bytes, other connections have their
turn in between. Time limits cost one timer per response, which is moved lazily: it fires, looks at when data came last, and is
set anew.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from copy import copy
from typing import TypeVar

from athena.errors import UpstreamClosed, UpstreamError, UpstreamProtocol, UpstreamTimeout, UsageError
from athena.serving.network import ClientSettings, Timeouts
from athena.shells.upstream.connection import Connection
from athena.shells.upstream.encoding import ContentDecoder, decoder_for
from athena.shells.upstream.framing import ResponseFraming

_NEXT_ROUND = 0.001
_END_S = 1.0
"""Seconds for the end of a body of which all else has come."""
PORTION = 64 * 1024
"""The most bytes of a body, decoded, that one callback gets."""
ExceptionT = TypeVar("ExceptionT", bound=Exception)


class UpstreamResponse:
    """Read it to its end or close it; either way the connection is taken care of.

    `status` and `headers` (lower-case names; no content-encoding or content-length if the body was decoded).
    """

    status = 0
    _failure: UpstreamError | None = None
    _waiter: asyncio.Future[None] | None = None
    _on_end: Callable[[UpstreamError | None], None] | None = None
    _timer: asyncio.TimerHandle | None = None
    _last_data = 0.0
    _buffered = 0
    _taken = 0
    _paused = False
    _closed = False
    _finished = False

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        connection: Connection,
        settings: ClientSettings,
        timeouts: Timeouts,
        total_deadline: float,
    ) -> None:
        self.headers: dict[str, str] = {}
        self._sent_at = loop.time()
        self._loop = loop
        self._connection = connection
        self._settings = settings
        self._timeouts = timeouts
        self._total_deadline = total_deadline
        self._framing = ResponseFraming(max_head_bytes=settings.max_head_bytes, max_fields=settings.max_header_fields)
        # What is looked at with every read of the connection.
        self._on_data: Callable[[bytes], None] | None = None
        self._decoder: ContentDecoder | None = None
        self._next_turn: asyncio.Handle | None = None
        self._held_back = False
        self._waiting = b""
        """What is handed out in portions, from `_taken` on; later bytes are in the framing's pieces."""

    # -- for the consumer --------------------------------------------------------------------------------------------------

    async def read(self) -> bytes:
        """The next of the body that came, at most a portion, waiting if nothing did; b"" at the end. One reader at a time."""
        if self._on_data is not None:
            raise UsageError("read() beside deliver_to()")
        while True:
            data = self._take()
            if data:
                return data
            if self._is_over():
                if self._failure is not None:
                    raise copy(self._failure)
                if self._closed:
                    raise UsageError("read() after close()")
                return b""
            await self._wait()

    def deliver_to(self, on_data: Callable[[bytes], None], on_end: Callable[[UpstreamError | None], None]) -> None:
        """Call back instead of `read`: no task wakes up between the socket and the consumer.

        The consumer has its own clock: the limits of time end here, and the consumer closes the response when it has waited
        long enough.

        `on_data` gets what one read of the socket brought, from inside the event loop's callback, beginning now with what has
        already come; it must be quick. Of more than a portion it gets the rest in later turns of the loop. `on_end` comes once,
        last: None at the end of the body, else what went wrong. Both may call `close`, after which neither is called again, and
        `pause` and `resume` for back-pressure. An exception they raise closes the response and goes to the loop's exception
        handler.
        """
        if self._on_data is not None or (self._waiter is not None and not self._waiter.done()):
            raise UsageError("deliver_to() beside another reader")
        self._on_data, self._on_end = on_data, on_end
        self._stop_clock()
        self._deliver()

    def take_whole(self, most: int) -> bytes | None:
        """All of the body instead of `read` or `deliver_to`, where it has come, needs no decoding and has no more than `most`
        bytes: then nothing is left to do here. None, and nothing has changed, for any other, and for one that is empty."""
        framing = self._framing
        pieces = framing.pieces
        if not pieces or not framing.complete or self._decoder is not None or self._waiting or self._held_back:
            return None
        body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        if len(body) > most or self._on_data is not None:
            return None
        pieces.clear()
        self._closed = True
        return body

    def pass_by(self, relay: Callable[[bytes], bool] | None) -> bool:
        """Callback mode: ask `relay` first about each read, as it came, while nothing waits here and the reads begin between
        two chunks. It takes whole chunks or nothing; the first read that it does not take ends this. None: no more.

        False: not now.
        """
        waits = self._held_back or self._has_bytes() or self._next_turn is not None or self._decoder is not None
        if relay is not None and (waits or self._on_data is None or not self._framing.between_chunks):
            return False
        self._connection.pass_by(self, relay)
        return relay is not None

    def pause(self) -> None:
        """Callback mode: no more data until `resume`; the socket is not read meanwhile."""
        self._held_back = True
        self._pause()

    def resume(self) -> None:
        """Callback mode: undo `pause`; the first portion of data that waited is delivered from inside this call."""
        if self._held_back:
            self._held_back = False
            if self._on_data is not None:
                self._deliver()
            if not self._held_back and not self._has_bytes():
                self._resume()

    @property
    def has_backlog(self) -> bool:
        """Did bytes come that were not taken yet: here, in the decoder, or in the kernel? Then the silence is not its own."""
        return self._has_bytes() or self._held_back or self._connection.has_unread()

    def leave(self) -> None:
        """Nothing more is wanted, but only the end of the body is missing: the connection can be used again when it comes soon.

        Nothing waits for it. More of the body without its end, or `_END_S` seconds, and the connection dies.
        """
        if self._closed or self._is_over() or self._has_bytes() or self._decoder is not None:
            self.close()
            return
        self.pass_by(None)
        self._on_data, self._on_end = self._on_unwanted, None
        self._held_back = False
        self._resume()
        self._stop_clock()
        self._timer = self._loop.call_later(_END_S, self.close)

    def _on_unwanted(self, data: bytes) -> None:
        self.close()

    def close(self) -> None:
        """No more is wanted. A connection whose response is not complete dies with it."""
        if self._closed:
            return
        self._closed = True
        self._connection.pass_by(self, None)
        self._framing.pieces.clear()
        self._waiting = b""
        if self._next_turn is not None:
            self._next_turn.cancel()
            self._next_turn = None
        self._on_data = self._on_end = None
        if self._failure is None and not self._framing.complete:
            self._fail(UpstreamClosed("the response was closed before its end", code="response_closed"))

    # -- for the client ----------------------------------------------------------------------------------------------------

    async def begin(self, head: bytes, body: bytes) -> None:
        """Send the request and wait for the head of the answer. A response that never had one is closed."""
        try:
            if not self._connection.begin(self, head, body):
                self._finish()
                raise UpstreamClosed("the connection was closed before the request went out")
            first_byte_at = self._sent_at + self._timeouts.first_byte
            self._timer = self._loop.call_at(min(first_byte_at, self._total_deadline), self._watch)
            while not self.status:
                # A failure after the head is the reader's to learn, in its place, however fast it came.
                if self._failure is not None:
                    raise copy(self._failure)
                await self._wait()
        except BaseException:
            self.close()
            raise

    # -- from the connection -----------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """The next bytes of the connection."""
        framing = self._framing
        on_data = self._on_data
        if (
            on_data is not None
            and self._decoder is None
            and not (self._held_back or self._waiting or framing.pieces or self._next_turn is not None)
        ):
            # One chunk in one read, with nothing before it that waits, is the rule when a model's pace sets the reads.
            piece = framing.lone_chunk(data)
            if piece is not None:
                try:
                    on_data(piece)
                except Exception as fault:
                    self._consumer_failed(fault)
                return
        before = len(framing.pieces)
        failure: UpstreamProtocol | None = None
        try:
            framing.feed(data)
        except UpstreamProtocol as broken:
            failure = without_frames(broken)
        if not self.status and framing.has_head:
            failure = self._take_head() or failure
        if failure is not None:
            self._fail(failure)
            self._notify()
            return
        if framing.complete:
            self._finish()
            self._connection.end(reusable=framing.keep_alive, stray=framing.stray, keep_alive=framing.headers.get("keep-alive"))
        elif len(framing.pieces) != before:
            self._buffered += len(data)
            first = self._last_data == 0.0
            self._last_data = self._loop.time()
            if first:
                self._watch_again()
            if self._on_data is not None and self._buffered > PORTION:
                # A loop may read a full socket many times in one turn: this one ends here.
                self._pause()
                self._next_turn = self._next_turn or self._loop.call_soon(self._deliver_more)
                return
            if self._buffered > self._settings.buffer_bytes:
                self._pause()
        elif not self.status:
            return
        self._notify()

    def connection_ended(self) -> None:
        """The server closed its side in order."""
        if self._framing.feed_eof():
            self._finish()
        else:
            self._fail(self._closed_early("upstream_closed", "the upstream closed the connection", None))
        self._notify()

    def connection_lost(self, cause: Exception | None) -> None:
        self._fail(self._closed_early("upstream_reset", "the connection to the upstream broke", cause))
        self._notify()

    def client_closed(self) -> None:
        """The client was closed over this response."""
        self._fail(UpstreamClosed("the client was closed", code="client_closed"))
        self._notify()

    # -- inside ------------------------------------------------------------------------------------------------------------

    def _take_head(self) -> UpstreamProtocol | None:
        """Show the head; returns why the body cannot be read, if so."""
        framing = self._framing
        self.headers = headers = framing.headers
        encoding = headers.get("content-encoding")
        if encoding is not None:
            settings = self._settings
            try:
                self._decoder = decoder_for(
                    encoding,
                    max_bytes=settings.max_decoded_bytes,
                    max_ratio=settings.max_decoded_ratio,
                    step=PORTION,
                )
            except UpstreamProtocol as failure:
                return without_frames(failure)
            del headers["content-encoding"]
            headers.pop("content-length", None)
        self.status = framing.status
        return None

    def _notify(self) -> None:
        if self._on_data is not None:
            self._deliver()
            return
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _deliver(self) -> None:
        """What came, as far as this turn of the loop may go; the rest in later ones, the end after the last byte."""
        if self._next_turn is not None or self._held_back:
            return
        on_data = self._on_data
        assert on_data is not None
        began = 0.0
        try:
            while data := self._take():
                on_data(data)
                if self._held_back or self._closed:
                    return
                if not self._has_bytes() and self._decoder is None:
                    break
                # The loop's own clock stands still inside of a turn.
                now = time.perf_counter()
                began = began or now
                if now - began >= self._settings.turn_s:
                    self._next_turn = self._loop.call_soon(self._deliver_more)
                    return
            on_end = self._on_end
            if on_end is not None and self._is_over():
                self._on_end = None
                on_end(self._failure)
        except Exception as failure:
            self._consumer_failed(failure)

    def _consumer_failed(self, failure: Exception) -> None:
        # The connection may belong to another request by now: the consumer's fault must not travel through it.
        self.close()
        self._loop.call_exception_handler({"message": "a consumer of an upstream response failed", "exception": failure})

    def _deliver_more(self) -> None:
        self._next_turn = None
        self._deliver()

    def _has_bytes(self) -> bool:
        """Does anything wait here as it came?"""
        return bool(self._waiting or self._framing.pieces)

    def _take(self) -> bytes:
        """What can be handed out now; b"" if nothing."""
        decoder = self._decoder
        if decoder is None:
            return self._take_wire()
        if self._closed or isinstance(self._failure, UpstreamProtocol):
            return b""
        try:
            # New input only when the last one is used up: what waits in the decoder stays bounded too.
            output = decoder.take()
            while not output and (data := self._take_wire()):
                decoder.feed(data)
                output = decoder.take()
            if not output and self._framing.complete:
                decoder.finish()
        except UpstreamProtocol as failure:
            self._fail(without_frames(failure))
            return b""
        return output

    def _take_wire(self) -> bytes:
        """The next portion of the body as it came."""
        waiting, pieces = self._waiting, self._framing.pieces
        if not waiting:
            if not pieces:
                return b""
            waiting = pieces[0] if len(pieces) == 1 else b"".join(pieces)
            pieces.clear()
            self._taken = 0
        taken = self._taken
        left = len(waiting) - taken
        if left > PORTION:
            self._waiting, self._taken = waiting, taken + PORTION
            return waiting[taken : taken + PORTION]
        self._waiting = b""
        if not pieces:
            self._buffered = 0
            if self._paused and not self._held_back:
                self._resume()
        return waiting[taken:] if taken else waiting

    def _is_over(self) -> bool:
        return self._failure is not None or self._framing.complete

    def _wait(self) -> asyncio.Future[None]:
        """Done when something came, or nothing more will."""
        if self._waiter is not None and not self._waiter.done():
            raise UsageError("two readers of one response")
        self._waiter = self._loop.create_future()
        return self._waiter

    def _pause(self) -> None:
        if not self._paused and not self._is_over():
            self._paused = True
            self._connection.pause_reading()

    def _resume(self) -> None:
        self._paused = False
        if not self._is_over():
            # The silence was ours: the upstream's time starts now.
            self._last_data = self._loop.time() if self._last_data else 0.0
            self._connection.resume_reading()

    def _closed_early(self, code: str, message: str, cause: Exception | None) -> UpstreamClosed:
        where = "in the middle of its answer" if self._framing.started else "without an answer"
        failure = UpstreamClosed(f"{message} {where}", code=code)
        failure.__cause__ = without_frames(cause) if cause is not None else None
        return failure

    def _finish(self) -> None:
        """Nothing more will come; stop the clock."""
        if not self._finished:
            self._finished = True
            self._framing.stop()
            self._stop_clock()
            if self._on_end is None:
                # Nothing waits for it. What would have closed it is this object's own method: it must not keep itself.
                self._on_data = None

    def _fail(self, failure: UpstreamError) -> None:
        """The first failure counts, and the connection goes with it."""
        if self._failure is None:
            failure.request_sent = True
            failure.response_started = self._framing.started
            self._failure = failure
        self._finish()
        self._connection.drop(self)
        if self._closed and self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _stop_clock(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # -- the clock ---------------------------------------------------------------------------------------------------------

    def _next_limit(self, now: float) -> tuple[float, str]:
        timeouts = self._timeouts
        if self._paused:
            deadline, code = now + timeouts.idle, ""
        elif self._last_data:
            deadline, code = self._last_data + timeouts.idle, "idle_timeout"
        else:
            deadline, code = self._sent_at + timeouts.first_byte, "first_byte_timeout"
        return (deadline, code) if deadline < self._total_deadline else (self._total_deadline, "total_timeout")

    def _watch(self) -> None:
        now = self._loop.time()
        deadline, code = self._next_limit(now)
        if now < deadline:
            self._timer = self._loop.call_at(deadline, self._watch)
            return
        self._timer = None
        if code != "total_timeout" and self._connection.has_unread():
            # It has spoken; it is this loop that is late.
            self._timer = self._loop.call_later(_NEXT_ROUND, self._watch)
            return
        self._fail(UpstreamTimeout(f"the upstream took too long ({code.removesuffix('_timeout')} limit)", code=code))
        self._notify()

    def _watch_again(self) -> None:
        """Another limit holds from now on; it may end sooner."""
        if self._timer is not None:
            self._timer.cancel()
            self._watch()


def without_frames(failure: ExceptionT) -> ExceptionT:
    """An exception to be kept as a value: without the frames it came through, which hold the response and all it holds.

    Where a kept exception is raised, a copy is: raising the kept one would tie it to the frames of whoever asked.
    """
    failure.__traceback__ = failure.__context__ = failure.__cause__ = None
    return failure
