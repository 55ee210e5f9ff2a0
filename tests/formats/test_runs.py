"""Words with a marker, again and again: what is decided for a whole run of them is what each copy by itself comes to."""

from __future__ import annotations

from itertools import cycle, product

import pytest

from athena.formats import format_names, get_format
from athena.formats.machine import call_reading, code_spans, engine
from athena.formats.machine.engine import TextParser
from athena.formats.machine.scanner import end_of_run
from athena.formats.machine.speech import Speech
from athena.model.events import Event
from athena.model.parts import ToolCall
from formats.case_files import TOOLS, folded
from support.examples import IS_DEEP

_LEADS = ("", "Words ", "<think>\n", "```\n", "Words\n")
_JOINTS = (
    "", " x", "\n", "\nx", "{", '{"', "[", "<", "x ", "search", "=search>", "\nsearch\n", ' {"name": "search"', "\n\n",
    "\n</think>\n", "~~~\n", "`", "\n```\n", "_",
)  # fmt: skip
"""What may stand between two copies of a marker."""
_CALL = ToolCall(id="functions.search:0", name="search", arguments='{"query": "x"}')


def _tails(format_id: str, marker: str) -> tuple[str, ...]:
    known = get_format("hermes" if format_id == "auto" else format_id)
    call = known.render_calls([_CALL])
    return ("", " x", marker[:-1], f"\n{call}", call.removeprefix(marker), "\n```\nx")


def _read(format_id: str, text: str, size: int) -> tuple[list[Event], int]:
    """The events, and how many calls were malformed."""
    parser = TextParser(format_id, tools=TOOLS)
    events: list[Event] = []
    for start in range(0, len(text), size):
        events += parser.feed(text[start : start + size])
    return [*events, *parser.close()], parser.counts.malformed


def _markers(format_id: str) -> list[str]:
    known = get_format("hermes" if format_id == "auto" else format_id)
    named = known.tool_openers(tuple(tool.name for tool in TOOLS)) if known.tool_openers is not None else ()
    return list(dict.fromkeys(opener.marker for opener in (*known.openers, *named) if opener.marker))


def _units(markers: list[str], number: int) -> list[str]:
    """What is repeated: the marker with something behind it, alone or before the next marker."""
    following = markers[(number + 1) % len(markers)]
    return [
        *(markers[number] + joint for joint in _JOINTS),
        f"{markers[number]} {following}x",
        f"{markers[number]}\n{following} ",
    ]


@pytest.mark.fuzz
@pytest.mark.parametrize("format_id", [*format_names(), "auto"])
def test_a_run_comes_to_what_its_copies_come_to(format_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_reading, "_DECIDES", 48)
    markers = _markers(format_id)
    for number, marker in enumerate(markers):
        cases = list(product(_units(markers, number), _LEADS, _tails(format_id, marker)))
        for unit, lead, tail in cases if IS_DEEP else cases[number % 41 :: 41]:
            text = lead + unit * (160 // len(unit) + 4) + tail
            with monkeypatch.context() as without:
                without.setattr(call_reading, "end_of_run", lambda text, at, unit: at)
                events, malformed = _read(format_id, text, len(text))
            for size in (len(text), 11):
                found, faults = _read(format_id, text, size)
                assert folded(found) == folded(events), (lead, unit, tail, size)
                if size == len(text):
                    assert faults == malformed, (lead, unit, tail)


_FENCES = ("```", "````", "~~~", "`", "``", "```\nx\n````", "~~~\n```")
_BEHIND_FENCES = ("\n", "py\n", "\n\n", "\n{", '\n{"', "json\n[", " x", "x\n", "\n x\n")


@pytest.mark.fuzz
@pytest.mark.parametrize("format_id", ["auto", "hermes", "json_generic", "pythonic", "react", "xlam"])
def test_a_run_of_code_comes_to_what_its_copies_come_to(format_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With limits so short that every answer to the question whether code ends occurs."""
    for module in (code_spans, engine):
        monkeypatch.setattr(module, "FENCE_AHEAD", 64)
    monkeypatch.setattr(code_spans, "_QUOTE_AHEAD", 24)
    monkeypatch.setattr(code_spans, "_LINES_AHEAD", 32)
    monkeypatch.setattr(call_reading, "_DECIDES", 48)
    monkeypatch.setattr(call_reading, "_DECIDES_FENCES", 64 + 24 + 48)
    markers = ["", *_markers(format_id)]
    units = [
        fence + behind + marker + end
        for marker, fence, behind, end in product(markers, _FENCES, _BEHIND_FENCES, ("", "\n", " x\n"))
    ]
    cases = list(product(units, ("", "Words\n", "Words `", "````\n"), ("", "\n```\nx", "~~~")))
    call = get_format("hermes" if format_id == "auto" else format_id).render_calls([_CALL])
    skipped = 0
    plain = Speech.say_copies

    def say_copies(self: Speech, piece: str) -> None:
        nonlocal skipped
        skipped += 1
        plain(self, piece)

    monkeypatch.setattr(Speech, "say_copies", say_copies)
    lasts = cycle(("", f"\n{call}", f"\n{call}\n```\n"))
    for unit, lead, tail in cases if IS_DEEP else cases[::101]:
        text = lead + unit * (400 // len(unit) + 4) + tail + next(lasts)
        with monkeypatch.context() as without:
            without.setattr(call_reading, "end_of_run", lambda text, at, unit: at)
            events, malformed = _read(format_id, text, len(text))
        found, faults = _read(format_id, text, len(text))
        assert folded(found) == folded(events), text
        assert faults == malformed, text
        assert folded(_read(format_id, text, 11)[0]) == folded(events), text
    assert skipped > 20


def test_runs_are_decided_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers are asked as often for 16 KiB of the same text as for 4."""
    asked = 0
    plain = call_reading.CallReading._open

    def counting(self: call_reading.CallReading, *arguments: object) -> None:
        nonlocal asked
        asked += 1
        plain(self, *arguments)  # type: ignore[arg-type]  # whatever it is

    monkeypatch.setattr(call_reading.CallReading, "_open", counting)
    for format_id in format_names():
        for marker in _markers(format_id):
            for unit in (marker, marker + "{", marker + "\nx"):
                counts = []
                for size in (1 << 12, 1 << 14):
                    asked = 0
                    text = unit * (size // len(unit))
                    events, _ = _read(format_id, text, size)
                    is_text = folded(events) == [{"text": text}]
                    counts.append(asked)
                if unit == marker or is_text:
                    assert counts[1] <= counts[0] + 4, (format_id, unit, counts)


def test_the_end_of_a_run() -> None:
    assert end_of_run("xabababc", 1, "ab") == 7
    assert end_of_run("xabababc", 0, "ab") == 0
    assert end_of_run("ab" * 1000, 0, "ab") == 2000
