"""Processes under measurement: pinned, watched by their CPU clocks and memory, ended by their own group."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from pathlib import Path


def free_port() -> int:
    """A port nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start(
    command: list[str], *, cores: set[int], log: Path, folder: Path | None = None, environment: dict[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """A process group of its own on these cores; its output goes to the log."""
    with log.open("wb") as output:
        return subprocess.Popen(
            ["taskset", "-c", ",".join(map(str, sorted(cores))), *command],
            cwd=folder,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def stop(process: subprocess.Popen[bytes], patience: float = 5.0) -> None:
    """Ask the group to end, then make it."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience)
            if number == signal.SIGTERM:
                time.sleep(0.05)


def tree(pid: int) -> list[int]:
    """A process and all that descend from it."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        with contextlib.suppress(OSError):
            stat = Path(f"/proc/{entry}/stat").read_text()
            parent = int(stat[stat.rindex(")") + 2 :].split()[1])
            children.setdefault(parent, []).append(int(entry))
    found, waiting = [], [pid]
    while waiting:
        one = waiting.pop()
        found.append(one)
        waiting += children.get(one, [])
    return found


def cpu_seconds(pids: list[int]) -> float:
    """CPU of whole processes, ended threads included: the CPU clock of another process (`clock_getcpuclockid(3)`)."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            total += time.clock_gettime_ns((~pid << 3) | 2)
    return total / 1e9


def loop_seconds(pid: int) -> float:
    """CPU of a process' first thread, which is that of the event loop in ours."""
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e9


def memory_kib(pids: list[int], field: str = "Pss") -> int:
    """Memory of the processes: their share of all they map (`Pss`) or another field of `smaps_rollup`."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith(f"{field}:"):
                    total += int(line.split()[1])
    return total


def busy_seconds() -> dict[int, float]:
    """Seconds each core has worked, for anyone."""
    found = {}
    for line in Path("/proc/stat").read_text().splitlines():
        name, *counts = line.split()
        if name.startswith("cpu") and name != "cpu":
            ticks = [int(count) for count in counts[:8]]
            found[int(name[3:])] = (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")
    return found
