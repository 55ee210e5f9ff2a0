"""Running a coroutine on each event loop that Athena supports, without leftovers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from support.patience import PATIENCE

Run = Callable[[Callable[[], Coroutine[Any, Any, None]]], None]


def _runner(factory: Callable[[], asyncio.AbstractEventLoop]) -> Run:
    def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
        complaints: list[dict[str, Any]] = []

        async def bounded() -> None:
            asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
            async with asyncio.timeout(PATIENCE):
                await main()
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
