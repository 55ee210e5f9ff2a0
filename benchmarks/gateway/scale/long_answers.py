"""Long answers: sixteen mebibytes against one, in text, in a call's arguments, in text that looks like calls, and whole.

Linear cost is 16x; 18x is the most that is allowed (docs/reference/faults.md#the-machine-and-the-process).
"""

from __future__ import annotations

from benchmarks.gateway.bench import Bench, Running
from benchmarks.gateway.results import Figure
from benchmarks.gateway.scale.effort import Effort

SIZE = 1000
PER_MEBIBYTE = 1020
"""Chunks: with their stamps a little less than a mebibyte, so that sixteen stay below the limit for arguments."""
KINDS = {"text": (True, ""), "arguments": (True, "-kargs"), "false starts": (True, "-kmarkup"), "whole": (False, "")}


def measure(bench: Bench, effort: Effort) -> list[Figure]:
    """CPU of an answer by its length."""
    found = []
    with bench.running(effort.athena("msg")) as one:
        for kind in KINDS:
            _cost(bench, one, kind, 1)
            costs = [(_cost(bench, one, kind, 1), _cost(bench, one, kind, 16)) for _ in range(effort.repeats)]
            name = one.system.name
            found.append(Figure(kind, name, "cpu per MiB of 1", "ms", [small for small, _ in costs]))
            found.append(Figure(kind, name, "cpu per MiB of 16", "ms", [large / 16 for _, large in costs]))
            ratios = [large / small for small, large in costs]
            found.append(Figure(kind, name, "16 MiB by 1 MiB", "x", ratios, judged=True, at_most=18))
    return found


def _cost(bench: Bench, one: Running, kind: str, mebibytes: int) -> float:
    """CPU milliseconds of one answer; the shorter one is asked for more often."""
    streamed, suffix = KINDS[kind]
    model = f"fake-n{PER_MEBIBYTE * mebibytes}-s{SIZE}{suffix}"
    requests = 16 // mebibytes
    made = bench.ask(
        one, model, streamed=streamed, requests=requests, concurrent=1, stamps=PER_MEBIBYTE * mebibytes if streamed else 1
    )
    if made.load.errors:
        raise RuntimeError(f"{kind}, {mebibytes} MiB: {made.load.error}")
    return made.cpu_s * 1000 / requests
