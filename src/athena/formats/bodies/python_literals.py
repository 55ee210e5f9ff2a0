"""Python literals as JSON, without evaluating anything (`formats.md` 2.17): constants, numbers, strings with prefixes, triple
quotes and implicit joining, lists, tuples, sets and dictionaries. JSON's own words (`true`, `null`) are read too.
"""

from __future__ import annotations

import re

import msgspec

from athena.formats.bodies.json_text import quoted
from athena.formats.machine.scanner import Run

_SPACE = re.compile(r"[ \t\r\n]++|#[^\n]*+\n")
_WORD = re.compile(r"[A-Za-z_]\w*")
_NUMBER = re.compile(r"([+-]?)(0[xX][0-9a-fA-F]+|\d[\d_]*)?(?:\.(\d*))?([eE][+-]?\d+)?")
_PREFIX = re.compile(r"[rRbBuUfF]{0,2}(?='|\")")
_WORDS = {"True": "true", "False": "false", "None": "null", "true": "true", "false": "false", "null": "null"}
_ESCAPES = {
    "n": "\n", "t": "\t", "r": "\r", "b": "\b",
    "f": "\f", "v": "\v", "a": "\a", "0": "\0", "\\": "\\", "'": "'", '"': '"', "\n": "",
}  # fmt: skip
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[\s\S])")
STRINGS = {quote: Run(rf"[^{quote}\\]", r"\\[\s\S]") for quote in "'\""}
"""By the quote that ends it: the inside of a string, escapes and all."""
_DIFFERS = re.compile(r"""\"[^\"\\]*+\"|'([^'\"\\]*+)'|\b(True|False|None)\b""")
_CLOSERS = {"(": ")", "[": "]", "{": "}"}
_DEPTH_LIMIT = 100
_LAST_CHARACTER = 0x10FFFF


class _NotALiteral(Exception):
    pass


def _unescaped(found: re.Match[str]) -> str:
    written = found.group(1)
    if len(written) == 1:
        # An escape Python does not know keeps its backslash.
        return _ESCAPES.get(written, "\\" + written)
    code = int(written[1:], 16)
    return chr(code) if code <= _LAST_CHARACTER else "\\" + written


def python_to_json(text: str) -> str | None:
    """The JSON text of one Python literal; None when it is none."""
    common = _common_literal(text)
    if common is not None:
        return common
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


def _common_literal(text: str) -> str | None:
    """The same for literals that differ from JSON in their words and quotes at most: most of them, and quickly."""
    if "\\" in text:
        return None
    try:
        # Whatever else differs is no JSON, and found out here.
        return msgspec.json.format(_DIFFERS.sub(_as_json, text), indent=-1)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None


def _as_json(found: re.Match[str]) -> str:
    if found.lastindex is None:
        return found.group()
    return _WORDS[found.group(2)] if found.lastindex == 2 else f'"{found.group(1)}"'


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
        quote = self._text[self._at]
        if self._text.startswith(quote * 3, self._at):
            quote *= 3
        start = self._at + len(quote)
        end = self._end_of_string(start, quote)
        self._at = end + len(quote)
        inside = self._text[start:end]
        return inside if raw or "\\" not in inside else _ESCAPE.sub(_unescaped, inside)

    def _end_of_string(self, at: int, quote: str) -> int:
        """Where the closing quote of the string stands whose inside begins at `at`."""
        run = STRINGS[quote[0]]
        while True:
            at = run.end(self._text, at)
            if self._text.startswith(quote, at):
                return at
            if not self._text.startswith(quote[0], at):
                raise _NotALiteral
            # Fewer than three quotes do not end a string that began with three.
            at += 1

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
        """White space and comments."""
        while self._next() in " \t\r\n#":
            found = _SPACE.match(self._text, self._at)
            if found is None:
                return
            self._at = found.end()
