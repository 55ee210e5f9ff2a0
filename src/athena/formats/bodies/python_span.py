"""Where a Python literal ends in text that arrives in pieces: strings and brackets are followed, no more.

A quote ends a string only where a value may end, because models forget to escape quotes inside shell commands; such a quote is
written as an escape, so that the literal can be read. In a list of calls a bracket that closes a call is followed by a comma or
by the end of the list, so a quote before another bracket ends nothing.
"""

from __future__ import annotations

import re

from athena.formats.bodies.python_literals import STRINGS

_OPENS, _CLOSES, _COMMA, _QUOTE = range(4)
_MEANINGS = {
    **dict.fromkeys("[({", _OPENS), **dict.fromkeys("])}", _CLOSES), ",": _COMMA, **dict.fromkeys("'\"", _QUOTE),
}  # fmt: skip
_BEHIND = re.compile(r"[ \t\r\n]*+([\s\S])?")
_BEHIND_CALL = re.compile(r"[ \t\r\n)]*+([\s\S])?")
_VALUE_MAY_END = ",)]}:"


class PythonSpan:
    """One literal, for `pump`: all of its text is written, `done` when it ended.

    An argument ends before the comma or bracket behind it, a `bracketed` literal with the bracket that closes its first.
    """

    __slots__ = ("_bracketed", "_listed", "_open", "done", "quote", "stuck")

    def __init__(self, *, bracketed: bool = False, listed: bool = False) -> None:
        self.done = False
        self.stuck = False
        self.quote = ""
        """The quotes that close the open string, one or three; empty outside of strings."""
        self._bracketed = bracketed
        self._listed = listed
        self._open = 0

    def feed(self, text: str, at: int, final: bool, out: list[str]) -> int:
        """Read from `at`, write to `out`; the answer is where the unread text begins."""
        end = len(text)
        while at < end and not self.done:
            before = at
            at = self._string(text, at, final, out) if self.quote else self._outside(text, at, final, out)
            if at == before:
                break
        return at

    def _outside(self, text: str, at: int, final: bool, out: list[str]) -> int:
        """Up to a string, whose quote is taken, or to the end of the literal."""
        stop = end = len(text)
        for index in range(at, end):
            meaning = _MEANINGS.get(text[index])
            if meaning is None:
                continue
            if meaning == _OPENS:
                self._open += 1
            elif meaning == _QUOTE:
                stop = self._begin(text, index, final)
                break
            elif not self._open:
                if text[index] in ",)":
                    self.done = True
                    stop = index
                    break
            elif meaning == _CLOSES:
                self._open -= 1
                if self._bracketed and not self._open:
                    self.done = True
                    stop = index + 1
                    break
        if stop > at:
            out.append(text[at:stop])
        return stop

    def _begin(self, text: str, at: int, final: bool) -> int:
        """Behind a quote and what belongs to it, or before it where more text must tell."""
        quote = text[at]
        if text.startswith(quote * 3, at):
            behind = _character_behind(text, at + 3)
            if not behind and not final:
                return at
            if not behind or behind not in _VALUE_MAY_END:
                self.quote = quote * 3
                return at + 3
        elif (len(text) - at < 3 and text.startswith(quote, at + 1) and not final) or (len(text) - at < 2 and not final):
            return at
        self.quote = quote
        return at + 1

    def _string(self, text: str, at: int, final: bool, out: list[str]) -> int:
        """Text of the open string, and the quote behind it if its meaning is known."""
        quote = self.quote
        stop = STRINGS[quote[0]].end(text, at)
        if stop > at:
            out.append(text[at:stop])
        if stop == len(text) or text[stop] == "\\":
            return stop
        if len(quote) == 3:
            closes = text.startswith(quote, stop)
            if not closes and len(text) - stop < 3 and not final and text[stop:] in quote:
                return stop
        else:
            behind = _character_behind(text, stop + 1)
            if behind == ")" and self._listed:
                found = _BEHIND_CALL.match(text, stop + 1)
                after = found.group(1) if found is not None else None
                if after is None and not final:
                    return stop
                behind = behind if not after or after in ",];<`" else after
            if not behind and not final:
                return stop
            # Another string may follow too: Python joins them.
            closes = behind in _VALUE_MAY_END or (behind in "'\"" and text[stop + 1] in " \n\t")
        if closes:
            out.append(quote)
            self.quote = ""
            return stop + len(quote)
        out.append("\\" + quote if len(quote) == 1 else quote[0])
        return stop + 1


def _character_behind(text: str, at: int) -> str:
    """The next character that is no white space; "" where the text ends."""
    found = _BEHIND.match(text, at)
    return (found.group(1) or "") if found is not None else ""
