"""Answers: what the gateway's side of an answer costs beside nginx and an earlier release, against the targets, in minutes.

`./dev bench answers --against ../v1` measures this checkout beside nginx and beside the one in that folder (`git worktree add
../v1 RELEASE`), at the default log level: a paced chunk, a chunk of a burst, a small plain request, the first byte of the last
of 128 streams that begin at once, and a whole turn of an agent (131 KB, 300 paced chunks). Chunks of arguments are those of one
long string, as where an agent writes a file. Ratios are medians over the repetitions, with their ranges.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import defaultdict
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from benchmarks.gateway import bodies
from benchmarks.gateway.bench import Bench, Pass, Running
from benchmarks.gateway.errors import CannotMeasure
from benchmarks.gateway.systems import System, system_named

_TURN_BYTES = 131_000
_TURN_CHUNKS = 300
_AT_ONCE = 128


@dataclass(frozen=True)
class _Case:
    name: str
    model: str
    streamed: bool
    requests: int
    concurrent: int
    stamps: int
    large: bool = False


_CASES = (
    _Case("paced chunk", "fake-p5000", True, 32, 16, 200),
    _Case("burst chunk", "fake-p0", True, 160, 16, 200),
    _Case("paced chunk of arguments", "fake-p5000-kargs", True, 32, 16, 200),
    _Case("burst chunk of arguments", "fake-p0-kargs", True, 160, 16, 200),
    _Case("plain request", "fake-p0", False, 1500, 16, 1),
    _Case("agent turn", f"fake-p5000-n{_TURN_CHUNKS}", True, 16, 16, _TURN_CHUNKS, large=True),
    _Case("first byte of 128", "fake-p20000-n20", True, _AT_ONCE, _AT_ONCE, 20),
)


def main(arguments: list[str]) -> int:
    """Measure and print; no file is written."""
    parser = argparse.ArgumentParser(prog="./dev bench answers", description=__doc__)
    parser.add_argument("--against", default="", help="a checkout of the release to compare a turn with")
    parser.add_argument("--repeats", type=int, default=3, help="repetitions; medians are printed (default: %(default)s)")
    parser.add_argument("--cases", default="", help="parts of the names of the cases to measure, with commas (default: all)")
    parser.add_argument("--quick", action="store_true", help="one repetition of an eighth of the requests, to see that it runs")
    options = parser.parse_args(arguments)
    systems = [
        system_named("nginx"),
        replace(system_named("athena-msg"), name="athena"),
        replace(system_named("athena-chat"), name="athena, chat"),
    ]
    try:
        if options.against:
            systems.append(replace(system_named(f"athena-msg@{options.against}"), name="before"))
        parts = options.cases.split(",")
        cases = [case for case in _CASES if any(part in case.name for part in parts)]
        passes = _measure(systems, cases, 1 if options.quick else options.repeats, share=8 if options.quick else 1)
    except CannotMeasure as problem:
        print(f"bench: {problem}", file=sys.stderr)
        return 2
    _print(passes, [system.name for system in systems])
    return 0


Passes = dict[tuple[str, str], list[Pass]]


def _measure(systems: list[System], cases: list[_Case], repeats: int, *, share: int) -> Passes:
    passes: Passes = defaultdict(list)
    with Bench() as bench:
        running = [bench.start(system) for system in systems]
        for one in running:
            for case in cases:
                _ask(bench, one, _part_of(case, 8 * share))
        for repeat in range(repeats):
            for case in cases:
                for one in running if repeat % 2 == 0 else reversed(running):
                    passes[case.name, one.system.name].append(_ask(bench, one, _part_of(case, share)))
            print(f"  repetition {repeat + 1} of {repeats} done", file=sys.stderr)
    return passes


def _part_of(case: _Case, share: int) -> _Case:
    """The same with fewer requests, but as many as run at once."""
    return replace(case, requests=max(case.concurrent, case.requests // share))


def _ask(bench: Bench, one: Running, case: _Case) -> Pass:
    system = one.system
    value = bodies.request(system.speaks, case.model, streamed=case.streamed)
    if case.large:
        value = _with_history(value, system.speaks)
    body = bench.body(f"{system.speaks}-{case.name}", value)
    found = bench.measured(
        one,
        lambda: bench.load(
            one.port,
            bodies.PATHS[system.speaks],
            body,
            requests=case.requests,
            concurrent=case.concurrent,
            headers=one.launch.headers,
            stamps=case.stamps,
            end=bodies.END_STRINGS[system.speaks] if case.streamed else "",
        ),
    )
    if found.load.errors:
        raise CannotMeasure(f"{system.name}, {case.name}: {found.load.errors} errors: {found.load.error[:160]}")
    return found


def _with_history(value: dict[str, Any], speaks: bodies.Dialect) -> dict[str, Any]:
    """The request of an agent in the middle of its work: 24 tools, and rounds of calls and results up to its size."""
    value = dict(value)
    tool = value["tools"][0]
    named = [f"tool_{number}" for number in range(24)]
    if speaks == "chat":
        value["tools"] = [tool, *({**tool, "function": {**tool["function"], "name": name}} for name in named)]
    else:
        value["tools"] = [tool, *({**tool, "name": name} for name in named)]
    messages, number, size = list(value["messages"]), 0, 0
    result = "def main() -> int:\n    return 0  # a line of a file that the agent has read\n" * 40
    while size < _TURN_BYTES - 12_000:
        number += 1
        call = f"call_{number}"
        text = f"I look at file {number}."
        if speaks == "chat":
            function = {"name": "get_weather", "arguments": f'{{"city":"file {number}"}}'}
            calls = [{"id": call, "type": "function", "function": function}]
            messages.append({"role": "assistant", "content": text, "tool_calls": calls})
            messages.append({"role": "tool", "tool_call_id": call, "content": result})
        else:
            used = {"type": "tool_use", "id": call, "name": "get_weather", "input": {"city": f"file {number}"}}
            messages.append({"role": "assistant", "content": [{"type": "text", "text": text}, used]})
            given = {"type": "tool_result", "tool_use_id": call, "content": result}
            messages.append({"role": "user", "content": [given]})
        size += len(result) + 300
    return {**value, "messages": messages}


def _print(passes: Passes, names: list[str]) -> None:
    ours = [name for name in names if name.startswith("athena")]
    foreign = median(one.foreign for made in passes.values() for one in made)
    print(f"\n{'':<26}{'':<16}{'CPU us':>9}{'ratio':>9}   from-to      target")
    for case, unit, reference, targets in (
        ("paced chunk", "cpu_us_per_chunk", "nginx", {"athena": 1.8}),
        ("burst chunk", "cpu_us_per_chunk", "nginx", {"athena": 1.5}),
        ("paced chunk of arguments", "cpu_us_per_chunk", "nginx", {}),
        ("burst chunk of arguments", "cpu_us_per_chunk", "nginx", {}),
        ("plain request", "cpu_us_per_request", "nginx", {"athena": 15.0}),
        ("agent turn", "cpu_us_per_request", "before", {"athena": 0.55}),
    ):
        base = passes.get((case, reference))
        for name in dict.fromkeys(("nginx", *ours, "before")):
            made = passes.get((case, name))
            if not made:
                continue
            costs = [getattr(one, unit) for one in made]
            line = f"{case:<26}{name:<16}{median(costs):>9.1f}"
            if base and name != reference:
                ratios = [cost / getattr(other, unit) for cost, other in zip(costs, base, strict=True)]
                target = f"{targets[name]:>8.2f}" if name in targets else ""
                line += f"{median(ratios):>9.2f}   {min(ratios):.2f}-{max(ratios):.2f}  {target}"
            print(line)
    base = passes.get(("first byte of 128", "nginx"))
    for name in dict.fromkeys(("nginx", *ours, "before")):
        made = passes.get(("first byte of 128", name))
        if made and base:
            behind = [(one.load.first_p99 - other.load.first_p99) / 1000 for one, other in zip(made, base, strict=True)]
            target = "      30" if name == "athena" else ""
            spread = f"{min(behind):.1f}-{max(behind):.1f}"
            print(f"{'first byte of 128, +ms':<26}{name:<16}{'':>9}{median(behind):>9.1f}   {spread}  {target}")
    print(f"\nothers took {foreign:.0%} of the measured core in the median pass; {os.cpu_count()} cores")
