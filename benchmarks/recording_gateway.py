"""What recording costs a whole gateway: the same requests through one process, recorded and not, in memory and on disk.

The same process is asked for a model that is recorded and for one that is not, by turns in groups of 16 requests, and which of
them comes first changes: so neither what else the machine does nor where a process lies in memory tells them apart. CPU is user
and system time of the whole process, of every thread, until a group is answered and, where recorded on disk, written. What the
event loop's thread takes of it is told apart: answers wait for that one alone. Each start of a gateway is shown for itself as
well: starts of one and the same program differ.

A group is asked several times in a row where answers come as fast as they are read: a gateway that is so busy writes many
exchanges in one go.
"""

from __future__ import annotations

import argparse
import json
import select
import socket
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from benchmarks.gateway import bodies, processes
from benchmarks.gateway.bench import Bench, Running
from benchmarks.gateway.output import add_output_options, deliver
from benchmarks.gateway.results import Figure, Run, new_run
from benchmarks.gateway.systems import CLIENT_KEY, Launch, Place, System
from benchmarks.pairs import rested, surely

MODES = ("memory", "disk")
RECORDED = "recorded"
STARTS = 3
AT_ONCE = 16
WARMED = 14
"""How often each kind is asked before the first time that counts, but for paced ones: the ring is full then, and every body was
seen."""
WRITTEN_S = 0.25
"""Within this time the thread that writes begins with what it got."""


@dataclass(frozen=True)
class Load:
    """One kind of requests; without chunks their answers are whole."""

    name: str
    pace_us: int
    chunks: int
    pairs: dict[str, int]
    """Pairs of groups for each start, by mode."""
    limit_us: float | None = None
    in_a_row: int = 1
    """How often a group is asked before it is written."""

    @property
    def unit(self) -> str:
        return "chunk" if self.chunks else "request"

    @property
    def model(self) -> str:
        return f"fake-p{self.pace_us}-n{self.chunks}" if self.chunks else "fake-p0"


LOADS = (
    Load("burst: 16 streams of 200 chunks as fast as they are read", 0, 200, {"memory": 60, "disk": 40}, 1.0, 4),
    Load("paced: 16 streams of 200 chunks, 5 ms between them", 5000, 200, {"memory": 40, "disk": 20}, 1.0),
    Load("plain: whole answers, 16 at a time", 0, 0, {"memory": 200, "disk": 60}, None, 4),
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


class Clients:
    """Connections that stay open, all of which ask at once."""

    def __init__(self, running: Running) -> None:
        self._running = running
        self._sockets = [socket.create_connection(("127.0.0.1", running.port)) for _ in range(AT_ONCE)]

    def close(self) -> None:
        for each in self._sockets:
            each.close()

    def ask(self, model: str, *, streamed: bool) -> None:
        """One request on each connection."""
        body = msgspec.json.encode(bodies.request("messages", model, streamed=streamed))
        head = [f"POST {bodies.PATHS['messages']} HTTP/1.1", "Host: 127.0.0.1", *self._running.launch.headers]
        head += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        request = "\r\n".join(head).encode() + b"\r\n\r\n" + body
        got = dict.fromkeys(self._sockets, b"")
        for each in self._sockets:
            each.sendall(request)
        while got:
            for each in select.select(list(got), [], [], 30)[0]:
                data = each.recv(1 << 20)
                got[each] += data
                if not data:
                    raise SystemExit(f"the connection was closed: {got[each][-300:]!r}")
                if not _is_whole(got[each], streamed=streamed):
                    continue
                if not got[each].startswith(b"HTTP/1.1 200"):
                    raise SystemExit(got[each].decode(errors="replace"))
                del got[each]


def _is_whole(answer: bytes, *, streamed: bool) -> bool:
    if streamed and answer.startswith(b"HTTP/1.1 200"):
        return answer.endswith(b"0\r\n\r\n")
    head, end, body = answer.partition(b"\r\n\r\n")
    length = next((int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), -1)
    return bool(end) and len(body) == length


@dataclass(frozen=True)
class Cost:
    """CPU microseconds per chunk, or per request."""

    loop: float
    """Of the event loop's thread."""
    whole: float
    """Of all threads."""


class Measured:
    """One start of a gateway."""

    def __init__(self, running: Running, mode: str) -> None:
        self._pids = running.pids()
        self._clients = Clients(running)
        self._mode = mode

    def pairs(self, load: Load) -> list[tuple[Cost, Cost]]:
        """What is not recorded, and what is."""
        for _ in range(2 if load.pace_us else WARMED // load.in_a_row + 1):
            self._cost(load, recorded=True), self._cost(load, recorded=False)
        found: list[tuple[Cost, Cost]] = []
        for number in range(load.pairs[self._mode]):
            first = self._cost(load, recorded=bool(number % 2))
            second = self._cost(load, recorded=not number % 2)
            found.append((second, first) if number % 2 else (first, second))
        return found

    def close(self) -> None:
        self._clients.close()

    def _cost(self, load: Load, *, recorded: bool) -> Cost:
        before, looped = rested(self._pids), self._loop()
        model = f"{RECORDED}-" * recorded + load.model
        for _ in range(load.in_a_row):
            self._clients.ask(model, streamed=bool(load.chunks))
        if self._mode == "disk":
            # Either way: whatever a gateway does by itself in that time is no part of recording.
            time.sleep(WRITTEN_S)
            rested(self._pids, 0.02)
        scale = 1e6 / (AT_ONCE * load.in_a_row * (load.chunks or 1))
        whole = rested(self._pids) - before
        return Cost((self._loop() - looped) * scale, whole * scale)

    def _loop(self) -> float:
        return sum(map(processes.loop_seconds, self._pids))


Pairs = list[tuple[Cost, Cost]]


def show(run: Run, load: Load, mode: str, starts: list[Pairs]) -> None:
    """What recording adds, over all starts and for each."""
    pairs = [pair for each in starts for pair in each]
    shares = [on.whole / off.whole - 1 for off, on in pairs]
    lower, share, upper = statistics.quantiles(shares, n=4)
    least, most = surely(shares)
    each = ", ".join(f"{statistics.median(on.whole / off.whole - 1 for off, on in start):+.1%}" for start in starts)
    more = {"all threads": [on.whole - off.whole for off, on in pairs], "the loop": [on.loop - off.loop for off, on in pairs]}
    told = "; ".join(
        f"{name} {statistics.median(values):+.2f} us (surely {surely(values)[0]:+.2f} to {surely(values)[1]:+.2f})"
        for name, values in more.items()
    )
    print(
        f"{load.name}, {mode}: {statistics.median(off.whole for off, _ in pairs):.2f} us of CPU per {load.unit}, "
        f"recorded {told}; {share:+.1%} (surely {least:+.1%} to {most:+.1%}; "
        f"{len(pairs)} pairs, quartiles {lower:+.1%} and {upper:+.1%}; "
        f"starts {each})",
        flush=True,
    )
    limit = 1.03 if load.limit_us is not None else None
    case = f"{load.name}, recorded {mode}"
    run.figures += [
        Figure(case, "athena", "CPU", "ratio", [1 + value for value in shares], at_most=limit),
        Figure(case, "athena", f"CPU more per {load.unit}", "us", more["all threads"]),
        Figure(case, "athena", f"CPU more per {load.unit}, the loop's", "us", more["the loop"], at_most=load.limit_us),
    ]


def main(arguments: list[str]) -> int:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(prog="./dev bench recording --gateway", description=__doc__)
    parser.add_argument("--starts", type=int, default=STARTS, help="gateways of each mode, one after the other")
    parser.add_argument("--only", default="", help="modes and loads whose names hold one of these words", metavar="WORD,...")
    add_output_options(parser)
    options = parser.parse_args(arguments)
    words = options.only.split(",")
    modes = [mode for mode in MODES if mode in words] or list(MODES)
    loads = [load for load in LOADS if load.name.split(":")[0] in words] or list(LOADS)
    run = new_run("recording")
    found: dict[tuple[str, str], list[Pairs]] = {}
    with Bench() as bench:
        for mode in modes:
            for _ in range(options.starts):
                with bench.running(System(f"record-{mode}", "messages", athena(mode))) as running:
                    measured = Measured(running, mode)
                    for load in loads:
                        found.setdefault((mode, load.name), []).append(measured.pairs(load))
                    measured.close()
                    print(
                        f"{mode}: {running.idle_mib:.0f} MiB idle, {running.memory_kib() / 1024:.0f} MiB after it", flush=True
                    )
            for load in loads:
                show(run, load, mode, found[mode, load.name])
    deliver(run, options)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
