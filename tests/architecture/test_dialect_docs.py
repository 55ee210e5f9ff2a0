"""docs/dialects.md says what the code does, and no feature is lost without a word."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

DOCS = Path(__file__).parent.parent.parent / "docs"


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_generate", DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["docs_generate"] = module
    spec.loader.exec_module(module)
    return module


def test_the_page_is_current(generate: ModuleType) -> None:
    """If this fails: python docs/generate.py"""
    assert generate.page() == (DOCS / "dialects.md").read_text(encoding="utf-8")


def test_nothing_is_lost_without_a_word(generate: ModuleType) -> None:
    page = (DOCS / "dialects.md").read_text(encoding="utf-8")
    assert [line for line in page.splitlines() if generate.SILENT in line] == []


def test_every_section_has_its_features(generate: ModuleType) -> None:
    features = generate.load()
    assert {feature.section for feature in features.feature} == set(generate.SECTIONS)
    assert len({(feature.section, feature.name) for feature in features.feature}) == len(features.feature)


def test_requirements_name_tests_that_exist() -> None:
    """Every `test_...` in docs/reference/requirements.md is a test of that name."""
    import re

    tests = "\n".join(path.read_text(encoding="utf-8") for path in DOCS.parent.glob("tests/**/test_*.py"))
    cases = "\n".join(path.read_text(encoding="utf-8") for path in DOCS.parent.glob("tests/cases/dialects/*.toml"))
    text = (DOCS / "reference" / "requirements.md").read_text(encoding="utf-8")
    named = re.findall(r"`(test_\w+)`", text)
    assert len(named) > 100
    assert [name for name in named if f"def {name}(" not in tests] == []
    assert [name for name in re.findall(r"case `(\w+)`", text) if f'name = "{name}"' not in cases] == []
