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
from athena.formats.machine.engine import TextParser
from athena.formats.machine.stage import FormatStage
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


_PASSES = 4
_JOINTS = ("", " ", "\n", " x", "\nx", "{", '{"', "[", "<", "write_file", "=write_file>", '{"name": "write_file"')
"""What stands between two copies of a marker."""


def main() -> None:
    """Print the figures."""
    print("  us: microseconds per piece of 4 characters on top of making its event (target: at most 3)")
    print(
        f"  {'format':<20}{'prose MB/s':>11}{'call MB/s':>11}{'text us':>9}{'mixed us':>10}"
        f"{'near misses s/MiB':>19}{'openers, ms in 64 KiB':>23}"
    )
    print(
        "  openers: the dearest text of one marker, alone or with something behind it, again and again, none of which is a call"
    )
    names = (*format_names(), "auto")
    work = {name: _Work(name) for name in names}
    # The machine has slow seconds: each format gets its turn several times, and the best one counts.
    for turn in range(_PASSES):
        for name in names:
            work[name].measure()
        print(f"  pass {turn + 1} of {_PASSES}", end="\r", file=sys.stderr, flush=True)
    for name in names:
        print(work[name].row())
    _stage()
    _lines()


def through(name: str, pieces: list[str]) -> None:
    """One answer through the parser of a format."""
    parser = TextParser(name, tools=TOOLS)
    for piece in pieces:
        parser.feed(piece)
    parser.close()


def is_text(name: str, text: str) -> bool:
    """Does all of it come out as the text it is?"""
    parser = TextParser(name, tools=TOOLS)
    events = [*parser.feed(text), *parser.close()]
    said = "".join(event.text for event in events if isinstance(event, TextDelta))
    return said == text and all(isinstance(event, TextDelta) for event in events)


def _make_events(pieces: list[str]) -> None:
    for piece in pieces:
        ToolCallDelta(0, piece)


class _Work:
    """What one format is given to read, and the best times it took."""

    def __init__(self, name: str) -> None:
        self._name = name
        known = get_format("hermes" if name == "auto" else name)
        text, mixed = (known.render_calls([call]) if known.inexpressible(call) is None else "" for call in (CALL, MIXED))
        markers = [opener.marker for opener in known.openers if opener.marker]
        misses = "".join(marker[:-1] + "~" + marker + " x" for marker in markers) or PROSE
        self._pieces = {
            "prose": [PROSE * 500],
            "call": [text],
            "text": [text[start : start + 4] for start in range(0, len(text), 4)],
            "mixed": [mixed[start : start + 4] for start in range(0, len(mixed), 4)],
            "misses": [misses * (_FEED // len(misses) + 1)],
        }
        units = [marker + joint for marker in markers for joint in _JOINTS]
        repeated = [unit * (_FEED // len(unit)) for unit in units]
        self._openers = [[text] for text in repeated if is_text(name, text)] or [[PROSE]]
        self._best: dict[str, float] = {}

    def measure(self) -> None:
        """Another turn."""
        jobs = {key: partial(through, self._name, pieces) for key, pieces in self._pieces.items()}
        timed = best_ns(jobs, per=1, rounds=2, batch_seconds=0.005)
        for number, pieces in enumerate(self._openers):
            timed |= best_ns({f"openers {number}": partial(through, self._name, pieces)}, per=1, rounds=1, batch_seconds=0)
        pieces = self._pieces["text"]
        timed |= best_ns({"event": partial(_make_events, pieces)}, per=len(pieces) or 1)
        for key, value in timed.items():
            self._best[key] = min(value, self._best.get(key, value))

    def row(self) -> str:
        """The line of the table."""
        openers = max(time for key, time in self._best.items() if key.startswith("openers"))
        best, size = self._best, {key: sum(map(len, pieces)) for key, pieces in self._pieces.items()}
        return (
            f"  {self._name:<20}{size['prose'] / best['prose'] * 1000:>11.0f}{size['call'] / best['call'] * 1000:>11.1f}"
            f"{self._added('text'):>9}{self._added('mixed'):>10}"
            f"{best['misses'] / size['misses'] * 2**20 / 1e9:>19.2f}{openers / 1e6:>23.1f}"
        )

    def _added(self, key: str) -> str:
        count = len(self._pieces[key])
        return f"{(self._best[key] / count - self._best['event']) / 1000:.2f}" if count else "-"


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
