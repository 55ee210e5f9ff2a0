"""Everything public says what it is, names each of its arguments, and shows itself at work."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import griffe
import pytest

import athena
import athena.asgi
import athena.batch
import athena.errors
import athena.testing
import athena.transport

SOURCE = Path(__file__).parents[2] / "src"
PUBLIC = [
    *(f"athena.{name}" for name in athena.__all__ if name != "errors"),
    *(f"athena.batch.{name}" for name in athena.batch.__all__),
    *(f"athena.errors.{name}" for name in athena.errors.__all__),
    *(f"athena.testing.{name}" for name in athena.testing.__all__),
    *(f"athena.transport.{name}" for name in athena.transport.__all__),
    "athena.asgi.create_app",
]
EXAMPLE = re.compile(r"^ *>>> |^ {4,}\S", re.M)


@cache
def package() -> griffe.Object:
    """The sources as a reader sees them, with the docstrings of fields."""
    found = griffe.load("athena", search_paths=[SOURCE], docstring_parser=None)
    assert isinstance(found, griffe.Module)
    return found


def resolved(path: str) -> griffe.Object:
    found = package()[path.removeprefix("athena.")]
    while isinstance(found, griffe.Alias):
        found = found.final_target
    assert isinstance(found, griffe.Object)
    return found


def text_of(one: griffe.Object | griffe.Alias) -> str:
    return one.docstring.value if one.docstring is not None else ""


def public_members(one: griffe.Object) -> Iterator[griffe.Object]:
    for name, member in one.members.items():
        if not name.startswith("_") and isinstance(member, griffe.Function | griffe.Attribute):
            yield member


@pytest.mark.parametrize("path", PUBLIC)
def test_it_says_what_it_is(path: str) -> None:
    assert text_of(resolved(path)), f"{path} has no docstring"


@pytest.mark.parametrize("path", PUBLIC)
def test_its_members_say_what_they_are(path: str) -> None:
    one = resolved(path)
    if not isinstance(one, griffe.Class):
        return
    silent = [member.name for member in public_members(one) if not text_of(member) and not inherits(one, member.name)]
    assert silent == []


def inherits(one: griffe.Class, name: str) -> bool:
    """Does a class above say what the member is?"""
    return any(name in base.members and text_of(base.members[name]) for base in one.mro())


@pytest.mark.parametrize("path", PUBLIC)
def test_every_argument_is_named(path: str) -> None:
    one = resolved(path)
    functions = [one] if isinstance(one, griffe.Function) else []
    if isinstance(one, griffe.Class):
        functions = [member for member in one.members.values() if isinstance(member, griffe.Function)]
    for function in functions:
        if function.name.startswith("_") and function.name != "__init__":
            continue
        about = text_of(function) + (text_of(one) if function.name == "__init__" else "")
        names = [parameter.name for parameter in function.parameters if parameter.name not in ("self", "cls")]
        unnamed = [name for name in names if not re.search(rf"\b{name}\b", about)]
        assert unnamed == [], f"{function.path} does not say what these are"


@pytest.mark.parametrize("name", [name for name in athena.__all__ if name != "errors"])
def test_it_shows_itself_at_work(name: str) -> None:
    """Events, outcomes and aliases are shown by what gives them."""
    one = resolved(f"athena.{name}")
    makes = isinstance(one, griffe.Function) or (isinstance(one, griffe.Class) and "__init__" in one.members)
    if makes:
        assert EXAMPLE.search(text_of(one)), f"{name} has no example"
