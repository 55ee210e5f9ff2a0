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

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from athena.calls.likeness import Likeness, likeness
from athena.formats.base import Format
from athena.formats.policies import RepairLevel
from athena.formats.quoted_calls import Budget, QuotedCall, QuotedCallReader, may_name_a_call
from athena.formats.value_types import ToolBook
from athena.model.request import Tool
from athena.wire.escapes import with_plain_words, without_invisible

_BUDGET = 4 * 1024 * 1024
"""Characters that readers may read in the texts of one request, over all names."""
_MOST_PLACES = 500_000
"""How often a name is looked at in the texts of one request; only names of a letter or two come that often."""
_BEFORE, _BEFORE_MOST = 2 * 1024, 64 * 1024
"""How far before a name its markup may begin, and how far where the arguments or much white space stand before it."""
_BEHIND, _BEHIND_MOST = 4 * 1024, 1024 * 1024
"""How much is read behind a name at first, and at most."""
_CONTEXT = 192
_ANCHORS = 64
"""How many places of a call without a name are read."""

_ANCHOR = re.compile(r"[A-Za-z0-9_]{3,}")
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

    __slots__ = ("_budget", "_calls", "_formats", "_names", "_own", "_passages", "_places", "_reader", "_repair",
                 "_spellings", "_texts", "_tools")  # fmt: skip

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
        self._places = _MOST_PLACES
        self._texts: list[_Text] | None = None
        self._reader: QuotedCallReader | None = None
        self._names: dict[tuple[str, bool], _Quotations] = {}
        self._own: set[tuple[str, str]] | None = None

    def suspects(self, name: str) -> bool:
        """May a call of this tool be a quotation? If not, its arguments can be shown as they come."""
        found = self._quotations(name, own=False)
        return bool(found.calls) or found.is_undecided

    def quotes(self, name: str, arguments: str, *, unnamed: bool = False, open_ended: bool = False) -> bool:
        """Is this call a quotation?

        `unnamed`: its markup does not hold the name. `open_ended`: it ended with the answer, without an end mark.
        """
        call = likeness(arguments)
        found = self._quotations(name, own=False)
        first = found.first(call, open_ended=open_ended)
        if first is None and unnamed:
            first = self._unnamed(name, arguments, own=False).first(call, open_ended=open_ended)
        if first is None:
            return found.is_undecided
        if (name, call.whole) in self._own_calls():
            return False
        own = self._unnamed(name, arguments, own=True) if unnamed else self._quotations(name, own=True)
        written = own.first(call, open_ended=open_ended)
        return written is None or written > first

    # -- what the request holds ------------------------------------------------------------------------------------------------

    def _own_calls(self) -> set[tuple[str, str]]:
        if self._own is None:
            self._own = {(name, likeness(arguments).whole) for name, arguments in self._calls()}
        return self._own

    def _all_texts(self, *, own: bool) -> list[_Text]:
        if self._texts is None:
            self._texts = [_Text(order, passage) for order, passage in enumerate(self._passages()) if passage.text]
        return [text for text in self._texts if text.own is own]

    def _quotations(self, name: str, *, own: bool) -> _Quotations:
        """The calls of this tool that stand in the model's own texts, or in all others."""
        key = (name, own)
        known = self._names.get(key)
        if known is None:
            known = self._names[key] = self._searched(name, own=own)
        return known

    def _searched(self, name: str, *, own: bool) -> _Quotations:
        found = _Quotations()
        names = tuple(dict.fromkeys((name, *self._spellings(name))))
        for text in self._all_texts(own=own):
            for spelling in names:
                for at in self._places_of(spelling, text):
                    if self._budget.is_spent:
                        found.is_undecided = True
                        return found
                    found.add(self._read(text.text, at, names), text.order)
                if self._places <= 0:
                    found.is_undecided = True
        return found

    def _unnamed(self, name: str, arguments: str, *, own: bool) -> _Quotations:
        """The same for markup without a name (code behind a tag), around a word of the arguments."""
        found = _Quotations()
        word = max(_ANCHOR.findall(_values(arguments)[:_CONTEXT]), key=len, default="")
        names = tuple(dict.fromkeys((name, *self._spellings(name))))
        if not word:
            return found
        for text in self._all_texts(own=own):
            at = text.text.find(word)
            for _ in range(_ANCHORS):
                if at < 0:
                    break
                found.add(self._read(text.text, at, names), text.order)
                at = text.text.find(word, at + 1)
        return found

    def _places_of(self, name: str, text: _Text) -> Iterator[int]:
        """Where the name stands as the name of a call may stand."""
        if not text.may_hold(name):
            return
        for spelling in (name, name.replace("_", "\\_")) if "_" in name and "\\_" in text.text else (name,):
            whole = text.text
            at = whole.find(spelling)
            while at >= 0 and self._places > 0:
                self._places -= 1
                end = at + len(spelling)
                if _is_word(whole, at, end) and may_name_a_call(_context(whole, at), whole[end : end + _CONTEXT]):
                    yield at
                at = whole.find(spelling, end)

    def _read(self, text: str, at: int, names: tuple[str, ...]) -> list[QuotedCall]:
        reader = self._reader
        if reader is None:
            book = self._tools if isinstance(self._tools, ToolBook) else ToolBook(self._tools)
            reader = self._reader = QuotedCallReader(book, repair=self._repair, formats=self._formats)
        before = _markup_before(text, at)
        size = _BEHIND
        while True:
            calls, cut = reader.read(before, text[at : at + size], names, self._budget)
            if not cut or at + size >= len(text) or size >= _BEHIND_MOST or self._budget.is_spent:
                return calls
            size *= 8


class _Quotations:
    """Calls of one tool by their likeness, each with the number of the first text that holds it."""

    __slots__ = ("_beginnings", "_open", "calls", "is_undecided")

    def __init__(self) -> None:
        self.calls: dict[str, int] = {}
        self._beginnings: dict[str, int] = {}
        self._open: dict[str, int] = {}
        """Beginnings of those that ended with the text that was read."""
        self.is_undecided = False
        """Not everything could be read."""

    def add(self, calls: Iterable[QuotedCall], order: int) -> None:
        for call in calls:
            found = likeness(call.arguments)
            self.calls.setdefault(found.whole, order)
            self._beginnings.setdefault(found.beginning, order)
            if call.open_ended:
                self._open.setdefault(found.beginning, order)

    def first(self, call: Likeness, *, open_ended: bool) -> int | None:
        """The number of the first text that holds this call."""
        found = [self.calls.get(call.whole), self._open.get(call.beginning)]
        if open_ended:
            found.append(self._beginnings.get(call.beginning))
        return min((order for order in found if order is not None), default=None)


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


def _values(arguments: str) -> str:
    """The values of arguments as one text."""
    try:
        fields = msgspec.json.decode(arguments, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return arguments
    return " ".join(bytes(value).decode("utf-8", "replace") for value in fields.values())
