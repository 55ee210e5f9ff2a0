"""Every limit of time of one request, as one deadline. Pure: the driver's clock is handed in.

| limit | counts from | ends |
|---|---|---|
| first byte | sending the request, until the upstream said something | the attempt |
| idle | the last thing that the upstream said | the attempt |
| end | the upstream's last word, when only the end of its answer is missing | the attempt |
| total | sending the request | the attempt |
| head | the beginning, until the client has its head | with a keep-alive |
| keep-alive | the last byte that went to the client | with a keep-alive |
| write | the moment in which the client stopped taking its bytes | the request |

Comments and pings are bytes that say nothing: they do not keep a silent upstream alive. What waits because of us (the client
does not read, a thread is at work) is not the upstream's silence.

Limits move away while data comes, and nothing is computed for each chunk: the driver calls `look` at `deadline`, and `deadline`
moves closer by itself only where a nearer limit begins to hold.
"""

from __future__ import annotations

from enum import Enum, auto
from math import inf

import msgspec

from athena.errors import UpstreamTimeout
from athena.model.events import Event, KeepAlive
from athena.serving.network import DEFAULT_TIMEOUTS, Timeouts

_MOMENT = 0.5
"""Seconds that the end of an answer may take when all else is said."""
_NEXT_LOOK = 0.02


class ClientLimits(msgspec.Struct, frozen=True):
    """Seconds on the client's side."""

    hold_head: float = inf
    keep_alive: float = inf
    write: float = inf


class Due(Enum):
    """Which limit has run out first; a keep-alive counts as one."""

    NOTHING = auto()
    KEEP_ALIVE = auto()
    CLIENT_STALLED = auto()
    FIRST_BYTE = "first_byte_timeout"
    IDLE = "idle_timeout"
    TOTAL = "total_timeout"


def timeout_error(due: Due) -> UpstreamTimeout:
    """The failure of an attempt whose time has run out."""
    return UpstreamTimeout(f"the upstream took too long ({due.value.removesuffix('_timeout')} limit)", code=due.value)


class Clock:
    """The limits of one request. All times are those of the driver's clock."""

    _timeouts = DEFAULT_TIMEOUTS
    _blocked_since = 0.0
    """Since when the client has not taken its bytes; 0: it does."""
    _heard = False
    _far = False
    """The deadline is that of a limit, not the next look at whether the answer has ended."""
    _total_at = _silence_at = _window_at = inf

    def __init__(self, limits: ClientLimits, now: float) -> None:
        self._limits = limits
        self._last_shown = self._quiet_since = now
        self._client_due_at = self.deadline = now + min(limits.hold_head, limits.keep_alive)
        """When the client is to hear something, and when `look` is to be called."""

    def sending(self, now: float, timeouts: Timeouts) -> None:
        """A request goes out to an upstream."""
        self._timeouts = timeouts
        self._total_at = now + timeouts.total
        self._quiet_since, self._heard = now, False

    def reading(self, now: float) -> None:
        """The upstream's answer begins: the first-byte limit no longer runs, the idle limit does."""
        self._sets_silence(now + _MOMENT, far=False)

    def read(self) -> None:
        """Its answer is over, or given up."""
        self._total_at = self._silence_at = self._window_at = inf
        self._far = False

    def heard(self, now: float) -> None:
        self._quiet_since, self._heard = now, True
        if self._far:
            self._sets_silence(now + _MOMENT, far=False)

    def spoke(self, now: float) -> None:
        """The upstream said something, and the client has it: `heard` and `shown`."""
        self._quiet_since = self._last_shown = now
        self._heard = True
        if self._far:
            self._sets_silence(now + _MOMENT, far=False)

    def window(self, ends_at: float | None) -> None:
        """The time in which more calls may come ends; None: it is open."""
        self._window_at = ends_at if ends_at is not None else inf
        self.deadline = min(self.deadline, self._window_at)

    def shown(self, now: float) -> None:
        self._last_shown = now

    def blocked(self, now: float) -> None:
        """The client has stopped taking its bytes."""
        if not self._blocked_since:
            self._blocked_since = now
            self.deadline = min(self.deadline, now + self._limits.write)

    def drained(self) -> None:
        """The client reads again, so its write limit stops."""
        self._blocked_since = 0.0

    def is_window_over(self, now: float) -> bool:
        """Whether the time in which more calls are collected has passed."""
        return now >= self._window_at

    def look(self, now: float, *, finished: bool, has_head: bool, waits_for_us: bool, has_unread: bool) -> Due:
        """What has run out, if anything, and when to look again.

        `finished`: only the end of the answer is missing. `waits_for_us`: nothing is read from the upstream right now.
        `has_unread`: it has sent what is still unread.
        """
        due = self._look(now, finished=finished, has_head=has_head, waits_for_us=waits_for_us, has_unread=has_unread)
        blocked_until = self._blocked_since + self._limits.write if self._blocked_since else inf
        self.deadline = min(self._client_due_at, self._silence_at, self._total_at, self._window_at, blocked_until)
        return due

    def _look(self, now: float, *, finished: bool, has_head: bool, waits_for_us: bool, has_unread: bool) -> Due:
        if self._blocked_since and now - self._blocked_since >= self._limits.write:
            return Due.CLIENT_STALLED
        if now >= self._total_at:
            return Due.TOTAL
        if now >= self._silence_at:
            due = self._silence(now, finished=finished, waits_for_us=waits_for_us, has_unread=has_unread)
            if due is not Due.NOTHING:
                return due
        return self._client_due(now, has_head=has_head)

    def _silence(self, now: float, *, finished: bool, waits_for_us: bool, has_unread: bool) -> Due:
        if waits_for_us:
            self._quiet_since = now
        if now < self._quiet_since + _MOMENT:
            self._sets_silence(self._quiet_since + _MOMENT, far=False)
            return Due.NOTHING
        limit, due = self._limit(finished=finished)
        if now < self._quiet_since + limit:
            self._sets_silence(self._quiet_since + limit, far=True)
            return Due.NOTHING
        if has_unread and now < self._quiet_since + 2 * limit:
            # What came is read before it is called silence: a busy machine is not a silent upstream.
            self._sets_silence(now + _NEXT_LOOK, far=True)
            return Due.NOTHING
        return due

    def _limit(self, *, finished: bool) -> tuple[float, Due]:
        if finished:
            return _MOMENT, Due.IDLE
        return (self._timeouts.idle, Due.IDLE) if self._heard else (self._timeouts.first_byte, Due.FIRST_BYTE)

    def _client_due(self, now: float, *, has_head: bool) -> Due:
        if now < self._client_due_at:
            return Due.NOTHING
        limits = self._limits
        due_at = self._last_shown + (limits.keep_alive if has_head else limits.hold_head)
        if now < due_at:
            self._client_due_at = min(due_at, now + limits.keep_alive)
            return Due.NOTHING
        self._client_due_at = now + limits.keep_alive
        return Due.NOTHING if self._blocked_since else Due.KEEP_ALIVE

    def _sets_silence(self, when: float, *, far: bool) -> None:
        self._silence_at, self._far = when, far
        self.deadline = min(self.deadline, when)


def says_something(data: bytes, events: tuple[Event, ...]) -> bool:
    """Is there more in these bytes than comments and pings?"""
    if events:
        return type(events[0]) is not KeepAlive or any(type(event) is not KeepAlive for event in events)
    first = data.lstrip()[:1]
    if first != b":":
        return bool(first)
    return any(line and not line.startswith(b":") and not line.isspace() for line in data.split(b"\n"))
