"""What users may rely on: listed, importable, sorted, and changed only on purpose."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

import athena

STORED = Path(__file__).parent / "public_surface.txt"
DOCTESTED = (
    "athena.batch.arrow",
    "athena.batch.records",
    "athena.calls.builder",
    "athena.calls.tracker",
    "athena.formats.declared.description",
    "athena.formats.machine.detect",
    "athena.parsing",
    "athena.shells.templates.learn",
    "athena.streams.reading",
    "athena.tool_adapter",
    "athena.translate",
)


def test_everything_listed_is_there_and_sorted() -> None:
    assert athena.__all__ == sorted(athena.__all__)
    for name in athena.__all__:
        assert getattr(athena, name) is not None
    assert set(athena._HOMES) == set(athena.__all__)


def test_the_surface_changes_only_on_purpose() -> None:
    assert STORED.read_text(encoding="utf-8").split() == athena.__all__, "update public_surface.txt and the changelog"


def test_unknown_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="no attribute"):
        _ = athena.nothing_of_that_name


@pytest.mark.parametrize("name", DOCTESTED)
def test_examples_in_docstrings_run(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0
    assert result.failed == 0
