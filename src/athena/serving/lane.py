"""How many requests one upstream has in work, who waits for a place, and who comes next. Pure: no futures, no clock.

Places are given in turn to the callers that wait, and to each caller's requests in their order: one caller with a thousand
requests delays the next one of another caller by one place, not by a thousand.

    request     | enter()                          | leave() of another        | withdraw()
    ------------|----------------------------------|---------------------------|----------------
    new         | IN_WORK, WAITING or REFUSED      |                           |
    WAITING     |                                  | IN_WORK, if it is next    | gone
    IN_WORK     |                                  |                           | (it leaves)
"""

from __future__ import annotations

from collections import OrderedDict, deque
from enum import Enum
from typing import Generic, TypeVar

RequestT = TypeVar("RequestT")


class Entry(Enum):
    """What a request gets when it enters a lane: a place, a wait, or a refusal."""

    IN_WORK = "in_work"
    WAITING = "waiting"
    REFUSED = "refused"


class Lane(Generic[RequestT]):
    """The limited places for requests that one upstream handles at a time."""

    def __init__(self, places: int, queue: int) -> None:
        self.places = places
        self.queue = queue
        self.in_work = 0
        self.waiting = 0
        self._waiting: OrderedDict[str, deque[RequestT]] = OrderedDict()
        """By caller; the first caller is served next."""

    def begin(self) -> bool:
        """A request takes a place, if one is free and no request waits for it."""
        if self.in_work >= self.places or self.waiting:
            return False
        self.in_work += 1
        return True

    def enter(self, caller: str, request: RequestT) -> Entry:
        """A request asks for a place, and waits for it if need be."""
        if self.begin():
            return Entry.IN_WORK
        if self.waiting >= self.queue:
            return Entry.REFUSED
        self._waiting.setdefault(caller, deque()).append(request)
        self.waiting += 1
        return Entry.WAITING

    def leave(self) -> None:
        """A request in work is done. Its place is free: `admit` says who gets it."""
        self.in_work -= 1

    def admit(self) -> RequestT | None:
        """The next request that waits, if there is a place for it; it is in work from now on."""
        if not self.waiting or self.in_work >= self.places:
            return None
        caller, requests = self._waiting.popitem(last=False)
        request = requests.popleft()
        if requests:
            self._waiting[caller] = requests  # behind all others
        self.waiting -= 1
        self.in_work += 1
        return request

    def withdraw(self, caller: str, request: RequestT) -> bool:
        """A request does not want to wait any longer. False: it was not waiting."""
        requests = self._waiting.get(caller)
        if requests is None or request not in requests:
            return False
        requests.remove(request)
        if not requests:
            del self._waiting[caller]
        self.waiting -= 1
        return True
