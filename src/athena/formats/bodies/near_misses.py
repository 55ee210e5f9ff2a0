"""What cannot follow an opener, as regular expressions: there the marker is text, and no reader has to be asked.

Such a pattern (`Opener.never`) is matched after the marker and must end with a character that proves it, so that it never
matches because the text has not arrived yet. It may only say what the reader would say: declined (white space that JSON does
not know proves nothing: readers strip names of it). Characters are repeated possessively, and groups, which CPython before
3.11.5 does not repeat so without faults, a bounded number of times: a search over near misses stays one pass over the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

SPACE = r"[ \t\r\n]*+"
_WORD_LIMIT = 200
_LONGEST = 120
"""Of one pattern: it stands behind every marker of its format, and compiling them all must not take longer than an answer."""


def unlike(*options: str, behind: dict[str, str] | None = None) -> str:
    """Behind white space: none of these texts. `behind`: what cannot follow one of them.

    Many options are told apart by as many of their first characters as a short pattern can hold; beyond, the reader decides.
    """
    root = _trie(options)
    depth = max(map(len, options), default=0)
    pattern = _unlike(root, "", behind or {}, depth)
    while len(pattern) > _LONGEST and depth > 1:
        depth = depth * 3 // 4
        pattern = _unlike(root, "", behind or {}, depth)
    return SPACE + pattern


def _trie(options: Iterable[str]) -> dict[str, dict]:  # type: ignore[type-arg]  # nested to any depth
    root: dict[str, dict] = {}  # type: ignore[type-arg]  # as above
    for option in options:
        node = root
        for character in option:
            node = node.setdefault(character, {})
        node[""] = {}
    return root


def _unlike(node: dict[str, dict], path: str, behind: dict[str, str], depth: int) -> str:  # type: ignore[type-arg]  # a trie
    if "" in node:
        return behind.get(path, r"(?!)")
    if not depth:
        return r"(?!)"
    others = "".join(re.escape(character) for character in node)
    space = "" if any(character in " \t\r\n" for character in node) or path else r"\s"
    branches = [f"[^{others}{space}]"]
    for character, child in node.items():
        inner = _unlike(child, path + character, behind, depth - 1)
        if inner != r"(?!)":
            branches.append(re.escape(character) + inner)
    return f"(?:{'|'.join(branches)})"


def repeated(openers: tuple[str, ...], options: tuple[str, ...], times: int) -> str:
    """Behind one of the openers: neither it again nor one of the options, or it again more often than `times`."""
    if not openers:
        return unlike(*options)
    return rf"(?:{unlike(*options, *openers)}|{too_often(openers, times)})"


def too_often(openers: tuple[str, ...], times: int) -> str:
    """One of the openers again and again, more often than `times`."""
    return rf"(?:{SPACE}{_one_of(_trie(openers))}){{{times + 1}}}"


def at_once(*options: str) -> str:
    """One of these texts, where a name should stand."""
    return f"(?:{'|'.join(map(re.escape, options))})"


def _one_of(node: dict[str, dict]) -> str:  # type: ignore[type-arg]  # a trie
    """Any of the texts of a trie, none of which goes on where another ends."""
    branches = [re.escape(character) + _one_of(child) for character, child in node.items() if character]
    return branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})" if branches else ""


NO_OBJECT = rf"{SPACE}\{{?+{SPACE}[^\s\"'\w]"
"""Behind a brace: not the first key of an object."""
NO_STRING = rf"{SPACE}[^\s\"']"
"""Behind a colon: not a string."""
NO_OBJECTS = rf"{SPACE}(?:[^\s{{]|\{{{NO_OBJECT})"
"""Behind a bracket: no object."""
_NO_BRACKET = r"(?:[ \t\r\n]++[^\s(]|[^\s\w.\-(])"
NO_PYTHON_CALL = rf"{SPACE}(?:[^\s\w\]]|[\w.\-]++{_NO_BRACKET})"
"""Behind a bracket: no name with a bracket behind it, and no end."""
NO_PYTHON_CALLS = rf"{SPACE}(?:\[{NO_PYTHON_CALL}|[^\s\w\[]|[\w.\-]++{_NO_BRACKET})"
"""Neither a call nor a list of them."""


def no_json(heads: str = "{[") -> str:
    """Neither such a bracket nor a code fence."""
    return rf"{SPACE}[^\s`{re.escape(heads)}]"


def no_json_block(heads: str = "{[") -> str:
    """The same, and no such bracket in the fence either (`bodies/json_block`)."""
    heads = re.escape(heads)
    fenced = rf"```(?:(?:json{SPACE}|[ \t\r\n]++)[^\s{heads}]|[^\sj{heads}])"
    return rf"{SPACE}(?:[^\s`{heads}]|`[^`]|``[^`]|{fenced})"


def no_name(*behind: str) -> str:
    """No word with one of these texts behind it."""
    word = r"[^\s<>{}\[\]\"'=]"
    return rf"{SPACE}(?:[<>{{}}\[\]\"'=]|{word}{{1,{_WORD_LIMIT}}}+{unlike(*behind)})"
