"""An event loop whose clock stands still until a test moves it: limits end when it says so, on a slow machine too."""

from __future__ import annotations

import asyncio
import time

from support.patience import PATIENCE

_STEP = 1.0
_ROUNDS = 5


class HandClock(asyncio.SelectorEventLoop):
    """Time passes in `advance` and nowhere else, until `release`: then it goes on by itself."""

    def __init__(self) -> None:
        self._now = 1000.0
        self._released: float | None = None
        super().__init__()

    def time(self) -> float:
        return self._now if self._released is None else self._now + time.monotonic() - self._released

    async def pass_time(self, seconds: float) -> None:
        """Let time pass second by second; timers that are due run in their order, and what has arrived is read before."""
        await self.settle()
        end = self._now + seconds
        while self._now < end:
            self._now = min(end, self._now + _STEP)
            await self.settle()

    async def settle(self) -> None:
        """Some rounds of the loop without any time passing: what has arrived at its sockets is read."""
        for _ in range(_ROUNDS):
            await asyncio.sleep(0)

    def advance(self, seconds: float) -> None:
        """The same from another thread than the loop's."""
        asyncio.run_coroutine_threadsafe(self.pass_time(seconds), self).result(PATIENCE)

    def release(self) -> None:
        """From here on time passes by itself: for shutting down."""
        self._released = time.monotonic()
        self.call_soon_threadsafe(lambda: None)  # it sleeps until its clock is moved
