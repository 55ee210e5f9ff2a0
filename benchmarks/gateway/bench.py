"""The bench: the fake upstream, the systems beside it, and one measured pass of the generator through one of them."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from benchmarks.gateway import bodies, processes
from benchmarks.gateway.errors import CannotMeasure
from benchmarks.gateway.systems import Launch, Place, System
from benchmarks.gateway.tools import tool


class Loaded(msgspec.Struct):
    """What `load.c` prints; times in microseconds."""

    done: int
    errors: int
    left: int
    reconnected: int
    seconds: float
    chunks: int
    reads: int
    bytes: int
    cpu_s: float
    """Of the generator itself."""
    requests_per_s: float
    chunks_per_s: float
    first_p50: float
    first_p99: float
    total_p50: float
    total_p99: float
    delay_p50: float
    delay_p90: float
    delay_p99: float
    delay_max: float
    error: str


@dataclass(frozen=True)
class Pass:
    """One pass of the generator through a system."""

    load: Loaded
    cpu_s: float
    """Of the system's process tree."""
    foreign: float
    """Share of the system's core that other processes took."""
    load_core_busy: float

    @property
    def cpu_us_per_request(self) -> float:
        """CPU per request sent."""
        return self.cpu_s * 1e6 / max(1, self.load.done)

    @property
    def cpu_us_per_chunk(self) -> float:
        """CPU per stamped chunk that arrived."""
        return self.cpu_s * 1e6 / max(1, self.load.chunks)


@dataclass
class Running:
    """A started system."""

    system: System
    port: int
    launch: Launch
    process: subprocess.Popen[bytes] | None
    startup_s: float = 0.0
    idle_mib: float = 0.0
    folder: Path = field(default_factory=Path)

    def pids(self) -> list[int]:
        """Its processes now."""
        return processes.tree(self.process.pid) if self.process else []

    def memory_kib(self, field_name: str = "Pss") -> int:
        """Its memory now."""
        return processes.memory_kib(self.pids(), field_name)


class Bench:
    """Everything started here is ended with it."""

    def __init__(self, *, patience_s: int = 150) -> None:
        cores = sorted(os.sched_getaffinity(0))
        if len(cores) < 2:
            raise CannotMeasure("at least two cores are needed: one for the system, one for the load")
        self.system_core, self.load_core = cores[0], cores[1]
        self._patience_s = patience_s
        self._ending = contextlib.ExitStack()
        self._kept: list[subprocess.Popen[bytes]] = []
        self.folder = Path(self._ending.enter_context(tempfile.TemporaryDirectory(prefix="athena-bench-")))
        self.upstream_port = 0
        self.upstream_pid = 0
        self.upstream = ""
        self._load_cores = {self.load_core}

    def __enter__(self) -> Self:
        """The upstream runs."""
        self._ending.callback(self._end_all)
        try:
            self.upstream_port = processes.free_port()
            self.upstream = f"http://127.0.0.1:{self.upstream_port}"
            process = processes.start(
                [tool("upstream"), str(self.upstream_port)], cores={self.load_core}, log=self.folder / "upstream.log"
            )
            self.keep(process)
            self.upstream_pid = process.pid
            self._wait_for(System("the fake upstream", "chat", None), self.upstream_port, process, (), 10)
        except BaseException:
            self._ending.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Nothing is left behind."""
        self._ending.close()

    def keep(self, process: subprocess.Popen[bytes]) -> None:
        """Something else that must run beside; it ends with the bench."""
        self._kept.append(process)

    def end(self, process: subprocess.Popen[bytes]) -> None:
        """End it now. Once only: later its number may be somebody else's."""
        if process in self._kept:
            self._kept.remove(process)
            processes.stop(process)

    def _end_all(self) -> None:
        while self._kept:
            self.end(self._kept[-1])

    @contextlib.contextmanager
    def load_on(self, cores: set[int]) -> Iterator[None]:
        """Generator and upstream on these cores for a while."""
        before, self._load_cores = self._load_cores, cores
        os.sched_setaffinity(self.upstream_pid, cores)
        try:
            yield
        finally:
            self._load_cores = before
            os.sched_setaffinity(self.upstream_pid, before)

    @contextlib.contextmanager
    def running(self, system: System, *, upstream: str = "", environment: dict[str, str] | None = None) -> Iterator[Running]:
        """One system for a while."""
        started = self.start(system, upstream=upstream, environment=environment)
        try:
            yield started
        finally:
            if started.process:
                self.end(started.process)

    def start(self, system: System, *, upstream: str = "", environment: dict[str, str] | None = None) -> Running:
        """Start a system and wait for its first good answer."""
        if system.launch is None:
            return Running(system, self.upstream_port, Launch([]), None)
        folder = Path(tempfile.mkdtemp(prefix="system-", dir=self.folder))
        place = Place(processes.free_port(), upstream or self.upstream, folder)
        launch = system.launch(place)
        cores = {self.system_core} if system.cores == 1 else set(sorted(os.sched_getaffinity(0))[: system.cores])
        began = time.monotonic()
        process = processes.start(
            launch.command,
            cores=cores,
            log=folder / "log",
            folder=folder,
            environment=launch.environment | (environment or {}),
        )
        self.keep(process)
        self._wait_for(system, place.port, process, launch.headers, 120, prefix=launch.model_prefix, log=folder / "log")
        running = Running(system, place.port, launch, process, time.monotonic() - began, folder=folder)
        running.idle_mib = running.memory_kib() / 1024
        return running

    def _wait_for(
        self,
        system: System,
        port: int,
        process: subprocess.Popen[bytes],
        headers: tuple[str, ...],
        seconds: float,
        *,
        prefix: str = "",
        log: Path | None = None,
    ) -> None:
        body = self.body("probe", bodies.request(system.speaks, prefix + "fake-p0", streamed=False))
        deadline, error = time.monotonic() + seconds, ""
        while time.monotonic() < deadline and process.poll() is None:
            answer = self.load(port, bodies.PATHS[system.speaks], body, headers=headers, stamps=1)
            if not answer.errors:
                return
            error = answer.error
            time.sleep(0.02)
        said = log.read_text(errors="replace")[-800:] if log else ""
        self.end(process)
        raise CannotMeasure(f"{system.name} did not start: {error}\n{said}".strip())

    def body(self, name: str, body: dict[str, Any]) -> Path:
        """A request in a file."""
        return bodies.write(self.folder, name, body)

    def command(
        self,
        port: int,
        path: str,
        body: Path,
        *,
        requests: int = 1,
        concurrent: int = 1,
        headers: tuple[str, ...] = (),
        stamps: int = -1,
        end: str = "",
        leave_percent: int = 0,
        per_second: int = 0,
    ) -> list[str]:
        """The generator's command line, on its core."""
        command = [
            "taskset",
            "-c",
            ",".join(map(str, self._load_cores)),
            tool("load"),
            "-p",
            str(port),
            "-u",
            path,
            "-b",
            str(body),
        ]
        command += ["-n", str(requests), "-c", str(concurrent), "-e", str(stamps), "-t", str(self._patience_s)]
        command += ["-E", end] if end else []
        command += ["-x", str(leave_percent)] if leave_percent else []
        command += ["-r", str(per_second)] if per_second else []
        for header in headers:
            command += ["-H", header]
        return command

    def load(self, port: int, path: str, body: Path, **options: Any) -> Loaded:
        """Run the generator to its end."""
        done = subprocess.run(self.command(port, path, body, **options), capture_output=True, check=False)
        if done.returncode:
            raise CannotMeasure(f"the load generator failed: {done.stderr.decode(errors='replace')}")
        return msgspec.json.decode(done.stdout, type=Loaded)

    def measured(self, running: Running, work: Callable[[], Loaded]) -> Pass:
        """Do this and see what it cost the system."""
        pids, busy, began = running.pids(), processes.busy_seconds(), time.monotonic()
        before = processes.cpu_seconds(pids)
        loaded = work()
        cpu = processes.cpu_seconds(pids) - before
        wall, after = time.monotonic() - began, processes.busy_seconds()
        foreign = (after[self.system_core] - busy[self.system_core] - cpu) / wall
        return Pass(loaded, cpu, max(0.0, foreign), (after[self.load_core] - busy[self.load_core]) / wall)

    def ask(
        self,
        running: Running,
        model: str,
        *,
        streamed: bool,
        requests: int,
        concurrent: int,
        stamps: int,
        leave_percent: int = 0,
    ) -> Pass:
        """A measured pass of the usual small request."""
        system = running.system
        name = f"{system.name.partition('@')[0]}-{model}-{streamed}"
        body = self.body(name, bodies.request(system.speaks, running.launch.model_prefix + model, streamed=streamed))
        return self.measured(
            running,
            lambda: self.load(
                running.port,
                bodies.PATHS[system.speaks],
                body,
                requests=requests,
                concurrent=concurrent,
                headers=running.launch.headers,
                stamps=stamps,
                end=bodies.END_STRINGS[system.speaks] if streamed else "",
                leave_percent=leave_percent,
            ),
        )
