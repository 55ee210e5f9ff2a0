"""The documentation site builds without a warning, holds every page, and fetches nothing from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.code_blocks import ROOT
from support.patience import PATIENCE

DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("site")
    ran = build(ROOT / "mkdocs.yml", target)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "WARNING" not in ran.stderr
    return target


def build(config: Path, target: Path) -> subprocess.CompletedProcess[str]:
    """Not `--quiet`: it hides warnings from the count that `--strict` goes by. The theme's notice about its own future is
    turned off by its own switch."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", str(config), "--site-dir", str(target)]
    variables = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(
        command, capture_output=True, text=True, env=variables, cwd=config.parent, timeout=5 * PATIENCE, check=False
    )


def test_a_warning_fails_the_build(tmp_path: Path) -> None:
    """With our own rules for links, and pages that break them."""
    rules = (ROOT / "mkdocs.yml").read_text("utf-8")
    validation = rules[rules.index("validation:") : rules.index("nav:\n  -")]
    config = tmp_path / "mkdocs.yml"
    config.write_text(f"site_name: A\nstrict: true\n{validation}", "utf-8")
    (tmp_path / "docs").mkdir()
    page = tmp_path / "docs" / "index.md"
    page.write_text("# A\n\n[there](#a)\n", "utf-8")
    assert build(config, tmp_path / "good").returncode == 0
    page.write_text("# A\n\n[nowhere](b.md), [nowhere](#b)\n", "utf-8")
    ran = build(config, tmp_path / "bad")
    assert ran.returncode == 1
    assert "2 warnings" in ran.stdout + ran.stderr


def test_every_page_is_in_the_navigation(site: Path) -> None:
    home = (site / "index.html").read_text("utf-8")
    navigation = home[home.index("md-nav--primary") :]
    for page in DOCS.rglob("*.md"):
        address = str(page.relative_to(DOCS).with_suffix("")).removesuffix("index")
        assert f'href="{address}/"' in navigation or address == "", page


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    loaded = re.compile(r"<(?:script|link|img|iframe)[^>]+(?:src|href)=\"?(?:https?:)?//[^\s\">]+")
    for page in site.rglob("*.html"):
        assert loaded.findall(page.read_text("utf-8")) == [], page


def test_public_names_are_documented(site: Path) -> None:
    page = (site / "api" / "index.html").read_text("utf-8")
    names = (ROOT / "tests" / "architecture" / "public_surface.txt").read_text("utf-8").split()
    documented = set(re.findall(r'id="athena\.([\w.]+)"', page))
    assert [name for name in names if name != "errors" and name not in documented] == []
    assert {"errors.AthenaError", "transport.Transport", "transport.AsyncTransport", "asgi.create_app"} <= documented


def test_sources_of_generated_pages_stay_out(site: Path) -> None:
    assert [path.name for path in site.rglob("*") if path.suffix in (".py", ".toml")] == []
