"""Documents name only files of this project that exist, and SECURITY.md names a test for everything that it says is stopped."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
_FILE = re.compile(r"(?<![\w/.-])((?:tests|benchmarks|src|requirements|examples)/[\w./<>*-]*)")
_NOT_STOPPED = "talk the model into a call of its own"


def named_files(text: str) -> set[str]:
    """Paths of this project; `<id>` and `*` stand for any name."""
    return {found.rstrip(".").replace("<id>", "*") for found in _FILE.findall(text)}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_a_document_names_is_there(document: Path) -> None:
    named = named_files(document.read_text(encoding="utf-8"))
    missing = {name for name in named if "<" not in name and not any(ROOT.glob(name.rstrip("/")))}
    assert missing == set()


def test_every_answer_to_an_attack_has_a_test() -> None:
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|") and line.count("|") == 5]
    attacks = {attempt.strip(): shown for _, attempt, _, shown in rows[2:]}
    assert len(attacks) > 18
    without = {attempt for attempt, shown in attacks.items() if not named_files(shown)}
    assert without == {_NOT_STOPPED}
    files = [path for shown in attacks.values() for name in named_files(shown) for path in ROOT.glob(name.rstrip("/"))]
    for path in files:
        tests = [path] if path.is_file() else list(path.rglob("*.*"))
        if path.suffix == ".toml":
            tests = [test for test in (ROOT / "tests").rglob("test_*.py") if path.name in test.read_text(encoding="utf-8")]
        assert any("def test_" in test.read_text(encoding="utf-8", errors="replace") for test in tests) or not str(
            path.relative_to(ROOT)
        ).startswith("tests"), f"{path} holds no test"


def test_a_file_that_is_not_there_is_found() -> None:
    assert named_files("see `tests/shells/test_gone.py`, (src/x.py) and https://host/src/y.py.") == {
        "tests/shells/test_gone.py",
        "src/x.py",
    }
