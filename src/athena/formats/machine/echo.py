"""The echo guard: does a call that was found in the model's text stand in the request already, as another author's words?

A tool's result, a document or a prompt can hold the markup of a call. A model that quotes it does not call, but its text then
reads like a call. So every call found in text is looked for in the text of the request that the model did not write. A call
counts as quoted there when markup of any format stands there with the same name and the same arguments, however both are
written (`calls.likeness`) and escaped (`wire.escapes`), unless the model called just that before, or wrote it first.

Nothing happens before a call is found. Then the texts are searched for the tool's name, which is a plain search. Where the name
stands like the name of a call (`call_places`), the words of the arguments are searched near it, then their values after all
escapes; only where all of them stand the formats' readers are asked (`quoted_calls`). The work is bounded, and where it is used
up, calls that could not be compared count as quoted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

import msgspec

from athena.calls.likeness import Likeness, likeness, squeezed
from athena.formats.machine.base import Format
from athena.formats.machine.call_places import (
    CONTEXT,
    escaped_names,
    finds,
    is_late,
    is_mostly_blank,
    markup_before,
    may_name_a_call,
    names_itself,
)
from athena.formats.machine.policies import RepairLevel
from athena.formats.machine.quoted_calls import QuotedCallReader, WorkBudget
from athena.formats.machine.value_types import ToolBook
from athena.model.request import Tool
from athena.wire.escapes import hides_words, plain, with_plain_words, without_invisible

_BUDGET = 2 * 1024 * 1024
"""Characters that may be compared and read in the texts of one request, over all calls."""
_MOST_LOOKS = 100_000
"""How many names in these texts are looked at."""
_MOST_PLACES = 8192
"""How many places of one name are compared."""
_LOOK_COST = 16
"""What one of them costs of the budget."""
_MOST_DECODED = 2 * 1024 * 1024
"""Characters of texts that write letters as escapes. This does not happen by accident."""
_BEHIND, _BEHIND_MOST = 4 * 1024, 1024 * 1024
"""How much is read behind a name at first, and at most."""
_REACH, _REACH_MOST = 1024, 64 * 1024
"""How far from a name its arguments may stand, besides their own length; and the same where white space stands between."""
_MOST_WORDS = 64
"""How many places of one word are read in one text, for a call whose markup does not name its tool."""
_MOST_VERBATIM = 256 * 1024
"""Longer markup is only compared as a call, not word for word."""
_MOST_STRINGS = 64
_WORD = re.compile(r"(?<![A-Za-z0-9.\-\\&#])[A-Za-z0-9.\-]{3,}")
"""What no encoder escapes, unless it is part of an escape."""
_OTHERWISE = re.compile(r"\s*(?:[\[{]|[+-]?[\d.]+(?:[eE][+-]?\d+)?\s*\Z|(?:true|false|null|none)\s*\Z)", re.IGNORECASE)
_QUOTES = str.maketrans("", "", "\"'`\\")
_CUT = 12


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


class EchoGuard(msgspec.Struct, eq=False):
    """Knows what one request holds. Ask with each call that is found in the answer to it."""

    passages: Passages
    tools: Sequence[Tool] | ToolBook | None = None
    """As the model knows them."""
    calls: OwnCalls = tuple
    spellings: Spellings = lambda name: ()
    repair: RepairLevel = "syntax"
    formats: Sequence[Format] = ()
    """Others than the known ones, such as one with configured markers."""

    _budget: WorkBudget = msgspec.field(default_factory=lambda: WorkBudget(_BUDGET))
    _looks: int = msgspec.field(default_factory=lambda: _MOST_LOOKS)
    _texts: list[_Text] | None = None
    _reader: QuotedCallReader | None = None
    _names: dict[tuple[str, bool], list[_Place]] = {}
    _own: set[tuple[str, str]] | None = None

    def suspects(self, name: str, markup: str) -> bool:
        """May a call that begins with this markup be a quotation? If not, its arguments can be shown as they come."""
        return not names_itself(markup, name) or bool(self._named(name, own=False)) or self._is_spent

    def quotes(self, name: str, arguments: str, markup: str, *, open_ended: bool = False) -> bool:
        """Is this call, of which `markup` is all that was written, a quotation?

        `open_ended`: it ended with the answer, and might have ended elsewhere in another one.
        """
        call = _Call(name, arguments, markup, open_ended=open_ended)
        first = self._first(call, own=False)
        if first is None:
            return self._is_spent
        if (name, call.likeness.whole) in self._own_calls():
            return False
        own = self._first(call, own=True)
        return own is None or own > first

    # -- what the request holds ------------------------------------------------------------------------------------------------

    @property
    def _is_spent(self) -> bool:
        """Could not everything be looked at?"""
        return self._looks < 0 or self._budget.is_spent

    def _own_calls(self) -> set[tuple[str, str]]:
        if self._own is None:
            self._own = {(name, likeness(arguments).whole) for name, arguments in self.calls()}
        return self._own

    def _all_texts(self, *, own: bool) -> list[_Text]:
        if self._texts is None:
            self._texts = [_Text(order, passage) for order, passage in enumerate(self.passages()) if passage.text]
            if sum(text.decoded for text in self._texts) > _MOST_DECODED:
                self._budget.left = 0
        return [text for text in self._texts if text.own is own]

    def _all_names(self, name: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys((name, *self.spellings(name))))

    def _named(self, name: str, *, own: bool) -> list[_Place]:
        """Where the name stands as the name of a call may stand, in the model's own texts or in all others."""
        key = (name, own)
        known = self._names.get(key)
        if known is None:
            places = (
                _Place(text, at)
                for text in self._all_texts(own=own)
                for spelling in self._all_names(name)
                for at in self._finds(spelling, text)
            )
            # More than are compared need not be looked for.
            known = self._names[key] = list(islice(places, _MOST_PLACES + 1))
        return known

    def _finds(self, name: str, text: _Text) -> Iterator[int]:
        for spelling in (name, *escaped_names(name)) if "\\" in text.text else (name,):
            for at in text.finds(spelling):
                if self._looks <= 0:
                    self._looks = -1
                    return
                self._looks -= 1
                if may_name_a_call(text.text, at, at + len(spelling)):
                    yield at

    def _worded(self, call: _Call, *, own: bool) -> list[_Place]:
        """For markup that does not name its tool: where a word of the arguments stands."""
        found: list[_Place] = []
        for text in self._all_texts(own=own) if call.words else ():
            found += [_Place(text, at) for at in islice(finds(text.text, call.words[0]), _MOST_WORDS)]
        return found

    def _first(self, call: _Call, *, own: bool) -> int | None:
        """The number of the first text that holds this call, read as a call or word for word."""
        places = self._named(call.name, own=own)
        if not call.is_named:
            places = sorted((*places, *self._worded(call, own=own)), key=lambda place: place.text.order)
        if len(places) > _MOST_PLACES:
            self._budget.left = 0
        for place in places:
            if self._budget.is_spent:
                return None
            around = place.around(call)
            self._budget.left -= _LOOK_COST + len(around)
            if around and self._holds(place, around, call):
                return place.text.order
        return None

    def _holds(self, place: _Place, around: str, call: _Call) -> bool:
        """Does the call stand at this place, of which `around` is the text?"""
        if call.markup and call.markup in around:
            return True
        if not all(value in around for value in call.values):
            return False
        if place.reading is None:
            place.reading = self._read(place, self._all_names(call.name))
        return any(map(call.is_like, place.reading))

    def _read(self, place: _Place, names: tuple[str, ...]) -> tuple[_Found, ...]:
        reader = self._reader
        if reader is None:
            book = self.tools if isinstance(self.tools, ToolBook) else ToolBook(self.tools)
            reader = self._reader = QuotedCallReader(book, repair=self.repair, formats=self.formats)
        text, at, size = place.text.text, place.at, _BEHIND
        while True:
            reading = reader.read(markup_before(text, at), text[at : at + size], names, self._budget)
            if not reading.is_cut or at + size >= len(text) or size >= _BEHIND_MOST or self._budget.is_spent:
                return tuple({_Found(likeness(call.arguments), call.open_ended) for call in reading.calls})
            size *= 8


class _Found(msgspec.Struct, frozen=True, gc=False):
    """A call that stands in a text."""

    likeness: Likeness
    open_ended: bool


class _Call:
    """A call that is looked for."""

    __slots__ = ("is_named", "likeness", "markup", "name", "open_ended", "reach", "values", "words")

    def __init__(self, name: str, arguments: str, markup: str, *, open_ended: bool) -> None:
        self.name = name
        self.likeness = likeness(arguments)
        self.open_ended = open_ended
        self.is_named = names_itself(markup, name)
        """Does its markup name the tool? Code behind a tag does not."""
        self.markup = _bare(markup) if len(markup) <= _MOST_VERBATIM else ""
        self.reach = min(_REACH + 8 * len(markup), _REACH_MOST)
        lines = [text[:CONTEXT].strip().partition("\n")[0] for text in islice(_strings(arguments), _MOST_STRINGS)]
        # What reads as a number, a constant or JSON may be written otherwise elsewhere.
        lines = [line for line in lines if _OTHERWISE.match(line) is None]
        self.values = tuple(filter(None, map(_value, lines)))
        """The first lines of the texts in its arguments."""
        words = dict.fromkeys(word for line in lines for word in _WORD.findall(line))
        self.words = tuple(sorted(words, key=len, reverse=True)[:3])
        """The longest words in them: they stand wherever the call does, and a plain search finds them."""

    def is_like(self, other: _Found) -> bool:
        """The same arguments? Of a call that only the end of its text ended, the first lines must do."""
        if self.likeness.whole == other.likeness.whole:
            return True
        return (self.open_ended or other.open_ended) and self.likeness.beginning == other.likeness.beginning

    def may_stand_in(self, text: str) -> bool:
        """Do its words stand there? One of three may be broken by the end of a line."""
        missing = sum(word not in text for word in self.words)
        return missing <= len(self.words) // 3


def _bare(text: str) -> str:
    """Text without white space, quotes and escapes: what different writers of the same text share."""
    return squeezed(text).translate(_QUOTES)


def _value(line: str) -> str:
    """A line as it is looked for: without its end where that may be half an escape, and without a line that was escaped."""
    bare = _bare(plain(line).strip().partition("\n")[0])
    return bare[:-_CUT] if len(line) >= CONTEXT - _CUT else bare


def _strings(arguments: str) -> Iterator[str]:
    """The texts in a call's arguments."""
    try:
        waiting = [msgspec.json.decode(arguments)]
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        waiting = []
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict):
            waiting.extend(item.values())
        elif isinstance(item, list):
            waiting.extend(item)


class _Place:
    """A place in a text around which a call may stand."""

    __slots__ = ("at", "reading", "text")

    def __init__(self, text: _Text, at: int) -> None:
        self.text = text
        self.at = at
        self.reading: tuple[_Found, ...] | None = None
        """The calls that stand here; None: not searched yet."""

    def around(self, call: _Call) -> str:
        """The text around the place, bare; empty where words of the call are missing."""
        text, at, size = self.text.text, self.at, call.reach
        near = text[max(0, at - size) : at + size]
        if is_mostly_blank(near) or is_late(text[max(0, at - size) : at]):
            size = _REACH_MOST
            near = text[max(0, at - size) : at + size]
        if call.may_stand_in(near) or (not near.isascii() and call.may_stand_in(without_invisible(near))):
            return _bare(markup_before(text, at) + text[at : at + size])
        return ""


class _Text:
    """One passage, ready to be searched."""

    __slots__ = ("_ascii", "decoded", "order", "own", "text")

    def __init__(self, order: int, passage: Passage) -> None:
        self.order = order
        self.own = passage.own
        text = passage.text
        self.decoded = 0
        """Characters of it in which letters were written as escapes, and had to be looked for one by one."""
        if hides_words(text):
            self.decoded = len(text)
            text = with_plain_words(text[:_MOST_DECODED])
        self.text = text
        self._ascii = b"" if text.isascii() else text.encode("ascii", "ignore")
        """What is left without all other characters, where there are others."""

    def finds(self, name: str) -> list[int]:
        """Where the name stands. Invisible characters can part it: then they are taken out of the text."""
        if not self._ascii or not name.isascii():
            return list(finds(self.text, name))
        found = self._unparted(name)
        if found is None:
            self.text = without_invisible(self.text)
            found = list(finds(self.text, name))
        return found

    def _unparted(self, name: str) -> list[int] | None:
        """Where the name stands; None where characters beyond ASCII part it somewhere.

        Only the shorter text is searched from end to end. A place of the name in the whole text lies as far behind the one in
        the shorter text as the place before did, and further by what was left out between the two, so little is read of it.
        """
        found: list[int] = []
        behind = start = 0
        for place in finds(self._ascii, name.encode("ascii")):
            at = self.text.find(name, max(place + behind, start))
            if at < 0:
                return None
            found.append(at)
            behind, start = at - place, at + len(name)
        return found
