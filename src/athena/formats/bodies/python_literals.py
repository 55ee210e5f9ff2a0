"""Python literals as JSON, without evaluating anything (`formats.md` 2.17): constants, numbers, strings with prefixes, triple
quotes and implicit joining, lists, tuples, sets and dictionaries. JSON's own words (`true`, `null`) are read too.
"""

from __future__ import annotations

import re

from athena.formats.bodies.json_text import quoted

_SPACE = re.compile(r"(?:[ \t\r\n]|#[^\n]*\n)*")
_WORD = re.compile(r"[A-Za-z_]\w*")
_NUMBER = re.compile(r"([+-]?)(0[xX][0-9a-fA-F]+|\d[\d_]*)?(?:\.(\d*))?([eE][+-]?\d+)?")
_PREFIX = re.compile(r"[rRbBuUfF]{0,2}(?='|\")")
_WORDS = {"True": "true", "False": "false", "None": "null", "true": "true", "false": "false", "null": "null"}
_ESCAPES = {
    "n": "\n", "t": "\t", "r": "\r", "b": "\b",
    "f": "\f", "v": "\v", "a": "\a", "0": "\0", "\\": "\\", "'": "'", '"': '"', "\n": "",
}  # fmt: skip
_HEX_ESCAPES = {"x": 2, "u": 4, "U": 8}
_CLOSERS = {"(": ")", "[": "]", "{": "}"}
_DEPTH_LIMIT = 100


class _NotALiteral(Exception):
    pass


def python_to_json(text: str) -> str | None:
    """The JSON text of one Python literal; None when it is none."""
    reader = _Reader(text)
    try:
        value = reader.value(0)
    except _NotALiteral:
        return None
    return value if reader.at_end() else None


def python_string(text: str) -> str | None:
    """The value of one Python string literal (or several that are joined); None when it is none."""
    reader = _Reader(text)
    try:
        value = reader.strings()
    except _NotALiteral:
        return None
    return value if reader.at_end() else None


class _Reader:
    __slots__ = ("_at", "_text")

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def at_end(self) -> bool:
        self._space()
        return self._at >= len(self._text)

    def value(self, depth: int) -> str:
        if depth > _DEPTH_LIMIT:
            raise _NotALiteral
        self._space()
        character = self._next()
        if character in _CLOSERS:
            return self._container(character, depth)
        if character in "'\"" or _PREFIX.match(self._text, self._at):
            return quoted(self.strings())
        word = _WORD.match(self._text, self._at)
        if word is not None:
            self._at = word.end()
            if word.group() not in _WORDS:
                raise _NotALiteral
            return _WORDS[word.group()]
        return self._number()

    def strings(self) -> str:
        pieces: list[str] = []
        while True:
            self._space()
            prefix = _PREFIX.match(self._text, self._at)
            if prefix is None:
                if not pieces:
                    raise _NotALiteral
                return "".join(pieces)
            self._at = prefix.end()
            pieces.append(self._string(raw="r" in prefix.group().lower()))

    def _container(self, opener: str, depth: int) -> str:
        self._at += 1
        closer = _CLOSERS[opener]
        items: list[str] = []
        keyed: bool | None = None
        commas = 0
        while True:
            self._space()
            if self._next() == closer:
                self._at += 1
                break
            item = self.value(depth + 1)
            self._space()
            if opener == "{":
                has_value = self._next() == ":"
                if keyed is not None and keyed != has_value:
                    raise _NotALiteral
                keyed = has_value
                if has_value:
                    self._at += 1
                    key = item if item.startswith('"') else quoted(item)
                    item = f"{key}:{self.value(depth + 1)}"
                    self._space()
            items.append(item)
            if self._next() == ",":
                self._at += 1
                commas += 1
            elif self._next() != closer:
                raise _NotALiteral
        if opener == "(" and len(items) == 1 and not commas:
            return items[0]
        if opener == "{" and keyed is not False:
            return "{" + ",".join(items) + "}"
        return "[" + ",".join(items) + "]"

    def _string(self, *, raw: bool) -> str:
        text = self._text
        quote = text[self._at]
        if text.startswith(quote * 3, self._at):
            quote *= 3
        self._at += len(quote)
        pieces: list[str] = []
        while True:
            if self._at >= len(text):
                raise _NotALiteral
            if text.startswith(quote, self._at):
                self._at += len(quote)
                return "".join(pieces)
            character = text[self._at]
            if character == "\\" and self._at + 1 < len(text):
                pieces.append(text[self._at : self._at + 2] if raw else self._escape())
                if raw:
                    self._at += 2
            else:
                stop = self._at + 1
                while stop < len(text) and text[stop] not in "\\'\"":
                    stop += 1
                pieces.append(text[self._at : stop])
                self._at = stop

    def _escape(self) -> str:
        text = self._text
        character = text[self._at + 1]
        self._at += 2
        if character in _HEX_ESCAPES:
            digits = text[self._at : self._at + _HEX_ESCAPES[character]]
            try:
                value = chr(int(digits, 16))
            except (ValueError, OverflowError):
                return "\\" + character
            self._at += _HEX_ESCAPES[character]
            return value
        # An escape Python does not know keeps its backslash.
        return _ESCAPES.get(character, "\\" + character)

    def _number(self) -> str:
        found = _NUMBER.match(self._text, self._at)
        if found is None or found.end() == self._at:
            raise _NotALiteral
        sign, whole, fraction, exponent = found.groups()
        if not whole and not fraction:
            raise _NotALiteral
        self._at = found.end()
        minus = "-" if sign == "-" else ""
        if whole and whole[:2] in ("0x", "0X"):
            return f"{minus}{int(whole[2:18], 16)}"
        digits = (whole or "0").replace("_", "").lstrip("0") or "0"
        return minus + digits + ((f".{fraction or '0'}") if fraction is not None else "") + (exponent or "")

    def _next(self) -> str:
        return self._text[self._at] if self._at < len(self._text) else "\x00"

    def _space(self) -> None:
        found = _SPACE.match(self._text, self._at)
        if found is not None:
            self._at = found.end()
