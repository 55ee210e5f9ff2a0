"""What recording costs a whole gateway: the same streams through gateways that record nothing, in memory and on disk.

The gateways run beside each other and are asked in turn, so that whatever else the machine does meets all of them. Their CPU is
user and system time of the whole process, the writer's thread with it, until everything is written.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.gateway import processes
from benchmarks.gateway.bench import Bench, Running
from benchmarks.gateway.systems import CLIENT_KEY, Launch, Place, System

MODES = ("off", "memory", "disk")
ROUNDS = 12
_QUIET_S = 0.3
_IDLE = 0.01


@dataclass(frozen=True)
class Load:
    """One kind of streams."""

    name: str
    pace_us: int
    requests: int
    concurrent: int
    chunks: int


LOADS = (
    Load("paced: 16 streams, 5 ms between chunks", 5000, 32, 16, 200),
    Load("burst: 16 streams as fast as they are read", 0, 160, 16, 200),
)


def athena(mode: str) -> Callable[[Place], Launch]:
    """A gateway that records so."""

    def launch(place: Place) -> Launch:
        file = place.folder / "athena.yml"
        upstream = {"base_url": place.upstream + "/v1", "api_key": CLIENT_KEY}
        config = {
            "upstreams": {"fake": upstream},
            "models": [{"match": "*", "use": "fake"}],
            "record": {"mode": mode},
            "state_dir": str(place.folder / "state"),
        }
        file.write_text(json.dumps(config))
        command = [sys.executable, "-m", "athena", "serve", "--config", str(file), "--port", str(place.port)]
        home = {"HOME": str(place.folder), "XDG_CONFIG_HOME": str(place.folder)}
        return Launch([*command, "--log-level", "error"], home, (f"Authorization: Bearer {CLIENT_KEY}",))

    return launch


def settled(running: Running) -> float:
    """CPU seconds of the gateway once it has nothing more to do."""
    pids = running.pids()
    before = processes.cpu_seconds(pids)
    while True:
        time.sleep(_QUIET_S)
        now = processes.cpu_seconds(pids)
        if now - before < _QUIET_S * _IDLE:
            return now
        before = now


def cost(bench: Bench, running: Running, load: Load) -> float:
    """CPU microseconds per chunk of one pass, until all of it is written."""
    before = settled(running)
    model = f"fake-p{load.pace_us}-n{load.chunks}"
    passed = bench.ask(running, model, streamed=True, requests=load.requests, concurrent=load.concurrent, stamps=load.chunks)
    if passed.load.errors:
        raise SystemExit(f"{running.system.name}: {passed.load.error}")
    return (settled(running) - before) * 1e6 / passed.load.chunks


def measure(rounds: int = ROUNDS) -> dict[str, dict[str, float]]:
    """Prints, and returns the cost per chunk over `off` by load and mode, as a share."""
    found: dict[str, dict[str, float]] = {}
    with Bench() as bench:
        gateways = {mode: bench.start(System(f"record-{mode}", "messages", athena(mode))) for mode in MODES}
        for load in LOADS:
            costs: dict[str, list[float]] = {mode: [] for mode in MODES}
            for _ in range(rounds + 1):
                for mode, running in gateways.items():
                    costs[mode].append(cost(bench, running, load))
            # The first round warms up.
            off, *recorded = (statistics.median(costs[mode][1:]) for mode in MODES)
            spread = statistics.quantiles(costs["off"][1:], n=4)
            print(
                f"{load.name}: {off:.2f} us of CPU per chunk, nothing recorded (quartiles {spread[0]:.2f} to {spread[2]:.2f})"
            )
            for mode, value in zip(MODES[1:], recorded, strict=True):
                # Rounds are compared with their own neighbours: load of the machine comes and goes.
                ratios = [one / other - 1 for one, other in zip(costs[mode][1:], costs["off"][1:], strict=True)]
                share = statistics.median(ratios)
                found.setdefault(load.name, {})[mode] = share
                print(f"  {mode}: {value - off:+.2f} us per chunk, {share:+.1%} (median of {rounds} pairs)")
        for mode, running in gateways.items():
            print(f"memory of the gateway, {mode}: {running.idle_mib:.0f} MiB idle, {running.memory_kib() / 1024:.0f} MiB now")
    return found


if __name__ == "__main__":
    measure(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS)
