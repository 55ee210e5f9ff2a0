"""Large requests: CPU per megabyte that a bigger body adds to a request, beside decoding that body once with msgspec.

What a small request costs is taken off first: it is the subject of the gateway suite. nginx stands beside for what the kernel
takes to move the bytes in and out.
"""

from __future__ import annotations

import base64
import random
import time
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.gateway import bodies
from benchmarks.gateway.bench import Bench, Running
from benchmarks.gateway.bodies import Dialect
from benchmarks.gateway.results import Figure
from benchmarks.gateway.scale.effort import Effort
from benchmarks.gateway.systems import system_named

MEGABYTE = 1_000_000
SIZES = {"100 KB image": (100_000, 200), "1 MB image": (MEGABYTE, 40), "20 MB image": (20 * MEGABYTE, 4)}
"""Bytes of the body, requests per pass."""
TURNS = "1 MB of turns"


def large_body(dialect: Dialect, case: str, model: str = "fake-p0") -> tuple[dict[str, Any], int]:
    """A body of about that size, and how often to send it."""
    if case == TURNS:
        body = bodies.request(dialect, model, streamed=False)
        text = 'def f(x):\n    return "a\\tb" + x  # as a file an agent has read\n' * 16
        turns = [{"role": role, "content": f"{number}: {text}"} for number in range(450) for role in ("user", "assistant")]
        body["messages"] = [*body["messages"][:-1], *turns, body["messages"][-1]]
        return body, 40
    size, requests = SIZES[case]
    image = base64.b64encode(random.Random(size).randbytes(size * 3 // 4)).decode()
    return bodies.request(dialect, model, streamed=False, image=image), requests


def measure(bench: Bench, effort: Effort) -> list[Figure]:
    """All sizes, by nginx and by athena for both kinds of clients."""
    found = []
    systems = [system_named("nginx"), effort.athena("msg"), effort.athena("chat")]
    running = [bench.start(system) for system in systems]
    for one in running:
        _cost(bench, one, bench.body("warm", bodies.request(one.system.speaks, "fake-p0", streamed=False)), 200)
    for case in (*SIZES, TURNS):
        per_mb: dict[str, list[float]] = {one.system.name: [] for one in running}
        ratios: dict[str, list[float]] = {one.system.name: [] for one in running}
        decoding: list[float] = []
        for _ in range(effort.repeats):
            for one in running:
                body, requests = large_body(one.system.speaks, case)
                file = bench.body("large", body)
                megabytes = file.stat().st_size / MEGABYTE
                small = bench.body("small", bodies.request(one.system.speaks, "fake-p0", streamed=False))
                added = _cost(bench, one, file, requests) - _cost(bench, one, small, 200)
                once = _decode_ms(file.read_bytes())
                per_mb[one.system.name].append(added / megabytes)
                ratios[one.system.name].append(added / once)
                decoding.append(once / megabytes)
        found.append(Figure(case, "msgspec decode", "cpu per MB", "ms", decoding))
        for name, values in per_mb.items():
            found.append(Figure(case, name, "cpu per MB", "ms", values))
            if name != "nginx":
                found.append(Figure(case, name, "by decoding once", "x", ratios[name], judged=True, at_most=2.0))
    return found


def _cost(bench: Bench, one: Running, body: Path, requests: int) -> float:
    """CPU milliseconds per request."""
    path = bodies.PATHS[one.system.speaks]
    headers = one.launch.headers
    made = bench.measured(one, lambda: bench.load(one.port, path, body, requests=requests, headers=headers, stamps=1))
    if made.load.errors:
        raise RuntimeError(f"{one.system.name}: {made.load.error}")
    return made.cpu_us_per_request / 1000


def _decode_ms(data: bytes) -> float:
    best = float("inf")
    for _ in range(5):
        began = time.process_time_ns()
        msgspec.json.decode(data)
        best = min(best, (time.process_time_ns() - began) / 1e6)
    return best
