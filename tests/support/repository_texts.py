"""Every text of the repository that a person reads: sources, tests and their cases, pages, settings."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

from support.code_blocks import ROOT

PLACES = ("src", "tests", "docs", "benchmarks", "examples", "*.md", "dev", "mkdocs.yml", "pyproject.toml")
KINDS = {".py", ".toml", ".md", ".yml", ".yaml", ".json", ".sh", ".txt", ".html", ".js", ".css", ""}
LISTS = ("tests/docs/test_references.py", "tests/docs/test_language.py")
DATA = ("tests/recordings/", "tests/cases/schemas/")
"""Recorded, not written; and the lists of what must not be written."""


def texts() -> Iterator[tuple[str, str]]:
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", *PLACES], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in listed.stdout.split("\n"):
        path = ROOT / name
        if name and path.suffix in KINDS and not name.startswith(DATA) and not name.startswith(LISTS) and path.is_file():
            yield name, path.read_text("utf-8")
