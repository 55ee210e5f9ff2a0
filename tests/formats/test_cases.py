"""Every case of every format: whole, cut in two at every place, and in chunks of several sizes."""

from __future__ import annotations

from pathlib import Path

import pytest

from athena.formats import format_names
from formats.case_files import MANDATORY, Case, case_files, chunked, cuts, declared, folded, load, parse, shown

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


@pytest.mark.parametrize("format_id", format_names())
def test_every_format_has_its_mandatory_cases(format_id: str) -> None:
    path = Path(__file__).parents[1] / "cases" / "formats" / f"{format_id}.toml"
    assert path.exists(), f"tests/cases/formats/{format_id}.toml is missing"
    covered = {kind for case in load(path).case for kind in case.covers}
    assert covered <= set(MANDATORY), f"unknown kinds: {sorted(covered - set(MANDATORY))}"
    assert set(MANDATORY) <= covered, f"cases missing: {sorted(set(MANDATORY) - covered)}"


def test_every_case_file_has_its_format() -> None:
    assert {path.stem for path in case_files()} - {"auto"} <= set(format_names())
