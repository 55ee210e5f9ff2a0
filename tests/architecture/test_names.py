"""A name means one thing: no two public classes of the package are called the same."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

SOURCES = Path(__file__).parents[2] / "src" / "athena"


def test_public_classes_have_names_of_their_own() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for file in sorted(SOURCES.rglob("*.py")):
        for node in ast.parse(file.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(file.relative_to(SOURCES)))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}
