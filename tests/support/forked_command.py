"""Commands of `athena` as processes that need no new interpreter: forks of one that has everything imported.

An interpreter needs most of a second of work until its gateway has imported and rehearsed everything, and the tests start
hundreds of them. A fork is a process of its own as well: it has the arguments, the environment, the directory, the standard
streams, the signals and the exit code that a test gives it or looks at. Its beginning, its memory and its line in the system's
list of processes are not those of a user's process: a test that looks at these starts an interpreter.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from support import fork_server
from support.patience import PATIENCE

_PROGRAM = str(Path(fork_server.__file__))
_INHERITED = ("PATH", "LANG", "LC_ALL", "PYTHONPATH", "REPLAY_ALL")


def inherited() -> dict[str, str]:
    """What processes in tests have of this machine's environment."""
    return {name: os.environ[name] for name in _INHERITED if name in os.environ}


def can_be_forked(environment: dict[str, str]) -> bool:
    """Would a new interpreter in this environment be set up as the server of forks is? `./dev soak` forks none."""
    if os.environ.get("ATHENA_SOAK"):
        return False
    own = inherited()
    of_the_start = {name for name in (*environment, *own) if name.startswith(("PYTHON", "LC_", "LANG"))}
    return all(environment.get(name) == own.get(name) for name in of_the_start)


class ForkedCommand:
    """A running `athena` with these arguments, or another program; it can do what a `subprocess.Popen` can."""

    def __init__(
        self,
        arguments: Sequence[str],
        streams: tuple[int, int, int],
        *,
        directory: Path,
        environment: dict[str, str],
        file: str = "",
        modules: tuple[str, ...] = (),
    ) -> None:
        """`file`: that of another program; `modules`: what is imported for such programs besides `athena`."""
        assert can_be_forked(environment)
        self.args = [file or "athena", *arguments]
        self.returncode: int | None = None
        order = {"file": file, "arguments": arguments, "directory": str(directory), "environment": environment}
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.connect(_server(modules))
        socket.send_fds(self._connection, [json.dumps(order).encode() + b"\n"], streams)
        self.pid = self._next_number(PATIENCE)

    def _next_number(self, patience: float | None) -> int:
        if not select.select([self._connection], [], [], patience)[0]:
            raise subprocess.TimeoutExpired(self.args, patience or 0)
        data = self._connection.recv(8, socket.MSG_WAITALL)
        assert len(data) == 8, "the server of forks is gone"
        return int.from_bytes(data, "big")

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, or less than 0: the signal that ended it."""
        if self.returncode is None:
            self.returncode = os.waitstatus_to_exitcode(self._next_number(timeout))
            self._connection.close()
        return self.returncode

    def poll(self) -> int | None:
        """The same if it has ended."""
        if self.returncode is None and select.select([self._connection], [], [], 0)[0]:
            self.wait()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


@cache
def _server(modules: tuple[str, ...]) -> str:
    """Where a server of forks of this test process listens."""
    place = tempfile.TemporaryDirectory(prefix="athena-forks-")
    address = str(Path(place.name) / "socket")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        number = listener.fileno()
        command = [sys.executable, "-P", _PROGRAM, str(number), *modules]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=(number,), env=inherited())

    def end() -> None:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(PATIENCE)
        place.cleanup()

    atexit.register(end)
    return address
