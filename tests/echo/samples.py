"""Answers with calls in them, from the formats' own case files and, where it is given, from a folder of other samples.

`ATHENA_FIDELITY` names a folder of JSON lines with `id`, `format`, `tools`, `text` and perhaps `channel` and
`starts_in_thinking`, such as collections of other projects' test vectors. It is not part of this project.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from athena.errors import AthenaError
from athena.formats.machine.echo import EchoGuard, Passage
from athena.formats.machine.engine import TextParser
from athena.model.events import Event, ToolCallComplete
from athena.model.request import Tool
from athena.parsing import read_tools
from formats.case_files import case_files, declared, load

OTHER_SAMPLES = os.environ.get("ATHENA_FIDELITY", "")


class Sample(NamedTuple):
    """One answer and how it is read."""

    name: str
    text: str
    tools: tuple[Tool, ...] | None
    reading: dict[str, Any]
    ended_well: bool


def case_samples(path: Path) -> Iterator[Sample]:
    """The cases of one format."""
    file = load(path)
    for case in file.case:
        reading = {
            "format": case.format or path.stem,
            "channel": case.channel,
            "starts_in_thinking": case.starts_in_thinking,
            "policies": case.policies,
            "limits": case.limits,
            "recognise_others": case.others,
        }
        yield Sample(
            f"{path.stem}: {case.name}", case.text, None if case.any_tool else declared(file), reading, case.ended_well
        )


def other_samples() -> Iterator[Sample]:
    """What the folder holds."""
    for path in sorted(Path(OTHER_SAMPLES).glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            record = json.loads(line)
            if not isinstance(record.get("text"), str):
                continue
            reading = {
                "format": record.get("format") or "auto",
                "channel": record.get("channel") or "text",
                "starts_in_thinking": bool(record.get("starts_in_thinking")),
            }
            try:
                tools = None if record.get("tools") is None else read_tools(record["tools"])
            except AthenaError:
                continue
            yield Sample(record["id"], record["text"], tools, reading, True)


def all_case_files() -> list[Path]:
    return case_files()


def events_of(sample: Sample, untrusted: Sequence[str] = (), size: int = 0) -> list[Event]:
    """The events of the answer when the request holds these texts; without any there is no guard."""
    guard = EchoGuard(lambda: map(Passage, untrusted), tools=sample.tools) if untrusted else None
    parser = TextParser(tools=sample.tools, guard=guard, **sample.reading)
    text = sample.text
    pieces = [text[at : at + size] for at in range(0, len(text), size)] if size else [text]
    events = [event for piece in pieces for event in parser.feed(piece)]
    return [*events, *parser.close(ended_well=sample.ended_well)]


def calls_of(events: Sequence[Event]) -> list[tuple[str, str]]:
    """Name and arguments of the calls."""
    return [(event.name, event.arguments) for event in events if isinstance(event, ToolCallComplete)]
