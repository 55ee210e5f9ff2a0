"""A public name means one thing: no class or type of that name is defined in two modules."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

SOURCE = Path(__file__).parent.parent.parent / "src" / "athena"

SHARED: dict[str, str] = {}
"""Names that several modules define, and why that confuses no reader."""


def _public_types(tree: ast.Module) -> Iterator[str]:
    """The classes, type aliases and type variables that a module defines for others: CamelCase names without underscore."""
    for node in tree.body:
        match node:
            case ast.ClassDef(name=name):
                names = [name]
            case ast.AnnAssign(target=ast.Name(id=name)):
                names = [name]
            case ast.Assign(targets=targets):
                names = [target.id for target in targets if isinstance(target, ast.Name)]
            case _:
                names = []
        for name in names:
            if name[0].isupper() and not name.isupper():
                yield name


def _defined_twice(modules: Mapping[str, str]) -> dict[str, list[str]]:
    places: defaultdict[str, list[str]] = defaultdict(list)
    for module, text in modules.items():
        for name in _public_types(ast.parse(text)):
            places[name].append(module)
    return {name: found for name, found in places.items() if len(found) > 1}


def test_a_public_name_is_defined_once() -> None:
    modules = {path.relative_to(SOURCE).as_posix(): path.read_text() for path in sorted(SOURCE.rglob("*.py"))}
    twice = _defined_twice(modules)
    assert {name: places for name, places in twice.items() if name not in SHARED} == {}
    assert sorted(SHARED) == sorted(twice), "an exception that is no longer needed"


def test_the_search_finds_what_it_is_for() -> None:
    modules = {
        "one.py": "class Target: ...\nRow = dict[str, int]\nLIMIT = 3\nclass _Own: ...",
        "two.py": "Target: TypeAlias = str\nclass Row: ...\nLIMIT = 4\nclass _Own: ...",
    }
    assert _defined_twice(modules) == {"Target": ["one.py", "two.py"], "Row": ["one.py", "two.py"]}
