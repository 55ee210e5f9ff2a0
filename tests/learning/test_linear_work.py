"""Declared formats read text in linear work, as the shipped ones do (`tests/formats/counted_work.py`)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from learning.invented import INVENTED

PROGRAM = Path(__file__).parents[1] / "formats" / "counted_work.py"


def test_three_times_the_text_costs_three_times_the_work(tmp_path: Path) -> None:
    files = []
    for name, (_, description) in INVENTED.items():
        files.append(tmp_path / f"{name}.toml")
        files[-1].write_text(description.to_toml(), encoding="utf-8")
    counted = subprocess.run([sys.executable, str(PROGRAM), *map(str, files)], capture_output=True, text=True, check=True)
    rows = [json.loads(line) for line in counted.stdout.splitlines()]
    assert {row["format"] for row in rows} == set(map(str, files))
    growing = [row for row in rows if row["long"] > row["short"] * 1.5 + 1]
    assert not growing, f"work per character grows with the text: {growing}"
