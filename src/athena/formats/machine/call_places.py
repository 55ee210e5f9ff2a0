"""Where a tool's name stands in a text as the name of a call may stand, and how much around it may be the call's markup.

Prose, code and data name tools all the time. In a call of any format a label, a marker or a bracket stands right before the
name or right after it, perhaps escaped. Telling the two apart takes a look at a few characters; only what passes is worth a
reader's time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import AnyStr

from athena.wire.escapes import hides_words, plain, with_plain_words, without_entities, without_invisible

CONTEXT = 192
_NEAR = 32
_BEFORE, _BEFORE_MOST = 2 * 1024, 64 * 1024
"""How far before a name its markup may begin, and how far where the arguments or much white space stand before it."""

_DECORATION = " \t\r\n\"'`*\\([“”‘’„"
"""What may stand between a label and the name that it labels."""
_GLUED = ("functions", "CALLS")
"""What models write right before a name, without anything between."""
_LABEL = re.compile(r"(?:name|function|tool|action|call|recipient|动作|✿)[\s\"'*\\]*+[:：=]\Z|(?:\A|\W)to\s*=\Z", re.IGNORECASE)
_TAG = re.compile(
    r"(?:[|｜]|>>|(?:tool|call|sep|name|invoke|function|action|assistant|recipient)[^<>]{0,64}+)>\Z", re.IGNORECASE
)
_MAY_FOLLOW = "(:\n\r<[\\&"
_FOLLOWS = re.compile(
    r"\s*+\(|[\s\"'\\]*+:\s*+\{|[\"'`* \t\\]*+(?:\r?\n\s*+(?:```\w*\s*+)?\{|\s*+(?:<[|｜]|</?(?:arg|tool|param)|\[ARGS))"
)
_IN_PROSE = re.compile(r" ?[A-Za-z]|[,.;!?] ")
_LATE = re.compile(r"\}[\"'\\]*+\s*+,\s*+[\"'\\]*+\w++[\"'\\]*+\s*+[:=]\Z")
_BLANKS = re.compile(r"\s{16,}+")


def finds(text: AnyStr, word: AnyStr) -> Iterator[int]:
    """Everywhere the word stands."""
    at = text.find(word)
    while at >= 0:
        yield at
        at = text.find(word, at + len(word))


@lru_cache(maxsize=256)
def escaped_names(name: str) -> tuple[str, ...]:
    """How Markdown writes a name with an underscore, and JSON one with letters beyond ASCII."""
    found = [name.replace("_", "\\_")] if "_" in name else []
    if not name.isascii():
        escaped = json.dumps(name)[1:-1]
        found += [escaped, re.sub(r"\\u[0-9a-f]{4}", lambda code: "\\u" + code.group()[2:].upper(), escaped)]
    return tuple(found)


def names_itself(markup: str, name: str) -> bool:
    """Does the tool's name stand in the markup of its call, in a way in which it is found elsewhere too?"""
    markup = without_invisible(markup)
    if hides_words(markup):
        markup = with_plain_words(markup)
    return any(may_name_a_call(markup, at, at + len(name)) for at in finds(markup, name))


def may_name_a_call(text: str, at: int, end: int) -> bool:
    """May what stands between these places be the name of a call? Wrong only in saying yes."""
    near = text[max(0, at - _NEAR) : at]
    if "\\" in near or "&" in near or "span" in near:
        near = plain(without_entities(text[max(0, at - 2 * _NEAR) : at]))
    elif near[-1:] == " " and near[-2:-1].isalnum() and _IN_PROSE.match(text, end) is not None:
        # A word among words: the usual case, and the cheapest.
        return False
    if not _ends_word(text, end) or not _begins_word(near):
        return False
    head = near.rstrip(_DECORATION) or _further(text, at)
    last = head[-1:]
    if last and (last in ".<]" or head.endswith(_GLUED)):
        return True
    if last and last in ":：=" and _LABEL.search(head) is not None:
        return True
    if last == ">" and _TAG.search(head if len(head) > _NEAR else _further(text, at)) is not None:
        return True
    following = text[end : end + 4].lstrip(" \t\"'`*")[:1]
    if following and following not in _MAY_FOLLOW:
        return False
    behind = text[end : end + CONTEXT]
    if is_mostly_blank(behind):
        behind = _BLANKS.sub(_one_blank, text[end : end + _BEFORE_MOST])[:CONTEXT]
    return _FOLLOWS.match(plain(without_entities(behind))) is not None


def _ends_word(text: str, end: int) -> bool:
    """A number may be glued to a name, and the type of what follows."""
    behind = text[end : end + 1]
    if not behind.isalnum() and behind != "_":
        return True
    return behind.isdigit() or text[end + 1 : end + 2].isdigit() or text.startswith(("json", "code"), end)


def _begins_word(near: str) -> bool:
    before = near[-1:]
    return (not before.isalnum() and before != "_") or near.endswith(_GLUED)


def _further(text: str, at: int) -> str:
    """What stands before a name, white space and quotes aside, however much there is of them."""
    size = CONTEXT
    while True:
        head = text[max(0, at - size) : at].rstrip(_DECORATION)
        if len(head) >= _NEAR or size >= at:
            return plain(without_entities(head[-CONTEXT:])).rstrip(_DECORATION)
        size *= 8


def markup_before(text: str, at: int) -> str:
    """The text before a name in which its markup may begin, without long white space."""
    head = text[max(0, at - _BEFORE) : at]
    if at > _BEFORE and (is_mostly_blank(head) or is_late(head)):
        head = text[max(0, at - _BEFORE_MOST) : at]
    return _BLANKS.sub(_one_blank, head)


def is_mostly_blank(text: str) -> bool:
    """Is more than half of it white space?"""
    return text.count(" ") + text.count("\n") + text.count("\t") + text.count("\r") > len(text) // 2


def is_late(head: str) -> bool:
    """Does an object stand before the field of the name? Then it may be the arguments."""
    return _LATE.search(head[-CONTEXT:].rstrip(_DECORATION)) is not None


def _one_blank(found: re.Match[str]) -> str:
    return "\n" if "\n" in found.group() else " "
