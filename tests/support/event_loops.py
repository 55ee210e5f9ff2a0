"""Running a coroutine on each event loop that Athena supports, without leftovers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from support.hand_clock import HandClock
from support.patience import PATIENCE

Run = Callable[[Callable[[], Coroutine[Any, Any, None]]], None]


def _runner(factory: Callable[[], asyncio.AbstractEventLoop]) -> Run:
    def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
        complaints: list[dict[str, Any]] = []

        async def bounded() -> None:
            loop, task = asyncio.get_running_loop(), asyncio.current_task()
            assert task is not None
            loop.set_exception_handler(lambda _, context: complaints.append(context))
            # Not by the loop's clock, which may stand still.
            hanging = threading.Timer(PATIENCE, loop.call_soon_threadsafe, (task.cancel, "it hangs"))
            hanging.start()
            try:
                await main()
            finally:
                hanging.cancel()
                hanging.join()
            await asyncio.sleep(0)
            left = asyncio.all_tasks() - {asyncio.current_task()}
            assert not left, f"tasks left behind: {left}"

        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(bounded())
        assert not complaints, complaints

    return run


both_loops = pytest.mark.parametrize(
    "run",
    [pytest.param(_runner(asyncio.new_event_loop), id="asyncio"), pytest.param(_runner(uvloop.new_event_loop), id="uvloop")],
)

by_hand_clock = pytest.mark.parametrize("run", [pytest.param(_runner(HandClock), id="hand clock")])
"""On a loop whose time the test lets pass: `hand_clock()` inside of the coroutine."""


def hand_clock() -> HandClock:
    """The running loop."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, HandClock)
    return loop
