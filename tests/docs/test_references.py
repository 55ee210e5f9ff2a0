"""Nothing refers to what a reader of this repository cannot open.

A reference is a path of a Markdown file, perhaps with an anchor, or a relative link of a page. Section numbers, rows and
requirement ids of documents lead nowhere: the rule is stated in place, or an anchor is named.
"""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path

import pytest

from support.code_blocks import ROOT
from support.repository_texts import texts

VERSIONS = ("src/athena/formats/", "tests/cases/formats/", "docs/formats.md")
"""Here a number in brackets is the version of a model."""

_DOCUMENT = re.compile(
    r"(?<![\w/.-])((?:[\w.-]+/)*[\w-]+\.md)(?:#([\w.-]*\w))?(\S?(?: +|\n#? *)(?:sections?|rules?|rows?|chapters?)? ?\d[\d.]*)?"
)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ +(.*?)(?: *\{#([\w.-]+)\})?$", re.MULTILINE)
_FENCE = re.compile(r"^(`{3,})[^\n]*\n.*?^\1`*$", re.MULTILINE | re.DOTALL)
_NOWHERE = {
    "a requirement or trap of a document": re.compile(r"\b(?:requirements?|traps?) (?:[A-DMX]?\d|[A-DMX]\d)", re.IGNORECASE),
    "an id of a requirement": re.compile(
        r"[(\"] ?(?:[A-DX]\d{1,2}|M(?:[4-9]|[12]\d))(?:[,;] [A-DMX]\d+)*(?:\)|: |\. )|\b[A-DMX]\d+ to [A-DMX]\d"
    ),
    "a section by its number": re.compile(r"(?:\bsections? |§ ?)\d(?:\.\d+)*(?![\w.]*\))"),
    "a section number for a comment": re.compile(r"(?:^| )# ?\d\.\d{1,2}(?:\.\d)?(?:$|[,:;] |,)", re.MULTILINE),
    "a section number for a statement": re.compile(r"^(?:section|fact|note) = \"\d\.\d", re.MULTILINE),
    "a section number in brackets": re.compile(
        r"(?<=[a-z`]) \((?<!in \()\d\.\d{1,2}(?:\.\d)?(?:(?:,| and| to) \d[\d.]*)*\)(?=[.:;,\"\n]| -)"
    ),
    "a section number for a docstring": re.compile(r"\"\"\"\d\.\d{1,2}(?:\.\d)?: "),
    "a tag of evidence": re.compile(r"\[[RTCDIU]\](?!\w)"),
}
FOREIGN = {
    "docs/tool_call_guidance.md": "MoonshotAI/Kimi-K2",
    "docs/tool_calling_guide.md": "MiniMax-AI/MiniMax-M2",
    "docs/format.md": "openai/harmony",
    "docs/function-calling.md": "llama.cpp",
}
"""Documents of other repositories, each named together with its repository."""


@cache
def anchors(page: Path) -> frozenset[str]:
    text = page.read_text("utf-8")
    for included in re.findall(r'^--8<-- "(.+?)"$', text, re.MULTILINE):
        text += "\n" + (ROOT / included).read_text("utf-8")
    found: list[str] = re.findall(r'(?:id|name)="([\w.-]+)"', text)
    for title, explicit in _HEADING.findall(_FENCE.sub("", text)):
        words = re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", title).lower()
        slug = explicit or re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", words, flags=re.ASCII).strip())
        repeated = found.count(slug)
        found.append(f"{slug}_{repeated}" if repeated else slug)
    return frozenset(found)


def problem(name: str, target: str, anchor: str | None) -> str | None:
    """Why a reference in the file `name` leads nowhere."""
    places = [ROOT / target, (ROOT / name).parent / target]
    if not name.startswith("src/") or name.endswith("/error_codes.toml"):
        # The rows of error_codes.toml stand on docs/errors.md.
        places.append(ROOT / "docs" / target)
    if name in ("docs/pages.toml", "docs/generate_pages.py"):
        # What they hold stands on pages one folder deeper.
        places.append(ROOT / "docs" / "clients" / target)
    page = next((place.resolve() for place in places if place.is_file()), None)
    if page is None:
        return f"{target} does not exist"
    if anchor and page.suffix == ".md" and anchor not in anchors(page) and not anchor.startswith("athena."):
        return f"{target} has no anchor {anchor}"
    return None


def dangling(name: str, text: str) -> list[str]:
    found = []
    for match in _DOCUMENT.finditer(text):
        target, anchor, number = match.groups()
        if number:
            found.append(f"{match.group()!r}: a section by its number")
        elif FOREIGN.get(target, "\0") not in text and not _is_made(name, target):
            found.append(problem(name, target, anchor) or "")
    if not name.startswith(VERSIONS):
        found += [f"{match.group()!r}: {what}" for what, pattern in _NOWHERE.items() for match in pattern.finditer(text)]
    if name.endswith(".md"):
        for link in _LINK.findall(_FENCE.sub("", text)):
            target, _, anchor = link.partition("#")
            if not re.match(r"[a-z]+:", link):
                found.append(problem(name, target or Path(name).name, anchor) or "")
    return [f"{name}: {what}" for what in found if what]


def _is_made(name: str, target: str) -> bool:
    """Tests and programs write Markdown files of their own, and generators name pages by their place below docs."""
    return name.endswith(".py") and ("/" not in target and not (ROOT / "docs" / target).exists())


def test_every_reference_leads_somewhere() -> None:
    found = [what for name, text in texts() for what in dangling(name, text)]
    assert found == []


@pytest.mark.parametrize(
    "text",
    [
        "see docs/reference/no-such-page.md",
        "see docs/reference/faults.md#no-such-row",
        "Limits per target: `docs/dialects.md` 3.5.",
        "(`formats.md` 2.19)",
        "damaged ids by what is declared (A25)",
        "dropped (requirements M25: both SDKs crash)",
        "stay what they are (trap 20)",
        "x = 1 # 3.10",
        'section = "1.5 OpenRouter"',
        "Each fact tagged [R] is a test.",
        "[a link](nowhere.md)",
        "[a link](../docs/dialects.md#no-such-heading)",
    ],
)
def test_a_reference_that_leads_nowhere_is_found(text: str) -> None:
    assert dangling("docs/index.md", text) != []


def test_paths_on_pages_exist() -> None:
    """Files that a page or the guide for contributors names; `<id>` stands for any."""
    path = re.compile(r"`((?:src|tests|docs|benchmarks|examples)/[\w/.<>-]+\.\w+)`")
    pages = {name: text for name, text in texts() if name.endswith(".md") and name != "CHANGELOG.md"}
    named = [(name, found) for name, text in pages.items() for found in path.findall(text)]
    assert len(named) > 60
    assert [(name, found) for name, found in named if "<" not in found and not (ROOT / found).exists()] == []


def test_contributors_find_where_things_go() -> None:
    guide = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    rows = dict(re.findall(r"^\| (an? [\w ]+?) \| (.+) \|$", guide, re.MULTILINE))
    asked = (
        "a new token of a format",
        "a new dialect",
        "a new block of an API",
        "a setting",
        "an error code",
        "a metric",
        "an observer",
        "a limit per key",
        "a new reasoning field name",
        "a new command",
    )
    assert [what for what in asked if not re.search(r"`[\w/<>-]+\.\w+`", rows.get(what, ""))] == []


def test_the_fault_catalogue_is_on_its_page() -> None:
    page = (ROOT / "docs" / "reference" / "faults.md").read_text("utf-8")
    rows = {int(number): rest for number, rest in re.findall(r"^\| (\d+) \|(.*)$", page, re.MULTILINE)}
    faults = tomllib.loads((ROOT / "tests" / "cases" / "faults.toml").read_text("utf-8"))["fault"]
    missing = [
        (fault["row"], name)
        for fault in faults
        for name in fault["names"]
        if fault["row"] and f"`{name}`" not in rows.get(fault["row"], "")
    ]
    assert missing == []
    paths = re.findall(r"`(tests/[\w/]+\.py)`", page)
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_every_format_has_its_notes() -> None:
    page = ROOT / "docs" / "reference" / "format-notes.md"
    formats = {path.stem for path in (ROOT / "tests" / "cases" / "formats").glob("*.toml")}
    assert formats - anchors(page) == set()
