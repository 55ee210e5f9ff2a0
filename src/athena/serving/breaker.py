"""Whether an upstream is asked: a circuit breaker by failures in a row and by error rate. Pure: the clock is handed in.

    state      | event                                                   | next state
    -----------|---------------------------------------------------------|----------------------------------------------
    CLOSED     | `failures` failures in a row, or `error_rate` of at     | OPEN, for `cooldown_s`
               | least `min_requests` requests in `window_s` seconds     |
    CLOSED     | `down()`: the health check says so                      | OPEN, for `cooldown_s`
    OPEN       | the time is over                                        | HALF_OPEN
    OPEN       | a request that was sent in spite of it succeeds         | CLOSED
    HALF_OPEN  | a request begins                                        | HALF_OPEN; it is the only one: the probe
    HALF_OPEN  | the probe, or any request begun since, succeeds         | CLOSED
    HALF_OPEN  | it fails                                                | OPEN, for twice as long, up to `cooldown_max_s`
    HALF_OPEN  | the probe ends without a verdict (its client left)      | HALF_OPEN; the next request is the probe
    OPEN, HALF | `up()`: the health check says so                        | CLOSED

What a request says about an upstream counts only for the state in which it began: a stream that began before the upstream
failed and ends well afterwards is no news.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum

import msgspec

from athena.serving.settings import Health

_BUCKETS = 10


class BreakerState(Enum):
    """Closed: requests pass. Open: none do. Half open: some test whether the upstream is back."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Visit(msgspec.Struct, eq=False):
    """One request at an upstream, until it is known what it says about it."""

    breaker: Breaker
    number: int
    """Of the state's turn: what is said later about an earlier turn does not count."""
    is_over: bool = False

    def answers(self) -> None:
        """The upstream has begun to answer well."""
        if not self.is_over:
            self.breaker.answers(self)

    def ended(self, *, ok: bool) -> None:
        """The request is over; did the upstream do its part?"""
        if not self.is_over:
            self.is_over = True
            self.breaker.ended(self, ok=ok)

    def abandoned(self) -> None:
        """The request is over and says nothing about the upstream's health, unless that is known already."""
        if not self.is_over:
            self.is_over = True
            self.breaker.abandoned(self)


class Breaker:
    """The breaker of one upstream. `on_change` is called with every new state."""

    def __init__(
        self,
        settings: Health,
        clock: Callable[[], float],
        on_change: Callable[[BreakerState, str], None] = lambda state, why: None,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._on_change = on_change
        self._state = BreakerState.CLOSED
        self._turn = 0
        self._probe: Visit | None = None
        self._until = 0.0
        self._cooldown = settings.cooldown_s
        self._in_a_row = 0
        self._window = _Window(settings.window_s)

    @property
    def state(self) -> BreakerState:
        """The state now: time alone ends the rest of an upstream."""
        if self._state is BreakerState.OPEN and self._clock() >= self._until:
            self._go(BreakerState.HALF_OPEN, "its rest is over")
        return self._state

    @property
    def is_up(self) -> bool:
        """May a request go there while another target exists?"""
        state = self.state
        return state is BreakerState.CLOSED or (state is BreakerState.HALF_OPEN and self._probe is None)

    @property
    def rests_for(self) -> float:
        """Seconds until a request may go there again; 0: now."""
        return max(0.0, self._until - self._clock()) if self.state is BreakerState.OPEN else 0.0

    def begin(self) -> Visit:
        """A request goes there, be it that there is nowhere else to go."""
        state = self._state if self._state is BreakerState.CLOSED else self.state
        begun = Visit(self, self._turn)
        if state is BreakerState.HALF_OPEN and self._probe is None:
            self._probe = begun
        return begun

    def answers(self, begun: Visit) -> None:
        """The upstream has begun to answer well: a probe need not be read to its end for that to be known."""
        if begun.number == self._turn and self._state is not BreakerState.CLOSED:
            self._go(BreakerState.CLOSED, "it answers")

    def ended(self, begun: Visit, *, ok: bool) -> None:
        """The request is over, and says something about the upstream."""
        if begun.number != self._turn:
            return
        if self._state is BreakerState.CLOSED:
            self._count(ok=ok)
        elif ok:
            self._go(BreakerState.CLOSED, "it answers")
        elif self._state is BreakerState.HALF_OPEN:
            self._cooldown = min(self._cooldown * 2, max(self._settings.cooldown_max_s, self._settings.cooldown_s))
            self._go(BreakerState.OPEN, "it failed again")

    def abandoned(self, begun: Visit) -> None:
        """The request is over and says nothing about the upstream."""
        if self._probe is begun:
            self._probe = None

    def down(self, why: str) -> None:
        """The health check found it unable."""
        if self.state is not BreakerState.OPEN:
            self._go(BreakerState.OPEN, why)

    def up(self) -> None:
        """The health check found it able."""
        if self.state is not BreakerState.CLOSED:
            self._go(BreakerState.CLOSED, "its health check succeeds")

    def _count(self, *, ok: bool) -> None:
        if ok:
            self._in_a_row = 0
            self._window.add(self._clock(), ok=True)
            return
        settings = self._settings
        self._in_a_row += 1
        total, failed = self._window.add(self._clock(), ok=False)
        if settings.failures and self._in_a_row >= settings.failures:
            self._go(BreakerState.OPEN, f"{self._in_a_row} failures in a row")
        elif settings.error_rate and total >= settings.min_requests and failed >= settings.error_rate * total:
            self._go(BreakerState.OPEN, f"{failed} of {total} requests failed in {settings.window_s:g} seconds")

    def _go(self, state: BreakerState, why: str) -> None:
        self._state = state
        self._turn += 1
        self._probe = None
        self._in_a_row = 0
        self._window.clear()
        if state is BreakerState.OPEN:
            self._until = self._clock() + self._cooldown
        elif state is BreakerState.CLOSED:
            self._cooldown = self._settings.cooldown_s
        self._on_change(state, why)


class _Window:
    """Outcomes of the last seconds, in buckets: how many there were and how many failed."""

    def __init__(self, seconds: float) -> None:
        self._width = seconds / _BUCKETS
        self._buckets: deque[list[int]] = deque()
        """Number of the bucket, requests, failures; the oldest first."""
        self._total = self._failed = 0

    def add(self, now: float, *, ok: bool) -> tuple[int, int]:
        """One more outcome; requests and failures in the window, with it."""
        buckets, number = self._buckets, int(now / self._width)
        if not buckets or buckets[-1][0] != number:
            while buckets and buckets[0][0] <= number - _BUCKETS:
                _, total, failed = buckets.popleft()
                self._total -= total
                self._failed -= failed
            buckets.append([number, 0, 0])
        newest = buckets[-1]
        newest[1] += 1
        self._total += 1
        if not ok:
            newest[2] += 1
            self._failed += 1
        return self._total, self._failed

    def clear(self) -> None:
        self._buckets.clear()
        self._total = self._failed = 0
