"""Run as a program: a process that has `athena` imported, and forks itself for each program that it is asked to run.

Usage: python -P fork_server.py DESCRIPTOR [MODULE...]

DESCRIPTOR is that of a listening socket, MODULEs are imported besides `athena`, and the end of standard input is the end. Each
connection asks for one program: a line of JSON with its file (empty: the command `athena`), arguments, directory and
environment, and along with it the three descriptors of its standard streams. Answers are the id of the new process and, when
it has ended, its wait status, each as eight bytes.
"""

from __future__ import annotations

import contextlib
import gc
import io
import json
import os
import runpy
import select
import signal
import socket
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import Any

STREAMS = 3


def main() -> None:
    listener = socket.socket(fileno=int(sys.argv[1]))
    for name in sys.argv[2:]:
        import_module(name)
    _import_and_rehearse()
    order = _Server(listener).run()
    if order is not None:
        _become(order)
        if file := order["file"]:
            sys.path.insert(0, str(Path(file).parent))
            runpy.run_path(file, run_name="__main__")
        else:
            runpy.run_module("athena", run_name="__main__", alter_sys=True)


def _import_and_rehearse() -> None:
    """What a process of `athena` does before its first answer, done once for all of them."""
    from athena.shells.cli.registry import PACKAGE, ROWS
    from athena.shells.config import Sources, load
    from athena.shells.server.plan import with_demo
    from athena.shells.server.ready import import_everything, make_first_answers_ready

    for row in ROWS:
        import_module(f"{PACKAGE}.{row.module or row.name}")
    for name in ("athena.shells.server.process", "athena.shells.daemon", "rich.console", "rich.markup"):
        import_module(name)
    import_everything()
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        config = load(Sources(environment={}, home=place, directory=place)).config
    make_first_answers_ready(with_demo(config, "http://127.0.0.1:9"))
    gc.collect()
    gc.freeze()


class _Server:
    """Takes orders and tells of ends; in the process of a command `run` returns that command's order."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._running: dict[int, socket.socket] = {}
        self._woken, self._wake = socket.socketpair()
        self._woken.setblocking(False)
        self._wake.setblocking(False)

    def run(self) -> dict[str, Any] | None:
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)
        while True:
            # Not an object with a descriptor of its own, which the forks would have too.
            ready, _, _ = select.select([sys.stdin.fileno(), self._listener, self._woken], [], [])
            if self._woken in ready:
                with contextlib.suppress(BlockingIOError):
                    self._woken.recv(4096)
                self._tell_of_ends()
            if self._listener in ready and (order := self._fork()) is not None:
                return order
            if sys.stdin.fileno() in ready:
                return None

    def _fork(self) -> dict[str, Any] | None:
        connection, _ = self._listener.accept()
        data, streams, _, _ = socket.recv_fds(connection, 65536, STREAMS)
        while not data.endswith(b"\n"):
            data += connection.recv(65536)
        process = os.fork()
        if process == 0:
            connection.close()
            self._close()
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
                os.close(stream)
            return dict(json.loads(data))
        for stream in streams:
            os.close(stream)
        self._running[process] = connection
        connection.sendall(process.to_bytes(8, "big"))
        return None

    def _close(self) -> None:
        """Nothing of the server stays open in a command's process."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for sock in (self._listener, self._woken, self._wake, *self._running.values()):
            sock.close()

    def _tell_of_ends(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while True:
                process, status = os.waitpid(-1, os.WNOHANG)
                if not process:
                    return
                with self._running.pop(process) as connection, contextlib.suppress(OSError):
                    connection.sendall(status.to_bytes(8, "big"))


def _become(order: dict[str, Any]) -> None:
    """Be what a new interpreter would be with these arguments, here, in this environment."""
    # A shell that starts something behind its back has it ignore interrupts. No command in a test is started so.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(order["directory"])
    os.environ.clear()
    os.environ.update(order["environment"])
    time.tzset()
    sys.argv = [order["file"], *order["arguments"]]
    if os.environ.get("REPLAY_ALL"):
        sys.path.insert(0, str(Path(__file__).parents[1]))
        import_module("support.replays")
        del sys.path[0]
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=sys.stdout.isatty())


if __name__ == "__main__":
    main()
