"""A PostgreSQL server of Debian's package for one test session, on a socket of its own."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from support.patience import PATIENCE


def binaries() -> Path | None:
    """Where the server's programs are; None where PostgreSQL is not installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    if found:
        return found[-1].parent
    on_path = shutil.which("postgres")
    return Path(on_path).parent if on_path else None


class PostgresServer:
    """One server with an empty database; `url` is its address."""

    def __init__(self) -> None:
        programs = binaries()
        assert programs is not None
        self._programs = programs
        self._directory = Path(tempfile.mkdtemp(prefix="athena-postgres-"))
        self._as_user: list[str] = []
        if os.geteuid() == 0:
            # The server refuses to run as root.
            shutil.chown(self._directory, "postgres")
            self._as_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups"]
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self._data = self._directory / "data"
        self._run("initdb", "-D", str(self._data), "-U", "athena", "-A", "trust", "--no-sync", "-E", "UTF8", "--locale=C")
        self.url = f"postgresql://athena@127.0.0.1:{self.port}/postgres"
        self._server: subprocess.Popen[bytes] | None = None
        self.start()

    def _run(self, program: str, *arguments: str) -> None:
        command = [*self._as_user, str(self._programs / program), *arguments]
        subprocess.run(command, check=True, capture_output=True, cwd=self._directory, timeout=PATIENCE)

    def start(self) -> None:
        """Start the server and wait until it answers."""
        command = [
            *self._as_user, str(self._programs / "postgres"), "-D", str(self._data), "-p", str(self.port),
            "-c", "listen_addresses=127.0.0.1", "-c", f"unix_socket_directories={self._directory}", "-c", "shared_buffers=16MB",
            # No test cuts the power of the machine; a killed process loses nothing that the kernel has.
            "-c", "fsync=off",
        ]  # fmt: skip
        with open(self._directory / "log", "ab") as log:
            self._server = subprocess.Popen(command, cwd=self._directory, stdout=log, stderr=log)
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                self._run("pg_isready", "-h", "127.0.0.1", "-p", str(self.port), "-U", "athena")
                return
            except subprocess.CalledProcessError:
                log_text = (self._directory / "log").read_text()
                assert time.monotonic() < deadline, log_text
                assert self._server.poll() is None, log_text
                time.sleep(0.05)

    def stop(self, *, at_once: bool = False) -> None:
        """End it: all connections are cut. `at_once`: as if it had crashed."""
        if self._server is not None:
            self._server.send_signal(signal.SIGQUIT if at_once else signal.SIGINT)
            self._server.wait(PATIENCE)
            self._server = None

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self._directory)
