"""The pieces that rendered text is compared in: whole tags, words, single characters. No cut goes through a tag."""

from __future__ import annotations

import re
from collections.abc import Sequence

_TOKEN = re.compile(r"<[^<>\n]{1,80}>|\[/?[A-Z][A-Z_ ]*\]|[^\W_]+|[\s\S]")
_TAG = re.compile(r"<[^<>\n]{1,80}>|\[/?[A-Z][A-Z_ ]*\]")


def tokens(text: str) -> list[str]:
    """The text in pieces; joined they are the text."""
    return _TOKEN.findall(text)


def common_start(first: str, second: str) -> str:
    """What both begin with, in whole pieces."""
    return "".join(_common(tokens(first), tokens(second)))


def common_end(first: str, second: str) -> str:
    """What both end with, in whole pieces."""
    return "".join(reversed(_common(tokens(first)[::-1], tokens(second)[::-1])))


def repeated_end(first: str, second: str) -> str:
    """What both end with; but a tag that ends a word in one of them (`<|open|>tools<|sep|>`) belongs to that word."""
    common = common_end(first, second)
    leading = _TAG.match(common)
    befores = (text[: len(text) - len(common)] for text in (first, second))
    if leading is not None and any(text[-1:].isalnum() or text[-1:] in ('"', "'", "_") for text in befores):
        return common[leading.end() :]
    return common


def first_tag(text: str) -> str:
    """The beginning of a text up to its first tag; with the next one where a word stands between the two."""
    end = through_tags(text, 1)
    follows = text[len(end) :]
    return through_tags(text, 2) if follows[:1].isalnum() and _TAG.search(follows) is not None else end


def _common(first: Sequence[str], second: Sequence[str]) -> list[str]:
    found: list[str] = []
    for one, other in zip(first, second, strict=False):
        if one != other:
            break
        found.append(one)
    return found


def tags(text: str) -> list[str]:
    """The whole tags in a text."""
    return _TAG.findall(text)


def through_tags(text: str, count: int) -> str:
    """The beginning of a text, up to and with so many tags; all of it when it has fewer."""
    end = 0
    for number, tag in enumerate(_TAG.finditer(text)):
        if number == count:
            return text[:end]
        end = tag.end()
    return text[:end] if count else ""


def behind_last_tag(text: str) -> int:
    """Where the text after the last whole tag begins; 0 when there is none."""
    end = 0
    for tag in _TAG.finditer(text):
        end = tag.end()
    return end
