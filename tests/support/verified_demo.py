"""The demo upstream with planted faults in a thread of its own, and `athena verify` run in this process."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

from click.testing import CliRunner, Result

from athena.shells.cli import cli
from athena.shells.demo_server import DemoServer


@contextlib.contextmanager
def demo(planted: dict[str, float] | None = None, seed: int = 0) -> Iterator[str]:
    """The demo upstream in a thread of its own; its address without the version."""
    loop = asyncio.new_event_loop()
    server = DemoServer(0.0, planted, seed)
    loop.run_until_complete(server.start())
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def end() -> None:
        await server.close()
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    try:
        yield server.url.removesuffix("/v1")
    finally:
        asyncio.run_coroutine_threadsafe(end(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


def verify(tmp_path: Path, *arguments: str) -> Result:
    environment = {"ATHENA_STATE_DIR": str(tmp_path / "state"), "HOME": str(tmp_path)}
    with contextlib.chdir(tmp_path):
        result = CliRunner().invoke(cli, ["verify", *arguments], env=environment, standalone_mode=False)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result
