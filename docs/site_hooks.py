"""What `mkdocs build` makes besides the pages: `llms.txt`, `llms-full.txt`, and a plain twin of every page; tables for phones.

The twin of `agents/index.html` is `agents.md`, with the files that it includes and with the docstrings that the site renders. A
program that reads documentation takes those instead of markup.
"""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from typing import Any

_INCLUDE_BLOCK = re.compile(r"--8<--\n(\S+)\n--8<--\n")
_INCLUDE_LINE = re.compile(r'^--8<-- "(.+?)"$', re.MULTILINE)
_OBJECT = re.compile(r"^::: ([\w.]+)\n(?:    .*\n)*", re.MULTILINE)
_COMMENT = re.compile(r"<!--.*?-->\n*", re.DOTALL)
_TABLE = re.compile(r"<table>.*?</table>", re.DOTALL)
_PLOT = re.compile(r'(?<=<p>)<img [^>]*src="([^"]+\.svg)"[^>]*>(?=</p>)')
_TAG = re.compile(r"<[^>]+>")
_SENTENCE_CHARS = 40
"""A table with a cell of so many characters is one of sentences, not of figures."""
_HTML = re.compile(r"</?(?:div|picture|source|p|ul|li|b|img|a|br)\b[^>]*>")
WIDE = ("dialects.md", "errors.md", "losses.md")
"""Pages whose tables need the room of the table of contents."""
_twins: dict[str, tuple[str, str]] = {}
"""By path: the page's title, and its text."""


def on_pre_build(config: Any) -> None:
    """A server that watches the files builds several times."""
    _twins.clear()


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> None:
    """Keep the text as it is before the theme sees it."""
    root = Path(config["config_file_path"]).parent
    if page.file.src_uri in WIDE:
        page.meta["hide"] = ["toc"]
    text = _INCLUDE_BLOCK.sub(lambda found: (root / found[1]).read_text("utf-8"), markdown)
    text = _INCLUDE_LINE.sub(lambda found: (root / found[1]).read_text("utf-8"), text)
    text = _OBJECT.sub(lambda found: _object(found[1]), text)
    text = _HTML.sub("", _COMMENT.sub("", text))
    _twins[page.file.src_uri] = (page.title or page.file.name, re.sub(r"\n{3,}", "\n\n", text).strip() + "\n")


def on_page_content(html: str, page: Any, config: Any, files: Any) -> str:
    """For phones: tables of sentences row by row, each cell with its column's name, and the narrow twins of plots."""
    docs = Path(config["docs_dir"])

    def with_twin(found: re.Match[str]) -> str:
        narrow = found[1].removesuffix(".svg") + "-narrow.svg"
        if not (docs / page.url / narrow).resolve().exists():
            return found[0]
        return f'<picture><source media="(max-width: 44.9375em)" srcset="{narrow}">{found[0]}</picture>'

    return _PLOT.sub(with_twin, _TABLE.sub(lambda found: _stackable(found[0]), html))


def _stackable(table: str) -> str:
    """The table with a label on each cell. One of figures or of two columns stays as it is: it fits or is scrolled."""
    head, divider, body = table.partition("<tbody>")
    labels = [_TAG.sub("", cell).strip() for cell in re.findall(r"<th\b[^>]*>(.*?)</th>", head, re.DOTALL)]
    cells = [_TAG.sub("", cell) for cell in re.findall(r"<td\b[^>]*>(.*?)</td>", body, re.DOTALL)]
    if len(labels) < 3 or max(map(len, cells), default=0) < _SENTENCE_CHARS:
        return table

    def row(found: re.Match[str]) -> str:
        rest = iter(labels)
        return re.sub(r"<td\b", lambda _: f'<td data-label="{next(rest, "")}"', found[0])

    return (
        head.replace("<table", "<table data-stacked", 1) + divider + re.sub(r"<tr\b[^>]*>.*?</tr>", row, body, flags=re.DOTALL)
    )


def on_post_build(config: Any) -> None:
    """Write them."""
    site = Path(config["site_dir"])
    for path, (_, text) in _twins.items():
        target = site / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, "utf-8")
    lines = [f"# {config['site_name']}", "", f"> {config['site_description']}", ""]
    whole = []
    for section, pages in _sections(config["nav"]):
        lines += [f"## {section}", ""]
        for path in pages:
            title, text = _twins[path]
            lines.append(f"- [{title}]({path}): {_first_sentence(text)}")
            whole.append(f"<!-- {path} -->\n\n{text}")
        lines.append("")
    (site / "llms.txt").write_text("\n".join(lines), "utf-8")
    (site / "llms-full.txt").write_text("\n\n".join(whole), "utf-8")


def _sections(nav: list[Any]) -> list[tuple[str, list[str]]]:
    """The navigation's parts and the pages in each, in their order."""
    found = []
    for entry in nav:
        [(title, inside)] = entry.items() if isinstance(entry, dict) else [("", entry)]
        found.append((title, list(_paths(inside))))
    return found


def _paths(inside: Any) -> list[str]:
    if isinstance(inside, str):
        return [inside]
    if isinstance(inside, dict):
        return [path for value in inside.values() for path in _paths(value)]
    return [path for entry in inside for path in _paths(entry)]


def _first_sentence(text: str) -> str:
    """Of the first paragraph that is prose."""
    for block in text.split("\n\n"):
        if block.strip() and not block.lstrip().startswith(("#", "|", "`", "-", "!", "[", "<", ":")):
            plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(block.split())).replace("**", "")
            return re.split(r"(?<=[.?])\s", plain, maxsplit=1)[0]
    return ""


def _object(name: str) -> str:
    """A public object as its signature and docstring."""
    module, attributes = name, []
    while True:
        try:
            found: Any = importlib.import_module(module)
            break
        except ModuleNotFoundError:
            module, _, last = module.rpartition(".")
            attributes.insert(0, last)
    for attribute in attributes:
        found = getattr(found, attribute)
    try:
        signature = str(inspect.signature(found)) if callable(found) else ""
    except ValueError:
        signature = ""
    return f"### `{name}{signature}`\n\n{inspect.getdoc(found) or ''}\n\n"
