"""One serving process: it accepts, reloads, drains, and ends.

The end: the first signal stops new work, lets open answers go on for `timeouts.drain_s`, then tells
every client that is left; a second one leaves them a moment to be told. Reload: the files are looked at every second and on
SIGHUP; a bad one is refused with its reason and the old one stays.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from email.utils import formatdate
from functools import partial

from athena.errors import AthenaError, ConfigError
from athena.shells import logs, machine
from athena.shells.config import Config, ConfigWatcher, check_bind, needs_restart
from athena.shells.demo_server import DemoServer
from athena.shells.gateway.app import Gateway
from athena.shells.gateway.numbers import Numbers
from athena.shells.inspector import PATH as INSPECTOR
from athena.shells.recorder.frames import check_sse_dir
from athena.shells.recorder.recorder import record_mode
from athena.shells.server.accept import Acceptor
from athena.shells.server.descriptors import divide
from athena.shells.server.front import Front, front_limits
from athena.shells.server.http import HttpConnection
from athena.shells.server.listen import Slot
from athena.shells.server.memory import FreedMemory, freeze_objects, give_back
from athena.shells.server.plan import Plan, Started, with_demo
from athena.shells.server.ready import import_everything, make_first_answers_ready, warm_up
from athena.shells.server.terminal import StartTerminal
from athena.shells.server.tls import ListenerTls

LOG = logging.getLogger("athena.server")
_LAST_BYTES_S = 5.0
"""Seconds in which clients may read the last bytes after the drain."""
_FAST_DRAIN_S = 0.5
"""The same after a second signal."""
_SWEEP_S = 0.1
_SWITCH_S = 0.001
"""After which a thread that works on a large request or answer lets the loop have its turn."""


class ServerProcess:
    """The gateway on its sockets. `parent` is the process to end with, if any; then only it decides about haste."""

    def __init__(
        self,
        plan: Plan,
        slot: Slot,
        envelope_key: bytes,
        *,
        parent: int | None = None,
        speaks: bool = True,
        numbers: Numbers | None = None,
        tls: ListenerTls | None = None,
        watcher: ConfigWatcher | None = None,
    ) -> None:
        """`watcher` knows the files as they were when the plan was loaded, which may be long ago."""
        self._plan = plan
        self._slot = slot
        self._envelope_key = envelope_key
        self._parent = parent
        self._numbers = numbers
        self._speaks = logging.INFO if speaks else logging.DEBUG
        """Of several processes one tells what all of them do."""
        self._tls = tls
        self._watcher = watcher or ConfigWatcher(plan.sources, plan.loaded)
        self._config = plan.loaded.config
        self._demo: DemoServer | None = None

    async def run(self) -> int:
        """Serve until a signal; the exit code."""
        sys.setswitchinterval(_SWITCH_S)
        loop = asyncio.get_running_loop()
        self._terminal = StartTerminal()
        self._stopping, self._hasty, self._reload_wanted = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._catch_signals(loop)
        self.gateway = Gateway(
            await self._effective(self._config, forced=self._plan.wants_demo),
            envelope_key=self._envelope_key,
            numbers=self._numbers,
            bound=_bound(self._config, self._slot),
        )
        front = self._front = Front(front_limits(self._config), self.gateway.memory)
        front.on_refusal = lambda: self.gateway.metrics.refusals.labels("connections").inc()
        self._descriptors = machine.raise_descriptor_limit(), machine.open_descriptors()
        self._divide_descriptors(self._config)
        self._refresh_date()
        connect = partial(HttpConnection, self.gateway, front, loop)
        if self._watcher.changed():
            await self._reload()  # a process that takes the place of another must not begin with settings of long ago
        secure = self._tls.server_arguments(self._config.timeouts) if self._tls is not None else {}
        import_everything()
        self.gateway.start()
        acceptors = [Acceptor(loop, sock, front, connect, secure) for sock in self._slot]
        started = self._started()
        fields = {"url": started.url, "upstreams": " ".join(self.gateway.config.upstreams)}
        LOG.log(logging.DEBUG if self._plan.greets else self._speaks, "listening", extra={"fields": fields})
        self._plan.on_started(started)
        loop.run_in_executor(None, make_first_answers_ready, self.gateway.config).add_done_callback(freeze_objects)
        housekeeping = loop.create_task(self._housekeep())
        await self._stopping.wait()
        housekeeping.cancel()
        for acceptor in acceptors:
            acceptor.close()
        for sock in self._slot:
            sock.close()
        for acceptor in acceptors:
            await acceptor.settle()
        await self._drain()
        await self.gateway.close()
        if self._demo is not None:
            await self._demo.close()
        LOG.log(self._speaks, "stopped")
        return 1 if self._hasty.is_set() else 0

    def _divide_descriptors(self, config: Config) -> None:
        """Who may have how many connections, by the configuration and by what the system allows."""
        limit, in_use = self._descriptors
        division = divide(config, limit, in_use)
        admission, resources = self._front.admission, self.gateway.resources
        admission.places, self._front.shares_loopback = division.places, division.shares_loopback
        resources.open_descriptors = division.upstreams
        resources.metrics.watch("connections", lambda: len(admission), lambda: admission.places.connections)
        resources.metrics.watch(
            "upstream_connections", lambda: resources.upstream_connections, lambda: resources.open_descriptors
        )
        if division.short:
            LOG.warning(
                "limits.connections is %d, but %d file descriptors (ulimit -n) are enough for %d only",
                config.limits.connections,
                limit,
                division.places.connections,
            )

    def _started(self) -> Started:
        port = self._slot[0].getsockname()[1]
        config, inspector = self.gateway.config, self.gateway.inspector
        # A shared gateway's output is read by more people than may read its prompts: there a key opens the inspector.
        token = f"?token={inspector.token}" if inspector is not None and not config.keys else ""
        path = INSPECTOR + token if inspector is not None else ""
        return Started(host=self._config.host, port=port, demo=self._demo is not None, config=config, inspector=path)

    # -- signals -----------------------------------------------------------------------------------------------------------

    def _catch_signals(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._parent is None:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, self._on_stop)
        else:
            # A terminal or a service manager may signal the whole group besides the parent: only the parent's word of haste
            # counts.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            loop.add_signal_handler(signal.SIGTERM, self._stopping.set)
            loop.add_signal_handler(signal.SIGQUIT, self._on_haste)
        loop.add_signal_handler(signal.SIGHUP, self._on_hangup)

    def _on_hangup(self) -> None:
        """Reload; or stop, where the window in which it ran was closed: unseen, it would keep its port."""
        if self._parent is None and self._terminal.is_closed():
            self._on_stop()
        else:
            self._reload_wanted.set()

    def _on_stop(self) -> None:
        if self._stopping.is_set():
            self._hasty.set()
        self._stopping.set()

    def _on_haste(self) -> None:
        self._hasty.set()
        self._stopping.set()

    # -- while it runs -----------------------------------------------------------------------------------------------------

    async def _housekeep(self) -> None:
        """Once a second: the date, the numbers that others read, freed memory, the files, the parent."""
        loop = asyncio.get_running_loop()
        freed = FreedMemory(self.gateway.memory, lambda: loop.run_in_executor(None, give_back))
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1):
                    await self._reload_wanted.wait()
            self._refresh_date()
            self.gateway.metrics.refresh()
            if self._tls is not None:
                self._front.end_delivered()
            freed.look()
            if self._parent is not None and os.getppid() != self._parent:
                LOG.error("the parent process is gone; draining")
                self._stopping.set()
            if self._reload_wanted.is_set() or self._watcher.changed():
                self._reload_wanted.clear()
                await self._reload()

    def _refresh_date(self) -> None:
        self._front.date_line = f"date: {formatdate(usegmt=True)}\r\n".encode()

    async def _reload(self) -> None:
        bound = self._plan.loaded.config
        try:
            # In a thread: reading files may wait for a disk.
            config = await asyncio.to_thread(self._watcher.reload)
            if not config.upstreams and not self._plan.wants_demo:
                raise ConfigError("no upstream is left")
            check_bind(bound.host, config.keys)
            effective = await self._effective(config, forced=self._plan.demo or not config.upstreams)
            await asyncio.to_thread(check_sse_dir, config.log.sse_dir)
            page = inspector_page(config, bound, self._slot, alone=self._parent is None)
            await asyncio.to_thread(logs.configure, config, default_file=self._plan.default_log_file, inspector=page)
            await asyncio.to_thread(warm_up, effective)
            if self._tls is not None and config.tls.cert:
                await asyncio.to_thread(self._tls.use, config.tls)
            self.gateway.use(effective)
        except (AthenaError, OSError) as error:
            LOG.log(
                max(self._speaks, logging.ERROR), "the changed configuration is refused, the old one stays: %s", _reason(error)
            )
            return
        except Exception:
            # Whatever a file can do to the loader, the running gateway goes on.
            LOG.exception("the changed configuration is refused, the old one stays")
            return
        is_same, self._config = config == self._config, config
        self._front.limits = front_limits(config)
        self._divide_descriptors(config)
        for key in needs_restart(bound, config):
            LOG.warning("%s changed; it takes effect at the next start", key)
        for warning in self._watcher.loaded.warnings:
            LOG.warning("%s", warning)
        # A signal may come when the changed file was seen already.
        LOG.log(self._speaks, "configuration read again, nothing changed" if is_same else "configuration reloaded")

    async def _effective(self, config: Config, *, forced: bool) -> Config:
        """The configuration with the demo in the place of upstreams, where it answers."""
        if not forced:
            return config
        if self._demo is None:
            self._demo = DemoServer()
            await self._demo.start()
        return with_demo(config, self._demo.url)

    # -- the end -----------------------------------------------------------------------------------------------------------

    async def _drain(self) -> None:
        gateway, front = self.gateway, self._front
        gateway.begin_drain()
        front.draining = True
        for connection in tuple(front.connections):
            connection.shutdown()
        if gateway.open_flows:
            LOG.log(
                self._speaks,
                "draining",
                extra={"fields": {"open": gateway.open_flows, "up_to_s": self._config.timeouts.drain_s}},
            )
        if await self._until_empty(self._config.timeouts.drain_s):
            return
        if gateway.open_flows:
            LOG.warning("ending open answers", extra={"fields": {"open": gateway.open_flows}})
        gateway.stop_flows()
        if await self._until_empty(_LAST_BYTES_S):
            return
        for connection in tuple(front.connections):
            connection.cut()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(front.empty.wait(), _FAST_DRAIN_S)

    async def _until_empty(self, seconds: float) -> bool:
        """Wait until all connections are gone. False: time is up, or a second signal came."""
        sweeping = asyncio.ensure_future(self._end_delivered()) if self._tls is not None else None
        empty = asyncio.ensure_future(self._front.empty.wait())
        hasty = asyncio.ensure_future(self._hasty.wait())
        if self._hasty.is_set():
            seconds = min(seconds, _FAST_DRAIN_S)
            waiting = {empty}
        else:
            waiting = {empty, hasty}
        await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for task in (empty, hasty, sweeping):
            if task is not None:
                task.cancel()
        return self._front.empty.is_set()

    async def _end_delivered(self) -> None:
        while True:
            self._front.end_delivered()
            await asyncio.sleep(_SWEEP_S)


def inspector_page(config: Config, bound: Config, slot: Slot, *, alone: bool) -> str:
    """The address of the inspector's page, without its token, where this configuration shows the requests of this process.

    `bound` is the configuration by which the sockets were bound. Of several processes each keeps its own requests in memory,
    and another one may answer a link: then there is a page for them only where they are on disk.
    """
    settings, mode = record_mode(config, _bound(bound, slot))
    if mode == "off" or not settings.inspector or (mode == "memory" and not alone):
        return ""
    return Started(host=bound.host, port=slot[0].getsockname()[1], demo=False, config=bound).url + INSPECTOR


def _bound(config: Config, slot: Slot) -> tuple[str, ...]:
    """The addresses on which we listen."""
    return (config.host, *(str(sock.getsockname()[0]) for sock in slot))


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())
