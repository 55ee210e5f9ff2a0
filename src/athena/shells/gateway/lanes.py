"""The places of all upstreams, waited for: what `lane` decides, with futures and a limit of time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from athena.errors import UpstreamError
from athena.shells.config import Config, Upstream
from athena.shells.gateway.holding import RETRY_AFTER_S
from athena.shells.gateway.lane import Lane, Turn

_Waiting = asyncio.Future[None]


def share(number: int, processes: int) -> int:
    """What one of several processes has of a number that all of them share: at least one."""
    return max(1, number // processes)


class Place:
    """A request's place at an upstream, until it is given back."""

    __slots__ = ("_give_back",)

    def __init__(self, give_back: Callable[[], None]) -> None:
        self._give_back: Callable[[], None] | None = give_back

    def give_back(self) -> None:
        """The request is done there."""
        if self._give_back is not None:
            give_back, self._give_back = self._give_back, None
            give_back()


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
            self._admit(lane)

    def of(self, upstream: str) -> Lane[_Waiting]:
        """The lane of an upstream: a request that began under an earlier configuration may ask for one that is gone."""
        return self._lanes.setdefault(upstream, Lane(1024, 0))

    async def enter(self, upstream: str, caller: str) -> Place:
        """A place at the upstream, perhaps after some waiting. Raises UpstreamError where there is none."""
        lane = self.of(upstream)
        turn: _Waiting = asyncio.get_running_loop().create_future()
        match lane.enter(caller, turn):
            case Turn.REFUSED:
                raise self._refused(upstream, _queue_full(upstream, lane))
            case Turn.WAITING:
                await self._wait(lane, upstream, caller, turn)
        return Place(lambda: self._leave(lane))

    async def _wait(self, lane: Lane[_Waiting], upstream: str, caller: str, turn: _Waiting) -> None:
        known = self._upstreams.get(upstream)
        try:
            async with asyncio.timeout(known.queue_wait_s if known is not None else 0):
                await turn
        except BaseException as reason:
            if not lane.withdraw(caller, turn) and not turn.cancelled():
                self._leave(lane)  # its turn came in the very moment it left
            if isinstance(reason, TimeoutError):
                raise self._refused(upstream, _queue_timeout(upstream)) from None
            raise

    def _leave(self, lane: Lane[_Waiting]) -> None:
        lane.leave()
        self._admit(lane)

    def _admit(self, lane: Lane[_Waiting]) -> None:
        while (turn := lane.admit()) is not None:
            if turn.done():
                lane.leave()  # it has given up and not yet said so
            else:
                turn.set_result(None)

    def _refused(self, upstream: str, error: UpstreamError) -> UpstreamError:
        self._on_refusal(upstream, error.code)
        return error


def _queue_full(upstream: str, lane: Lane[_Waiting]) -> UpstreamError:
    return UpstreamError(
        f"all {lane.places} places at {upstream} (max_connections) are taken and {lane.queue} requests wait (queue)",
        kind="overloaded",
        code="queue_full",
        retry_after=RETRY_AFTER_S,
    )


def _queue_timeout(upstream: str) -> UpstreamError:
    return UpstreamError(
        f"no place at {upstream} became free in time (max_connections, queue_wait_s)",
        kind="overloaded",
        code="queue_timeout",
        retry_after=RETRY_AFTER_S,
    )
