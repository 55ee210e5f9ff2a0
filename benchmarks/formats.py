"""Text formats: prose, calls and near misses through each format's parser, whole and in small pieces; JSON lines per second."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from athena.formats import format_names, get_format
from athena.formats.engine import TextParser
from athena.formats.stage import FormatStage
from athena.model.events import Event, TextDelta, ToolCallDelta
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
    Tool(
        name="plot",
        schema={
            "type": "object",
            "properties": {"title": {"type": "string"}, "points": {"type": "array"}, "style": {"type": "object"}},
        },
    ),
)
CALL = ToolCall(
    id="functions.write_file:0",
    name="write_file",
    arguments=json.dumps({"path": "src/main.py", "content": 'def main():\n    print("hello, world")\n' * 60}),
)
_FEED = 65536
MIXED = ToolCall(
    id="functions.plot:0",
    name="plot",
    arguments=json.dumps(
        {
            "title": "Rain",
            "points": [[number, number * 1.5, None, True] for number in range(60)],
            "style": {f"key_{number}": {"colour": "red", "size": number, "on": False} for number in range(20)},
        }
    ),
)
"""Numbers, words and brackets rather than text."""


def main() -> None:
    """Print the figures."""
    print("  us: microseconds per piece of 4 characters on top of making its event (target: at most 3)")
    print(
        f"  {'format':<20}{'prose MB/s':>11}{'call MB/s':>11}{'text us':>9}{'mixed us':>10}"
        f"{'near misses s/MiB':>19}{'nested, ms in 64 KiB':>22}"
    )
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
    text, mixed = (found.render_calls([call]) if found.inexpressible(call) is None else "" for call in (CALL, MIXED))
    markers = [opener.marker for opener in found.openers if opener.marker]
    misses = "".join(marker[:-1] + "~" + marker + " x" for marker in markers) or PROSE
    nested = [marker * (_FEED // len(marker)) for marker in markers] or [PROSE]

    def read(pieces: list[str]) -> None:
        parser = TextParser(name, tools=TOOLS)
        for piece in pieces:
            parser.feed(piece)
        parser.close()

    work = {
        "prose": [prose],
        "call": [text],
        "text": [text[start : start + 4] for start in range(0, len(text), 4)],
        "mixed": [mixed[start : start + 4] for start in range(0, len(mixed), 4)],
        "misses": [misses * (_FEED // len(misses) + 1)],
    }
    timed = best_ns({key: partial(read, pieces) for key, pieces in work.items()}, per=1, rounds=3, batch_seconds=0.01)
    worst = max(best_ns({"nested": partial(read, [one])}, per=1, rounds=1, batch_seconds=0)["nested"] for one in nested)
    making = best_ns({"event": lambda: [ToolCallDelta(0, piece) for piece in work["text"]]}, per=len(work["text"]) or 1)[
        "event"
    ]

    def added(key: str) -> str:
        return f"{(timed[key] / len(work[key]) - making) / 1000:.2f}" if work[key] else "-"

    print(
        f"  {name:<20}{len(prose) / timed['prose'] * 1000:>11.0f}"
        f"{len(text) / timed['call'] * 1000 if text else 0:>11.1f}{added('text'):>9}{added('mixed'):>10}"
        f"{timed['misses'] / len(work['misses'][0]) * 2**20 / 1e9:>19.2f}{worst / 1e6:>22.1f}"
    )


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
