"""Every case of every format: whole, cut in two at every place, and in chunks of several sizes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from athena.formats import format_names, get_format
from athena.model.events import ToolCallComplete
from athena.model.parts import ToolCall
from formats.case_files import MANDATORY, TOOLS, Case, case_files, chunked, cuts, declared, folded, load, parse, shown

_CASES = [
    pytest.param(path.stem, case, declared(file), id=f"{path.stem}-{case.name}")
    for path in case_files()
    for file in (load(path),)
    for case in file.case
]


@pytest.mark.parametrize(("format_id", "case", "tools"), _CASES)
def test_case(format_id, case: Case, tools) -> None:  # type: ignore[no-untyped-def]  # parametrized
    events, parser = parse(case, format_id, tools, [case.text])
    whole = folded(events)
    assert shown(whole, case.expect) == case.expect
    if case.repairs is not None:
        assert parser.counts.repairs == case.repairs
    for cut in cuts(case.text):
        events, _ = parse(case, format_id, tools, [case.text[:cut], case.text[cut:]])
        assert folded(events) == whole, f"cut at {cut}: {case.text[:cut]!r} | {case.text[cut:]!r}"
    for size in (1, 2, 3, 5, 7, 64):
        events, _ = parse(case, format_id, tools, chunked(case.text, size))
        assert folded(events) == whole, f"chunks of {size}"


_ARGUMENTS = {
    # Simple members and items in long rows, with brackets in between: readers take many of them at once.
    "rows": {"s": "a/b.py", "l": [10, 20, [30], "forty", {}], "t": "and then " * 9, "o": {"k": [[]]}, "a": 3},
    "long rows": {
        "l": [1, -2500.0, True, None] * 40 + [[1], "end"],
        "o": {f"k{number}": ("é", number, {})[number % 3] for number in range(240)},
        "b": False,
    },
    # More escapes than are read at once, exactly as many, and all kinds of them.
    "escapes": {"s": 'line\n\t"quoted"\\ \x00\b\f/' * 60, "t": "\n" * 64, "any": "x\n" * 65},
    "quotes": {"s": "it's '''quoted''' \"\"\"three\"\"\" times ''", "t": "'", "any": "\\"},
}


@pytest.mark.parametrize("format_id", format_names())
@pytest.mark.parametrize("kind", _ARGUMENTS)
def test_a_rendered_call_comes_back_in_one_piece_and_in_many(format_id: str, kind: str) -> None:
    known = get_format(format_id)
    call = ToolCall(id="", name="f", arguments=json.dumps(_ARGUMENTS[kind]))
    if known.inexpressible(call) is not None:
        return
    text = known.render_calls([call])
    for size in (len(text), 500, 100, 65, 1):
        events, _ = parse(Case(name="", text=text), format_id, TOOLS, chunked(text, size))
        found = [(event.name, json.loads(event.arguments)) for event in events if isinstance(event, ToolCallComplete)]
        assert found == [("f", _ARGUMENTS[kind])], f"chunks of {size}"


@pytest.mark.parametrize("format_id", format_names())
def test_every_format_has_its_mandatory_cases(format_id: str) -> None:
    path = Path(__file__).parents[1] / "cases" / "formats" / f"{format_id}.toml"
    assert path.exists(), f"tests/cases/formats/{format_id}.toml is missing"
    covered = {kind for case in load(path).case for kind in case.covers}
    assert covered <= set(MANDATORY), f"unknown kinds: {sorted(covered - set(MANDATORY))}"
    assert set(MANDATORY) <= covered, f"cases missing: {sorted(set(MANDATORY) - covered)}"


def test_every_case_file_has_its_format() -> None:
    assert {path.stem for path in case_files()} - {"auto"} <= set(format_names())
