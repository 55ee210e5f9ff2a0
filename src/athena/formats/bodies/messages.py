"""Answers as messages, each of a kind that a token names: reasoning, visible text, calls (Inkling, Solar Open).

    start header kind body end

A kind without a start is a message too, and a message that was not ended ends where the next begins. Words in a header do not
matter. What stands in reasoning or text is words, not markup.
"""

from __future__ import annotations

import msgspec

from athena.formats.bodies.raw_text import read_raw
from athena.formats.machine.base import Reader
from athena.formats.machine.scanner import LOOK_AHEAD, Cut, Declined, Lexer, Scanner, Steps, end_of_run
from athena.formats.machine.writer import CallWriter

_HEADER_WORDS = 2


class Messages(msgspec.Struct, frozen=True):
    """The tokens of such messages."""

    start: tuple[str, ...]
    thinking: tuple[str, ...]
    text: tuple[str, ...]
    calls: tuple[str, ...]
    ends: tuple[str, ...]
    read_calls: Reader
    """What follows a token of `calls`, to the end of the message."""


class MessageReader:
    """The reader of such messages; openers are the tokens that start them and those that name a kind."""

    def __init__(self, shape: Messages) -> None:
        self._shape = shape
        self._kinds = (*shape.thinking, *shape.text, *shape.calls)
        self._next = (*shape.start, *self._kinds)
        self._header = Lexer((*self._next, *shape.ends))
        self._body = Lexer((*shape.ends, *self._next))
        self._beginning = Lexer((*self._kinds, " ", "\t", "\n", "{", "<"))

    def __call__(self, scan: Scanner, calls: CallWriter, opener: str) -> Steps[None]:
        """Messages one after another, until something stands there that is no message."""
        shape = self._shape
        marker = opener
        while marker:
            if marker in shape.start:
                marker = yield from self._kind(scan)
            if marker in shape.calls:
                yield from shape.read_calls(scan, calls, marker)
            elif marker in self._kinds:
                # Messages of the same kind without a word are one.
                scan.take_to(end_of_run(scan.text, scan.at, marker))
                yield from self._words(scan, calls, thinking=marker in shape.thinking)
            calls.settle()
            following = yield from scan.follows(0, self._next, end=False)
            if following is None:
                return
            yield from scan.space()
            marker = scan.take(len(following))

    def read_beginning(self, scan: Scanner, calls: CallWriter, opener: str) -> Steps[None]:
        """An answer that begins with a header, because its start is in the prompt."""
        text, marker = yield from scan.upto(self._beginning, LOOK_AHEAD)
        if marker not in self._kinds or not text:
            raise Declined
        scan.take(len(marker))
        yield from self(scan, calls, marker)

    def _words(self, scan: Scanner, calls: CallWriter, *, thinking: bool) -> Steps[None]:
        yield from read_raw(scan, calls, self._body, lambda text: calls.say(text, thinking=thinking))
        yield from scan.found(*self._shape.ends)

    def _kind(self, scan: Scanner) -> Steps[str]:
        """Everything up to the token that names the kind, which is taken. "": an empty message, or the text ended before."""
        text, marker = yield from scan.upto(self._header, LOOK_AHEAD * 2)
        if len(text.split()) > _HEADER_WORDS:
            # A sentence about tokens.
            raise Declined
        if marker:
            scan.take(len(marker))
        elif text.strip():
            raise Cut
        return marker
