"""The echo guard: does a call that was found in the model's text stand in the request already, as somebody else's words?

A tool's result, a document or a prompt can hold the markup of a call. A model that quotes it does not call, but its text then
reads like a call. So every call found in text is looked for in the text of the request that the model did not write. A call
counts as quoted there when markup of any format stands there with the same name and the same arguments, however both are
written (`calls.likeness`) and escaped (`wire.escapes`), unless the model called just that before, or wrote it first.

Nothing happens before a call is found. Then the texts are searched for the tool's name, which is a plain search; only where
the name stands like the name of a call (`may_name_a_call`) the formats' readers are asked. All of this happens once for a
name. The work is bounded: when it is used up, what was not read counts as quoted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any

import msgspec

from athena.calls.likeness import Likeness, likeness, squeezed
from athena.formats.base import Format
from athena.formats.policies import RepairLevel
from athena.formats.quoted_calls import Budget, QuotedCallReader, may_name_a_call
from athena.formats.value_types import ToolBook
from athena.model.request import Tool
from athena.wire.escapes import plain, with_plain_words, without_invisible

_BUDGET = 4 * 1024 * 1024
"""Characters that readers may read in the texts of one request, over all names."""
_MOST_LOOKS = 500_000
"""How often names are looked at in the texts of one request; only names of a letter or two come that often."""
_BEFORE, _BEFORE_MOST = 2 * 1024, 64 * 1024
"""How far before a name its markup may begin, and how far where the arguments or much white space stand before it."""
_BEHIND, _BEHIND_MOST = 4 * 1024, 1024 * 1024
"""How much is read behind a name at first, and at most."""
_CONTEXT = 192
_MOST_WORDS = 64
"""How many places of one word are read in one text, for a call whose markup does not name its tool."""
_MOST_VERBATIM = 256 * 1024
"""Longer markup is only compared as a call, not word for word."""

_MOST_STRINGS = 64
_WORD = re.compile(r"[A-Za-z]{3,}")
_BLANKS = re.compile(r"\s{16,}+")
_ESCAPED_LETTER = re.compile(r"\\(?:[bfnrt]|u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2})\Z")
_DECORATION = " \t\r\n\"'`*\\"
_BEHIND_ARGUMENTS = re.compile(r",\s*+[\"'\\]*+\w++[\"'\\]*+\s*+[:=]\Z")


class Passage(msgspec.Struct, frozen=True, gc=False):
    """Text of a request. `own`: the model wrote it, in an earlier turn."""

    text: str
    own: bool = False


Passages = Callable[[], Iterable[Passage]]
"""The texts of a request in their order. Asked for when a call was found, not before."""
OwnCalls = Callable[[], Iterable[tuple[str, str]]]
"""Name and arguments of the calls that the model made in earlier turns."""
Spellings = Callable[[str], Sequence[str]]
"""Other names under which a request knows a tool."""


class EchoGuard:
    """Knows what one request holds. Ask with each call that is found in the answer to it."""

    __slots__ = ("_budget", "_calls", "_formats", "_looks", "_names", "_own", "_passages", "_reader", "_repair", "_spellings",
                 "_texts", "_tools")  # fmt: skip

    def __init__(
        self,
        passages: Passages,
        *,
        tools: Sequence[Tool] | ToolBook | None = None,
        calls: OwnCalls = tuple,
        spellings: Spellings = lambda name: (),
        repair: RepairLevel = "syntax",
        formats: Sequence[Format] = (),
    ) -> None:
        """`tools`: as the model knows them. `formats`: others than the known ones, such as one with configured markers."""
        self._passages = passages
        self._calls = calls
        self._spellings = spellings
        self._tools = tools
        self._repair: RepairLevel = repair
        self._formats = formats
        self._budget = Budget(_BUDGET)
        self._looks = _MOST_LOOKS
        self._texts: list[_Text] | None = None
        self._reader: QuotedCallReader | None = None
        self._names: dict[tuple[str, bool], list[_Place]] = {}
        self._own: set[tuple[str, str]] | None = None

    def suspects(self, name: str, markup: str) -> bool:
        """May a call that begins with this markup be a quotation? If not, its arguments can be shown as they come."""
        return not _names_itself(markup, name) or bool(self._named(name, own=False)) or self._is_spent

    def quotes(self, name: str, arguments: str, markup: str, *, open_ended: bool = False) -> bool:
        """Is this call, of which `markup` is all that was written, a quotation?

        `open_ended`: it ended with the answer, and might have ended elsewhere in another one.
        """
        call = _Call(name, likeness(arguments), markup, _words(arguments), open_ended)
        is_named = _names_itself(markup, name)
        first = self._first(self._named(name, own=False) if is_named else self._worded(call, own=False), call)
        if first is None:
            return self._is_spent
        if (name, call.likeness.whole) in self._own_calls():
            return False
        own = self._first(self._named(name, own=True) if is_named else self._worded(call, own=True), call)
        return own is None or own > first

    # -- what the request holds ------------------------------------------------------------------------------------------------

    @property
    def _is_spent(self) -> bool:
        """Could not everything be looked at?"""
        return self._looks < 0 or self._budget.is_spent

    def _own_calls(self) -> set[tuple[str, str]]:
        if self._own is None:
            self._own = {(name, likeness(arguments).whole) for name, arguments in self._calls()}
        return self._own

    def _all_texts(self, *, own: bool) -> list[_Text]:
        if self._texts is None:
            self._texts = [_Text(order, passage) for order, passage in enumerate(self._passages()) if passage.text]
        return [text for text in self._texts if text.own is own]

    def _all_names(self, name: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys((name, *self._spellings(name))))

    def _named(self, name: str, *, own: bool) -> list[_Place]:
        """Where the name stands as the name of a call may stand, in the model's own texts or in all others."""
        key = (name, own)
        known = self._names.get(key)
        if known is None:
            known = self._names[key] = []
            for text in self._all_texts(own=own):
                for spelling in self._all_names(name):
                    known += [_Place(text, at) for at in self._finds(spelling, text)]
        return known

    def _finds(self, name: str, text: _Text) -> Iterator[int]:
        for spelling in (name, *_escaped_names(name)) if "\\" in text.text else (name,):
            if not text.may_hold(spelling):
                continue
            for at in _finds(text.text, spelling):
                self._looks -= 1
                if self._looks < 0:
                    return
                if _may_name_a_call(text.text, at, spelling):
                    yield at

    def _worded(self, call: _Call, *, own: bool) -> list[_Place]:
        """The same for markup that does not name its tool (code behind a tag): where a word of the arguments stands."""
        found: list[_Place] = []
        for text in self._all_texts(own=own) if call.words else ():
            found += [_Place(text, at) for at in islice(_finds(text.text, call.words[0]), _MOST_WORDS)]
        return found

    def _first(self, places: Iterable[_Place], call: _Call) -> int | None:
        """The number of the first text that holds this call, read as a call or word for word."""
        wanted = squeezed(call.markup) if len(call.markup) <= _MOST_VERBATIM else ""
        names = self._all_names(call.name)
        for place in places:
            self._looks -= 1
            if self._is_spent:
                return None
            if not place.may_hold(call.words):
                continue
            if place.reading is None:
                place.reading = self._read(place, names)
            if any(map(call.is_like, place.reading)) or (wanted and self._holds(place, wanted, len(call.markup))):
                return place.text.order
        return None

    def _holds(self, place: _Place, wanted: str, size: int) -> bool:
        reach = 4 * size + _CONTEXT
        self._budget.left -= reach
        return wanted in squeezed(place.before() + place.text.text[place.at : place.at + reach])

    def _read(self, place: _Place, names: tuple[str, ...]) -> tuple[_Found, ...]:
        reader = self._reader
        if reader is None:
            book = self._tools if isinstance(self._tools, ToolBook) else ToolBook(self._tools)
            reader = self._reader = QuotedCallReader(book, repair=self._repair, formats=self._formats)
        text, at, size = place.text.text, place.at, _BEHIND
        while True:
            reading = reader.read(place.before(), text[at : at + size], names, self._budget)
            if not reading.is_cut or at + size >= len(text) or size >= _BEHIND_MOST or self._budget.is_spent:
                return tuple({_Found(likeness(call.arguments), call.open_ended) for call in reading.calls})
            size *= 8


class _Found(msgspec.Struct, frozen=True, gc=False):
    """A call that stands in a text."""

    likeness: Likeness
    open_ended: bool


class _Call(msgspec.Struct, frozen=True):
    """A call that is looked for."""

    name: str
    likeness: Likeness
    markup: str
    words: tuple[str, ...]
    """Words of its arguments, which stand wherever they do."""
    open_ended: bool

    def is_like(self, other: _Found) -> bool:
        """The same arguments? Of a call that only the end of its text ended, the first lines must do."""
        if self.likeness.whole == other.likeness.whole:
            return True
        return (self.open_ended or other.open_ended) and self.likeness.beginning == other.likeness.beginning


class _Place:
    """A place in a text around which a call may stand."""

    __slots__ = ("at", "reading", "text")

    def __init__(self, text: _Text, at: int) -> None:
        self.text = text
        self.at = at
        self.reading: tuple[_Found, ...] | None = None
        """The calls that stand here; None: nobody has looked."""

    def before(self) -> str:
        """The text before it in which the markup may begin."""
        return _markup_before(self.text.text, self.at)

    def may_hold(self, words: tuple[str, ...]) -> bool:
        """Do all these words stand near?"""
        text, at = self.text.text, self.at
        begin, end = max(0, at - _BEFORE_MOST), at + _BEFORE_MOST
        return all(text.find(word, begin, end) >= 0 for word in words)


class _Text:
    """One passage, ready to be searched."""

    __slots__ = ("_ascii", "order", "own", "text")

    def __init__(self, order: int, passage: Passage) -> None:
        self.order = order
        self.own = passage.own
        self.text = with_plain_words(passage.text)
        self._ascii: bytes | None = None

    def may_hold(self, name: str) -> bool:
        """May the name stand here? Characters that nobody sees can part it: then they are taken out of the text."""
        text = self.text
        if text.isascii() or not name.isascii():
            return name in text
        if self._ascii is None:
            self._ascii = text.encode("ascii", "ignore")
        count = self._ascii.count(name.encode())
        if count > text.count(name):
            self.text = without_invisible(text)
        return count > 0


# -- places ------------------------------------------------------------------------------------------------------------------


def _finds(text: str, word: str) -> Iterator[int]:
    at = text.find(word)
    while at >= 0:
        yield at
        at = text.find(word, at + len(word))


@lru_cache(maxsize=256)
def _escaped_names(name: str) -> tuple[str, ...]:
    """How Markdown writes a name with an underscore, and JSON one with letters beyond ASCII."""
    found = [name.replace("_", "\\_")] if "_" in name else []
    if not name.isascii():
        escaped = json.dumps(name)[1:-1]
        found += [escaped, re.sub(r"\\u[0-9a-f]{4}", lambda code: "\\u" + code.group()[2:].upper(), escaped)]
    return tuple(found)


def _names_itself(markup: str, name: str) -> bool:
    """Does the name of the tool stand in the markup of its call, in a way in which it is found elsewhere too?"""
    return any(_may_name_a_call(markup, at, name) for at in _finds(markup, name))


def _may_name_a_call(text: str, at: int, name: str) -> bool:
    end = at + len(name)
    return _is_word(text, at, end) and may_name_a_call(_context(text, at), text[end : end + _CONTEXT])


def _is_word(text: str, at: int, end: int) -> bool:
    """Does a word begin and end here? The letter of an escape is none, and a number may be glued to a name."""
    behind = text[end : end + 1]
    if (behind.isalnum() or behind == "_") and not text.startswith(("json", "code"), end) and not _is_counter(text, end):
        return False
    before = text[at - 1 : at]
    if not before.isalnum() and before != "_":
        return True
    head = text[max(0, at - 16) : at]
    return head.endswith("functions") or _ESCAPED_LETTER.search(head) is not None


def _is_counter(text: str, at: int) -> bool:
    return text[at : at + 1].isdigit() or (text[at : at + 1] == "_" and text[at + 1 : at + 2].isdigit())


def _context(text: str, at: int) -> str:
    """What stands before a name, white space and quotes aside."""
    size = _CONTEXT
    while True:
        head = text[max(0, at - size) : at].rstrip(_DECORATION)
        if len(head) >= 64 or size >= at:
            return head[-_CONTEXT:]
        size *= 8


def _markup_before(text: str, at: int) -> str:
    """The text before a name in which its markup may begin, without long white space."""
    head = text[max(0, at - _BEFORE) : at]
    blanks = "    " in head or "\n\n\n" in head or "\t\t\t" in head
    if at > _BEFORE and ((blanks and head.count(" ") + head.count("\n") + head.count("\t") > len(head) // 2) or _is_late(head)):
        head = text[max(0, at - _BEFORE_MOST) : at]
    return _BLANKS.sub(_one_blank, head) if blanks else head


def _one_blank(found: re.Match[str]) -> str:
    return "\n" if "\n" in found.group() else " "


def _is_late(head: str) -> bool:
    """Does another field stand before that of the name? Then the arguments may."""
    return _BEHIND_ARGUMENTS.search(head[-_CONTEXT:].rstrip(_DECORATION)) is not None


def _words(arguments: str) -> tuple[str, ...]:
    """The longest words in the first lines of the arguments' texts. Escapes do not change them: a plain search finds them."""
    try:
        value = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return ()
    found: list[str] = []
    for text in islice(_strings(value), _MOST_STRINGS):
        found += _WORD.findall(plain(text[:_CONTEXT]).strip().partition("\n")[0])
    return tuple(sorted(dict.fromkeys(found), key=len, reverse=True)[:3])


def _strings(value: Any) -> Iterator[str]:
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict):
            waiting.extend(item.values())
        elif isinstance(item, list):
            waiting.extend(item)
