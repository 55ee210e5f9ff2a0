"""The pages outside the site lead somewhere, on the package index too; their code runs in `test_code_blocks`."""

from __future__ import annotations

import contextlib
import importlib.util
import re
import shlex
from pathlib import Path
from typing import Any

import click
import pytest

from athena.formats import all_formats
from athena.shells.agents import AGENTS
from athena.shells.showcase import SCENES
from support.code_blocks import ROOT
from support.shell_lines import check, check_arguments, is_runnable


@pytest.mark.parametrize("page", [page.name for page in sorted(ROOT.glob("*.md"))])
def test_links_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text("utf-8")
    for target in [*re.findall(r"\]\(([^)#:]+)\)", text), *re.findall(r'\b(?:src|srcset)="([^"]+)"', text)]:
        assert (ROOT / target).exists(), target


def test_commands_within_sentences_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks are run by `test_code_blocks`; here are the commands that a sentence names, with their options."""
    prose = re.sub(r"^```.*?^```$", "", (ROOT / "README.md").read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    spans = re.findall(r"`((?:athena|\./dev|uvx) [^`]+)`", prose)
    assert len(spans) >= 8
    for name in ("answer.txt", "log.jsonl"):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    for span in spans:
        with contextlib.suppress(click.MissingParameter):  # a sentence may name a command without what it works on
            words = shlex.split(span.removeprefix("uvx --from athena-gateway "))
            check_arguments(words[1:]) if is_runnable(words) else check(words, {})


def test_the_figures_are_true() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    assert f"are read in {len(list(all_formats()))} [formats]" in readme
    assert f"leaked calls of {['no', 'one', 'two', 'three', 'four', 'five', 'six'][len(SCENES)]} models" in readme
    pinned = re.findall(r"^([a-z0-9-]+)==", (ROOT / "requirements" / "run.txt").read_text("utf-8"), re.MULTILINE)
    assert f"depends on {len(pinned)} packages" in readme
    row = next(line for line in readme.splitlines() if line.startswith("| agents |"))
    assert len(row.partition("(")[0].split(",")) == len(AGENTS)


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
    assert "<picture" not in shown
    assert "docs/images" not in shown
    assert "<!--" not in shown
    assert "its inspector, a page that shows" in shown
    assert "```python\nimport athena\n" in shown
    assert '`<tool_call>{"name": ...`' in shown


def test_links_of_the_package_index_lead_to_pages(package_readme: Any) -> None:
    """Once `project.urls` names the documentation."""
    readme = (ROOT / "README.md").read_text("utf-8")
    shown = package_readme.for_the_index(readme, "https://docs.example/en/latest/")
    pictures = re.findall(r'\b(?:src|srcset)="([^"]+)"', shown)
    assert len(pictures) == 2
    links = [*re.findall(r"\]\(([^)\s]+)\)", shown), *pictures]
    assert len(links) >= 30
    assert [link for link in links if not link.startswith("https://docs.example/en/latest/")] == []
    for link in links:
        path = link.removeprefix("https://docs.example/en/latest/").partition("#")[0]
        places = [f"{path.rstrip('/')}.md", f"{path}index.md", path]
        assert any((ROOT / "docs" / place).is_file() for place in places), link
    assert "<!--" not in shown
    assert "```python\nimport athena\n" in shown
