"""A marker that stands there again and again: what is decided for a whole run of it is what each copy by itself comes to."""

from __future__ import annotations

from itertools import product

import pytest

from athena.formats import format_names, get_format
from athena.formats.machine import call_reading
from athena.formats.machine.engine import TextParser
from athena.formats.machine.scanner import end_of_run
from athena.model.events import Event
from athena.model.parts import ToolCall
from formats.case_files import TOOLS, folded
from support.examples import IS_DEEP

_LEADS = ("", "Words ", "<think>\n", "```\n", "Words\n")
_CALL = ToolCall(id="functions.search:0", name="search", arguments='{"query": "x"}')


def _tails(format_id: str, marker: str) -> tuple[str, ...]:
    known = get_format("hermes" if format_id == "auto" else format_id)
    call = known.render_calls([_CALL])
    return ("", " x", marker[:-1], f"\n{call}", call.removeprefix(marker), "\n```\nx")


def _read(format_id: str, text: str, size: int) -> list[Event]:
    parser = TextParser(format_id, tools=TOOLS)
    events: list[Event] = []
    for start in range(0, len(text), size):
        events += parser.feed(text[start : start + size])
    return [*events, *parser.close()]


@pytest.mark.fuzz
@pytest.mark.parametrize("format_id", [*format_names(), "auto"])
def test_a_run_comes_to_what_its_copies_come_to(format_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_reading, "_DECIDES", 48)
    known = get_format("hermes" if format_id == "auto" else format_id)
    named = known.tool_openers(tuple(tool.name for tool in TOOLS)) if known.tool_openers is not None else ()
    markers = dict.fromkeys(opener.marker for opener in (*known.openers, *named) if opener.marker)
    for number, marker in enumerate(markers):
        cases = list(product(_LEADS, _tails(format_id, marker)))
        for lead, tail in cases if IS_DEEP else cases[number % 4 :: 4]:
            text = lead + marker * (160 // len(marker) + 3) + tail
            with monkeypatch.context() as without:
                without.setattr(call_reading, "end_of_run", lambda text, at, marker: at)
                alone = folded(_read(format_id, text, len(text)))
            for size in (len(text), 11):
                assert folded(_read(format_id, text, size)) == alone, (lead, marker, tail, size)


def test_runs_are_decided_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers are asked as often for 64 KiB of one marker as for 4."""
    asked = 0
    plain = call_reading.CallReading._open

    def counting(self: call_reading.CallReading, *arguments: object) -> None:
        nonlocal asked
        asked += 1
        plain(self, *arguments)  # type: ignore[arg-type]  # whatever it is

    monkeypatch.setattr(call_reading.CallReading, "_open", counting)
    for format_id in format_names():
        for marker in {opener.marker for opener in get_format(format_id).openers if opener.marker}:
            counts = []
            for size in (1 << 12, 1 << 16):
                asked = 0
                _read(format_id, marker * (size // len(marker)), size)
                counts.append(asked)
            assert counts[1] <= counts[0] + 4, (format_id, marker, counts)


def test_the_end_of_a_run() -> None:
    assert end_of_run("xabababc", 1, "ab") == 7
    assert end_of_run("xabababc", 0, "ab") == 0
    assert end_of_run("ab" * 1000, 0, "ab") == 2000
