"""From a plan to running processes."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable

import msgspec

from athena.errors import AthenaError
from athena.shells import logs, machine
from athena.shells.config import ConfigWatcher, check_bind, is_loopback
from athena.shells.envelope_key import kept_envelope_key
from athena.shells.gateway.numbers import Area, Numbers
from athena.shells.recorder.frames import check_sse_dir
from athena.shells.server.listen import Slot, listen
from athena.shells.server.memory import keep_freed_memory
from athena.shells.server.plan import Plan, Started
from athena.shells.server.process import ServerProcess, inspector_page
from athena.shells.server.tls import ListenerTls
from athena.shells.server.workers import Supervisor

LOG = logging.getLogger("athena.server")


def serve(plan: Plan) -> int:
    """Serve until a signal; the exit code. Raises AthenaError when it cannot start."""
    config = plan.loaded.config
    check_bind(config.host, config.keys)
    tls = ListenerTls(config.tls) if config.tls.cert else None
    keep_freed_memory()
    slots = listen(config.host, config.port, config.workers)
    machine.raise_descriptor_limit()
    several = len(slots) > 1
    try:
        page = inspector_page(config, config, slots[0], alone=not several)
        logs.configure(config, threaded=not several, default_file=plan.default_log_file, inspector=page)
    except OSError as error:
        raise AthenaError(f"the log file cannot be written: {error}", code="log_file") from None
    if config.keys and tls is None and not is_loopback(config.host):
        LOG.warning(
            "keys and conversations travel in clear: %s speaks plain HTTP to other machines (set tls.cert)", config.host
        )
    try:
        check_sse_dir(config.log.sse_dir)
        # Once for all processes: state that one of them seals another must be able to open.
        key = kept_envelope_key(config)
        if several:
            return _supervise(plan, slots, key, tls)
        return _run(ServerProcess(plan, slots[0], key, tls=tls))
    finally:
        logs.shut_down()


def _supervise(plan: Plan, slots: list[Slot], key: bytes, tls: ListenerTls | None) -> int:
    parent = os.getpid()
    config = plan.loaded.config
    quiet = msgspec.structs.replace(plan, on_started=lambda started: None)
    port = slots[0][0].getsockname()[1]
    # Before any process is forked: all of them see all areas, and know which files have changed since the start.
    areas = [Area() for _ in slots]
    watcher = ConfigWatcher(plan.sources, plan.loaded)

    def work(number: int, slot: Slot) -> int:
        page = inspector_page(config, config, slot, alone=False)
        logs.configure(config, default_file=plan.default_log_file, inspector=page)
        numbers = Numbers(areas, number)
        process = ServerProcess(quiet, slot, key, parent=parent, speaks=number == 0, numbers=numbers, tls=tls, watcher=watcher)
        return _run(process)

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
