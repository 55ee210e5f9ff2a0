"""JSON that passes through as it arrives, and its near relatives turned into JSON on the way (`formats.md` 1.4).

`JsonPipe` is fed text and writes JSON text. Strict JSON comes out byte for byte. In lenient mode the slips models make are put
right where they stand: single quotes, Python's `True`/`False`/`None`, trailing commas, bare keys, raw control characters and
unknown escapes in strings, comments, doubled braces. Because a comma is held until something follows it, what was written is at
every moment the beginning of a valid value: nothing ever has to be taken back.
"""

from __future__ import annotations

import json
import re
from json.encoder import encode_basestring

import msgspec

_SPACE = re.compile(r"[ \t\r\n]+")
# Possessive, so linear although it repeats a repeat: what was matched is never tried again.
_IN_STRING = r"""(?:[^"\\\x00-\x1f]++|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})++"""
_PLAIN = re.compile(_IN_STRING)
leaves_string = re.compile(rf"(?!{_IN_STRING}\Z)").match
"""Finds something where a piece of an open string is more than plain text and whole escapes."""
_PLAIN_SINGLE = re.compile(r"[^'\"\\\x00-\x1f]+")
_BARE = re.compile(r"[^\s,:{}\[\]\"'<>()|`/]+")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_IDENTIFIER = re.compile(r"[A-Za-z_$][\w$.-]*")
_HEX = re.compile(r"[0-9a-fA-F]{4}")
_COMMENT = re.compile(r"//[^\n]*\n|/\*[\s\S]*?\*/")

_PYTHON = {"True": "true", "False": "false", "None": "null"}
_WORDS = frozenset({"true", "false", "null"})
_BARE_LIMIT = 8192

# What the pipe waits for.
_VALUE, _FIRST_ITEM, _ITEM, _FIRST_KEY, _KEY, _COLON, _AFTER, _SECOND_BRACE = range(8)


class JsonPipe:
    """One JSON value. `done` when it ended, `stuck` when the next character can not belong to it."""

    __slots__ = (
        "_comma", "_depth_limit", "_double", "_in_key", "_lenient", "_quote", "_stack", "_state", "done", "repairs", "stuck",
        "too_deep",
    )  # fmt: skip

    def __init__(self, *, lenient: bool = True, depth_limit: int = 512) -> None:
        self.done = False
        self.stuck = False
        self.too_deep = False
        self.repairs = 0
        self._lenient = lenient
        self._depth_limit = depth_limit
        self._stack: list[str] = []
        self._state = _VALUE
        self._quote = ""
        self._in_key = False
        self._comma = ""
        self._double = False

    @property
    def in_string(self) -> bool:
        """Is a string of JSON's own kind open?"""
        return self._quote == '"'

    def feed(self, text: str, at: int, final: bool, out: list[str]) -> int:
        """Read from `at`, write to `out`; the answer is where the unread text begins."""
        end = len(text)
        while at < end and not self.done and not self.stuck:
            before = at
            at = self._string(text, at, final, out) if self._quote else self._token(text, at, final, out)
            if at == before and not self.done:
                # Undecided: a token at the end of what has arrived.
                break
        return at

    def close_open(self, out: list[str]) -> bool:
        """Write the missing closing brackets, where nothing else is missing; False when more is."""
        if self._quote or not self._lenient or self._state not in (_AFTER, _FIRST_KEY, _FIRST_ITEM, _KEY, _ITEM):
            return False
        if not self._stack:
            return False
        self.repairs += 1
        self._comma = ""
        while self._stack:
            out.append("}" if self._stack.pop() == "{" else "]")
        self.done = True
        return True

    # -- outside strings -----------------------------------------------------------------------------------------------------

    def _token(self, text: str, at: int, final: bool, out: list[str]) -> int:
        character = text[at]
        if character in " \t\r\n":
            found = _SPACE.match(text, at)
            stop = found.end() if found is not None else at + 1
            if self._comma:
                self._comma += text[at:stop]
            else:
                out.append(text[at:stop])
            return stop
        state = self._state
        if character == "/" and self._lenient:
            return self._comment(text, at, final)
        if state == _AFTER:
            return self._after(character, at, out)
        if state == _COLON:
            if character != ":":
                return self._stop(at)
            out.append(":")
            self._state = _VALUE
            return at + 1
        if state in (_FIRST_KEY, _KEY):
            return self._key(text, at, final, out)
        if state == _SECOND_BRACE:
            # The text had its braces doubled: the second closing one belongs to the first opening one.
            self.done = True
            return at + 1 if character == "}" else at
        return self._value(text, at, final, out)

    def _after(self, character: str, at: int, out: list[str]) -> int:
        if character == ",":
            self._comma = ","
            self._state = _KEY if self._stack[-1] == "{" else _ITEM
            return at + 1
        if character in "}]":
            return self._close(character, at, out)
        return self._stop(at)

    def _close(self, character: str, at: int, out: list[str]) -> int:
        if self._stack[-1] != ("{" if character == "}" else "["):
            return self._stop(at)
        if self._comma:
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
        if character == '"':
            return self._open_string(character, at, out, key=True)
        if character == "}":
            return self._close(character, at, out)
        if not self._lenient:
            return self._stop(at)
        if character == "'":
            self.repairs += 1
            return self._open_string(character, at, out, key=True)
        if character == "{" and self._state == _FIRST_KEY and len(self._stack) == 1 and not self._double:
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
        self._state = _COLON
        return stop

    def _value(self, text: str, at: int, final: bool, out: list[str]) -> int:
        character = text[at]
        if character == '"':
            return self._open_string(character, at, out, key=False)
        if character in "{[":
            self._write(character, out)
            self._stack.append(character)
            self._state = _FIRST_KEY if character == "{" else _FIRST_ITEM
            if len(self._stack) > self._depth_limit:
                self.too_deep = True
                return self._stop(at)
            return at + 1
        if character == "]" and self._state in (_FIRST_ITEM, _ITEM):
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
        if stop == len(text) and not final and stop - at < _BARE_LIMIT:
            return None
        return stop

    def _comment(self, text: str, at: int, final: bool) -> int:
        found = _COMMENT.match(text, at)
        if found is not None:
            self.repairs += 1
            return found.end()
        if not final and text[at : at + 2] in ("/", "//", "/*") and len(text) - at < _BARE_LIMIT:
            return at
        return self._stop(at)

    def _open_string(self, quote: str, at: int, out: list[str], *, key: bool) -> int:
        self._write('"', out)
        self._quote = quote
        self._in_key = key
        return at + 1

    def _write(self, text: str, out: list[str]) -> None:
        if self._comma:
            out.append(self._comma)
            self._comma = ""
        out.append(text)

    def _ended(self) -> None:
        if self._stack:
            self._state = _AFTER
        elif self._double:
            self._state = _SECOND_BRACE
        else:
            self.done = True

    def _stop(self, at: int) -> int:
        self.stuck = True
        return at

    # -- inside strings ------------------------------------------------------------------------------------------------------

    def _string(self, text: str, at: int, final: bool, out: list[str]) -> int:
        single = self._quote == "'"
        found = (_PLAIN_SINGLE if single else _PLAIN).match(text, at)
        if found is not None:
            out.append(found.group())
            at = found.end()
            if at == len(text):
                return at
        character = text[at]
        if character == self._quote:
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
        if self._quote == "'":
            # O'Reilly: a single quote ends the string only where the value may end.
            found = _SPACE.match(text, at + 1)
            after = found.end() if found is not None else at + 1
            if after >= len(text) and not final:
                return at
            if after < len(text) and text[after] not in ",:}]":
                out.append("'")
                return at + 1
        out.append('"')
        self._quote = ""
        if self._in_key:
            self._state = _COLON
        else:
            self._ended()
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
    try:
        return msgspec.json.encode(text).decode()
    except UnicodeEncodeError:
        # A lone surrogate can only be written escaped.
        return json.dumps(text)
