"""Which markers are live, and what each may mean: the table the engine looks things up in.

Built once per set of formats and shared by all parsers. Several formats may share a marker; they are asked in turn, and the
first that does not decline has it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache, lru_cache

import msgspec

from athena.formats.base import Format, Opener
from athena.formats.scanner import Lexer

_CONTROL = ("<|", "<｜")
"""How control tokens begin, which mean the same in every family."""


Search = Callable[..., re.Match[str] | None]


class Candidate(msgspec.Struct, frozen=True):
    """One reading of a marker."""

    format: Format
    opener: Opener

    @property
    def is_reserved(self) -> bool:
        """Does a well-formed call count whatever its name?"""
        return self.format.reserved and not self.opener.plain

    def is_excluded(self, text: str, at: int) -> bool:
        """Would its reader decline what follows the marker?"""
        never = self.opener.never
        return bool(never) and _matcher(never).match(text, at) is not None


class Meaning:
    """Everything a marker may be."""

    __slots__ = ("anywhere", "candidates", "closes_thinking", "ends", "never", "opens_thinking", "turn_end")

    def __init__(
        self, candidates: Iterable[Candidate], *, opens_thinking: bool, closes_thinking: bool, ends: bool, turn_end: bool
    ) -> None:
        self.candidates = _different(sorted(candidates, key=lambda one: one.opener.rank))
        self.opens_thinking = opens_thinking
        self.closes_thinking = closes_thinking
        self.ends = ends
        """An end-of-turn string, or the end marker of a call."""
        self.turn_end = turn_end
        patterns = tuple(dict.fromkeys(candidate.opener.never for candidate in self.candidates))
        is_delimiter = opens_thinking or closes_thinking or ends
        self.never = "" if is_delimiter or not all(patterns) else "".join(f"(?={pattern})" for pattern in patterns)
        """What excludes every reading of it: a search passes over such a place."""
        self.anywhere = (
            len(patterns) == 1
            and (not is_delimiter or patterns == ("",))
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
            # Only control tokens are unmistakable: `</s>` also ends struck-out text.
            turn_ends.update(end for end in known.turn_ends if known is named or end.startswith(_CONTROL))
        markers = sorted(openers.keys() | opens | closes | ends | turn_ends)
        self.meanings = {
            marker: Meaning(
                openers.get(marker, ()),
                opens_thinking=marker in opens,
                closes_thinking=marker in closes,
                ends=marker in ends or marker in turn_ends,
                turn_end=marker in turn_ends,
            )
            for marker in markers
        }
        self.lexer = Lexer(
            markers, ticks=True, tildes=True, never={marker: meaning.never for marker, meaning in self.meanings.items()}
        )
        self._given_up: dict[str, int] = {}

    def __getattr__(self, name: str) -> Search:
        # Compiled on first use, a tenth of a second each: most answers need two of the four searches of a recognizer.
        if name not in ("any", "final"):
            raise AttributeError(name)
        search: Search = getattr(self.lexer, name).search
        setattr(self, name, search)
        return search

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
            inner = self.meanings.get(self.lexer.name(found)) if found.lastindex is not None else None
            if inner is None or found.end() < len(marker) or not asked.issuperset(one.opener.read for one in inner.candidates):
                return found.start()
            # The same without its line break: its readers have been asked.
            start = found.start() + 1
        return len(marker)


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

    def __init__(self, named: Format | None, others: Iterable[Format] = (), tools: tuple[str, ...] = ()) -> None:
        self.named = named
        self.others = tuple(other for other in others if named is None or other.id != named.id)
        formats = (*((named,) if named is not None else ()), *self.others)
        candidates = [Candidate(other, opener) for other in self.others for opener in other.openers if opener.auto]
        if named is not None:
            own = (*named.openers, *(named.tool_openers(tools) if named.tool_openers else ()))
            candidates = [*(Candidate(named, opener) for opener in own), *candidates]
        marked = [candidate for candidate in candidates if candidate.opener.marker]
        self.starters = tuple(candidate for candidate in candidates if not candidate.opener.marker)
        """Readings of the answer's beginning."""
        self.text = Table(marked, formats, named=named, thinking=False)
        self.reasoning = Table([one for one in marked if _in_reasoning(one)], formats, named=named, thinking=True)

    def compile(self) -> None:
        """Build every search now, for those who can not wait for it later."""
        for table in (self.text, self.reasoning):
            _ = table.any, table.final

    def for_tools(self, names: tuple[str, ...]) -> Recognizer:
        """The same with the openers that depend on the declared tools."""
        if self.named is None or self.named.tool_openers is None:
            return self
        return _with_tools(self, names)


@lru_cache(maxsize=64)
def _with_tools(plain: Recognizer, names: tuple[str, ...]) -> Recognizer:
    return Recognizer(plain.named, plain.others, names)


@cache
def recognizer(format_id: str, *, others: bool = False) -> Recognizer:
    """What to look for: `auto` for everything unmistakable, else one format, with `others` everything unmistakable besides."""
    from athena.formats import all_formats, get_format  # the registry imports this room's formats

    if format_id in ("auto", "standard"):
        return Recognizer(None, all_formats())
    return Recognizer(get_format(format_id), all_formats() if others else ())
