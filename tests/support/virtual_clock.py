"""An event loop whose clock is a number: waiting takes no time, and a test sees exactly when each limit ran out."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


class _Selector(selectors.SelectSelector):
    """Instead of waiting for a timer it moves the clock to it."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None, "everything waits and no timer is set: this would hang"
        self.now += max(0.0, timeout)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """Only for coroutines that wait for timers and futures; sockets and threads need real time."""

    def __init__(self) -> None:
        self._clock = _Selector()
        super().__init__(self._clock)
        self._clock_resolution = 1e-6  # a timer that is due within it fires: sums of floating-point numbers are not exact

    def time(self) -> float:
        return self._clock.now


def run_virtually(main: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
    """Run a coroutine to its end on a clock that begins at 0."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main())
