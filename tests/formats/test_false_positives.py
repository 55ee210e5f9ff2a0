"""No call from prose: the documents and sources that are installed here, read as answers of a model that has tools."""

from __future__ import annotations

import random
import sysconfig
from pathlib import Path

import pytest

from athena.formats.machine.engine import TextParser
from athena.formats.machine.recognizer import recognizer
from athena.model.events import TextDelta, ThinkingDelta, ToolCallStart
from athena.model.request import Tool
from support.examples import IS_DEEP

_ENDINGS = (".md", ".rst", ".txt", ".py")
_PER_FILE = 200_000
_MOST = 25_000_000 if IS_DEEP else 1_000_000
_OURS = ("athena", "athena_gateway")
"""Athena's own sources and case files are full of real calls."""
_SCHEMA = {"type": "object", "properties": {"needle": {"type": "string"}}, "required": ["needle"]}
TOOLS = tuple(Tool(name=name, schema=_SCHEMA) for name in ("zqx_find_needle", "zqx_list_haystacks"))
"""Names that no document has."""


def documents() -> list[Path]:
    """The same files in the same order on every run of one installation, drawn from all packages."""
    folder = Path(sysconfig.get_paths()["purelib"])
    found = sorted(
        path for path in folder.rglob("*") if path.suffix in _ENDINGS and path.relative_to(folder).parts[0] not in _OURS
    )
    random.Random(13).shuffle(found)
    return found


@pytest.mark.fuzz
def test_no_call_from_documents() -> None:
    known = recognizer("auto")
    read = 0
    for path in documents():
        text = path.read_text(encoding="utf-8", errors="replace")[:_PER_FILE]
        read += len(text)
        parser = TextParser(known, tools=TOOLS)
        events = [*parser.feed(text), *parser.close()]
        calls = [event.name for event in events if isinstance(event, ToolCallStart)]
        assert calls == [], path
        assert any(isinstance(event, TextDelta | ThinkingDelta) for event in events) or not text.strip(), path
        if read >= _MOST:
            break
    assert read >= min(_MOST, 1_000_000), "there was too little to read"
