"""Text that arrives in pieces, read as if it were there from the beginning.

A format's reader is a generator: it asks the scanner for what it needs and `yield`s where the text ends too early. Every
question is answered only once the answer can no longer change, whatever comes next, so a reader cannot tell how the text was
cut: equality of streamed and whole parsing is a property of this file, not of fifty formats.

What a reader takes is recorded until it commits to a call; a reader that raises `Declined` gets its text put back, every
character. Text once taken is never copied again, so the work stays linear while readers consume as they go.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NoReturn, TypeAlias, TypeVar

from athena.errors import LimitExceeded

T = TypeVar("T")
Steps: TypeAlias = Generator[None, None, T]
"""A reader or a part of one: it yields to wait for more text and returns a T."""

ValueSink: TypeAlias = Callable[[str], None]
"""Takes the next piece of a value."""
Straight: TypeAlias = Callable[[str], bool]
"""Takes the next piece of text in the place of a reader that waits inside a value. False: now the reader must go on."""

LOOK_AHEAD = 64
"""How far a reader looks before it must know whether this is a call."""

TICKS_AT_ONCE = 16
ESCAPES_AT_ONCE = 64

_PIECE_END = "\0"
_SPACE = re.compile(r"[ \t\r\n]*")


class Declined(Exception):
    """This is not a call of the format: the text goes back."""


class Cut(Exception):
    """The text ended inside a call."""


class Lexer:
    """The earliest of several literal markers in a text, or the end of it that may become one.

    A trie of the markers as one regular expression: one branch per character, no repeats, so a search is linear and runs in C.
    Beginnings that go on alike share how they go on: to compile an expression takes as long as it is.
    A complete marker ends in an empty group; a match without a group is a possible beginning at the text's end.
    `ticks`, `tildes`: the runs that code fences are made of are markers too. `never`: what makes a marker none when it follows.
    """

    __slots__ = ("_markers", "_never", "_with_ticks", "_with_tildes", "any", "begin", "final", "longest")

    def __init__(
        self, markers: Iterable[str], *, ticks: bool = False, tildes: bool = False, never: Mapping[str, str] | None = None
    ) -> None:
        self._markers = tuple(dict.fromkeys(markers))
        self._never = never or {}
        self._with_ticks = ticks
        self._with_tildes = tildes
        self.longest = max(map(len, self._markers), default=0)

    def __getattr__(self, name: str) -> re.Pattern[str]:
        # Compiled on first use: a process that reads two formats does not pay for the lexers of fifty.
        if name not in ("any", "begin", "final"):
            raise AttributeError(name)
        compiled = re.compile(self._beginnings() if name == "begin" else self._pattern(partial=name == "any"))
        setattr(self, name, compiled)
        return compiled

    def may_begin(self, pieces: Sequence[str]) -> bool:
        """May a marker begin in one of these pieces? Looked at in one go and by two letters: False is certain."""
        joined = _PIECE_END.join((*pieces, ""))
        return joined.count(_PIECE_END) > len(pieces) or self.begin.search(joined) is not None

    def _beginnings(self) -> str:
        """What no marker begins without; at the end of a piece its first letter alone."""
        firsts: dict[str, set[str]] = {}
        for marker in self._markers:
            if marker:
                firsts.setdefault(marker[0], set()).add(marker[1:2])
        if self._with_ticks:
            firsts["`"] = {""}
        if self._with_tildes:
            firsts["~"] = {""}
        options = [
            re.escape(first) if "" in seconds else f"{re.escape(first)}[{''.join(map(re.escape, sorted(seconds)))}{_PIECE_END}]"
            for first, seconds in firsts.items()
        ]
        return "|".join(options) if options else r"(?!)"

    def find(self, text: str, at: int, final: bool) -> tuple[int, str | None]:
        """(start, marker); marker None: it may begin there. (-1, None): nothing."""
        found = (self.final if final else self.any).search(text, at)
        if found is None:
            return -1, None
        return found.start(), None if found.lastindex is None else found.group()

    def _pattern(self, *, partial: bool) -> str:
        root = _Node()
        for marker in self._markers:
            node = root
            for character in marker:
                node = node.children.setdefault(character, _Node())
            node.marker = marker
        # Every branch begins with a letter of its own: a search looks for these letters first.
        branches = [re.escape(first) + self._from(node, partial) for first, node in root.children.items()]
        if self._with_ticks:
            branches.append(f"`(`{{0,{TICKS_AT_ONCE - 1}}})")
        if self._with_tildes:
            branches.append(f"~~~(~{{0,{TICKS_AT_ONCE - 3}}})" + (r"|~~?\Z" if partial else ""))
        return "|".join(branches) if branches else r"(?!)"

    def _from(self, node: _Node, partial: bool) -> str:
        """How markers go on behind their first letter."""
        if not (partial and node.children):
            return self._rest(node)
        # What may become a marker is looked for where fewer characters follow than the longest one has.
        return rf"(?:(?!(?s:.){{{_height(node)}}}){_cut(node)}|{self._rest(node)})"

    def _rest(self, node: _Node) -> str:
        """How markers go on from a node to their ends."""
        options = [_one_of(map(re.escape, ways)) + rest for rest, ways in _grouped(node, self._rest).items()]
        if node.marker:
            never = self._never.get(node.marker)
            # A longer marker that is none makes no marker of its beginning: its reader would give back all of it as text.
            behind = [*([never] if never else ()), *(re.escape(rest) for rest in self._excluded_rests(node))]
            options.append(f"(?!{'|'.join(behind)})()" if behind else "()")
        return _one_of(options)

    def _excluded_rests(self, node: _Node) -> Iterator[str]:
        """How longer markers go on from here that are none when something follows them."""
        for character, child in node.children.items():
            if child.marker and self._never.get(child.marker):
                yield character
            for rest in self._excluded_rests(child):
                yield character + rest


class Run:
    """Text of a value in which nothing matters: characters of one class, and escapes, each of which begins with a backslash.

    Only a single character is repeated possessively: before 3.11.5 CPython matches too much where a group is. A plain repeat
    of a group remembers every round it made, so the escapes of a long text are read a bounded number at a time. Nothing is
    read twice: no round can end before its escape and its characters do, and none but an escape can follow it.
    """

    __slots__ = ("_match", "leaves", "pattern")

    def __init__(self, character: str, escape: str = "") -> None:
        some = character + "*+"
        self.pattern = f"{some}(?:{escape}{some}){{0,{ESCAPES_AT_ONCE}}}" if escape else some
        self._match = re.compile(self.pattern).match
        self.leaves = re.compile(rf"(?!{self.pattern}\Z)").match
        """Finds something where a piece is more than plain text, or has more escapes than are read at once."""

    def end(self, text: str, at: int) -> int:
        """Where the plain text that begins at `at` ends."""
        while True:
            found = self._match(text, at)
            stop = found.end() if found is not None else at
            if stop == at or not text.startswith("\\", stop):
                return stop
            at = stop


@lru_cache(maxsize=256)
def lexer_of(markers: tuple[str, ...]) -> Lexer:
    """The lexer of these markers, made once."""
    return Lexer(markers)


def _grouped(node: _Node, pattern_of: Callable[[_Node], str]) -> dict[str, list[str]]:
    """The ways from a node to the next one where markers part or end, by the pattern of what follows there."""
    found: dict[str, list[str]] = {}
    for way, child in node.children.items():
        while len(child.children) == 1 and not child.marker:
            ((character, child),) = child.children.items()
            way += character
        found.setdefault(pattern_of(child), []).append(way)
    return found


def _cut(node: _Node) -> str:
    """How markers go on from a node when the text ends before they do."""
    options = [r"\Z"]
    for rest, ways in _grouped(node, lambda child: _cut(child) if child.children else "").items():
        if rest:
            options.append(_one_of(map(re.escape, ways)) + rest)
        if cut := [re.escape(way[:size]) for way in ways for size in range(1, len(way))]:
            options.append(_one_of(cut) + r"\Z")
    return _one_of(options)


def _height(node: _Node) -> int:
    """Characters from a node to the end of the longest marker."""
    return max((1 + _height(child) for child in node.children.values()), default=0)


def _one_of(patterns: Iterable[str]) -> str:
    options = tuple(patterns)
    return options[0] if len(options) == 1 else "(?:" + "|".join(options) + ")"


class _Node:
    __slots__ = ("children", "marker")

    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.marker = ""


class Scanner:
    """The text that no reader has taken yet."""

    __slots__ = (
        "_from",
        "_held_limit",
        "_kept",
        "_kept_size",
        "_most",
        "at",
        "ended_well",
        "final",
        "straight",
        "text",
        "was_cut",
        "work",
    )

    def __init__(self, held_limit: int = 16 * 1024 * 1024) -> None:
        self.text = ""
        self.at = 0
        self.final = False
        self.ended_well = False
        """The model stopped by itself: what is missing at the end was forgotten, not cut off."""
        self.was_cut = False
        """The upstream said that the text was cut off: what is missing at the end is lost."""
        self.work = 0
        """Characters copied so far: what tests of linear work count."""
        self.straight: Straight | None = None
        """Set by a reader before it waits, taken away when the reader continues."""
        self._held_limit = held_limit
        self._from = -1
        """Where in `text` that begins which is recorded; -1: nothing is."""
        self._kept: list[str] = []
        """What was recorded before `text`."""
        self._kept_size = 0
        self._most = sys.maxsize
        """Up to where `text` may be taken."""

    # -- for the engine ------------------------------------------------------------------------------------------------------

    def push(self, chunk: str) -> None:
        if self._from >= 0:
            self._keep()
        self.text = self.text[self.at :] + chunk if self.at < len(self.text) else chunk
        self.at = 0
        self.work += len(self.text)

    def record(self) -> None:
        """Keep what is taken from here on, so that it can be put back."""
        self._from = self.at
        self._most = self.at + self._held_limit
        if self._kept_size:
            self._kept = []
            self._kept_size = 0

    def forget(self) -> None:
        """What was taken will not come back: a call has begun."""
        self._from = -1
        self._most = sys.maxsize
        if self._kept_size:
            self._kept = []
            self._kept_size = 0

    @property
    def recorded(self) -> str:
        """What was taken since `record`."""
        if self._from < 0:
            return ""
        taken = self.text[self._from : self.at]
        return "".join((*self._kept, taken)) if self._kept_size else taken

    @property
    def recorded_size(self) -> int:
        """How many characters were taken since `record`."""
        return self._kept_size + self.at - self._from if self._from >= 0 else 0

    def rewind(self) -> int:
        """Give back what was taken since `record`; the answer is how much that was."""
        if self._from < 0:
            return 0
        taken = self._kept_size + self.at - self._from
        if self._kept_size:
            self.text = "".join((*self._kept, self.text[self._from :]))
            self.at = 0
            self.work += len(self.text)
            self.forget()
        else:
            self.at = self._from
            self._from = -1
            self._most = sys.maxsize
        return taken

    def _keep(self) -> None:
        """`text` goes: what was recorded of it stays."""
        if self.at > self._from:
            self._kept.append(self.text[self._from : self.at])
            self._kept_size += self.at - self._from
        self._from = 0
        self._most = self._held_limit - self._kept_size

    def put_back(self, text: str) -> None:
        """Let the text go on with `text`."""
        if self.text.startswith(text, self.at - len(text)) and self.at >= len(text):
            # It still stands right there: nothing is copied.
            self.at -= len(text)
            return
        self.text = text + self.text[self.at :]
        self.at = 0
        self.work += len(self.text)

    # -- for readers ---------------------------------------------------------------------------------------------------------

    def take(self, count: int) -> str:
        """Consume `count` characters that are known to be there."""
        end = self.at + count
        piece = self.text[self.at : end]
        self.at = end
        if end > self._most:
            self._hold_too_much()
        return piece

    def take_to(self, end: int) -> None:
        """Consume what stands before `end`."""
        self.at = end
        if end > self._most:
            self._hold_too_much()

    def put_back_taken(self, count: int) -> None:
        """Undo the taking of the last `count` characters: an opener that is part of what its reader reads."""
        self.at -= count

    def _hold_too_much(self) -> NoReturn:
        raise LimitExceeded("too much text is held back while its meaning is open", code="held_text_too_large")

    def whole(self, pattern: re.Pattern[str]) -> str:
        """Take what `pattern` matches if it is all there, else nothing. It must look at a character behind what it matches."""
        found = pattern.match(self.text, self.at)
        return self.take(found.end() - self.at) if found is not None else ""

    @property
    def is_used_up(self) -> bool:
        """Is nothing left, and nothing of what comes to be recorded? Then a piece may be used without being taken."""
        return self._from < 0 and self.at >= len(self.text)

    def ended(self) -> bool:
        """Is there nothing left, and nothing to come?"""
        return self.final and self.at >= len(self.text)

    def peek(self, count: int) -> Steps[str]:
        """The next `count` characters, fewer only at the end; nothing is taken."""
        while len(self.text) - self.at < count and not self.final:
            yield
        return self.text[self.at : self.at + count]

    def space(self) -> Steps[str]:
        """Take white space."""
        taken = ""
        if self.at < len(self.text) and self.text[self.at] not in " \t\r\n":
            return taken
        while True:
            end = _end_of_space(self.text, self.at)
            if end > self.at:
                taken += self.take(end - self.at)
            if self.at < len(self.text) or self.final:
                return taken
            yield

    def head(self) -> Steps[str]:
        """Take white space; the next character, which stays. "" at the end."""
        while True:
            if self.at < len(self.text):
                head = self.text[self.at]
                if head not in " \t\r\n":
                    return head
                self.take(_end_of_space(self.text, self.at) - self.at)
            elif self.final:
                return ""
            else:
                yield

    def blanks(self, limit: int = 16 * LOOK_AHEAD) -> Steps[int]:
        """How much white space stands here, at most `limit`; nothing is taken."""
        while True:
            count = _end_of_space(self.text, self.at) - self.at
            if self.at + count < len(self.text) or self.final or count >= limit:
                return min(count, limit)
            yield

    def found(self, *options: str) -> Steps[str]:
        """Take the longest option the text goes on with; empty when it is none of them."""
        ordered = options if len(options) == 1 else _longest_first(options)
        while True:
            left = len(self.text) - self.at
            if left >= len(ordered[0]) and not self.text.startswith(ordered, self.at):
                return ""
            waiting = False
            for option in ordered:
                if self.text.startswith(option, self.at):
                    return self.take(len(option))
                if left < len(option) and not self.final and option.startswith(self.text[self.at :]):
                    waiting = True
                    break
            if not waiting:
                return ""
            yield

    def follows(self, offset: int, options: tuple[str, ...], *, end: bool = True) -> Steps[str | None]:
        """The option that stands `offset` characters and any white space ahead; None: none. The end counts as "" if `end`."""
        while True:
            start = _end_of_space(self.text, self.at + offset)
            left = len(self.text) - start
            if left >= _most_needed(options) and not self.text.startswith(options, start):
                return None
            if left <= 0 and self.final:
                return "" if end else None
            waiting = left <= 0
            for option in options:
                if self.text.startswith(option, start):
                    return option
                if left < len(option) and not self.final and option.startswith(self.text[start:]):
                    waiting = True
            if not waiting:
                return None
            yield

    def ahead(self, offset: int, lexer: Lexer, limit: int) -> Steps[tuple[int, str | None]]:
        """How far ahead the next marker stands, at least `offset`, and which it is; nothing is taken.

        "" is the end of the text, None says that none begins within `limit` characters.
        """
        while True:
            start, marker = lexer.find(self.text, self.at + offset, self.final)
            near = len(self.text) - self.at if start < 0 else start - self.at
            if near > limit:
                return limit, None
            if marker is not None:
                return near, marker
            if self.final:
                return near, ""
            offset = max(offset, near)
            yield

    def decide(self, offset: int, yes: re.Pattern[str], no: re.Pattern[str]) -> Steps[bool | None]:
        """Which of two patterns matches `offset` characters ahead; None: the text ends before it is clear.

        Each must end with a character that proves it.
        """
        while True:
            if yes.match(self.text, self.at + offset) is not None:
                return True
            if no.match(self.text, self.at + offset) is not None:
                return False
            if self.final:
                return None
            yield

    def flow(self, lexer: Lexer, sink: ValueSink) -> Steps[str]:
        """Pass all text before the next marker to `sink` as it arrives. The marker stays; "" is the end."""
        search = lexer.any.search

        def straight(text: str) -> bool:
            if self.is_used_up and search(text) is None:
                sink(text)
                return True
            self.push(text)
            found = search(self.text, self.at)
            start = len(self.text) if found is None else found.start()
            if start > self.at:
                sink(self.take(start - self.at))
            return found is None or found.lastindex is None

        while True:
            start, marker = lexer.find(self.text, self.at, self.final)
            if start < 0:
                start = len(self.text)
                marker = "" if self.final else None
            if start > self.at:
                sink(self.take(start - self.at))
            if marker is not None:
                return marker
            self.straight = straight
            yield

    def piece(self, lexer: Lexer) -> Steps[tuple[str, str | None]]:
        """Take the text before the next marker. The marker stays; "" is the end, None says that more text may follow."""
        while True:
            start, marker = lexer.find(self.text, self.at, self.final)
            if start < 0:
                rest = self.take(len(self.text) - self.at)
                if self.final:
                    return rest, ""
                if rest:
                    return rest, None
            else:
                text = self.take(start - self.at) if start > self.at else ""
                if marker is not None or text:
                    return text, marker
            yield

    def upto(self, lexer: Lexer, limit: int = LOOK_AHEAD) -> Steps[tuple[str, str]]:
        """All text before the next marker, which stays; "" is the end. Declined when it is longer than `limit`."""
        while True:
            stop = self.at + limit + lexer.longest
            beyond = len(self.text) >= stop
            pattern = lexer.final if self.final or beyond else lexer.any
            found = pattern.search(self.text, self.at, stop)
            if found is not None and found.lastindex is not None and found.start() - self.at <= limit:
                return self.take(found.start() - self.at), found.group()
            if beyond or (found is not None and found.start() - self.at > limit):
                raise Declined
            if self.final:
                if len(self.text) - self.at > limit:
                    raise Declined
                return self.take(len(self.text) - self.at), ""
            yield


@lru_cache(maxsize=256)
def _longest_first(options: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted(options, key=len, reverse=True))


@lru_cache(maxsize=256)
def _most_needed(options: tuple[str, ...]) -> int:
    """How many characters tell that none of the options stands there."""
    return max(map(len, options), default=1)


def end_of_run(text: str, at: int, marker: str) -> int:
    """Where the copies of `marker` end that follow each other from `at` on."""
    if not text.startswith(marker, at):
        return at
    many = marker * 64
    while text.startswith(many, at):
        at += len(many)
    while text.startswith(marker, at):
        at += len(marker)
    return at


def _end_of_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found is not None else at
