"""Bytes that everything in one process may hold together: request bodies, what they become, answers, unsent output.

Pure: values in, decisions out, the clock is handed in. Code that is about to hold bytes asks first (`Lease.resize`) and is
refused where they do not fit; code that finds that it holds bytes already (`Lease.hold`) is only counted, and others are
refused meanwhile. Requests may take all but an eighth of the limit. The rest is for the answers to those requests that were let
in: it is better to refuse a new request than to break an answer off.
"""

from __future__ import annotations

from collections.abc import Callable

_FOR_REQUESTS = 7 / 8
_SHORT_FOR_S = 5.0
"""Seconds after a refusal for which memory counts as short."""


class Budget:
    """The limit and what is used of it."""

    __slots__ = ("_clock", "_on_refusal", "_refused_at", "for_requests", "limit", "peak", "used")

    def __init__(self, limit: int, clock: Callable[[], float], on_refusal: Callable[[], None] = lambda: None) -> None:
        self.set_limit(limit)
        self.used = 0
        self.peak = 0
        """The most that was used since it was reset to 0."""
        self._clock = clock
        self._on_refusal = on_refusal
        self._refused_at: float | None = None

    def set_limit(self, limit: int) -> None:
        """Another limit from now on; existing leases keep what they have."""
        self.limit = limit
        self.for_requests = int(limit * _FOR_REQUESTS)

    @property
    def is_short(self) -> bool:
        """Was a request refused a moment ago? Then those who hold bytes without using them are to give them back."""
        return self._refused_at is not None and self._clock() - self._refused_at < _SHORT_FOR_S

    def lease(self, *, answer: bool = False) -> Lease:
        """Room for one holder, of nothing yet."""
        return Lease(self, answer=answer)

    def refuse(self) -> None:
        """Note that a request did not fit, so that idle holders give memory back."""
        self._refused_at = self._clock()
        self._on_refusal()


class Lease:
    """What one holder has of the budget."""

    __slots__ = ("_answer", "_budget", "size")

    def __init__(self, budget: Budget, *, answer: bool = False) -> None:
        self._budget = budget
        self._answer = answer
        self.size = 0

    @property
    def most(self) -> int:
        """The most it could ever have, if no other lease had anything."""
        return self._budget.limit if self._answer else self._budget.for_requests

    def resize(self, size: int) -> bool:
        """Have `size` bytes in all from now on. False, and nothing has changed, where more is asked for than is free."""
        budget = self._budget
        more = size - self.size
        if more > 0:
            if budget.used + more > (budget.limit if self._answer else budget.for_requests):
                budget.refuse()
                return False
            if budget.used + more > budget.peak:
                budget.peak = budget.used + more
        budget.used += more
        self.size = size
        return True

    def fits(self, size: int) -> bool:
        """Would `resize` give that much? Asking changes nothing and refuses nobody."""
        budget = self._budget
        return budget.used + size - self.size <= (budget.limit if self._answer else budget.for_requests)

    def hold(self, size: int) -> None:
        """Have `size` bytes in all, whatever the limit says: they are there already."""
        budget = self._budget
        budget.used += size - self.size
        self.size = size
        if budget.used > budget.peak:
            budget.peak = budget.used

    def close(self) -> None:
        if self.size:
            self._budget.used -= self.size
            self.size = 0
