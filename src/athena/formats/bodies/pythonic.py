"""Calls written as Python: `name(key=literal, ...)`, one or a list of them (`formats.md` 2.17).

Values are shown one by one, each when the comma or bracket behind it has come. A quote ends a string only where a value may
end, because models forget to escape quotes inside shell commands.
"""

from __future__ import annotations

import re

from athena.formats.bodies.json_text import quoted
from athena.formats.bodies.python_literals import python_to_json
from athena.formats.scanner import LOOK_AHEAD, Cut, Declined, Lexer, Run, Scanner, Sink, Steps
from athena.formats.writer import CallWriter

_NAME = re.compile(r"[^\W\d][\w.\-]*")
_IDENTIFIER = re.compile(r"[^\W\d]\w*")
_HEAD_END = Lexer(("(",))
_KEY_END = Lexer(("=", ",", ")", "'", '"', "[", "{", "("))
_LIVE = re.compile(r"[\"'\[\](){},]")
INSIDE = {quote: Run(rf"(?:[^{quote}\\]++|\\[\s\S])*+") for quote in "'\""}
"""By the quote that ends it: the inside of a string, escapes and all."""
_VALUE_MAY_END = ",)]}:"


def read_python_calls(scan: Scanner, calls: CallWriter, *, end: str = "") -> Steps[int]:
    """Calls with commas, semicolons or line breaks between; `end` (a closing bracket) is taken. Answers how many there were."""
    found = 0
    while True:
        yield from scan.space()
        if end and (yield from scan.found(end)):
            calls.settle()
            return found
        if found and (yield from scan.found(",", ";")):
            continue
        if scan.ended():
            return found
        if found:
            try:
                yield from _check_name(scan, calls)
            except Declined:
                return found
        yield from read_python_call(scan, calls)
        found += 1


def _check_name(scan: Scanner, calls: CallWriter) -> Steps[None]:
    """Does another call stand here? Nothing is taken."""
    ahead = yield from scan.peek(LOOK_AHEAD * 2)
    name, bracket, _ = ahead.partition("(")
    if not bracket or not _NAME.fullmatch(name.rstrip()) or not calls.admits(name.rstrip()):
        raise Declined


def read_python_call(scan: Scanner, calls: CallWriter) -> Steps[None]:
    """One call, to its closing bracket."""
    text, marker = yield from scan.upto(_HEAD_END, LOOK_AHEAD * 2)
    name = text.strip()
    if not _NAME.fullmatch(name):
        raise Declined
    if not marker:
        raise Cut
    scan.take(1)
    calls.open(name)
    yield from read_python_arguments(scan, calls)


def read_python_arguments(scan: Scanner, calls: CallWriter) -> Steps[None]:
    """The arguments of the open call behind its bracket; the closing bracket is taken and the call closed."""
    keys: list[str] = []
    opener = "{"
    failed = ""
    while True:
        yield from scan.space()
        if (yield from scan.found(")")):
            break
        if (yield from scan.found(",")):
            continue
        if scan.ended():
            raise Cut
        key, prefix = yield from _key(scan)
        text = (prefix + (yield from _value(scan, calls))).strip()
        if key is None:
            declared = [name for name in calls.book.parameters(calls.name) if name not in keys]
            key = declared[0] if declared else None
        value = python_to_json(text)
        if key is None or value is None:
            failed = failed or text
            continue
        keys.append(key)
        if not failed:
            calls.write(f"{opener}{quoted(key)}:{value}")
            opener = ","
    if failed:
        calls.fail(f"the arguments of {calls.name} are not Python literals: {failed[:100]}")
        return
    calls.write("}" if opener == "," else "{}")
    calls.close()
    calls.settle()


def _key(scan: Scanner) -> Steps[tuple[str | None, str]]:
    """(key, "") before a keyword's value; (None, text) when the text taken belongs to a positional value."""
    try:
        text, marker = yield from scan.upto(_KEY_END, LOOK_AHEAD * 2)
    except Declined:
        return None, ""
    if marker == "=" and _IDENTIFIER.fullmatch(text.strip()):
        scan.take(1)
        return text.strip(), ""
    return None, text


class _Outside:
    """The part of a value that is outside strings: follows its brackets."""

    __slots__ = ("_open",)

    def __init__(self) -> None:
        self._open = 0

    def end(self, text: str, at: int) -> int:
        """Where a string begins or the value ends; the text's end when that is still to come."""
        for found in _LIVE.finditer(text, at):
            character = found.group()
            if character in "'\"" or (not self._open and character in ",)"):
                return found.start()
            if character in "[({":
                self._open += 1
            elif self._open and character != ",":
                self._open -= 1
        return len(text)


def _value(scan: Scanner, calls: CallWriter) -> Steps[str]:
    """The text of one value, up to the comma or bracket behind it, which stays."""
    pieces: list[str] = []
    keep = calls.keeper(pieces)
    outside = _Outside()

    def straight(text: str) -> bool:
        if text:
            scan.push(text)
        stop = outside.end(scan.text, scan.at)
        if stop > scan.at:
            keep(scan.take(stop - scan.at))
        return stop == len(scan.text)

    while True:
        while straight(""):
            if scan.final:
                raise Cut
            scan.straight = straight
            yield
        character = scan.text[scan.at]
        if character not in "'\"":
            return "".join(pieces)
        keep(scan.take(1))
        yield from _string(scan, character, keep)


def _string(scan: Scanner, quote: str, keep: Sink) -> Steps[None]:
    """The rest of a string whose opening quote was taken, closing quote included."""
    if (yield from scan.peek(2)) == quote * 2 and (yield from scan.follows(2, tuple(_VALUE_MAY_END))) is None:
        keep(scan.take(2))
        quote *= 3
    inside = INSIDE[quote[0]]
    while True:
        if (yield from scan.run(inside, keep)) == "\\":
            keep(scan.take(len((yield from scan.peek(2)))))
            continue
        run = yield from scan.peek(len(quote))
        if run == quote and (len(quote) == 3 or (yield from _closes(scan))):
            keep(scan.take(len(quote)))
            return
        # A quote the model forgot to escape: written as an escape, so that the literal can be read.
        scan.take(1)
        keep("\\" + quote[0] if len(quote) == 1 else quote[0])


def _closes(scan: Scanner) -> Steps[bool]:
    """May the value end behind this quote? Another string may follow too: Python joins them."""
    after = yield from scan.follows(1, (*_VALUE_MAY_END, "'", '"'))
    if after in ("'", '"'):
        ahead = yield from scan.peek(2)
        return ahead[1:2] in (" ", "\n", "\t")
    return after is not None
