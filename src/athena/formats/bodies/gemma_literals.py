"""Calls in the literal syntax of Google's open models: `call:NAME{key:value,...}`, strings between a token of their own.

    call:f{city:Q Tokyo Q,n:3,tags:[Q a Q]}        (Q is the quoting token, without the blanks)

Gemma 4 types values by syntax; FunctionGemma quotes every value, so there the schema decides. A quoting token ends a string
only where a value may end, because the models also write it for a plain quote inside code.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import product
from typing import NamedTuple

import msgspec

from athena.formats.bodies.arguments import json_value, skip_to
from athena.formats.bodies.json_text import quoted
from athena.formats.bodies.json_tokens import NUMBER
from athena.formats.machine.scanner import LOOK_AHEAD, Cut, Declined, Lexer, Scanner, Steps, ValueSink
from athena.formats.machine.value_types import ANYTHING, ValueType, typed_json
from athena.formats.machine.writer import CallWriter

CALL = "call:"
_AHEAD = 4096
"""How far behind the end of a call its open string may be closed after all."""
_KEY_RUN = re.compile(r"\s*[\w.$@\-/ ]*")
_CLOSERS = {"{": "}", "[": "]"}
_SCALAR = re.compile(r"-?\d[\d.eE+-]*|true|false|null|True|False|None")
_WHOLE_SCALAR = re.compile(rf"(?:{_SCALAR.pattern})(?=[,}}\]])")
_NAME = re.compile(r"[^\s{}<>\"']+")
_S = r"[ \t\r\n]*+"
_BEFORE = rf"{_S},?+{_S}"
_WORD_KEY = r"[A-Za-z_]\w{0,63}+"
_SCALARS = rf"{NUMBER}|true|false|null"
_KEY, _WORD, _OPENS, _QUOTES, _CLOSES, _IS_CUT = range(1, 7)
"""The groups of what finds a simple member: its key, its value or how that begins, the closing bracket, what may become one."""


class Syntax(msgspec.Struct, frozen=True):
    """What differs between the models."""

    quote: str
    ends: tuple[str, ...]
    """The markers that end a call."""
    begins: tuple[str, ...]
    """The markers that begin another."""
    typed: bool = False
    """A quoted argument is text that the schema types; inside brackets it is a string."""


class _Malformed(Exception):
    pass


class _Simple(NamedTuple):
    """What is found by a pattern alone inside one kind of bracket."""

    member: Callable[[str, int], re.Match[str] | None]
    """A member, the closing bracket, or what may become one of these. The beginning of a string is enough."""
    string_end: Callable[[str, int], re.Match[str] | None]
    """A quoting token that ends a string; without its group: one that may, if the right text follows."""


def _simple(bracket: str, quote: str) -> _Simple:
    key = rf"({_WORD_KEY}):" if bracket == "{" else r"((?!))?"
    begun = "".join(f"(?:{re.escape(character)}" for character in quote[:-1]) + ")?" * (len(quote) - 1)
    value = rf"(?:({_SCALARS})(?=[,}}\]])|([\[{{])|({re.escape(quote)}))"
    cut = rf"([\w.+:-]{{0,{LOOK_AHEAD}}}+{begun}\Z)"
    behind, unclear = (rf"[}}\]]|,{_WORD_KEY}:", rf",(?:{_WORD_KEY})?\Z|") if bracket == "{" else (r"[,}\]]", "")
    return _Simple(
        re.compile(rf"{_BEFORE}(?:{key}{value}|({re.escape(_CLOSERS[bracket])})|{cut})").match,
        re.compile(rf"{re.escape(quote)}(?:(?={behind})()|(?={unclear}\Z))").match,
    )


class GemmaCalls:
    """The reader of such calls; made once per format."""

    def __init__(self, syntax: Syntax) -> None:
        self._syntax = syntax
        self._stops = (*syntax.ends, *syntax.begins)
        self._behind_values = (",", "}", "]", *self._stops)
        self._stop_heads = "".join(stop[0] for stop in self._stops)
        self._name = Lexer(("{", "\n", *self._stops))
        self._quote = Lexer((syntax.quote,))
        self._quote_or_call = Lexer((syntax.quote, *syntax.begins))
        self._key = Lexer((":", "=", ",", "{", "}", "\n", syntax.quote, *self._stops))
        self._bare = Lexer((",", "}", "]", syntax.quote, *self._stops))
        self._end = Lexer(self._stops)
        closers = ("", *("".join(some) for size in (1, 2, 3) for some in product("}]", repeat=size)))
        self._string = Lexer((syntax.quote, *(closer + stop for closer in closers for stop in self._stops)))
        """A quoting token, or the end of the call with the brackets before it."""
        self._simple = {bracket: _simple(bracket, syntax.quote) for bracket in _CLOSERS}

    def read(self, scan: Scanner, calls: CallWriter, opener: str) -> Steps[None]:
        """Behind the opening marker: the call, and its end marker if it is there."""
        yield from scan.space()
        if not (yield from scan.found(CALL)):
            raise Cut if scan.final and CALL.startswith(scan.text[scan.at :]) else Declined
        text, marker = yield from scan.upto(self._name, LOOK_AHEAD * 2)
        name = text.strip()
        if not _NAME.fullmatch(name) or marker == "\n":
            raise Declined
        if not marker:
            raise Cut
        calls.open(name)
        if marker == "{":
            scan.take(1)
            yield from self._arguments(scan, calls)
        else:
            calls.close()
        yield from self._end_marker(scan, calls)

    def read_from_name(self, scan: Scanner, calls: CallWriter, opener: str) -> Steps[None]:
        """Where the opening marker was forgotten; the opener is `call:NAME{`."""
        calls.open(opener.removeprefix(CALL).removesuffix("{"))
        yield from self._arguments(scan, calls)
        yield from self._end_marker(scan, calls)

    def _end_marker(self, scan: Scanner, calls: CallWriter) -> Steps[None]:
        if (yield from scan.follows(0, self._syntax.ends, end=False)) is not None:
            yield from scan.space()
            yield from scan.found(*self._syntax.ends)
        calls.settle()

    def _arguments(self, scan: Scanner, calls: CallWriter) -> Steps[None]:
        try:
            yield from self._members(scan, calls)
        except _Malformed:
            calls.fail(f"the arguments of {calls.name} cannot be read")
            yield from skip_to(scan, calls, self._end)
        else:
            calls.close()

    def _members(self, scan: Scanner, calls: CallWriter) -> Steps[None]:
        """Everything behind the first brace, which was taken, to the brace that closes it."""
        calls.write("{")
        levels = [_Level("{", self._simple)]
        simple = _SimpleMembers(scan, calls, levels, self._string, self._syntax)
        while levels:
            if simple.take("") and not scan.final:
                scan.straight = simple.take
                yield
                continue
            if simple.in_string:
                yield from self._rest_of_string(scan, calls, levels, calls.write_text)
                calls.write('"')
                simple.in_string = False
                continue
            head = yield from scan.head()
            level = levels[-1]
            if not head:
                raise Cut
            if head == "," or (head == "]" and level.bracket == "{"):
                # A stray bracket is dropped too.
                calls.repaired(head == "]")
                scan.take(1)
            elif head in "}]" or (yield from self._stops_here(scan, head)):
                if head == _CLOSERS[level.bracket]:
                    scan.take(1)
                else:
                    # The bracket is missing; what ends something further out ends this too.
                    calls.repaired()
                levels.pop()
                calls.write(_CLOSERS[level.bracket])
            else:
                key = (yield from self._read_key(scan, calls)) if level.bracket == "{" else None
                yield from self._value(scan, calls, levels, key)

    def _stops_here(self, scan: Scanner, head: str) -> Steps[bool]:
        return head in self._stop_heads and (yield from scan.follows(0, self._stops, end=False)) is not None

    def _read_key(self, scan: Scanner, calls: CallWriter) -> Steps[str]:
        head = yield from scan.head()
        if head == self._syntax.quote[0] and (yield from scan.found(self._syntax.quote)):
            try:
                key, marker = yield from scan.upto(self._quote, LOOK_AHEAD * 4)
            except Declined:
                raise _Malformed from None
            scan.take(len(marker))
        elif head in ("'", '"'):
            text = yield from json_value(scan, calls)
            key = msgspec.json.decode(text, type=str) if text is not None else ""
        else:
            try:
                text, _ = yield from scan.upto(self._key, LOOK_AHEAD * 4)
            except Declined:
                raise _Malformed from None
            key = text.strip()
            if not key:
                raise _Malformed
        if (yield from scan.head()) not in (":", "="):
            raise Cut if scan.ended() else _Malformed
        scan.take(1)
        return key

    def _value(self, scan: Scanner, calls: CallWriter, levels: list[_Level], key: str | None) -> Steps[None]:
        head = yield from scan.head()
        level = levels[-1]
        kind = calls.value_type(key) if key is not None and len(levels) == 1 else ANYTHING
        if not head:
            raise Cut
        if head in _CLOSERS:
            scan.take(1)
            calls.write(level.before(key) + head)
            if len(levels) >= calls.limits.json_depth:
                raise _Malformed
            levels.append(_Level(head, self._simple))
        elif head == self._syntax.quote[0] and (yield from scan.found(self._syntax.quote)):
            live = kind.is_text or not self._syntax.typed or len(levels) > 1
            yield from self._quoted(scan, calls, levels, key, None if live else kind)
        elif head in "'\"" and (yield from self._dangling(scan, calls, level, key, head)):
            return
        elif head in "'\"":
            text = yield from json_value(scan, calls)
            if text is None:
                raise _Malformed
            calls.write(level.before(key) + text)
        else:
            yield from self._unquoted(scan, calls, level, key, kind)

    def _quoted(
        self, scan: Scanner, calls: CallWriter, levels: list[_Level], key: str | None, kind: ValueType | None
    ) -> Steps[None]:
        """A string as it arrives, or text that waits for its end to be typed."""
        level = levels[-1]
        if kind is None:
            calls.write(level.before(key) + '"')
            yield from self._rest_of_string(scan, calls, levels, calls.write_text)
            calls.write('"')
        else:
            pieces: list[str] = []
            yield from self._rest_of_string(scan, calls, levels, calls.keeper(pieces))
            self._typed(calls, level, key, "".join(pieces), kind)

    def _rest_of_string(self, scan: Scanner, calls: CallWriter, levels: list[_Level], sink: ValueSink) -> Steps[None]:
        """A string to its end, which is taken."""
        while True:
            marker = yield from scan.flow(self._string, sink)
            if not marker:
                raise Cut
            if marker != self._syntax.quote:
                if (yield from self._is_unclosed(scan, levels, marker)):
                    calls.repaired()
                    return
                sink(scan.take(len(marker)))
                continue
            ends = yield from self._value_ends(scan, levels[-1], len(marker))
            scan.take(len(marker))
            if ends:
                return
            sink('"')

    def _is_unclosed(self, scan: Scanner, levels: list[_Level], end: str) -> Steps[bool]:
        """Does the call end here, with this marker, although its string was not closed? Not where the string's own end comes
        later. Where the text ends instead, it may have been cut inside the string, which holds the marker then.
        """
        at = len(end)
        if end.endswith(self._syntax.begins) and (yield from scan.follows(at, (CALL,), end=False)) is None:
            return False
        while True:
            at, marker = yield from scan.ahead(at, self._quote_or_call, _AHEAD)
            if not marker:
                return marker is not None and not scan.was_cut and (scan.ended_well or _closes_all(levels, end))
            at += len(marker)
            if marker == self._syntax.quote:
                if (yield from self._value_ends(scan, levels[-1], at)):
                    return False
            elif (yield from scan.follows(at, (CALL,), end=False)) is not None:
                return True

    def _dangling(self, scan: Scanner, calls: CallWriter, level: _Level, key: str | None, quote: str) -> Steps[bool]:
        """A string in plain quotes with a quoting token behind it, to which none belongs."""
        ahead = yield from scan.peek(LOOK_AHEAD * 4)
        end = ahead.find(quote + self._syntax.quote, 1)
        inside = ahead[1:end]
        if end < 0 or quote in inside or self._syntax.quote in inside or "\n" in inside:
            return False
        scan.take(end + 1 + len(self._syntax.quote))
        calls.repaired()
        calls.write(level.before(key) + quoted(inside))
        return True

    def _unquoted(self, scan: Scanner, calls: CallWriter, level: _Level, key: str | None, kind: ValueType) -> Steps[None]:
        word = scan.whole(_WHOLE_SCALAR)
        if word:
            self._typed(calls, level, key, word, kind)
            return
        pieces: list[str] = []
        keep = calls.keeper(pieces)
        while True:
            marker = yield from scan.flow(self._bare, keep)
            if not marker:
                raise Cut
            if marker == self._syntax.quote:
                # The token that opened the string is missing.
                scan.take(len(marker))
                calls.repaired()
                calls.write(level.before(key) + quoted("".join(pieces)))
                return
            if marker != "," or _SCALAR.fullmatch("".join(pieces).strip()):
                break
            if (yield from self._value_ends(scan, level, 0)):
                break
            pieces.append(scan.take(1))
        self._typed(calls, level, key, "".join(pieces).strip(), kind)

    def _typed(self, calls: CallWriter, level: _Level, key: str | None, text: str, kind: ValueType) -> None:
        value = typed_json(text, kind)
        if value is not None:
            calls.write(level.before(key) + value)

    def _value_ends(self, scan: Scanner, level: _Level, offset: int) -> Steps[bool]:
        """May a value end `offset` characters ahead? Behind a comma in an object a key must follow."""
        after = yield from scan.follows(offset, self._behind_values)
        if after != "," or level.bracket == "[":
            return after is not None
        while True:
            raw = scan.text[scan.at + offset : scan.at + offset + LOOK_AHEAD * 8]
            ahead = raw.lstrip(" \t\r\n")[1 : LOOK_AHEAD * 2 + 1]
            known = scan.final or len(raw) == LOOK_AHEAD * 8 or len(ahead) == LOOK_AHEAD * 2
            begins = self._begins_member(ahead)
            if begins is not None or known:
                return bool(begins)
            yield

    def _begins_member(self, text: str) -> bool | None:
        """Does a key and its colon stand here, or the end of the object? None: the text is too short to tell."""
        found = _KEY_RUN.match(text)
        word = found.group() if found is not None else ""
        rest = text[len(word) :]
        if not rest:
            return None
        if word.strip():
            return rest[0] in ":="
        if rest[0] in "},":
            return True
        quote = rest[0] if rest[0] in "'\"" else self._syntax.quote
        if not rest.startswith(quote):
            return None if quote.startswith(rest) else False
        end = rest.find(quote, len(quote))
        after = rest[end + len(quote) :].lstrip() if end >= 0 else ""
        return after[0] in ":=" if after else None


class _SimpleMembers:
    """Takes members without a reader that waits: as many as are simple, and strings as they arrive."""

    __slots__ = ("_calls", "_depth_limit", "_first", "_levels", "_scan", "_search", "_token", "in_string")

    def __init__(self, scan: Scanner, calls: CallWriter, levels: list[_Level], string: Lexer, syntax: Syntax) -> None:
        self._scan = scan
        self._calls = calls
        self._levels = levels
        self._depth_limit = calls.limits.json_depth
        self._search = string.any.search
        self._token = len(syntax.quote)
        self._first = (_OPENS,) if syntax.typed else (_OPENS, _QUOTES)
        """What is simple on the first level, whose other values have types, and whose end is the call's."""
        self.in_string = False

    def take(self, text: str) -> bool:
        """Take what is there, and `text` behind it. May what is left become another simple member?"""
        scan, levels = self._scan, self._levels
        if text:
            if self.in_string and scan.is_used_up and self._search(text) is None:
                self._calls.write_text(text)
                return True
            scan.push(text)
        text, at = scan.text, scan.at
        end, goes_on, written = len(text), True, ""
        while at < end:
            level = levels[-1]
            if self.in_string:
                at, piece, ends, goes_on = self._piece(text, at, level)
                written += piece
                if not ends:
                    break
                self.in_string = False
                continue
            found = level.simple.member(text, at)
            kind = found.lastindex if found is not None else None
            if found is None or kind == _IS_CUT or (len(levels) == 1 and kind not in self._first):
                goes_on = kind == _IS_CUT
                break
            if kind == _CLOSES:
                written += found[_CLOSES]
                levels.pop()
            elif kind == _WORD:
                written += level.before_simple(found[_KEY]) + found[_WORD]
            elif kind == _QUOTES:
                written += level.before_simple(found[_KEY]) + '"'
                self.in_string = True
            elif len(levels) < self._depth_limit:
                written += level.before_simple(found[_KEY]) + found[_OPENS]
                levels.append(_Level(found[_OPENS], level.all_simple))
            else:
                goes_on = False
                break
            at = found.end()
        if written:
            scan.take_to(at)
            self._calls.write(written)
        return goes_on

    def _piece(self, text: str, at: int, level: _Level) -> tuple[int, str, bool, bool]:
        """The open string as far as it is there: its end, what is written of it, whether it ends and may go on simply."""
        found = self._search(text, at)
        stop = len(text) if found is None else found.start()
        piece = quoted(text[at:stop])[1:-1] if stop > at else ""
        if found is None or found.lastindex is None:
            return stop, piece, False, True
        token = level.simple.string_end(text, stop)
        if token is None or token.lastindex is None:
            return stop, piece, False, token is not None
        return stop + self._token, piece + '"', True, True


def _closes_all(levels: list[_Level], end: str) -> bool:
    """Do the brackets of all levels stand before this end of a call?"""
    return end.startswith("".join(_CLOSERS[level.bracket] for level in reversed(levels)))


class _Level:
    """One open bracket."""

    __slots__ = ("all_simple", "bracket", "lead", "simple")

    def __init__(self, bracket: str, simple: Mapping[str, _Simple]) -> None:
        self.bracket = bracket
        self.simple = simple[bracket]
        self.all_simple = simple
        self.lead = ""
        """The comma before the next member, if there is one before it."""

    def before_simple(self, key: str | None) -> str:
        """The same, where a key is a word without anything that JSON escapes."""
        comma, self.lead = self.lead, ","
        return comma if key is None else f'{comma}"{key}":'

    def before(self, key: str | None) -> str:
        """What stands before the next member's value."""
        comma, self.lead = self.lead, ","
        return comma if key is None else f"{comma}{quoted(key)}:"
