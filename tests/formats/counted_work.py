"""Counts what parsing costs, in characters. A program of its own, because it puts itself under every pattern of the package.

Every compiled pattern counts the characters its searches passed and its matches took; the text that is fed counts what is
copied out of it, joined to it and looked through. Prints one JSON object per line: format, sample, how it was cut, and the
characters per character of text for a short and a long text of the same kind.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

work = 0


def spend(characters: int) -> None:
    global work
    work += characters + 1


class CountedPattern:
    """A compiled pattern whose use is counted."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self._pattern = pattern
        self.pattern = pattern.pattern

    def __eq__(self, other: object) -> bool:
        """A match names the pattern below; whoever asks which pattern it came from has this one in hand."""
        return self._pattern == other

    __hash__ = None  # type: ignore[assignment]  # nothing keeps patterns by their hash

    def search(self, text: str, at: int = 0, end: int = sys.maxsize) -> re.Match[str] | None:
        found = self._pattern.search(text, at, end)
        spend((found.end() if found is not None else min(len(text), end)) - at)
        return found

    def match(self, text: str, at: int = 0, end: int = sys.maxsize) -> re.Match[str] | None:
        return self._counted(self._pattern.match(text, at, end), at)

    def fullmatch(self, text: str, at: int = 0, end: int = sys.maxsize) -> re.Match[str] | None:
        return self._counted(self._pattern.fullmatch(text, at, end), at)

    def finditer(self, text: str, at: int = 0, end: int = sys.maxsize) -> Iterator[re.Match[str]]:
        for found in self._pattern.finditer(text, at, end):
            spend(found.end() - at)
            at = found.end()
            yield found
        spend(max(0, min(len(text), end) - at))

    def sub(self, replacement: Any, text: str) -> str:
        spend(len(text))
        return self._pattern.sub(replacement, text)

    def split(self, text: str) -> list[Any]:
        spend(len(text))
        return self._pattern.split(text)

    def _counted(self, found: re.Match[str] | None, at: int) -> re.Match[str] | None:
        spend(found.end() - at if found is not None else 0)
        return found


class CountedText(str):
    """Text that counts what is done with it."""

    __slots__ = ()

    def __getitem__(self, index: Any) -> CountedText:
        found = CountedText(str.__getitem__(self, index))
        spend(len(found))
        return found

    def __add__(self, other: str) -> CountedText:
        spend(len(self) + len(other))
        return CountedText(str.__add__(self, other))

    def __contains__(self, part: object) -> bool:
        spend(len(self))
        return isinstance(part, str) and str.__contains__(self, part)

    def isspace(self) -> bool:
        spend(len(self) - len(str.lstrip(self)))
        return str.isspace(self)


def _counting(name: str) -> Any:
    plain = getattr(str, name)

    def counted(self: CountedText, *options: Any) -> Any:
        spend(len(self))
        return plain(self, *options)

    return counted


for _name in ("find", "rfind", "partition", "rpartition", "split", "strip", "lstrip", "rstrip", "replace", "count", "index"):
    setattr(CountedText, _name, _counting(_name))

_compile = re.compile
re.compile = lambda pattern, flags=0: CountedPattern(_compile(pattern, flags))  # type: ignore[assignment]  # the point

_encode, _decode = msgspec.json.encode, msgspec.json.decode


def _plain(value: Any) -> Any:
    """msgspec takes no kind of text but its own."""
    return str.__str__(value) if isinstance(value, CountedText) else value


msgspec.json.encode = lambda value: _encode(_plain(value))  # type: ignore[misc,assignment]  # as above
msgspec.json.decode = lambda value, **options: _decode(_plain(value), **options)

from athena.formats import format_names, get_format  # noqa: E402 - every pattern is compiled under the count
from athena.formats.declared.build import declared_format  # noqa: E402
from athena.formats.declared.description import read_description  # noqa: E402
from athena.formats.machine.base import Format  # noqa: E402
from athena.formats.machine.engine import TextParser  # noqa: E402
from athena.model.parts import ToolCall  # noqa: E402
from athena.model.request import Tool  # noqa: E402

TOOLS = (
    Tool(name="f", schema={"type": "object", "properties": {"s": {"type": "string"}, "l": {"type": "array"}}}),
    Tool(name="get_time", schema={"type": "object", "properties": {"tz": {"type": "string"}}}),
)


def known_format(name: str) -> Format:
    """A shipped format, or that of a format file."""
    if name.endswith(".toml"):
        return declared_format(read_description(Path(name).read_text("utf-8")))
    return get_format(name)


def samples(known: Format) -> dict[str, str]:
    """Texts that tempt a parser to read the same again and again."""
    named = known.tool_openers(tuple(tool.name for tool in TOOLS)) if known.tool_openers is not None else ()
    markers = [opener.marker for opener in (*known.openers, *named) if opener.marker]
    call = known.render_calls(
        [ToolCall(id="", name="f", arguments='{"s": "' + "x\\n<" * 60 + '", "l": [' + "1, " * 60 + "2]}")]
    )
    blanks = " \n" * 100
    return {
        "cut markers": "".join(marker[:-1] + "~" for marker in markers),
        "markers and words": "".join(marker + " x" for marker in markers),
        "markers on lines": "".join(marker + "\n" for marker in markers),
        "nested markers": "".join(marker * 8 for marker in markers),
        "nested calls": '{"name": "f", "x": ' * 40,
        "nested beginnings": min((marker for marker in markers if marker.startswith('{"')), key=len, default="") * 128,
        "brackets": "<" * 20 + "[" * 20 + "{" * 20 + "`" * 20 + "\n{\n[" * 10,
        "calls": call,
        "cut calls": call[: len(call) // 2],
        "blanks": "".join(marker + blanks for marker in markers) + call.replace("\n", blanks),
    }


def measured(known: Format, text: str, size: int) -> float:
    global work
    parser = TextParser(known, tools=TOOLS)
    work = 0
    for start in range(0, len(text), size):
        parser.feed(CountedText(text[start : start + size]))
    parser.close()
    return work / len(text)


def main() -> None:
    for format_id in sys.argv[1:] or format_names():
        known = known_format(format_id)
        for kind, sample in samples(known).items():
            if not sample:
                continue
            sample *= 300 // len(sample) + 1
            for size in (7, 1 << 20):
                short, long = (measured(known, sample * times, size) for times in (6, 18))
                print(json.dumps({"format": format_id, "sample": kind, "size": size, "short": short, "long": long}))


if __name__ == "__main__":
    main()
