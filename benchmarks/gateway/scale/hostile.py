"""Loop lag: how long one hostile request keeps the chunks of other people's streams waiting.

Four streams paced at 5 ms run through the gateway; a hostile request joins them. The lag is the longest delay of any of their
chunks, less the longest when the same request goes past the gateway, straight to the upstream: that much the load's own core
takes. The paced streams must outlast the hostile request, or its end was not seen; longer ones are taken until they do. A
request that was refused or cut off is marked: that it does little harm then is the doing of a limit. What other processes take
of the gateway's core counts as lag here: read the least of the repetitions.
"""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.gateway import bodies
from benchmarks.gateway.bench import Bench, Loaded, Running
from benchmarks.gateway.results import Figure
from benchmarks.gateway.scale.effort import Effort
from benchmarks.gateway.scale.large import large_body

STREAMS = 4
PACED_CHUNKS = (400, 1600, 6400)
MEBIBYTE_CHUNKS = 1020


def measure(bench: Bench, effort: Effort) -> list[Figure]:
    """One hostile request after the other."""
    found = []
    with bench.running(effort.athena("msg")) as one:
        _delay(bench, one, None)
        for name, body in _requests(one.system.speaks).items():
            file = bench.body("hostile", body)
            lags, refused = [], False
            for _ in range(effort.repeats):
                past, _ = _delay(bench, one, file, past_gateway=True)
                through, failed = _delay(bench, one, file)
                lags.append(max(0.0, through - past))
                refused = refused or failed
            name += " (refused or cut off)" if refused else ""
            found.append(Figure(name, one.system.name, "lag", "ms", lags, at_most=50))
            found.append(Figure(name, one.system.name, "lag, least", "ms", [min(lags)], judged=True, at_most=50))
    return found


def _requests(speaks: bodies.Dialect) -> dict[str, dict[str, Any]]:
    def asking(model: str, *, streamed: bool = True, **changes: Any) -> dict[str, Any]:
        return bodies.request(speaks, model, streamed=streamed) | changes

    sixteen = f"fake-n{16 * MEBIBYTE_CHUNKS}-s1000"
    schema = {"type": "object", "properties": {f"field_{number}": {"type": "string"} for number in range(40)}}
    tools = [{"name": f"tool_{number}", "description": "does it " * 20, "input_schema": schema} for number in range(900)]
    deep: Any = "x"
    for _ in range(100):
        deep = {"a": deep, "b": [deep] if isinstance(deep, str) else []}
    turn = {"role": "user", "content": [{"type": "text", "text": "word"}] * 8}
    return {
        "20 MB image": large_body(speaks, "20 MB image")[0],
        "20 MB of text": asking("fake-p0", messages=[{"role": "user", "content": 'a "b"\n' * 2_500_000}]),
        "20 MB of empty lists": asking("fake-p0", messages=[[]] * 6_500_000),
        "10,000 parts": asking("fake-p0", messages=[turn, {"role": "assistant", "content": "ok"}] * 1250 + [turn]),
        "900 tools of 40 fields": asking("fake-p0", tools=tools, messages=[turn]),
        "deep schema": asking("fake-p0", tools=[{"name": "deep", "input_schema": {"type": "object", "default": deep}}]),
        "16 MiB whole answer": asking(sixteen, streamed=False),
        "16 MiB of text": asking(sixteen),
        "16 MiB of arguments": asking(sixteen + "-kargs"),
        "16 MiB of false starts": asking(sixteen + "-kmarkup"),
        "16 MiB of unclosed calls": asking(sixteen + "-kunclosed"),
        "100,000 tiny chunks": asking("fake-n100000-s1"),
    }


def _delay(bench: Bench, one: Running, hostile: Path | None, *, past_gateway: bool = False) -> tuple[float, bool]:
    """The longest delay of a chunk of the paced streams in milliseconds, and whether the hostile request failed."""
    for chunks in PACED_CHUNKS:
        delay, failed, outlasted = _paced(bench, one, hostile, chunks, past_gateway=past_gateway)
        if outlasted:
            return delay, failed
    raise RuntimeError(f"the hostile request took longer than {PACED_CHUNKS[-1]} chunks of the paced streams")


def _paced(bench: Bench, one: Running, hostile: Path | None, chunks: int, *, past_gateway: bool) -> tuple[float, bool, bool]:
    speaks = one.system.speaks
    path, headers = bodies.PATHS[speaks], one.launch.headers
    paced = bench.body("paced", bodies.request(speaks, f"fake-p5000-n{chunks}", streamed=True))
    command = bench.command(
        one.port,
        path,
        paced,
        requests=STREAMS,
        concurrent=STREAMS,
        headers=headers,
        stamps=chunks,
        end=bodies.END_STRINGS[speaks],
    )
    failed, outlasted = False, True
    with subprocess.Popen(command, stdout=subprocess.PIPE) as generator:
        if hostile is not None:
            time.sleep(0.3)
            if past_gateway:
                made = bench.load(bench.upstream_port, bodies.PATHS["chat"], hostile)
            else:
                made = bench.load(one.port, path, hostile, headers=headers)
            failed, outlasted = bool(made.errors), generator.poll() is None
        assert generator.stdout is not None
        loaded = msgspec.json.decode(generator.stdout.read(), type=Loaded)
    if loaded.errors:
        raise RuntimeError(f"the paced streams broke: {loaded.error}")
    return loaded.delay_max / 1000, failed, outlasted
