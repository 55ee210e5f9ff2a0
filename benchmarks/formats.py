"""Text formats: prose and calls through each format's parser, whole and four characters at a time; JSON lines per second."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from athena.formats import format_names, get_format
from athena.formats.engine import TextParser
from athena.formats.stage import FormatStage
from athena.model.events import Event, TextDelta
from athena.model.parts import ToolCall
from athena.model.request import Tool
from benchmarks.timing import best_ns

PROSE = (
    "The quick brown fox jumps over the lazy dog, and then it sits down to think about what it has done. "
    "A list: one, two, three; a sum: 2 + 2 = 4. Nothing in here is a call, and nothing looks like one.\n"
)
TOOLS = (
    Tool(
        name="write_file",
        schema={"type": "object", "properties": {"path": {"type": "string"}, "content": {"type": "string"}}},
    ),
)
CALL = ToolCall(
    id="functions.write_file:0",
    name="write_file",
    arguments=json.dumps({"path": "src/main.py", "content": 'def main():\n    print("hello, world")\n' * 60}),
)


def main() -> None:
    """Print the figures."""
    print(f"  {'format':<20}{'prose MB/s':>12}{'call MB/s':>12}{'call us per 4 characters':>26}")
    for name in (*format_names(), "auto"):
        _one(name)
    _stage()
    _lines()


def through(name: str, pieces: list[str]) -> None:
    """One answer through the parser of a format."""
    parser = TextParser(name, tools=TOOLS)
    for piece in pieces:
        parser.feed(piece)
    parser.close()


def _one(name: str) -> None:
    prose = PROSE * 500
    found = get_format("hermes" if name == "auto" else name)
    call = found.render_calls([CALL]) if found.inexpressible(CALL) is None else ""
    pieces = [call[start : start + 4] for start in range(0, len(call), 4)]

    timed = best_ns(
        {
            "prose": lambda: through(name, [prose]),
            "call": lambda: through(name, [call]),
            "cut": lambda: through(name, pieces),
        },
        per=1,
        rounds=3,
        batch_seconds=0.01,
    )
    speed = len(prose) / timed["prose"] * 1000
    if not call:
        print(f"  {name:<20}{speed:>12.0f}{'-':>12}{'-':>26}")
        return
    print(f"  {name:<20}{speed:>12.0f}{len(call) / timed['call'] * 1000:>12.1f}{timed['cut'] / len(pieces) / 1000:>26.2f}")


def _stage() -> None:
    """What the stage adds to a stream of plain text, beside making the events."""
    pieces = [PROSE[start : start + 4] for start in range(0, len(PROSE), 4)] * 10

    def events() -> None:
        for piece in pieces:
            _ = [TextDelta(piece)]

    def stage() -> None:
        parsing = FormatStage("auto", tools=TOOLS)
        for piece in pieces:
            batch: list[Event] = [TextDelta(piece)]
            parsing.feed(batch)

    timed = best_ns({"making the event": events, "making and reading it": stage}, per=len(pieces))
    added = (timed["making and reading it"] - timed["making the event"]) / 1000
    print(f"  plain text in pieces of 4 characters: {added:.2f} microseconds per piece on top of the event (target: at most 3)")


def _lines(count: int = 20_000) -> None:
    with tempfile.TemporaryDirectory() as folder:
        source, sink = Path(folder) / "in.jsonl", Path(folder) / "out.jsonl"
        text = PROSE + get_format("hermes").render_calls([ToolCall(id="", name="write_file", arguments='{"path": "a"}')])
        line = json.dumps({"id": 1, "text": text, "tools": [{"name": "write_file", "parameters": {"type": "object"}}]})
        source.write_text((line + "\n") * count, encoding="utf-8")
        for workers in (1, 2):
            began = time.perf_counter()
            command = [
                sys.executable,
                "-m",
                "athena",
                "parse",
                "--jsonl",
                "--workers",
                str(workers),
                str(source),
                "-o",
                str(sink),
            ]
            subprocess.run(command, check=True)
            seconds = time.perf_counter() - began
            print(f"  athena parse --jsonl, {workers} worker(s): {count / seconds:,.0f} lines per second, start included")


if __name__ == "__main__":
    main()
