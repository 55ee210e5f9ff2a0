"""Which markers are live, and what each may mean: the table the engine looks things up in.

Built once per set of formats and shared by all parsers. Several formats may share a marker; they are asked in turn, and the
first that does not decline has it.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from functools import cache, lru_cache

import msgspec

from athena.bounded_cache import BoundedCache
from athena.formats.machine.base import Format, Opener
from athena.formats.machine.scanner import TICKS_AT_ONCE, Lexer

_CONTROL = ("<|", "<｜")
"""How control tokens begin, which mean the same in every family."""


_MENTIONED = ("<think>",)
"""Delimiters of reasoning that people and models write about."""

Search = Callable[..., re.Match[str] | None]

_LONGEST_NAME = 128
"""A longer tool name opens no call by itself: behind its format's own marker it still is one."""
_RECOGNIZERS_BYTES = 8 * 1024 * 1024
_BYTES_PER_CHARACTER = 64
"""Memory of a search for tool names, for each of their characters."""


class Candidate(msgspec.Struct, frozen=True):
    """One format that may take a marker, and the reader it would use."""

    format: Format
    opener: Opener

    @property
    def is_reserved(self) -> bool:
        """Does a well-formed call count whatever its name?"""
        return self.format.reserved and not self.opener.plain

    def stands_right(self, *, blank_line: bool, last: str, visible: bool) -> bool:
        """May its marker begin a call at such a place? `last`: the character before it."""
        where = self.opener.where
        if where == "anywhere":
            return True
        if where == "line":
            return blank_line
        if where == "word":
            return not last.isalnum() and last != "_"
        return not visible

    def is_excluded(self, text: str, at: int) -> bool:
        """Would its reader decline what follows the marker?"""
        never = self.opener.never
        return bool(never) and _matcher(never).match(text, at) is not None


class Meaning:
    """Everything a marker may be."""

    __slots__ = (
        "anywhere",
        "candidates",
        "closes_thinking",
        "ends",
        "is_delimiter",
        "never",
        "opens_thinking",
        "stray",
        "turn_end",
        "unmistakable",
    )

    def __init__(
        self,
        candidates: Iterable[Candidate],
        *,
        opens_thinking: bool,
        closes_thinking: bool,
        ends: bool,
        turn_end: bool,
        stray: bool,
        unmistakable: bool,
    ) -> None:
        self.candidates = _different(sorted(candidates, key=lambda one: one.opener.rank))
        self.opens_thinking = opens_thinking
        self.closes_thinking = closes_thinking
        self.ends = ends
        """An end-of-turn string, or the end marker of a call."""
        self.turn_end = turn_end
        self.stray = stray
        """A control token from inside the named format's calls: left over where nothing but such tokens ends the answer."""
        self.unmistakable = unmistakable
        """A delimiter of reasoning that no text has by accident: it counts behind words too."""
        patterns = tuple(dict.fromkeys(candidate.opener.never for candidate in self.candidates))
        self.is_delimiter = opens_thinking or closes_thinking or ends or stray
        """Does it mean something where it begins no call?"""
        self.never = "" if self.is_delimiter or not all(patterns) else "".join(f"(?={pattern})" for pattern in patterns)
        """What excludes every reading of it: a search passes over such a place."""
        self.anywhere = (
            len(patterns) == 1
            and (not self.is_delimiter or patterns == ("",))
            and all(candidate.opener.where == "anywhere" for candidate in self.candidates)
        )
        """May all candidates be asked wherever a search finds the marker?"""


class Table:
    """The live markers of one phase."""

    __slots__ = ("_given_up", "any", "final", "lexer", "meanings")

    def __init__(
        self, candidates: Iterable[Candidate], formats: Iterable[Format], *, named: Format | None, thinking: bool
    ) -> None:
        openers: dict[str, list[Candidate]] = {}
        for candidate in candidates:
            openers.setdefault(candidate.opener.marker, []).append(candidate)
        opens: set[str] = set()
        closes: set[str] = set()
        ends: set[str] = set()
        turn_ends: set[str] = set()
        strays: set[str] = set()
        for known in formats:
            for begin, end in known.thinking:
                if known is not named and begin[:1].isalnum():
                    # A sentence that opens reasoning in one family is a sentence everywhere else.
                    continue
                opens.add(begin)
                closes.add(end)
                if thinking:
                    # The line break before the closing delimiter belongs to the template.
                    closes.add("\n" + end)
            for begin, end in known.answer:
                if known is named or begin.startswith(_CONTROL):
                    closes.add(begin)
                    turn_ends.update((end, "\n" + end))
            ends.update(known.closers)
            if known is named and known.reserved:
                strays.update(known.strays, (end for end in known.closers if end.startswith(_CONTROL)))
            # Only control tokens are unmistakable: `</s>` also ends struck-out text.
            turn_ends.update(end for end in known.turn_ends if known is named or end.startswith(_CONTROL))
        markers = sorted(openers.keys() | opens | closes | ends | turn_ends | strays)
        self.meanings = {
            marker: Meaning(
                openers.get(marker, ()),
                opens_thinking=marker in opens,
                closes_thinking=marker in closes,
                ends=marker in ends or marker in turn_ends,
                turn_end=marker in turn_ends,
                stray=marker in strays,
                unmistakable=marker in opens and not marker[:1].isalnum() and marker not in _MENTIONED,
            )
            for marker in markers
        }
        self.lexer = Lexer(
            markers, ticks=True, tildes=True, never={marker: meaning.never for marker, meaning in self.meanings.items()}
        )
        self._given_up: dict[str, int] = {}

    def __getattr__(self, name: str) -> Search:
        # Compiled on first use, some hundredths of a second each: most answers need two of the four searches of a recognizer.
        if name not in ("any", "final"):
            raise AttributeError(name)
        search: Search = getattr(self.lexer, name).search
        setattr(self, name, search)
        return search

    def may_begin(self, pieces: Sequence[str]) -> bool:
        """May a marker begin in one of these pieces? False is certain."""
        return self.lexer.may_begin(pieces)

    def compile(self) -> None:
        """Compile the regular expressions now instead of at the first search."""
        _ = self.any, self.final, self.lexer.begin

    def given_up(self, marker: str) -> int:
        """How much of a marker that means nothing is text for sure: behind that another may begin (`>>>>` is `>` and `>>>`).

        So a search that passes over an excluded marker finds the same as a reader that is asked and declines.
        """
        length = self._given_up.get(marker)
        if length is None:
            length = self._given_up[marker] = self._find_next(marker)
        return length

    def _find_next(self, marker: str) -> int:
        asked = {candidate.opener.read for candidate in self.meanings[marker].candidates}
        start = 1
        while (found := self.any(marker, start)) is not None:
            inner = self.meanings.get(found.group()) if found.lastindex is not None else None
            if inner is None or found.end() < len(marker) or not asked.issuperset(one.opener.read for one in inner.candidates):
                return found.start()
            # The same without its line break: its readers have been asked.
            start = found.start() + 1
        return len(marker)


class ToolTable(Table):
    """The markers of another table, and those that the declared tools add to them.

    Every request may declare other tools, so their markers have a search of their own: that of all other markers, which takes
    long to build, is shared. What the two find together is what one search for all would find: the leftmost,
    and at one place what may still become a marker before what is one, and the longer before the shorter.
    """

    __slots__ = ("_firsts", "_shared", "_sorted", "_words")

    def __init__(self, shared: Table, added: Iterable[Candidate], named: Format | None) -> None:
        self._shared = shared
        self.lexer = shared.lexer
        self._given_up = {}
        openers: dict[str, list[Candidate]] = {}
        for candidate in added:
            openers.setdefault(candidate.opener.marker, []).append(candidate)
        self._sorted = sorted(openers)
        self._words = Lexer(self._sorted)
        self._firsts = frozenset(marker[0] for marker in self._sorted)
        self.meanings = dict(shared.meanings)
        for marker, candidates in openers.items():
            known = shared.meanings.get(marker)
            before = known.candidates if known is not None else ()
            self.meanings[marker] = Meaning(
                (
                    *(one for one in before if one.format is named),
                    *candidates,
                    *(one for one in before if one.format is not named),
                ),
                opens_thinking=known is not None and known.opens_thinking,
                closes_thinking=known is not None and known.closes_thinking,
                ends=known is not None and known.ends,
                turn_end=known is not None and known.turn_end,
                stray=known is not None and known.stray,
                unmistakable=known is not None and known.unmistakable,
            )

    def may_begin(self, pieces: Sequence[str]) -> bool:
        """May a marker begin in one of these pieces? False is certain."""
        return self.lexer.may_begin(pieces) or self._words.may_begin(pieces)

    def compile(self) -> None:
        """Compile the regular expressions now instead of at the first search."""
        self._shared.compile()
        _ = self._words.final, self._words.begin

    def any(self, text: str, at: int = 0) -> re.Match[str] | None:
        """The first marker, or the end of the text that may become one."""
        found = self._first(self.lexer.any, text, at)
        last = found.start() if found is not None else len(text)
        for start in range(max(at, len(text) - self._words.longest + 1), min(last + 1, len(text))):
            if text[start] in self._firsts and self._may_become_marker(text[start:]):
                return _REST.match(text, start)
        return found

    def final(self, text: str, at: int = 0) -> re.Match[str] | None:
        """The first marker of a text that has ended."""
        return self._first(self.lexer.final, text, at)

    def _first(self, shared: re.Pattern[str], text: str, at: int) -> re.Match[str] | None:
        """The first shared marker, or a tool's marker where that comes first.

        Both are looked for in spans of growing length: where one kind stands close together and the other far away, searching
        the whole text for the far one at each of the close ones would take time that grows with its square. What begins so
        late in a span that its end may cut it is looked for again in the next one.
        """
        overlap = max(self.lexer.longest, self._words.longest, TICKS_AT_ONCE)
        span = 4 * overlap
        while at + span < len(text):
            last = at + span - overlap
            found = self._nearer(_search_until(shared, text, at, at + span), text, at, at + span)
            if found is not None and found.start() <= last:
                return found
            at = last + 1
            span *= 4
        return self._nearer(shared.search(text, at), text, at, len(text))

    def _nearer(self, found: re.Match[str] | None, text: str, at: int, end: int) -> re.Match[str] | None:
        """What a shared search found, or a tool's marker where that comes first."""
        if found is not None:
            end = min(len(text), found.start() + self._words.longest)
        word = self._words.final.search(text, at, end)
        if word is None or found is None:
            return found if word is None else word
        if word.start() != found.start():
            return word if word.start() < found.start() else found
        return found if found.lastindex is None or found.end() >= word.end() else word

    def _may_become_marker(self, beginning: str) -> bool:
        """Is this the beginning of a tool's marker, and not all of it?"""
        place = bisect_left(self._sorted, beginning)
        if place < len(self._sorted) and self._sorted[place] == beginning:
            place += 1
        return place < len(self._sorted) and self._sorted[place].startswith(beginning)


def _search_until(pattern: re.Pattern[str], text: str, at: int, end: int) -> re.Match[str] | None:
    """A search up to `end` of what the pattern finds in the whole text: what excludes a marker may stand behind the end."""
    while (found := pattern.search(text, at, end)) is not None:
        whole = pattern.match(text, found.start())
        if whole is not None:
            return whole
        at = found.start() + 1
    return None


_REST = re.compile(r"[\s\S]*")


def _different(candidates: Iterable[Candidate]) -> tuple[Candidate, ...]:
    """Without those that would be asked in vain: the same reader has declined the same text (DeepSeek V3 and V3.1)."""
    found: dict[tuple[object, ...], Candidate] = {}
    for candidate in candidates:
        opener = candidate.opener
        found.setdefault((opener.read, opener.where, opener.never, candidate.is_reserved), candidate)
    return tuple(found.values())


@lru_cache(maxsize=256)
def _matcher(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def _in_reasoning(candidate: Candidate) -> bool:
    return candidate.format.read_in_reasoning and not candidate.opener.plain


class Recognizer:
    """The formats one parser looks for: one by name, or all with unmistakable markers, or both."""

    def __init__(self, named: Format | None, others: Iterable[Format] = ()) -> None:
        self.named = named
        self.others = tuple(other for other in others if named is None or other.id != named.id)
        formats = (*((named,) if named is not None else ()), *self.others)
        candidates = [Candidate(other, opener) for other in self.others for opener in other.openers if opener.auto]
        if named is not None:
            candidates = [*(Candidate(named, opener) for opener in named.openers), *candidates]
        marked = [candidate for candidate in candidates if candidate.opener.marker]
        self.starters = tuple(candidate for candidate in candidates if not candidate.opener.marker)
        """Readings of the answer's beginning."""
        self._no_starts = tuple(dict.fromkeys(candidate.opener.never for candidate in self.starters))
        """What excludes them, each once."""
        self.text = Table(marked, formats, named=named, thinking=False)
        self.reasoning = Table([one for one in marked if _in_reasoning(one)], formats, named=named, thinking=True)
        self._with_tools: BoundedCache[tuple[str, ...], Recognizer] = BoundedCache(_RECOGNIZERS_BYTES)

    def compile(self) -> None:
        """Build every search now, for those who cannot wait for it later."""
        self.text.compile()
        self.reasoning.compile()

    def starts_no_call(self, text: str) -> bool:
        """Would all that read the beginning of an answer without a marker decline this one?"""
        excluded = [bool(never) and _matcher(never).match(text) is not None for never in self._no_starts]
        return all(excluded)

    def for_tools(self, names: tuple[str, ...]) -> Recognizer:
        """The same with the openers that depend on the declared tools."""
        named = self.named
        if named is None or named.tool_openers is None:
            return self
        names = tuple(name for name in names if 0 < len(name) <= _LONGEST_NAME)
        if not names:
            return self
        found = self._with_tools.get(names)
        if found is None:
            candidates = [Candidate(named, opener) for opener in named.tool_openers(names)]
            found = copy(self)
            found.text = ToolTable(self.text, candidates, named)
            found.reasoning = ToolTable(self.reasoning, [one for one in candidates if _in_reasoning(one)], named)
            size = sum(len(candidate.opener.marker) for candidate in candidates)
            self._with_tools.put(names, found, (size + 256) * _BYTES_PER_CHARACTER)
        return found


@cache
def recognizer(format_id: str, *, others: bool = False) -> Recognizer:
    """What to look for: `auto` for everything unmistakable, else one format, with `others` everything unmistakable besides."""
    from athena.formats import all_formats, get_format  # the registry imports this room's formats

    if format_id in ("auto", "standard"):
        return Recognizer(None, all_formats())
    return Recognizer(get_format(format_id), all_formats() if others else ())
