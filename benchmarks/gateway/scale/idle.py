"""Idle streams: memory of each, and the share of a core that so many take at a thousand events per second together.

Every stream sends a chunk at once and then one every five seconds; all of them are read to their end and checked. Nothing is
reported unless all of them were open at the same time and all ended well. The gateway is configured for so many connections
to one upstream: unasked it allows 1,024.
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

PACE_US = 5_000_000
BEGUN_PER_SECOND = 150
"""So that what is measured is holding streams, not a rush of new ones."""
SPARE_DESCRIPTORS = 200


def measure(bench: Bench, effort: Effort) -> list[Figure]:
    """Of a gateway that has served before."""
    streams = _allowed(effort.idle_streams)
    found = []
    with bench.running(effort.athena("msg-many")) as one:
        bench.ask(one, "fake-p0", streamed=True, requests=200, concurrent=64, stamps=200)
        before = one.memory_kib("Anonymous")
        peak, share, loaded, open_s, most_open = _hold(bench, one, streams)
        if loaded.errors:
            raise RuntimeError(f"{loaded.errors} of {streams} streams failed: {loaded.error}")
        if not open_s:
            raise RuntimeError(f"never were all {streams} streams open at once, but {most_open}")
        case, name = f"{streams} idle streams", one.system.name
        found.append(Figure(case, name, "memory each", "KiB", [(peak - before) / streams], judged=True, at_most=48))
        found.append(Figure(case, name, f"core at {streams // 5} events/s", "", [share], at_most=1.0))
        found.append(Figure(case, name, "all open after", "s", [open_s]))
    return found


def _allowed(wanted: int) -> int:
    """Two descriptors per stream in the gateway; this process hands its limit on to it."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    streams = min(wanted, (most - SPARE_DESCRIPTORS) // 2)
    if streams < wanted:
        print(f"  only {most} descriptors are allowed here (ulimit -Hn): {streams} streams instead of {wanted}")
    return streams


def _hold(bench: Bench, one: Running, streams: int) -> tuple[int, float, Loaded, float, int]:
    """The highest memory, the share of a core once all are open, the report, when all were open, the most at once."""
    chunks = int(streams / BEGUN_PER_SECOND * 1e6 / PACE_US) * 2 + 6  # the first is still open when the last begins
    model = f"fake-p{PACE_US}-n{chunks}"
    speaks = one.system.speaks
    command = bench.command(
        one.port,
        bodies.PATHS[speaks],
        bench.body("idle", bodies.request(speaks, model, streamed=True)),
        requests=streams,
        concurrent=streams,
        headers=one.launch.headers,
        stamps=chunks,
        per_second=BEGUN_PER_SECOND,
        end=bodies.END_STRINGS[speaks],
    )
    began = time.monotonic()
    peak, share, open_s, most_open = 0, 0.0, 0.0, 0
    at_rest = sum(_descriptors(pid) for pid in one.pids())
    with subprocess.Popen(command, stdout=subprocess.PIPE) as generator:
        while generator.poll() is None:
            time.sleep(0.25)
            pids = one.pids()
            peak = max(peak, one.memory_kib("Anonymous"))
            most_open = max(most_open, (sum(_descriptors(pid) for pid in pids) - at_rest) // 2)
            if not open_s and most_open >= 0.99 * streams:  # kept connections of the warm-up are among those at rest
                open_s = time.monotonic() - began
                time.sleep(1)  # the burst of the last answers' beginnings
                cpu, start = processes.cpu_seconds(pids), time.monotonic()
                time.sleep(5)
                share = (processes.cpu_seconds(pids) - cpu) / (time.monotonic() - start)
        assert generator.stdout is not None
        return peak, share, msgspec.json.decode(generator.stdout.read(), type=Loaded), open_s, most_open


def _descriptors(pid: int) -> int:
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return 0
