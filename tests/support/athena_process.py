"""`athena` as a process of its own, with a home of its own, as a person would run it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from support.forked_command import ForkedCommand, can_be_forked, inherited
from support.patience import PATIENCE

Process = ForkedCommand | subprocess.Popen[bytes]
Streams = tuple[int, int, int]
"""Descriptors of standard input, output and error."""
COMMAND = [sys.executable, "-P", "-m", "athena"]


def environment(home: Path, **extra: str) -> dict[str, str]:
    """A clean environment: nothing of the machine's own settings counts."""
    return {**inherited(), "HOME": str(home), **extra}


class Result(msgspec.Struct, frozen=True):
    """What a command that ended left behind."""

    code: int
    out: str
    err: str


def athena(home: Path, *arguments: str, stdin: str = "", **extra: str) -> Result:
    """Run a command in a home to its end."""
    return run_athena(arguments, home, environment(home, **extra), stdin)


def run_athena(arguments: Sequence[str], directory: Path, variables: dict[str, str], stdin: str = "") -> Result:
    """Run a command to its end."""
    return _ended(lambda streams: start_athena(arguments, streams, directory, variables), stdin)


def run_program(file: Path, modules: tuple[str, ...], directory: Path, variables: dict[str, str]) -> Result:
    """Run a program in Python to its end; `modules` are those whose import it would wait for."""

    def start(streams: Streams) -> Process:
        if can_be_forked(variables):
            return ForkedCommand((), streams, directory=directory, environment=variables, file=str(file), modules=modules)
        return _started([sys.executable, str(file)], streams, directory, variables)

    return _ended(start, "")


def _ended(start: Callable[[Streams], Process], stdin: str) -> Result:
    with tempfile.TemporaryFile("w+") as given, tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        given.write(stdin)
        given.seek(0)
        process = start((given.fileno(), out.fileno(), err.fileno()))
        try:
            code = process.wait(PATIENCE)
        finally:
            process.kill()
        out.seek(0)
        err.seek(0)
        return Result(code, out.read(), err.read())


def start_athena(
    arguments: Sequence[str], streams: Streams, directory: Path, variables: dict[str, str], *, forked: bool = True
) -> Process:
    """`athena` in a process of its own; where that may be, and `forked` is true, without a new interpreter."""
    if forked and can_be_forked(variables):
        return ForkedCommand(arguments, streams, directory=directory, environment=variables)
    return _started([*COMMAND, *arguments], streams, directory, variables)


def _started(command: list[str], streams: Streams, directory: Path, variables: dict[str, str]) -> subprocess.Popen[bytes]:
    given, out, err = streams
    return subprocess.Popen(command, stdin=given, stdout=out, stderr=err, cwd=directory, env=variables)


class Serving:
    """A running `athena serve`. With `forked` false, or a limit of file descriptors, it has an interpreter of its own."""

    def __init__(
        self, home: Path, arguments: Sequence[str], extra: dict[str, str], descriptors: int = 0, *, forked: bool = True
    ) -> None:
        self.home = home
        self.errors = home / "stderr.txt"
        command, variables = ["serve", "--port", "0", *arguments], environment(home, **extra)
        ours, theirs = os.pipe()
        self._output = open(ours, encoding="utf-8")  # noqa: SIM115 (until `end`)
        self.process: Process
        with open(self.errors, "ab") as errors, open(os.devnull, "rb") as nothing, open(theirs, "wb") as output:
            streams = (nothing.fileno(), output.fileno(), errors.fileno())
            if descriptors:
                shell = ["/bin/sh", "-c", f'ulimit -n {descriptors} && exec "$@"', "sh", *COMMAND, *command]
                self.process = _started(shell, streams, home, variables)
            else:
                self.process = start_athena(command, streams, home, variables, forked=forked)
        self.banner = ""
        self.port = 0
        self.scheme = "http"
        self._up = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        if not self._up.wait(PATIENCE) or not self.port:
            self.end()
            raise AssertionError(f"athena serve did not start: {self.log()}")

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    def log(self) -> str:
        """Standard error so far."""
        return self.errors.read_text()

    def says(self, text: str) -> bool:
        """Does the log hold this text, or will it soon?"""
        deadline = time.monotonic() + PATIENCE
        while text not in self.log():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True

    def _read(self) -> None:
        for line in self._output:
            self.banner += line
            found = re.search(r"listens on (https?)://[^ ]*:(\d+)", line)
            if found:
                self.scheme, self.port = found.group(1), int(found.group(2))
                self._up.set()
        self._up.set()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self, patience: float = PATIENCE) -> int:
        """Its exit code."""
        code = self.process.wait(patience)
        self._reader.join(PATIENCE)
        return code

    def end(self) -> None:
        """Whatever state it is in."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        self._output.close()


@contextlib.contextmanager
def serving(
    home: Path, *arguments: str, config: dict[str, Any] | None = None, forked: bool = True, **extra: str
) -> Iterator[Serving]:
    """`athena serve` on a free port, with this `athena.yml`."""
    if config is not None:
        (home / "athena.yml").write_text(json.dumps(config))
        arguments = ("--config", "athena.yml", *arguments)
    server = Serving(home, arguments, extra, forked=forked)
    try:
        yield server
    finally:
        server.end()
