"""JSON that passes through as it arrives, and its near relatives turned into JSON on the way
(docs/reference/format-notes.md#json-bodies).

`JsonPipe` is fed text and writes JSON text. Strict JSON comes out byte for byte. In lenient mode the slips models make are put
right where they stand: single quotes, Python's `True`/`False`/`None`, trailing commas, bare keys, raw control characters and
unknown escapes in strings, comments, doubled braces. Because a comma is held until something follows it, what was written is at
every moment the beginning of a valid value: nothing ever has to be taken back.
"""

from __future__ import annotations

import re
from json.encoder import encode_basestring

from athena.formats.bodies.json_tokens import (
    AFTER_ITEM,
    AFTER_MEMBER,
    AFTER_TOP,
    BEGINS,
    COLON,
    FIRST_ITEM,
    FIRST_KEY,
    IN_MEMBER,
    INSIDE,
    ITEM,
    KEY,
    MEMBER,
    MORE,
    MORE_ITEMS,
    MORE_MEMBERS,
    NOTHING,
    NUMBER,
    NUMBER_LIMIT,
    OPENS,
    QUOTE,
    ROWS,
    SCALAR,
    SCALAR_CHARACTERS,
    SPACE,
    STRING,
    TOP,
    WIDE,
)  # fmt: skip
from athena.formats.machine.scanner import Run
from athena.wire.surrogates import lossless_json

_SINGLE = Run(r"[^'\"\\\x00-\x1f]")
_BLANKS = re.compile(r"[ \t\r\n]{0,64}+")
_BARE_LIMIT = NUMBER_LIMIT
"""Comments may be as long as this and bare words must be shorter, whether they come whole or in pieces."""
_BARE = re.compile(rf"[^\s,:{{}}\[\]\"'<>()|`/]{{1,{_BARE_LIMIT}}}")
_NUMBER = re.compile(NUMBER)
_IDENTIFIER = re.compile(r"[A-Za-z_$][\w$.-]*")
_HEX = re.compile(r"[0-9a-fA-F]{4}")
_COMMENT = re.compile(rf"//[^\n]{{0,{_BARE_LIMIT}}}\n|/\*[\s\S]{{0,{_BARE_LIMIT}}}?\*/")

_MANY = 64
"""With so much text it pays to look for whole values, and for many members at once."""

_MAY_FOLLOW_COMMA = SPACE + ","
_PYTHON = {"True": "true", "False": "false", "None": "null"}
_WORDS = frozenset({"true", "false", "null"})


class JsonPipe:
    """One JSON value. `done` when it ended, `stuck` when the next character cannot belong to it."""

    __slots__ = (
        "_after", "_comma", "_depth_limit", "_double", "_lenient", "_stack", "_state", "_undecided", "done", "quote",
        "repairs", "stuck", "too_deep",
    )  # fmt: skip

    def __init__(self, *, lenient: bool = True, depth_limit: int = 512) -> None:
        self.done = False
        self.stuck = False
        self.too_deep = False
        self.repairs = 0
        self._lenient = lenient
        self._depth_limit = depth_limit
        self._stack: list[str] = []
        self._state = TOP
        self.quote = ""
        """The quote character of the open string; empty outside of strings."""
        self._after = AFTER_TOP
        """Where the end of the open string leads."""
        self._comma = ""
        """A comma and the white space behind it, held until something follows."""
        self._double = False
        self._undecided = False
        """What has arrived ends in a number or a word that may go on."""

    def feed(self, text: str, at: int, final: bool, out: list[str]) -> int:
        """Read from `at`, write to `out`; the answer is where the unread text begins."""
        if self.done or self.stuck:
            return at
        at = self._strict(text, at, out)
        end = len(text)
        while at < end and not self.done and not self.stuck and (final or not self._undecided):
            before = at
            at = self._string(text, at, final, out) if self.quote else self._odd_token(text, at, final, out)
            if at == before or self.done or self.stuck:
                # Undecided: a token at the end of what has arrived.
                break
            at = self._strict(text, at, out)
        return at

    @property
    def depth(self) -> int:
        """How many brackets are open."""
        return len(self._stack) + self._double

    def close_open(self, out: list[str]) -> bool:
        """Write the missing closing brackets, where nothing else is missing; False when more is."""
        if self.quote or not self._lenient or self._state in (TOP, MEMBER, COLON, NOTHING):
            return False
        if not self._stack:
            return False
        self.repairs += 1
        self._comma = ""
        while self._stack:
            out.append("}" if self._stack.pop() == "{" else "]")
        self.done = True
        return True

    # -- strict JSON ---------------------------------------------------------------------------------------------------------

    def _strict(self, text: str, at: int, out: list[str]) -> int:
        """Strict JSON as far as it goes, written as it is. A comma at its end is held, with the white space behind it."""
        start, end, state = at, len(text), self._state
        if self.quote:
            at = self._rest_of_string(text, at)
            state = self._state
            if self.quote or self.done:
                end = at
        rows = ROWS if end - at <= _MANY else WIDE
        while at < end:
            step = rows[state].get(text[at])
            if step is None:
                break
            if step < OPENS:
                state = step
                at += 1
            elif step >= QUOTE:
                self.quote = '"'
                self._after = step - QUOTE
                at = self._rest_of_string(text, at + 1)
                if self.quote or self.done:
                    break
                state = self._state
            elif step < MORE:
                state = self._bracket(step, text[at])
                if self.stuck:
                    break
                at += 1
                if self.done or not self._stack:
                    break
            else:
                found = self._whole_values(step, state, text, at) if end - at > _MANY else None
                if found is not None:
                    at = found.end()
                    state = self._behind()
                elif step == BEGINS and end - at > _MANY:
                    break
                else:
                    state = ROWS[state][text[at]]
                    at += 1
        if state >= INSIDE:
            # Not over, or nothing that strict JSON has: it is read again from its beginning.
            self._undecided = at == end
            at = start + len(text[start:at].rstrip(SCALAR_CHARACTERS))
            state = MEMBER if state >= IN_MEMBER else ITEM
        else:
            self._undecided = False
        self._state = state
        self._pass(text[start:at], out)
        return at

    def _whole_values(self, step: int, state: int, text: str, at: int) -> re.Match[str] | None:
        """A number or a word, or as many items or members behind a comma as are simple, where much text is there."""
        if step == BEGINS:
            return SCALAR(text, at)
        return (MORE_MEMBERS if state == AFTER_MEMBER else MORE_ITEMS)(text, at)

    def _bracket(self, step: int, bracket: str) -> int:
        """Where an opening or a closing bracket leads."""
        if step == OPENS:
            if len(self._stack) >= self._depth_limit:
                self.too_deep = self.stuck = True
                return self._state
            self._stack.append(bracket)
            return FIRST_KEY if bracket == "{" else FIRST_ITEM
        self._stack.pop()
        self._ended()
        return self._state

    def _pass(self, piece: str, out: list[str]) -> None:
        """Write strict JSON, but not yet a comma that it ends with."""
        if not piece:
            return
        if piece[-1] in _MAY_FOLLOW_COMMA and not self.quote:
            stripped = piece.rstrip(SPACE)
            if stripped[-1:] == ",":
                if len(stripped) > 1:
                    self._write(stripped[:-1], out)
                self._comma = piece[len(stripped) - 1 :]
                return
            if not stripped and self._comma:
                self._comma += piece
                return
        self._write(piece, out)

    def _rest_of_string(self, text: str, at: int) -> int:
        """Behind an opening quote: strict text, and the closing quote if it stands there."""
        if self.quote != '"':
            return at
        at = STRING.end(text, at)
        if at < len(text) and text[at] == '"':
            self.quote = ""
            self._string_ended()
            return at + 1
        return at

    # -- slips outside strings -----------------------------------------------------------------------------------------------

    def _odd_token(self, text: str, at: int, final: bool, out: list[str]) -> int:
        """A token that may go on, or one that strict JSON does not have."""
        character = text[at]
        state = self._state
        if character == "/" and self._lenient:
            return self._comment(text, at, final)
        if state in (FIRST_KEY, KEY):
            return self._key(text, at, final, out)
        if state in (TOP, MEMBER, FIRST_ITEM, ITEM):
            return self._value(text, at, final, out)
        if state == NOTHING:
            # The text had its braces doubled: the second closing one belongs to the first opening one.
            self.done = True
            return at + 1 if character == "}" else at
        return self._stop(at)

    def _close(self, character: str, at: int, out: list[str]) -> int:
        """Read a closing bracket; a comma before it was trailing and is dropped."""
        if not self._lenient:
            return self._stop(at)
        self.repairs += 1
        out.append(self._comma[1:])
        self._comma = ""
        self._stack.pop()
        out.append(character)
        self._ended()
        return at + 1

    def _key(self, text: str, at: int, final: bool, out: list[str]) -> int:
        character = text[at]
        if character == "}":
            return self._close(character, at, out)
        if not self._lenient:
            return self._stop(at)
        if character == "'":
            self.repairs += 1
            return self._open_string(character, at, out, key=True)
        if character == "{" and self._state == FIRST_KEY and len(self._stack) == 1 and not self._double:
            self.repairs += 1
            self._double = True
            return at + 1
        stop = self._bare_end(text, at, final)
        if stop is None:
            return at
        if not _IDENTIFIER.fullmatch(text, at, stop):
            return self._stop(at)
        self.repairs += 1
        self._write(f'"{text[at:stop]}"', out)
        self._state = COLON
        return stop

    def _value(self, text: str, at: int, final: bool, out: list[str]) -> int:
        character = text[at]
        if character == "]" and self._state == ITEM:
            return self._close(character, at, out)
        if character == "'" and self._lenient:
            self.repairs += 1
            return self._open_string(character, at, out, key=False)
        stop = self._bare_end(text, at, final)
        if stop is None:
            return at
        word = text[at:stop]
        if word not in _WORDS and not _NUMBER.fullmatch(word):
            if not self._lenient or word not in _PYTHON:
                return self._stop(at)
            word = _PYTHON[word]
            self.repairs += 1
        self._write(word, out)
        self._ended()
        return stop

    def _bare_end(self, text: str, at: int, final: bool) -> int | None:
        """Where a bare word ends; None when more of it may come."""
        found = _BARE.match(text, at)
        if found is None:
            return at
        stop = found.end()
        if stop - at == _BARE_LIMIT:
            return at
        return None if stop == len(text) and not final else stop

    def _comment(self, text: str, at: int, final: bool) -> int:
        found = _COMMENT.match(text, at)
        if found is not None:
            self.repairs += 1
            return found.end()
        if not final and text[at : at + 2] in ("/", "//", "/*") and len(text) - at < _BARE_LIMIT + len("/**/"):
            return at
        return self._stop(at)

    def _open_string(self, quote: str, at: int, out: list[str], *, key: bool) -> int:
        self._write('"', out)
        self.quote = quote
        self._after = COLON if key else self._behind()
        return at + 1

    def _write(self, text: str, out: list[str]) -> None:
        if self._comma:
            out.append(self._comma)
            self._comma = ""
        out.append(text)

    def _behind(self) -> int:
        """Where the end of a value leads."""
        if not self._stack:
            return AFTER_TOP
        return AFTER_MEMBER if self._stack[-1] == "{" else AFTER_ITEM

    def _ended(self) -> None:
        self._state = self._behind()
        if not self._stack:
            if self._double:
                self._state = NOTHING
            else:
                self.done = True

    def _string_ended(self) -> None:
        if self._after == COLON:
            self._state = COLON
        else:
            self._ended()

    def _stop(self, at: int) -> int:
        self.stuck = True
        return at

    # -- inside strings ------------------------------------------------------------------------------------------------------

    def _string(self, text: str, at: int, final: bool, out: list[str]) -> int:
        stop = (_SINGLE if self.quote == "'" else STRING).end(text, at)
        if stop > at:
            out.append(text[at:stop])
            at = stop
            if at == len(text):
                return at
        character = text[at]
        if character == self.quote:
            return self._close_string(text, at, final, out)
        if character == "\\":
            return self._escape(text, at, final, out)
        if not self._lenient:
            return self._stop(at)
        if character != '"':
            self.repairs += 1
        out.append(quoted(character)[1:-1])
        return at + 1

    def _close_string(self, text: str, at: int, final: bool, out: list[str]) -> int:
        if self.quote == "'":
            # O'Reilly: a single quote ends the string only where the value may end.
            after = _end_of_blanks(text, at + 1)
            if after >= len(text) and not final:
                return at
            if after < len(text) and text[after] not in ",:}]":
                out.append("'")
                return at + 1
        out.append('"')
        self.quote = ""
        self._string_ended()
        return at + 1

    def _escape(self, text: str, at: int, final: bool, out: list[str]) -> int:
        if at + 1 >= len(text):
            return at
        character = text[at + 1]
        if character == "u":
            if len(text) - at < 6 and not final:
                return at
            if _HEX.match(text, at + 2):
                out.append(text[at : at + 6])
                return at + 6
        elif character in '"\\/bfnrt':
            out.append(text[at : at + 2])
            return at + 2
        if not self._lenient:
            return self._stop(at)
        self.repairs += 1
        if character == "'":
            out.append("'")
            return at + 2
        out.append("\\\\")
        return at + 1


def _end_of_blanks(text: str, at: int) -> int:
    found = _BLANKS.match(text, at)
    return found.end() if found is not None else at


def strict_json(text: str) -> str | None:
    """A whole text that is nearly one JSON value, as JSON; None when it is not even nearly."""
    pipe = JsonPipe()
    out: list[str] = []
    at = pipe.feed(text, 0, True, out)
    if not pipe.done or text[at:].strip():
        return None
    return "".join(out)


def quoted(text: str) -> str:
    """A JSON string literal."""
    if text.isascii():
        return encode_basestring(text)
    return lossless_json(text).decode()
