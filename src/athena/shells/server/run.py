"""From a plan to running processes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

import msgspec

from athena.errors import AthenaError
from athena.shells import logs, machine
from athena.shells.config import check_bind
from athena.shells.gateway.app import kept_envelope_key
from athena.shells.gateway.numbers import Area, Numbers
from athena.shells.server.listen import Slot, listen
from athena.shells.server.memory import keep_freed_memory
from athena.shells.server.plan import Plan, Started
from athena.shells.server.process import ServerProcess
from athena.shells.server.workers import Supervisor


def serve(plan: Plan) -> int:
    """Serve until a signal; the exit code. Raises AthenaError when it can not start."""
    config = plan.loaded.config
    check_bind(config.host, config.keys)
    keep_freed_memory()
    slots = listen(config.host, config.port, config.workers)
    machine.raise_descriptor_limit()
    several = len(slots) > 1
    try:
        logs.configure(config, threaded=not several, default_file=plan.default_log_file)
    except OSError as error:
        raise AthenaError(f"the log file can not be written: {error}", code="log_file") from None
    # Once for all processes: state that one of them seals another must be able to open.
    key = kept_envelope_key(config)
    try:
        if several:
            return _supervise(plan, slots, key)
        return _run(ServerProcess(plan, slots[0], key))
    finally:
        logs.shut_down()


def _supervise(plan: Plan, slots: list[Slot], key: bytes) -> int:
    parent = os.getpid()
    config = plan.loaded.config
    quiet = msgspec.structs.replace(plan, on_started=lambda started: None)
    port = slots[0][0].getsockname()[1]
    # Before any process is forked: all of them see all areas.
    areas = [Area() for _ in slots]

    def work(number: int, slot: Slot) -> int:
        logs.configure(config, default_file=plan.default_log_file)
        return _run(ServerProcess(quiet, slot, key, parent=parent, speaks=number == 0, numbers=Numbers(areas, number)))

    def started() -> None:
        plan.on_started(Started(host=config.host, port=port, demo=plan.wants_demo, config=config))

    return Supervisor(slots, work).run(started)


def _run(process: ServerProcess) -> int:
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(process.run())


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop
