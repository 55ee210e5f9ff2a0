"""Agent: what a turn of a coding agent costs, by size and grain of its request, new and in a conversation that grows.

Two parts. `micro` times each step of a request's way in one process, with the processor's caches emptied before every round,
because between two requests of a gateway they hold something else: it is the number to steer by. `gateway` sends the requests
through running systems: nginx for what moving the bytes takes, `athena serve` at its default log level, and with `--before
FOLDER` the same of another checkout (`git worktree add FOLDER TAG`).
"""

from __future__ import annotations

import argparse
import gc
import http.client
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import msgspec

from athena.dialects import dialect_names, get_dialect
from athena.dialects.base import EncodeTarget
from athena.exchange import Exchange, Route
from athena.prepare import prepare
from athena.profiles import default_profiles
from athena.shells.gateway.incoming import is_heavy, measure, shaped
from athena.wire.fragments import Fragments
from athena.wire.opening import open_body
from benchmarks.agent_bodies import Body, agent_body, growing, in_dialect
from benchmarks.gateway import bodies, processes
from benchmarks.gateway.bench import Bench, Running
from benchmarks.gateway.errors import CannotMeasure
from benchmarks.gateway.output import add_output_options, deliver
from benchmarks.gateway.results import Figure, new_run
from benchmarks.gateway.systems import System, system_named

NONCE = "00000000"
"""Stands in every part of a body, and is another one where a request is to be new."""
TURN = "fake-p5000-n300"
"""A paced answer of 300 chunks."""


@dataclass(frozen=True)
class Kind:
    """One kind of request."""

    name: str
    size: int
    tools: int = 24
    result_chars: int = 2400
    requests: int = 48
    """Sent in one pass."""

    def body(self, *, streamed: bool = False, model: str = "fake-p0") -> Body:
        """A request of this kind."""
        made = agent_body(self.size, tools=self.tools, result_chars=self.result_chars, streamed=streamed)
        return numbered({**made, "model": model})


KINDS = (
    Kind("131 KB", 131_000, requests=96),
    Kind("131 KB, 96 tools", 131_000, tools=96, requests=64),
    Kind("512 KB", 512_000, requests=24),
    Kind("1 MB, large messages", 1_000_000, result_chars=25_600, requests=12),
    Kind("1 MB, small messages", 1_000_000, result_chars=100, requests=8),
    Kind("5 MB", 5_000_000, requests=4),
)


def main(arguments: list[str]) -> int:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(prog="./dev bench agent", description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--parts", default="micro,gateway", help="comma separated; all: %(default)s")
    parser.add_argument("--before", metavar="FOLDER", help="another checkout to measure beside this one")
    parser.add_argument("--peers", default="", help="other gateways (see peers.py), comma separated, asked the same")
    parser.add_argument("--repeats", type=int, default=3, help="repetitions; medians are reported (default: %(default)s)")
    add_output_options(parser)
    options = parser.parse_args(arguments)
    run = new_run("agent")
    run.notes.append(f"{options.repeats} repetitions; medians; {os.getloadavg()[2]:.0f} processes ready to run when it began")
    try:
        if "micro" in options.parts:
            run.figures += micro(options.repeats)
        if "gateway" in options.parts:
            peers = [system_named(name) for name in options.peers.split(",") if name]
            run.figures += gateway(options.repeats, options.before, peers)
    except CannotMeasure as problem:
        print(f"bench: {problem}", file=sys.stderr)
        return 2
    deliver(run, options)
    return 0


def numbered(body: Body) -> Body:
    """The body with the nonce in every part of it: each message, the tools, the instructions."""
    body = msgspec.json.decode(msgspec.json.encode(body))
    body["system"][-1]["text"] += NONCE
    body["tools"][0]["description"] += NONCE
    for message in body["messages"]:
        block = message["content"][-1]
        if "input" in block:
            block["input"]["command"] += NONCE
        else:
            block["text" if "text" in block else "content"] += NONCE
    return body


def renewed(data: bytes, number: int) -> bytes:
    """The same request, never seen before."""
    return data.replace(NONCE.encode(), b"%08d" % (number % 10**8))


# -- in one process ---------------------------------------------------------------------------------------------------------


class _Caches:
    """Fills the processor's caches with something else."""

    def __init__(self, size: int = 64 * 1024 * 1024) -> None:
        self._bytes = bytearray(size)

    def empty(self) -> None:
        """As they are between two requests."""
        bytes(self._bytes)


def micro(repeats: int) -> list[Figure]:
    """Every step for Messages to Chat by kind of request, then the whole way for all pairs of dialects."""
    found: list[Figure] = []
    caches = _Caches()
    print(f"\n{'CPU us, caches emptied':<44}{'us':>9}{'us/message':>12}{'us/KB':>8}{'by decode':>11}")
    for kind in KINDS:
        data = msgspec.json.encode(kind.body())
        found += _steps(kind.name, data, caches, 2 if kind.size > 2_000_000 else 2 + 2 * repeats)
    small = KINDS[0]
    for source in dialect_names():
        data = msgspec.json.encode(in_dialect(small.body(), source))
        for upstream in dialect_names():
            found += _pair(f"{source} -> {upstream}", data, source, upstream, caches, 2 + 2 * repeats)
    return found


def _route(dialect: str) -> Route:
    return Route(dialect=dialect, model="m", profile=default_profiles().for_dialect(dialect, "m"))


def _steps(case: str, data: bytes, caches: _Caches, rounds: int) -> list[Figure]:
    client, upstream = get_dialect("anthropic_messages"), get_dialect("openai_chat")
    route = _route("openai_chat")
    target = EncodeTarget(route.model, route.profile)
    value = msgspec.json.decode(data)
    request = client.decode_request(value)
    prepared = prepare(request, target, client, upstream).request
    encoded = upstream.encode_request(prepared, target).body
    known = Fragments(1 << 30)
    _keep(data, "anthropic_messages", route, known)
    fresh = iter([renewed(data, number) for number in range(1, rounds + 2)])

    def first_sight() -> object:
        return _remembered(next(fresh), "anthropic_messages", route, known)

    work: dict[str, Callable[[], object]] = {
        "decode with msgspec": partial(msgspec.json.decode, data),
        "read": lambda: (is_heavy(data), measure(data, 100_000), shaped(data, 128, 100_000)),
        "decode": partial(client.decode_request, value),
        "prepare": lambda: prepare(request, target, client, upstream),
        "encode": lambda: upstream.encode_request(prepared, target),
        "write": partial(msgspec.json.encode, encoded),
        "whole, nothing kept": partial(_whole, data, "anthropic_messages", route),
        "whole, first sight": first_sight,
        "whole, seen before": partial(_remembered, data, "anthropic_messages", route, known),
    }
    return _figures(case, _timed(work, caches, rounds), len(value["messages"]), len(data))


def _pair(case: str, data: bytes, source: str, upstream: str, caches: _Caches, rounds: int) -> list[Figure]:
    route, known = _route(upstream), Fragments(1 << 30)
    _keep(data, source, route, known)
    work: dict[str, Callable[[], object]] = {
        "decode with msgspec": partial(msgspec.json.decode, data),
        "whole, nothing kept": partial(_whole, data, source, route),
        "whole, seen before": partial(_remembered, data, source, route, known),
    }
    value = msgspec.json.decode(data)
    messages = next(value[name] for name in ("messages", "contents", "input") if name in value)
    return _figures(case, _timed(work, caches, rounds), len(messages), len(data))


def _whole(data: bytes, source: str, route: Route) -> bytes:
    is_heavy(data)
    measure(data, 100_000)
    request = get_dialect(source).decode_request(shaped(data, 128, 100_000), model="m")
    return Exchange(request, route).call.body


def _keep(data: bytes, source: str, route: Route, fragments: Fragments) -> None:
    """What comes for the first time is only noted."""
    for _ in range(2):
        _remembered(data, source, route, fragments)


def _remembered(data: bytes, source: str, route: Route, fragments: Fragments) -> bytes:
    opened = open_body(data, fragments, source)
    read = opened.read() if opened is not None else None
    if read is None:
        raise CannotMeasure("the body cannot be cut into parts")
    value, whole, _ = read
    recall = None if whole.is_empty else whole
    request = get_dialect(source).decode_request(value, model="m", recall=recall)
    return Exchange(request, route, None, recall).call.body


def _timed(work: dict[str, Callable[[], object]], caches: _Caches, rounds: int) -> dict[str, list[float]]:
    """CPU microseconds of each, once per round."""
    for function in work.values():
        function()
    found: dict[str, list[float]] = {name: [] for name in work}
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            for name, function in work.items():
                caches.empty()
                began = time.process_time_ns()
                function()
                found[name].append((time.process_time_ns() - began) / 1000)
    finally:
        gc.enable()
    return found


def _figures(case: str, times: dict[str, list[float]], messages: int, size: int) -> list[Figure]:
    found: list[Figure] = []
    once = times["decode with msgspec"]
    print(f"  {case}: {size // 1000} KB, {messages} messages")
    for step, values in times.items():
        ratios = [value / base for value, base in zip(values, once, strict=True)]
        cost = Figure(case, step, "cpu", "us", values)
        each = Figure(case, step, "cpu per message", "us", [value / messages for value in values])
        ratio = Figure(case, step, "by msgspec decode", "x", ratios, judged=True)
        per_kb = Figure(case, step, "cpu per KB", "us", [value / size * 1000 for value in values])
        print(f"    {step:<40}{cost.middle:>9.0f}{each.middle:>12.1f}{per_kb.middle:>8.2f}{ratio.middle:>11.2f}")
        found += [cost, each, per_kb, ratio]
    return found


# -- through running systems ------------------------------------------------------------------------------------------------


def gateway(repeats: int, before: str | None, peers: list[System]) -> list[Figure]:
    """First sight, seen before, a growing conversation and whole turns, by every system."""
    names = ["nginx", "athena-msg", "athena-chat", *([f"athena-msg@{Path(before).resolve()}"] if before else [])]
    found: dict[tuple[str, str, str, str], list[float]] = {}

    def note(case: str, system: str, metric: str, unit: str, value: float) -> None:
        found.setdefault((case, "athena-msg, before" if "@" in system else system, metric, unit), []).append(value)

    with Bench() as bench:
        running = [bench.start(system_named(name)) for name in names] + [bench.start(peer) for peer in peers]
        running.append(bench.start(system_named("direct")))
        number = iter(range(1, 10**8))
        for one in running:
            _send(bench, one, _bodies(one, KINDS[0].body(), number, 40), 4)
        for repeat in range(repeats):
            for one in running if repeat % 2 == 0 else reversed(running):
                for case, cost in _costs(bench, one, number):
                    note(case, one.system.name, "cpu", "us", cost)
                note("131 KB", one.system.name, "first byte", "ms", _first_byte(one, number))
            print(f"  repetition {repeat + 1} of {repeats} done", file=sys.stderr)
    figures = [Figure(case, system, metric, unit, values) for (case, system, metric, unit), values in found.items()]
    return figures + _ratios(found)


def _ratios(found: dict[tuple[str, str, str, str], list[float]]) -> list[Figure]:
    """Beside nginx and beside the other checkout; what is added to the first byte."""
    made: list[Figure] = []
    print(f"\n{'through the gateway':<34}{'system':<22}{'CPU us':>9}{'x nginx':>9}{'x before':>9}")
    for (case, system, metric, _), values in found.items():
        if metric != "cpu":
            base = found[case, "direct", metric, "ms"]
            added = [value - direct for value, direct in zip(values, base, strict=True)]
            if system != "direct":
                made.append(Figure(case, system, "first byte added", "ms", added, at_most=1.5))
                print(f"  {case:<32}{system:<22} first byte added: {median(added):.2f} ms ({min(added):.2f}-{max(added):.2f})")
            continue
        if system == "direct":
            continue
        row = f"  {case:<32}{system:<22}{median(values):>9.0f}"
        for reference, name in (("nginx", "cpu ratio"), ("athena-msg, before", "cpu by before")):
            base = found.get((case, reference, "cpu", "us"), [])
            if not base or system == reference:
                row += f"{'':>9}"
                continue
            ratio = Figure(case, system, name, "x", [value / one for value, one in zip(values, base, strict=True)], judged=True)
            ratio = msgspec.structs.replace(ratio, at_most=_AT_MOST.get((case, system, name)))
            made.append(ratio)
            row += f"{ratio.middle:>9.2f}"
        print(row)
    return made


_AT_MOST = {
    ("131 KB", "athena-msg", "cpu ratio"): 15.0,
    ("growing to 280 KB, 70 turns", "athena-msg", "cpu ratio"): 8.0,
    ("1 MB, small messages", "athena-msg", "cpu by before"): 0.25,
    ("turn of 300 paced chunks", "athena-msg", "cpu by before"): 0.55,
}


def _bodies(one: Running, body: Body, number: Iterator[int], count: int) -> list[bytes]:
    """So many requests of this kind that were never seen before, in the dialect of the system's clients."""
    data = _spoken(one, body)
    return [renewed(data, next(number)) for _ in range(count)]


def _spoken(one: Running, body: Body) -> bytes:
    asked = in_dialect(body, "anthropic_messages" if one.system.speaks == "messages" else "openai_chat")
    return msgspec.json.encode({**asked, "model": one.launch.model_prefix + asked["model"], "stream": body["stream"]})


def _costs(bench: Bench, one: Running, number: Iterator[int]) -> Iterator[tuple[str, float]]:
    if one.process is None:
        return
    slow = one.system.slow
    for kind in KINDS:
        count = max(4, kind.requests // (12 if slow else 1))
        new = _bodies(one, kind.body(), number, count)
        yield kind.name, _send(bench, one, new, 16)
        _send(bench, one, [new[-1]], 1)  # of a pass that begins all at once, nothing would be known to any
        yield f"{kind.name}, seen before", _send(bench, one, [new[-1]] * count, 16)
    turns = [_spoken(one, numbered(body)) for body in growing(10 if slow else 70)]
    nonce = next(number)
    yield "growing to 280 KB, 70 turns", _send(bench, one, [renewed(turn, nonce) for turn in turns], 1)
    paced = KINDS[0].body(streamed=True, model=TURN)
    yield "turn of 300 paced chunks", _send(bench, one, _bodies(one, paced, number, 16), 16)


def _send(bench: Bench, one: Running, requests: list[bytes], at_once: int) -> float:
    """CPU microseconds of the system per request. Each connection sends its share, one after the other."""
    errors: list[str] = []
    threads = [
        threading.Thread(target=_client, args=(bench, one, requests[share::at_once], errors))
        for share in range(min(at_once, len(requests)))
    ]
    pids = one.pids()
    began = processes.cpu_seconds(pids)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    cost = processes.cpu_seconds(pids) - began
    if errors:
        raise CannotMeasure(f"{one.system.name}: {errors[0]}")
    return cost * 1e6 / len(requests)


def _client(bench: Bench, one: Running, requests: list[bytes], errors: list[str]) -> None:
    os.sched_setaffinity(threading.get_native_id(), {bench.load_core})
    connection = http.client.HTTPConnection("127.0.0.1", one.port, timeout=120)
    try:
        for data in requests:
            _ask(connection, one, data)
    except Exception as error:
        errors.append(f"{type(error).__name__}: {error}")
    finally:
        connection.close()


def _headers(one: Running) -> dict[str, str]:
    found = {"content-type": "application/json", "anthropic-version": "2023-06-01"}
    for header in one.launch.headers:
        name, _, value = header.partition(": ")
        found[name] = value
    return found


def _ask(connection: http.client.HTTPConnection, one: Running, data: bytes) -> float:
    """The seconds until the first byte of the answer's body. The whole answer is read."""
    began = time.perf_counter()
    connection.request("POST", bodies.PATHS[one.system.speaks], data, _headers(one))
    answer = connection.getresponse()
    first = answer.read(1)
    waited = time.perf_counter() - began
    rest = answer.read()
    if answer.status != 200:
        raise CannotMeasure(f"status {answer.status}: {(first + rest)[:200].decode(errors='replace')}")
    return waited


def _first_byte(one: Running, number: Iterator[int]) -> float:
    """Median milliseconds to the first byte of a streamed answer to requests of 131 KB of one conversation, one at a time."""
    data = _spoken(one, KINDS[0].body(streamed=True, model="fake-p1000-n20"))
    data = renewed(data, next(number))
    connection = http.client.HTTPConnection("127.0.0.1", one.port, timeout=120)
    try:
        return median(_ask(connection, one, data) for _ in range(25)) * 1000
    finally:
        connection.close()
