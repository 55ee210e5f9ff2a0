"""Writes src/athena/recording/vocabulary.toml: the words that redaction leaves in recordings, read off the sources.

Run `python docs/generate_vocabulary.py` after a change; `--check` only says whether the file is current.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).parent.parent / "src" / "athena"
FILE = SOURCE / "recording" / "vocabulary.toml"
API = ("dialects", "model", "wire", "calls", "prepare", "serving", "errors.py", "schemas.py", "exchange.py", "profiles.py")
MARKERS = ("formats", "prompted")
REFUSALS = SOURCE.parent.parent / "tests" / "cases" / "refusals.toml"
"""What servers say when they refuse a request: the words by which refusals are told apart."""
BY_HAND = "toolu call msg resp fc rs chatcmpl gen req functions anthropic openai gemini azure"
_WORD = re.compile(r"[A-Za-z0-9]{2,40}")


def files(rooms: tuple[str, ...]) -> Iterator[Path]:
    for room in rooms:
        path = SOURCE / room
        yield from [path] if path.is_file() else sorted([*path.rglob("*.py"), *path.rglob("*.toml")])


def texts(path: Path) -> Iterator[str]:
    """The strings of a file that are no documentation."""
    if path.suffix == ".toml":
        yield from strings(tomllib.loads(path.read_text(encoding="utf-8")))
        return
    tree = ast.parse(path.read_text(encoding="utf-8"))
    documentation = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in documentation:
            if isinstance(node.value, str):
                yield node.value
            elif isinstance(node.value, bytes):
                yield node.value.decode("utf-8", "replace")
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and "formats" not in path.parts:
            yield node.target.id
            # Structs of Gemini's API write their fields so.
            first, *others = node.target.id.split("_")
            yield first + "".join(map(str.capitalize, others))


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield name
            yield from strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from strings(inner)


def words(rooms: tuple[str, ...], more: str = "", most_spaces: int = 1000) -> list[str]:
    """`most_spaces`: texts with more of them are sentences, and no markers."""
    found = {
        word for path in files(rooms) for text in texts(path) if text.count(" ") <= most_spaces for word in _WORD.findall(text)
    }
    return sorted(found | set(_WORD.findall(more)))


def letters() -> str:
    found = {letter for path in files(MARKERS) for text in texts(path) for letter in text if letter.isprintable()}
    return "".join(sorted(letter for letter in found if ord(letter) > 127))


def wrapped(name: str, found: list[str]) -> str:
    lines, line = [], ""
    for word in found:
        if len(line) + len(word) > 120:
            lines.append(line)
            line = ""
        line = f"{line} {word}".strip()
    return f'{name} = """\n' + "\n".join([*lines, line]) + '\n"""\n'


def rendered() -> str:
    head = "# Words that redaction leaves in recordings. Written by docs/generate_vocabulary.py from the sources.\n\n"
    return (
        head
        + wrapped("api", words(API, f"{BY_HAND} {' '.join(texts(REFUSALS))}"))
        + "\n"
        + wrapped("markers", words(MARKERS, most_spaces=1))
        + f'\nletters = "{letters()}"\n'
    )


if __name__ == "__main__":
    text = rendered()
    if "--check" in sys.argv:
        sys.exit(0 if FILE.read_text(encoding="utf-8") == text else f"{FILE.name} is not current: run this without --check")
    FILE.write_text(text, encoding="utf-8")
