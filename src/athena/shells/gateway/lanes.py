"""The places of all upstreams, waited for: what `lane` decides, with futures and a limit of time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from athena.errors import UpstreamError
from athena.serving.holding import RETRY_AFTER_S
from athena.serving.lane import Entry, Lane
from athena.shells.config import Config, Upstream

_Waiting = asyncio.Future[None]


def share(number: int, processes: int) -> int:
    """What one of several processes has of a number that all of them share: at least one."""
    return max(1, number // processes)


def leave(lane: Lane[_Waiting]) -> None:
    """A request gives back its place: the next waiting request gets it."""
    lane.leave()
    if lane.waiting:
        _admit(lane)


def _admit(lane: Lane[_Waiting]) -> None:
    while (turn := lane.admit()) is not None:
        if turn.done():
            lane.leave()  # it has given up and not yet said so
        else:
            turn.set_result(None)


class Lanes:
    """One lane for each upstream of the configuration."""

    def __init__(self, on_refusal: Callable[[str, str], None] = lambda upstream, reason: None) -> None:
        self._on_refusal = on_refusal
        self._lanes: dict[str, Lane[_Waiting]] = {}
        self._upstreams: Mapping[str, Upstream] = {}

    def use(self, config: Config) -> None:
        """Serve by these limits from now on; requests in work keep their places."""
        self._upstreams = config.upstreams
        for name, upstream in config.upstreams.items():
            places = share(upstream.max_connections, config.workers)
            queue = share(upstream.queue, config.workers) if upstream.queue else 0
            lane = self._lanes.setdefault(name, Lane(places, queue))
            lane.places, lane.queue = places, queue
            _admit(lane)

    def of(self, upstream: str) -> Lane[_Waiting]:
        """The lane of an upstream: a request that began under an earlier configuration may ask for one that is gone."""
        known = self._lanes.get(upstream)
        return known if known is not None else self._lanes.setdefault(upstream, Lane(1024, 0))

    def enter_now(self, upstream: str) -> Lane[_Waiting] | None:
        """The lane of the upstream, with a place in it that `leave` gives back; None: none is free. `enter` waits for one."""
        lane = self._lanes.get(upstream)
        if lane is None:
            lane = self.of(upstream)
        return lane if lane.begin() else None

    async def enter(self, upstream: str, caller: str) -> Lane[_Waiting]:
        """The same, perhaps after some waiting. Raises UpstreamError where there is no place."""
        lane = self.of(upstream)
        if not lane.begin():
            turn: _Waiting = asyncio.get_running_loop().create_future()
            if lane.enter(caller, turn) is Entry.REFUSED:
                raise self._full(upstream, lane)
            await self._wait(lane, upstream, caller, turn)
        return lane

    async def _wait(self, lane: Lane[_Waiting], upstream: str, caller: str, turn: _Waiting) -> None:
        known = self._upstreams.get(upstream)
        try:
            async with asyncio.timeout(known.queue_wait_s if known is not None else 0):
                await turn
        except BaseException as reason:
            if not lane.withdraw(caller, turn) and not turn.cancelled():
                leave(lane)  # its turn came in the very moment it left
            if isinstance(reason, TimeoutError):
                raise self._too_late(upstream) from None
            raise

    def _full(self, upstream: str, lane: Lane[_Waiting]) -> UpstreamError:
        self._on_refusal(upstream, "queue_full")
        return UpstreamError(
            f"all {lane.places} places at {upstream} are taken (max_connections) and {lane.waiting} requests wait (queue)",
            kind="overloaded",
            code="queue_full",
            retry_after=RETRY_AFTER_S,
        )

    def _too_late(self, upstream: str) -> UpstreamError:
        self._on_refusal(upstream, "queue_timeout")
        return UpstreamError(
            f"no place at {upstream} became free in time (max_connections, queue_wait_s)",
            kind="overloaded",
            code="queue_timeout",
            retry_after=RETRY_AFTER_S,
        )
