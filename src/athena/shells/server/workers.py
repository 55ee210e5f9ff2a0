"""Several serving processes under one parent: it forwards signals and replaces a process that dies.

Each process has listening sockets of its own on the shared port (SO_REUSEPORT), made by the parent: connections that reach
a process which has just died wait in its queue for the next one. Each has an area of its own for its numbers, which outlives
it and which all of them read (`gateway/numbers.py`).
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import time
from collections.abc import Callable

import msgspec

from athena.shells import logs
from athena.shells.server.listen import Slot
from athena.shells.server.terminal import StartTerminal

LOG = logging.getLogger("athena.server")
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)
_SHORT_LIFE = 5.0
_LONGEST_PAUSE = 5.0


class _Worker(msgspec.Struct):
    number: int
    slot: Slot
    pid: int = 0
    born: float = 0.0
    deaths: int = 0
    """In quick succession."""
    due: float = 0.0
    """When to start it again, while it has no process."""


class Supervisor:
    """The parent. `run_worker(number, slot)` is what a process does; it returns its exit code."""

    def __init__(self, slots: list[Slot], run_worker: Callable[[int, Slot], int]) -> None:
        self._workers = [_Worker(number, slot) for number, slot in enumerate(slots)]
        self._run_worker = run_worker
        self._terminal = StartTerminal()
        self._stop_signals = 0
        self._code = 0

    def run(self, on_started: Callable[[], None]) -> int:
        """Until all processes have ended after a signal; the exit code."""
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        os.set_blocking(writing, False)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        for caught in _SIGNALS:
            signal.signal(caught, lambda *_: None)
        self._pipe = (reading, writing)
        for worker in self._workers:
            self._start(worker)
        on_started()
        while any(worker.pid for worker in self._workers) or not self._stop_signals:
            select.select([reading], [], [], self._pause())
            with contextlib.suppress(BlockingIOError):
                for number in os.read(reading, 4096):
                    self._on_signal(number)
            self._bury()
            self._replace()
        return self._code

    def _pause(self) -> float | None:
        due = [worker.due for worker in self._workers if not worker.pid]
        return max(0.0, min(due) - time.monotonic()) if due and not self._stop_signals else None

    def _on_signal(self, number: int) -> None:
        if number in (signal.SIGTERM, signal.SIGINT):
            self._stop_signals += 1
            if self._stop_signals == 1:
                for worker in self._workers:
                    for sock in worker.slot:
                        sock.close()
            self._tell(signal.SIGTERM if self._stop_signals == 1 else signal.SIGQUIT)
        elif number == signal.SIGHUP and self._terminal.is_closed():
            self._on_signal(signal.SIGTERM)
        elif number == signal.SIGHUP:
            self._tell(signal.SIGHUP)

    def _tell(self, number: signal.Signals) -> None:
        for worker in self._workers:
            if worker.pid:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(worker.pid, number)

    def _start(self, worker: _Worker) -> None:
        # Signals wait until the child has its own handlers, so that none is lost in between.
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        try:
            pid = os.fork()
            if pid == 0:
                self._be(worker)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        worker.pid, worker.born = pid, time.monotonic()

    def _be(self, worker: _Worker) -> None:
        """In the child: serve, and never return into the parent's code."""
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            for descriptor in self._pipe:
                os.close(descriptor)
            for number in _SIGNALS:
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
            for other in self._workers:
                if other is not worker:
                    for sock in other.slot:
                        sock.close()
            logs.forget()
            code = self._run_worker(worker.number, worker.slot)
        except BaseException:
            LOG.exception("a serving process failed")
        finally:
            logs.shut_down()
            os._exit(code)

    def _bury(self) -> None:
        """Take note of processes that have ended."""
        for worker in self._workers:
            if not worker.pid:
                continue
            try:
                pid, status = os.waitpid(worker.pid, os.WNOHANG)
            except ChildProcessError:
                pid, status = worker.pid, 0
            if not pid:
                continue
            code = os.waitstatus_to_exitcode(status)
            worker.pid = 0
            if self._stop_signals:
                self._code = max(self._code, int(code != 0))
                continue
            now = time.monotonic()
            worker.deaths = worker.deaths + 1 if now - worker.born < _SHORT_LIFE else 0
            pause = min(_LONGEST_PAUSE, 0.1 * float(2**worker.deaths)) if worker.deaths else 0.0
            worker.due = now + pause
            fields = {"worker": worker.number, "pid": pid, "exit_code": code, "pause_s": pause}
            LOG.error("a serving process ended; starting another", extra={"fields": fields})

    def _replace(self) -> None:
        if self._stop_signals:
            return
        for worker in self._workers:
            if not worker.pid and time.monotonic() >= worker.due:
                self._start(worker)
