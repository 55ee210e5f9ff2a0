"""Ends an answer whose upstream has gone silent, counting only what says something (`reliability.md` rows 7 to 10, 15).

The transport counts bytes; comments and pings are bytes too and would hide a stalled model for ever. Three limits, one timer:
until the first data event the limit for the first byte holds, because servers ping while a model thinks; then the idle limit;
and once the upstream has said why it ended, a moment, because the end itself is all that is missing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from athena.errors import UpstreamTimeout
from athena.model.events import Event, KeepAlive
from athena.shells.upstream import Timeouts

_MOMENT = 0.5
_NEXT_LOOK = 0.02


class SilenceWatch:
    """One per answer. `on_silence` gets the failure, once."""

    __slots__ = (
        "_far",
        "_finished",
        "_has_backlog",
        "_heard",
        "_loop",
        "_on_silence",
        "_since",
        "_timeouts",
        "_timer",
        "_waits_for_us",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        timeouts: Timeouts,
        *,
        finished: Callable[[], bool],
        waits_for_us: Callable[[], bool],
        has_backlog: Callable[[], bool],
        on_silence: Callable[[UpstreamTimeout], None],
    ) -> None:
        self._loop = loop
        self._timeouts = timeouts
        self._finished = finished
        self._waits_for_us = waits_for_us
        self._has_backlog = has_backlog
        self._on_silence = on_silence
        self._since = loop.time()
        self._heard = False
        self._far = False
        """The timer is set to a limit, not to the next look."""
        self._timer: asyncio.TimerHandle | None = None
        self._look()

    def heard(self, now: float) -> None:
        """Data came."""
        self._since, self._heard = now, True
        if self._far:
            self._set(now + _MOMENT, far=False)

    def stop(self) -> None:
        """The answer is over."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set(self, when: float, *, far: bool) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._far = far
        self._timer = self._loop.call_at(when, self._look)

    def _look(self) -> None:
        now = self._loop.time()
        if self._waits_for_us():
            # The client does not read, so we do not either: the silence is ours.
            self._since = now
        if now < self._since + _MOMENT:
            self._set(self._since + _MOMENT, far=False)
            return
        limit, code = self._limit()
        if now < self._since + limit:
            self._set(self._since + limit, far=True)
            return
        if self._has_backlog() and now < self._since + 2 * limit:
            # What came is read before it is called silence: a busy machine is not a silent upstream.
            self._set(now + _NEXT_LOOK, far=True)
            return
        self._timer = None
        self._on_silence(UpstreamTimeout(f"the upstream took too long ({code.removesuffix('_timeout')} limit)", code=code))

    def _limit(self) -> tuple[float, str]:
        if self._finished():
            return _MOMENT, "idle_timeout"
        if self._heard:
            return self._timeouts.idle, "idle_timeout"
        return self._timeouts.first_byte, "first_byte_timeout"


def says_something(data: bytes, events: tuple[Event, ...]) -> bool:
    """Is there more in these bytes than comments and pings?"""
    if events:
        return type(events[0]) is not KeepAlive or any(type(event) is not KeepAlive for event in events)
    return any(line and not line.startswith(b":") and not line.isspace() for line in data.split(b"\n"))
