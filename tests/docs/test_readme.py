"""The pages outside the site lead somewhere, on the package index too; their code runs in `test_code_blocks`."""

from __future__ import annotations

import importlib.util
import re
from typing import Any

import pytest

from support.code_blocks import ROOT


@pytest.mark.parametrize("page", [page.name for page in sorted(ROOT.glob("*.md"))])
def test_links_lead_somewhere(page: str) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", (ROOT / page).read_text("utf-8")):
        assert (ROOT / target).exists(), target


@pytest.fixture(scope="module")
def package_readme() -> Any:
    spec = importlib.util.spec_from_file_location("package_readme", ROOT / "src" / "package_readme.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_package_index_shows_no_dead_link(package_readme: Any) -> None:
    """As the wheel is built: no address of the documentation is known, so nothing leads anywhere but to whole addresses."""
    readme = (ROOT / "README.md").read_text("utf-8")
    shown = package_readme.for_the_index(readme, "")
    assert [link for link in re.findall(r"\]\(([^)\s]+)\)", shown) if not link.startswith("https://")] == []
    assert "![" not in shown
    assert "<!--" not in shown
    assert "its inspector, a page that shows" in shown
    assert "```python\nimport athena\n" in shown
    assert '`<tool_call>{"name": ...`' in shown


def test_links_of_the_package_index_lead_to_pages(package_readme: Any) -> None:
    """Once `project.urls` names the documentation."""
    readme = (ROOT / "README.md").read_text("utf-8")
    shown = package_readme.for_the_index(readme, "https://docs.example/en/latest/")
    links = re.findall(r"\]\(([^)\s]+)\)", shown)
    assert len(links) >= 30
    assert [link for link in links if not link.startswith("https://docs.example/en/latest/")] == []
    for link in links:
        path = link.removeprefix("https://docs.example/en/latest/").partition("#")[0]
        places = [f"{path.rstrip('/')}.md", f"{path}index.md", path]
        assert any((ROOT / "docs" / place).is_file() for place in places), link
    assert "<!--" not in shown
    assert "```python\nimport athena\n" in shown
