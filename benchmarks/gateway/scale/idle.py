"""Idle streams: memory of each, and the share of a core that so many take at a thousand events per second together.

Every stream sends a chunk at once and then one every five seconds; all of them are read to their end and checked.
"""

from __future__ import annotations

import os
import resource
import subprocess
import time

import msgspec

from benchmarks.gateway import bodies, processes
from benchmarks.gateway.bench import Bench, Loaded, Running
from benchmarks.gateway.results import Figure
from benchmarks.gateway.scale.effort import Effort

CHUNKS = 6
PACE_US = 5_000_000
SPARE_DESCRIPTORS = 200


def measure(bench: Bench, effort: Effort) -> list[Figure]:
    """Of a gateway that has served before."""
    streams = _allowed(effort.idle_streams)
    found = []
    with bench.running(effort.athena("msg")) as one:
        bench.ask(one, "fake-p0", streamed=True, requests=200, concurrent=64, stamps=200)
        before = one.memory_kib("Anonymous")
        peak, share, loaded, open_s = _hold(bench, one, streams)
        case, name = f"{streams} idle streams", one.system.name
        found.append(Figure(case, name, "memory each", "KiB", [(peak - before) / streams], judged=True, at_most=48))
        found.append(Figure(case, name, f"core at {streams // 5} events/s", "", [share], at_most=1.0))
        found.append(Figure(case, name, "all open after", "s", [open_s]))
        found.append(Figure(case, name, "errors", "", [float(loaded.errors)], at_most=0))
        if loaded.errors:
            print(f"  {loaded.errors} streams failed: {loaded.error}")
    return found


def _allowed(wanted: int) -> int:
    """Two descriptors per stream in the gateway; this process hands its limit on to it."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    streams = min(wanted, (most - SPARE_DESCRIPTORS) // 2)
    if streams < wanted:
        print(f"  only {most} descriptors are allowed here (ulimit -Hn): {streams} streams instead of {wanted}")
    return streams


def _hold(bench: Bench, one: Running, streams: int) -> tuple[int, float, Loaded, float]:
    """The highest memory, the share of a core once all are open, the generator's report, and when all were open."""
    model = f"fake-p{PACE_US}-n{CHUNKS}"
    speaks = one.system.speaks
    command = bench.command(
        one.port,
        bodies.PATHS[speaks],
        bench.body("idle", bodies.request(speaks, model, streamed=True)),
        requests=streams,
        concurrent=streams,
        headers=one.launch.headers,
        stamps=CHUNKS,
        end=bodies.END_STRINGS[speaks],
    )
    began = time.monotonic()
    peak, share, open_s = 0, 0.0, 0.0
    with subprocess.Popen(command, stdout=subprocess.PIPE) as generator:
        while generator.poll() is None:
            time.sleep(0.25)
            pids = one.pids()
            peak = max(peak, one.memory_kib("Anonymous"))
            if not open_s and sum(_descriptors(pid) for pid in pids) >= 2 * streams:
                open_s = time.monotonic() - began
                time.sleep(1)  # the burst of the last answers' beginnings
                cpu, start = processes.cpu_seconds(pids), time.monotonic()
                time.sleep(5)
                share = (processes.cpu_seconds(pids) - cpu) / (time.monotonic() - start)
        assert generator.stdout is not None
        return peak, share, msgspec.json.decode(generator.stdout.read(), type=Loaded), open_s


def _descriptors(pid: int) -> int:
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return 0
