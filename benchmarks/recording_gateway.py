"""What recording costs a whole gateway: the same requests through one process, recorded and not, in memory and on disk.

The same process is asked for a model that is recorded and for one that is not, in turn and in which order changes, so that
neither what else the machine does nor where a process lies in memory tells them apart. CPU is user and system time of the whole
process, the writer's thread with it, until everything is written.
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

MODES = ("memory", "disk")
RECORDED = "recorded"
ROUNDS = 30
_QUIET_S = 0.3
_IDLE = 0.01


@dataclass(frozen=True)
class Load:
    """One kind of requests; without chunks their answers are whole."""

    name: str
    pace_us: int
    requests: int
    concurrent: int
    chunks: int

    @property
    def unit(self) -> str:
        return "chunk" if self.chunks else "request"


LOADS = (
    Load("paced: 16 streams, 5 ms between chunks", 5000, 16, 16, 200),
    Load("burst: 16 streams as fast as they are read", 0, 64, 16, 200),
    Load("plain: whole answers, 16 at a time", 0, 1000, 16, 0),
)


def athena(mode: str) -> Callable[[Place], Launch]:
    """A gateway that records so."""

    def launch(place: Place) -> Launch:
        file = place.folder / "athena.yml"
        upstream = {"base_url": place.upstream + "/v1", "api_key": CLIENT_KEY}
        config = {
            "upstreams": {"fake": upstream},
            "models": [{"match": f"{RECORDED}-*", "use": "fake/*"}, {"match": "*", "use": "fake"}],
            "record": {"mode": mode, "models": [f"{RECORDED}-*"]},
            "state_dir": str(place.folder / "state"),
        }
        file.write_text(json.dumps(config))
        command = [sys.executable, "-m", "athena", "serve", "--config", str(file), "--port", str(place.port)]
        home = {"HOME": str(place.folder), "XDG_CONFIG_HOME": str(place.folder)}
        return Launch(command, home, (f"Authorization: Bearer {CLIENT_KEY}",))

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


def cost(bench: Bench, running: Running, load: Load, *, recorded: bool) -> float:
    """CPU microseconds per chunk of one pass, or per request, until all of it is written."""
    before = settled(running)
    model = f"{RECORDED}-" * recorded + (f"fake-p{load.pace_us}-n{load.chunks}" if load.chunks else "fake-p0")
    passed = bench.ask(
        running, model, streamed=bool(load.chunks), requests=load.requests, concurrent=load.concurrent, stamps=load.chunks or 1
    )
    if passed.load.errors:
        raise SystemExit(f"{running.system.name}: {passed.load.error}")
    return (settled(running) - before) * 1e6 / (passed.load.chunks if load.chunks else passed.load.done)


def pair(bench: Bench, running: Running, load: Load, *, recorded_first: bool) -> tuple[float, float]:
    """What one pass costs that is not recorded, and one that is."""
    first = cost(bench, running, load, recorded=recorded_first)
    second = cost(bench, running, load, recorded=not recorded_first)
    return (second, first) if recorded_first else (first, second)


def measure(rounds: int = ROUNDS) -> dict[str, dict[str, float]]:
    """Prints, and returns the share of CPU that recording adds, by load and mode."""
    found: dict[str, dict[str, float]] = {}
    with Bench() as bench:
        gateways = {mode: bench.start(System(f"record-{mode}", "messages", athena(mode))) for mode in MODES}
        for load in LOADS:
            pairs: dict[str, list[tuple[float, float]]] = {mode: [] for mode in MODES}
            for number in range(rounds + 1):
                for mode, running in gateways.items():
                    pairs[mode].append(pair(bench, running, load, recorded_first=bool(number % 2)))
            for mode in MODES:
                # The first round warms up.
                kept = pairs[mode][1:]
                base = statistics.median(off for off, _ in kept)
                more = statistics.median(on - off for off, on in kept)
                lower, share, upper = statistics.quantiles((on / off - 1 for off, on in kept), n=4)
                found.setdefault(load.name, {})[mode] = share
                print(
                    f"{load.name}, {mode}: {base:.2f} us of CPU per {load.unit}, recorded {more:+.2f} us, {share:+.1%} "
                    f"(medians of {rounds} pairs, quartiles {lower:+.1%} and {upper:+.1%})",
                    flush=True,
                )
        for mode, running in gateways.items():
            print(f"memory of the gateway, {mode}: {running.idle_mib:.0f} MiB idle, {running.memory_kib() / 1024:.0f} MiB now")
    return found


if __name__ == "__main__":
    measure(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS)
