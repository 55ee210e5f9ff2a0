"""Parsing is linear in the text: counted in characters searched, matched and copied (`counted_work`), not in seconds."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from athena.formats import format_names

MOST = 128
"""Characters looked at for each character of a text: `{"name":` again and again once took 1,000 in Llama's format."""
_GROUPS = [format_names()[start::4] for start in range(4)]


@pytest.mark.parametrize("names", _GROUPS, ids=[names[0] for names in _GROUPS])
def test_three_times_the_text_costs_three_times_the_work(names: tuple[str, ...]) -> None:
    program = [sys.executable, str(Path(__file__).with_name("counted_work.py")), *names]
    counted = subprocess.run(program, capture_output=True, text=True, check=False)
    assert counted.returncode == 0, f"exit code {counted.returncode}: {counted.stderr[-2000:]}"
    rows = [json.loads(line) for line in counted.stdout.splitlines()]
    assert {row["format"] for row in rows} == set(names)
    growing = [row for row in rows if row["long"] > row["short"] * 1.5 + 1]
    assert not growing, f"work per character grows with the text: {growing}"
    dear = [row for row in rows if row["long"] > MOST]
    assert not dear, f"the same text is looked at again and again: {dear}"
