"""`athena` as a process of its own, with a home of its own, as a person would run it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from support.patience import PATIENCE

COMMAND = [sys.executable, "-P", "-m", "athena"]


def environment(home: Path, **extra: str) -> dict[str, str]:
    """A clean environment: nothing of the machine's own settings counts."""
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "LANG", "LC_ALL", "PYTHONPATH")}
    return {**kept, "HOME": str(home), **extra}


def _limited(descriptors: int) -> list[str]:
    """What to put before a command that may have only so many file descriptors; 0: no other limit than ours."""
    return ["/bin/sh", "-c", f'ulimit -n {descriptors} && exec "$@"', "sh"] if descriptors else []


class Result(msgspec.Struct, frozen=True):
    """What a command that ended left behind."""

    code: int
    out: str
    err: str


def athena(home: Path, *arguments: str, stdin: str = "", **extra: str) -> Result:
    """Run a command to its end."""
    done = subprocess.run(
        [*COMMAND, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        cwd=home,
        env=environment(home, **extra),
        timeout=PATIENCE,
        check=False,
    )
    return Result(done.returncode, done.stdout, done.stderr)


class Serving:
    """A running `athena serve`."""

    def __init__(self, home: Path, arguments: Sequence[str], extra: dict[str, str], descriptors: int = 0) -> None:
        self.home = home
        self.errors = home / "stderr.txt"
        with open(self.errors, "ab") as errors:
            self.process = subprocess.Popen(
                [*_limited(descriptors), *COMMAND, "serve", "--port", "0", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=home,
                env=environment(home, **extra),
            )
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
        assert self.process.stdout is not None
        for line in self.process.stdout:
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
        if self.process.stdout is not None:
            self.process.stdout.close()


@contextlib.contextmanager
def serving(home: Path, *arguments: str, config: dict[str, Any] | None = None, **extra: str) -> Iterator[Serving]:
    """`athena serve` on a free port, with this `athena.yml`."""
    if config is not None:
        (home / "athena.yml").write_text(json.dumps(config))
        arguments = ("--config", "athena.yml", *arguments)
    server = Serving(home, arguments, extra)
    try:
        yield server
    finally:
        server.end()
