"""The gateway behind its own HTTP front on a free loopback port: in a thread where a test looks into it, else as the process
that users run.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import signal
import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import uvloop

from athena.shells.config import Config
from athena.shells.gateway.app import Gateway
from athena.shells.server.accept import Acceptor
from athena.shells.server.front import Front, front_limits
from athena.shells.server.http import HttpConnection
from athena.shells.server.listen import listen
from athena.shells.server.ready import warm_up
from support.athena_process import Serving
from support.config_file import load_config
from support.forked_command import ForkedCommand
from support.hand_clock import HandClock
from support.patience import PATIENCE
from support.replays import check_collected


async def _serve(gateway: Gateway, started: Callable[[int], None], stop: asyncio.Event) -> None:
    """The gateway on the protocol that `athena serve` uses, on a free port, until told to stop."""
    loop = asyncio.get_running_loop()
    front = Front(front_limits(gateway.config), gateway.memory)
    (slot,) = listen("127.0.0.1", 0)
    gateway.start()
    server = Acceptor(loop, slot[0], front, lambda: HttpConnection(gateway, front, loop))
    started(slot[0].getsockname()[1])
    await stop.wait()
    server.close()
    slot[0].close()
    gateway.begin_drain()
    gateway.stop_flows()
    front.draining = True
    for connection in tuple(front.connections):
        connection.shutdown()
    async with asyncio.timeout(PATIENCE):
        while front.tasks:
            await asyncio.wait(tuple(front.tasks))
    for connection in tuple(front.connections):
        connection.cut()
    await gateway.close()


class LogKeeper(logging.Handler):
    """Every log line of every logger, with all it carries."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.name} {record.levelname} {record.getMessage()} {getattr(record, 'fields', '')}")
        if record.exc_info:
            self.lines.append(logging.Formatter().formatException(record.exc_info))


class GatewayThread:
    """A gateway served from a thread."""

    def __init__(self, config: Config, clock: HandClock | None = None) -> None:
        # As the server does.
        warm_up(config)
        self.gateway = Gateway(config, bound=("127.0.0.1",))
        self.logs = LogKeeper()
        self.port = 0
        self.leftovers: list[str] = []
        """Tasks that were still there when everything had ended."""
        self._clock = clock
        self._loop = clock or uvloop.new_event_loop()
        self._stop = asyncio.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        self._loop.run_until_complete(self._main())
        self._loop.close()

    async def _main(self) -> None:
        await _serve(self.gateway, self._started, self._stop)
        patience = time.monotonic() + PATIENCE
        while (left := asyncio.all_tasks() - {asyncio.current_task()}) and time.monotonic() < patience:
            await asyncio.wait(left, timeout=0.1)
        self.leftovers = [repr(task) for task in left]

    def _started(self, port: int) -> None:
        self.port = port
        self._ready.set()

    def start(self) -> None:
        logging.getLogger().addHandler(self.logs)
        logging.getLogger("athena").setLevel(logging.DEBUG)
        self._thread.start()
        assert self._ready.wait(PATIENCE)

    def call(self, function: Callable[..., object], *arguments: Any) -> None:
        """Call a function inside of the gateway's loop, and wait until that is done."""
        done = threading.Event()

        def run() -> None:
            function(*arguments)
            done.set()

        self._loop.call_soon_threadsafe(run)
        assert done.wait(PATIENCE)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def stop(self) -> None:
        if self._clock is not None:
            self._clock.release()
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(2 * PATIENCE)
        logging.getLogger().removeHandler(self.logs)
        assert not self._thread.is_alive(), "the gateway did not stop"
        check_collected()
        assert not self.leftovers, self.leftovers


@contextlib.contextmanager
def running_gateway(value: dict[str, Any], directory: Path, clock: HandClock | None = None) -> Iterator[GatewayThread]:
    """A gateway in a thread, for as long as it is needed; its limits go by `clock` if one is given."""
    thread = GatewayThread(load_config(value, directory), clock)
    thread.start()
    try:
        yield thread
    finally:
        thread.stop()


class GatewayProcess(Serving):
    """`athena serve` as users run it; everything it logs goes to a file."""

    def __init__(
        self,
        value: dict[str, Any],
        directory: Path,
        log_level: str = "debug",
        descriptors: int = 0,
        *,
        forked: bool = True,
        **environment: str,
    ) -> None:
        self._log = directory / "gateway.log"
        log = {"level": log_level, "format": "json", "file": str(self._log)}
        (directory / "athena.yml").write_text(json.dumps({**value, "log": log}))
        super().__init__(directory, ("--config", "athena.yml"), environment, descriptors, forked=forked)

    def memory(self) -> int:
        """What it holds of its own, in bytes: no file pages, no kernel buffers."""
        return self._status("RssAnon")

    def peak_memory(self) -> int:
        """The most it ever had in memory, in bytes, file pages included."""
        return self._status("VmHWM")

    def _status(self, name: str) -> int:
        assert not isinstance(self.process, ForkedCommand), "a fork also holds what the server of forks has imported"
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        return int(next(line for line in status.splitlines() if line.startswith(f"{name}:")).split()[1]) * 1024

    def number(self, name: str) -> float:
        """One of its numbers, by its name and labels as /metrics shows them."""
        return read_number(self.port, name)

    def log(self) -> str:
        """Everything it logged so far."""
        return self._log.read_text(errors="replace") + super().log()

    def stop(self) -> None:
        self.signal(signal.SIGTERM)
        try:
            self.wait()
        finally:
            self.end()


def read_number(port: int, name: str) -> float:
    """One of a gateway's numbers, by its name and labels as /metrics shows them."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE) as answer:
        lines = answer.read().decode().splitlines()
    return next(float(line.rpartition(" ")[2]) for line in lines if line.rpartition(" ")[0] == name)


def free_port() -> int:
    """A port where nobody listens."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])
