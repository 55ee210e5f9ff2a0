"""Many lines through `athena parse --jsonl` and through `map_batches` on Dask: speed, memory over time, and the same bytes."""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow

import athena
from athena.batch.lines import encode_outcome
from athena.formats import get_format
from athena.model.parts import ToolCall
from benchmarks.formats import PROSE

_FORMATS = ("hermes", "kimi_k2", "qwen_xml", "deepseek_v31", "glm_xml", "mistral_json", "llama3_json", "pythonic")
_TOOLS = json.dumps(
    [
        {
            "type": "function",
            "function": {
                "name": "write_file",
                "description": "Write a file.",
                "parameters": {"type": "object", "properties": {"path": {"type": "string"}, "content": {"type": "string"}}},
            },
        }
    ]
)
_PART_ROWS = 10_000
_SAMPLE_SECONDS = 0.25
_GROWTH = 1.10
"""How much larger than in its first quarter a process may be at the end: an allocator's slack, not a leak."""


def main(arguments: list[str]) -> int:
    """Print the figures; exit code 1 if outputs differ or memory grew."""
    parser = argparse.ArgumentParser(prog="./dev bench batch", description=__doc__)
    parser.add_argument("--lines", type=int, default=100_000, help="lines of input (default: 100,000)")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lines, rows = _write_input(folder, options.lines)
        print(f"  {options.lines:,} lines, {lines.stat().st_size / 2**20:,.0f} MiB of JSON lines; RSS in MiB")
        print(f"  {'':<34}{'lines/s':>9}{'CPU us/line':>13}{'process':>12}{'RSS at 1/4':>12}{'1/2':>7}{'end':>7}")
        outputs = []
        flat = True
        for workers in (1, 2):
            output = folder / f"workers-{workers}.jsonl"
            command = ["parse", "--jsonl", "--workers", str(workers), str(lines), "-o", str(output)]
            run = _watched([sys.executable, "-m", "athena", *command])
            flat &= _report(f"athena parse --jsonl, {workers} worker(s)", run, options.lines)
            outputs.append(output)
        output = folder / "dask.jsonl"
        run = _watched([sys.executable, "-m", "benchmarks.batch", str(rows), str(output)])
        _report("map_batches on Dask, 2 processes", run, options.lines)
        same = all(_same(outputs[0], other) for other in (outputs[1], output))
        print(f"  outputs: {'identical, ' if same else 'DIFFERENT, '}{outputs[0].stat().st_size:,} bytes")
        print(f"  memory of athena parse: {'flat' if flat else 'GREW'}")
    return 0 if same and flat else 1


# -- input -----------------------------------------------------------------------------------------------------------------


def _records(count: int) -> Iterator[dict[str, Any]]:
    """Calls in eight formats, prose, calls that are cut, and chunks of reasoning; no two lines alike."""
    arguments = json.dumps({"path": "src/part_@@.py", "content": 'def main():\n    print("größe @@")\n'})
    calls = [
        (name, get_format(name).render_calls([ToolCall(f"functions.write_file:{0}", "write_file", arguments)]))
        for name in _FORMATS
    ]
    for number in range(count):
        name, call = calls[number % len(calls)]
        text = f"{PROSE}{call}".replace("@@", str(number))
        record: dict[str, Any] = {"id": number, "format": name, "tools": _TOOLS, "text": text}
        match number // len(calls) % 10:
            case 0 | 1 | 2:
                record["text"] = f"{PROSE}That was number {number}."
            case 3:
                record["text"] = text[: len(text) - number % len(call) - 1]
            case 4:
                del record["text"]
                record["chunks"] = [text[start : start + 40] for start in range(0, len(text), 40)]
                record["channel"] = "reasoning"
            case _:
                pass
        yield record


def _write_input(folder: Path, count: int) -> tuple[Path, Path]:
    """The same records as JSON lines, and as a file of Arrow batches."""
    lines, rows = folder / "input.jsonl", folder / "input.arrow"
    columns: list[tuple[str, pyarrow.DataType]] = [
        ("id", pyarrow.int64()),
        ("format", pyarrow.string()),
        ("tools", pyarrow.string()),
        ("text", pyarrow.string()),
        ("chunks", pyarrow.list_(pyarrow.string())),
        ("channel", pyarrow.string()),
    ]
    schema = pyarrow.schema(columns)
    records = _records(count)
    with lines.open("w", encoding="utf-8") as sink, pyarrow.ipc.new_file(str(rows), schema) as writer:
        while part := list(islice(records, _PART_ROWS)):
            sink.writelines(json.dumps({**record, "tools": json.loads(_TOOLS)}) + "\n" for record in part)
            writer.write_batch(pyarrow.RecordBatch.from_pylist(part, schema=schema))
    return lines, rows


# -- the same on Dask ------------------------------------------------------------------------------------------------------


def _map_part(rows: str, index: int, output: str) -> str:
    """One task: an Arrow batch in, its outcomes as lines in a file of their own out."""
    with pyarrow.memory_map(rows) as source:
        mapped = athena.map_batches(pyarrow.ipc.open_file(source).get_batch(index))
    part = f"{output}.{index}"
    with open(part, "wb") as sink:
        sink.writelines(encode_outcome(row) + b"\n" for row in mapped.to_pylist())
    return part


def _run_on_dask(rows: str, output: str) -> None:
    dask: Any = import_module("dask")
    with pyarrow.memory_map(rows) as source:
        count = pyarrow.ipc.open_file(source).num_record_batches
    # By its importable name: as part of `__main__` it would travel with all of this module.
    work = import_module("benchmarks.batch")._map_part
    parts = dask.compute(
        *[dask.delayed(work)(rows, index, output) for index in range(count)], scheduler="processes", num_workers=2
    )
    with open(output, "wb") as sink:
        for part in parts:
            sink.write(Path(part).read_bytes())
            Path(part).unlink()


# -- watching processes ----------------------------------------------------------------------------------------------------


class Sample(NamedTuple):
    """One look at a process."""

    at: float
    rss: float
    cpu: float


class Watched(NamedTuple):
    """A command that ended well, and what its processes were like while it ran; the first is its own."""

    seconds: float
    processes: list[list[Sample]]


def _watched(command: list[str]) -> Watched:
    samples: dict[int, list[Sample]] = {}
    ended = threading.Event()
    began = time.perf_counter()
    with subprocess.Popen(command) as process:

        def watch() -> None:
            while not ended.wait(_SAMPLE_SECONDS):
                for pid in _family(process.pid):
                    if (found := _look(pid, time.perf_counter() - began)) is not None:
                        samples.setdefault(pid, []).append(found)

        watcher = threading.Thread(target=watch)
        watcher.start()
        code = process.wait()
        seconds = time.perf_counter() - began
        ended.set()
        watcher.join()
    if code:
        raise SystemExit(f"{' '.join(command)} ended with {code}")
    return Watched(seconds, list(samples.values()))


def _family(pid: int) -> list[int]:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    except OSError:
        return [pid]
    return [pid, *(below for child in children for below in _family(int(child)))]


def _look(pid: int, at: float) -> Sample | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(") ")[2].split()
    except OSError:
        return None
    ticks, pages = int(fields[11]) + int(fields[12]), int(fields[21])
    return Sample(at, pages * 4096 / 2**20, ticks / 100) if pages else None


def _report(title: str, run: Watched, lines: int) -> bool:
    """Print one row for each process that did work; is the memory of each as it was in the first quarter?"""
    spent = sum(samples[-1].cpu for samples in run.processes)
    flat = True
    head = f"  {title:<34}{lines / run.seconds:>9,.0f}{spent / lines * 1e6:>13.0f}"
    for number, samples in enumerate(run.processes):
        if number and samples[-1].cpu < 0.05 * spent:
            continue  # the fork server and trackers
        quarter, half, end = (_around(samples, run.seconds * share) for share in (0.25, 0.5, 1.0))
        flat &= end <= quarter * _GROWTH
        print(f"{head or '':<58}{'parent' if not number else f'worker {number}':>12}{quarter:>12.1f}{half:>7.1f}{end:>7.1f}")
        head = ""
    return flat


def _around(samples: list[Sample], moment: float) -> float:
    """The median RSS of the samples nearest to a moment."""
    nearest = sorted(samples, key=lambda sample: abs(sample.at - moment))[:5]
    return statistics.median(sample.rss for sample in nearest)


def _same(one: Path, other: Path) -> bool:
    with one.open("rb") as first, other.open("rb") as second:
        while True:
            left, right = first.read(2**20), second.read(2**20)
            if left != right:
                return False
            if not left:
                return True


if __name__ == "__main__":
    _run_on_dask(sys.argv[1], sys.argv[2])
