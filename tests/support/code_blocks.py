"""The code blocks of all pages that people read, where they stand, and what language they say they are."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

ROOT = Path(__file__).parents[2]
_FENCE = re.compile(r"^( {0,3}|\t)(?P<ticks>`{3,})(?P<language>[^\s`]*)(?P<rest>.*)$")
_LIST_ITEM = re.compile(r" *([-*+]|\d+\.) ")
_INCLUDE = re.compile(r"--8<--\n(\S+)\n--8<--\n")
CONTINUES = "<!-- continues -->"
"""On the line before a block: it goes on where the page's last block of its language stopped."""


class CodeBlock(msgspec.Struct, frozen=True):
    """One fenced block."""

    page: str
    line: int
    language: str
    code: str
    continues: bool = False

    @property
    def included(self) -> str:
        """The file that stands in the block's place, where it only names one."""
        found = _INCLUDE.fullmatch(self.code)
        return found[1] if found else ""

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[Path]:
    """Every Markdown page of the repository that documents it."""
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def code_blocks() -> list[CodeBlock]:
    """All blocks of all pages."""
    return [block for page in pages() for block in blocks_of(page.read_text("utf-8"), str(page.relative_to(ROOT)))]


def indented_blocks(text: str) -> list[int]:
    """The lines at which a block begins that is code only by its indentation, which names no language."""
    found: list[int] = []
    ticks = ""
    before, in_list = "", False
    for number, line in enumerate(text.splitlines(), start=1):
        fence = _FENCE.match(line)
        if ticks:
            ticks = "" if line.strip() == ticks else ticks
        elif fence is not None:
            ticks = fence["ticks"]
        elif line.startswith(("    ", "\t")) and not before.strip() and not in_list:
            found.append(number)
        elif line.strip():
            in_list = bool(_LIST_ITEM.match(line)) or (in_list and line.startswith(" "))
        before = line
    return found


def blocks_of(text: str, page: str) -> list[CodeBlock]:
    """The blocks of one page; one that never ends is an error of the page."""
    found: list[CodeBlock] = []
    lines = text.splitlines()
    number = 0
    while number < len(lines):
        fence = _FENCE.match(lines[number])
        if fence is None:
            number += 1
            continue
        first = number + 1
        end = next((index for index in range(first, len(lines)) if lines[index].strip() == fence["ticks"]), None)
        assert end is not None, f"{page}:{first}: this block never ends"
        code = "\n".join(lines[first:end]) + "\n"
        continues = number > 0 and lines[number - 1].strip() == CONTINUES
        found.append(CodeBlock(page, first, fence["language"], code, continues))
        number = end + 1
    return found
