"""The words of a recording and those that take their places.

Every word becomes another one of the same length and kind: letters for letters, digits for digits, drawn with a key that is
thrown away, the same for the same word everywhere. What has to be recognised stays: the names of tools and of their parameters,
the markers of text formats, and in some places the words of the APIs themselves.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import tomllib
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib import resources
from typing import Any

import msgspec

from athena.formats import all_formats
from athena.model.request import Request
from athena.recording.lines import Recording
from athena.typed_values import reader

_WORD = (
    rb"\\+u[0-9A-Fa-f]{4}"  # a letter as an escape
    rb"|\\+x[0-9A-Fa-f]{2}"  # as Python writes it
    rb"|\\+."  # any other escape: its letter is no word
    rb"|&(?:lt|gt|amp|quot|apos);|&#(?:(?P<decimal>[0-9]{1,7})|[xX](?P<hexadecimal>[0-9A-Fa-f]{1,6}));"
    rb"|(?P<type>\bdata:[a-z]{1,20}\\?/[a-z0-9.+-]{1,80};base64\b)"
    rb"|(?P<mail>[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,6})"
    rb"|[A-Za-z0-9]+"
    rb"|[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}"
    rb"|[\x80-\xff]"
)
_PLAIN = re.compile(r"[A-Za-z0-9]+")
_PARTS = re.compile(rb"[A-Za-z0-9]+")
_BETWEEN = rb"(?:\\+[nrtx]|[^A-Za-z0-9]){1,6}"
_NUMBER_BEFORE = re.compile(rb"[0-9][A-Za-z]?" + _BETWEEN + rb"\Z")
_NUMBER_BEHIND = re.compile(_BETWEEN + rb"[A-Za-z]?[0-9]")
_CUT = 3
_MARKER_ENDS = b">", b"]", b"|"
"""Letters at the end of a text, behind one of these, that may be those of a marker which was cut off."""
_NEAR = 16
"""Bytes before a number in which another one may end."""
_POWER = re.compile(rb"[0-9]+(?P<power>[eE][0-9]{0,3})")
"""A number with an exponent, or what of one stands before the exponent's sign."""
_POWER_BEFORE = re.compile(rb"[0-9][eE][+-]\Z")
_NUMBER = re.compile(rb"-?(?P<whole>[0-9]+)(?:\.(?P<part>[0-9]+))?(?P<power>[eE][0-9+-]+)?")
_DATE = re.compile(r"20[0-9]{2}[01][0-9][0-3][0-9]")
_FIRST_LETTERS = b"bhjkqvwxyz"
"""No marker of a text format begins with one of these: a drawn word is never held because it might be one."""
_LETTERS = b"bcdfghjklmnpqrstvwxyz"
"""No vowels: a drawn word is none that means anything, and no number."""
_FILLERS = {2: "é".encode(), 3: "一".encode(), 4: "😀".encode()}
_BYTE_KINDS = b"\x80\x90\xa0\xc0\xc2\xe0\xe1\xed\xee\xf0\xf1\xf4\xf5"
"""Where the kinds of bytes begin that are no UTF-8 at their place: those of one kind are read as as many odd characters."""


class _Vocabulary(msgspec.Struct):
    """`vocabulary.toml`: the words of the APIs and of text formats, as our own code knows them."""

    api: str
    markers: str
    letters: str


_read_vocabulary = reader(_Vocabulary)


@lru_cache(maxsize=1)
def _known_words() -> tuple[frozenset[bytes], frozenset[bytes], frozenset[bytes]]:
    text = resources.files(__package__).joinpath("vocabulary.toml").read_text("utf-8")
    known = _read_vocabulary(tomllib.loads(text))
    return (
        frozenset(known.api.encode().split()),
        frozenset(known.markers.encode().split()),
        frozenset(letter.encode() for letter in known.letters),
    )


@lru_cache(maxsize=1)
def _any_word() -> re.Pattern[bytes]:
    """Any word, and before it what is kept as a whole: the markers with words in them that are kept nowhere else."""
    known = _known_words()[1]
    markers = {
        marker.encode()
        for each in all_formats()
        for marker in (*each.turn_ends, *(half for pair in (*each.thinking, *each.answer) for half in pair))
        if not known.issuperset(_PARTS.findall(marker.encode()))
    }
    # A parameter may be called as the end of a turn is: its element begins as it ends.
    markers |= {marker.replace(b"</", b"<", 1) for marker in markers}
    whole = b"|".join(re.escape(marker) for marker in sorted(markers, key=len, reverse=True))
    return re.compile(b"(?P<marker>" + whole + b")|" + _WORD, re.DOTALL)


def kept_words(recording: Recording, request: Request | None) -> tuple[frozenset[bytes], frozenset[bytes]]:
    """The words that stay in any text, and the foreign letters."""
    _, markers, letters = _known_words()
    names: set[str] = set()
    for tool in request.tools if request is not None else ():
        names.add(tool.name)
        names.update(_schema_names(tool.schema))
    for target in recording.settings.targets:
        # Formats of the operator's own, and other markers for known ones.
        markers |= {word.encode() for word in _PLAIN.findall(msgspec.json.encode(target.route.get("format", {})).decode())}
    kept = {word.encode() for name in names for word in _PLAIN.findall(name) if not _is_code(word)}
    return frozenset(kept) | markers | {b"true", b"false", b"null", b"True", b"False", b"None", b"functions"}, letters


def _is_code(word: str) -> bool:
    """Is this rather a key, a number or an id than a word of a name?"""
    digits = sum(map(str.isdigit, word))
    return (digits >= 6 or (digits >= 3 and len(word) >= 8) or (digits >= 2 and len(word) >= 12)) and not _DATE.fullmatch(word)


def _schema_names(schema: Any, depth: int = 0) -> Iterator[str]:
    if depth > 40:
        return
    if isinstance(schema, Mapping):
        for name, inner in schema.items():
            if name == "properties" and isinstance(inner, Mapping):
                yield from (str(key) for key in inner)
            yield from _schema_names(inner, depth + 1)
    elif isinstance(schema, list | tuple):
        for inner in schema:
            yield from _schema_names(inner, depth + 1)


class Words:
    """Replaces words, each by another of its length and kind, the same one for the same word."""

    def __init__(self, key: bytes, kept: frozenset[bytes], letters: frozenset[bytes]) -> None:
        self._key = key
        self._kept = kept
        self._structural = kept | _known_words()[0]
        self._letters = letters
        self._known: dict[bytes, bytes] = {}
        alphabet = bytes(range(0x61, 0x7B))
        self._single = bytes(sorted(alphabet, key=lambda letter: hmac.digest(key, chr(letter).encode(), "sha256")))
        """What takes the place of each letter that is a word: another one for each, for there are few, and they name things."""

    def text(self, data: bytes, *, structural: bool = False) -> bytes:
        """The text with its words replaced; as many bytes as before."""
        kept = self._structural if structural else self._kept
        return _any_word().sub(lambda found: self._replaced(found, kept), data)

    def plain(self, text: str, *, structural: bool = False) -> str:
        """A text as `text` gives it for bytes."""
        return self.text(text.encode("utf-8", "replace"), structural=structural).decode("utf-8", "replace")

    def name(self, name: str) -> str:
        """The name of a model, a program or an upstream, without what is rather a key or somebody's address."""
        if "@" in name:
            return self.plain(name)
        return _PLAIN.sub(
            lambda found: self._put(found.group().encode()).decode() if _is_code(found.group()) else found.group(), name
        )

    def is_known(self, text: str) -> bool:
        """Are all words of it those of the APIs, or small numbers?"""
        words = _PARTS.findall(text.encode("utf-8", "replace"))
        return text.isascii() and all(word in self._structural or (len(word) <= 2 and word.isdigit()) for word in words)

    def number(self, written: bytes, *, is_listed: bool) -> bytes:
        """Another number of as many digits. One of two digits stays, unless it is listed: bytes are letters of a text."""
        found = _NUMBER.fullmatch(written)
        if found is None or (not is_listed and not found["part"] and len(found["whole"]) <= 2):
            return written
        drawn = (self._number(found, b"%d" % salt if salt else b"") for salt in range(64))
        return next((made for made in drawn if _is_alike(written, made)), self._number(found, b""))

    def _number(self, found: re.Match[bytes], salt: bytes) -> bytes:
        whole, part = found["whole"], found["part"] or b""
        digits = part.strip(b"0")
        fresh = part.replace(digits, self._put(digits, salt)) if digits else part
        return (
            found.string[: found.start("whole")]
            + self._put(whole, salt)
            + (b"." + fresh if part else b"")
            + (found["power"] or b"")
        )

    def id(self, text: str) -> str:
        """The made-up id that takes the place of this one."""
        return hmac.digest(self._key, text.encode("utf-8", "replace"), "sha256").hex()[:16] if text else ""

    def _replaced(self, found: re.Match[bytes], kept: frozenset[bytes]) -> bytes:
        word = found.group()
        first = word[0]
        if found.lastgroup == "marker":
            return word
        if first == 0x5C:
            return self._escape(word)
        if first >= 0x80:
            if len(word) == 1:
                return b"%c" % _BYTE_KINDS[bisect_right(_BYTE_KINDS, first) - 1]
            return word if word in self._letters else _FILLERS[len(word)]
        if first == 0x26:
            return self._entity(found)
        if word.isdigit():
            # Several numbers side by side may be one: of a telephone, a machine, of letters.
            start, end = found.span()
            text = found.string
            before = text[max(0, start - _NEAR) : start]
            is_small = len(word) <= 2 or word in kept
            is_alone = is_small and not _NUMBER_BEHIND.match(text, end) and not _NUMBER_BEFORE.search(before)
            return word if is_alone or (len(word) <= 3 and _POWER_BEFORE.search(before)) else self._put(word)
        is_cut = len(word) <= _CUT and found.end() == len(found.string)
        if word in kept or (is_cut and found.string[: found.start()].endswith(_MARKER_ENDS) and _begins_marker(word)):
            return word
        if found.lastgroup == "mail":
            return _PARTS.sub(lambda part: self._put(part.group()), word)
        if found.lastgroup == "type":
            return _PARTS.sub(lambda part: part.group() if part.group() in self._structural else self._put(part.group()), word)
        return self._put(word)

    def _entity(self, found: re.Match[bytes]) -> bytes:
        """A letter as XML may write it, as another one that is as long, written and read."""
        if found.lastgroup is None:
            return found.group()
        digits = found[found.lastgroup]
        point = int(digits, 10 if found.lastgroup == "decimal" else 16)
        if (point < 0x80 and not chr(point).isalnum()) or 0xD800 <= point < 0xE000 or point > 0x10FFFF:
            return found.group()
        wanted = len(chr(point).encode())
        for letter in "xXéऄ\U00010300":
            written = (f"{ord(letter)}" if found.lastgroup == "decimal" else f"{ord(letter):x}").zfill(len(digits)).encode()
            if len(letter.encode()) == wanted and len(written) == len(digits):
                return found.group().replace(digits, written)
        return found.group()

    def _put(self, word: bytes, salt: bytes = b"") -> bytes:
        """The word that takes the place of this one."""
        found = self._known.get(salt + b" " + word)
        if found is None:
            found = self._known[salt + b" " + word] = self._drawn(word, salt)
        return found

    def _escape(self, word: bytes) -> bytes:
        """Behind several backslashes as well: texts in texts are escaped more than once."""
        digits = word.lstrip(b"\\")
        if len(digits) == 3:
            point = int(digits[1:], 16)
            return word[:-2] + (b"e9" if point >= 0x80 else b"78") if chr(point).isalnum() or point >= 0x80 else word
        if len(digits) != 5:
            return word if digits[:1] in b'"\\/bfnrt' or not digits.isalnum() else word[:-1] + b"x"
        point = int(digits[1:], 16)
        if 0xD800 <= point < 0xDC00:
            return word[:-4] + b"d83d"
        if 0xDC00 <= point < 0xE000:
            return word[:-4] + b"de00"
        if point < 0x80:
            return word[:-4] + b"0078" if chr(point).isalnum() else word
        if chr(point).encode() in self._letters:
            return word
        return word[:-4] + (b"00e9" if point < 0x800 else b"4e00")

    def _drawn(self, word: bytes, salt: bytes) -> bytes:
        # Capitals and small letters alike: what is the same word to a check that does not tell them apart stays so.
        dice = hashlib.shake_256(self._key + salt + word.lower()).digest(len(word))
        power = _POWER.fullmatch(word)
        end = power.start("power") if power is not None else len(word)
        made = bytearray(word)
        for number, (letter, die) in enumerate(zip(word[:end], dice, strict=False)):
            if 0x30 <= letter <= 0x39:
                # No number begins with a zero unless it is one, or only a row of digits.
                made[number] = letter if letter == 0x30 and not number else 0x31 + die % 9
                continue
            letters = _LETTERS if number else _FIRST_LETTERS
            drawn = self._single[(letter | 0x20) - 0x61] if len(word) == 1 else letters[die % len(letters)]
            made[number] = drawn & 0x5F if letter < 0x61 else drawn
        return bytes(made)


@lru_cache(maxsize=256)
def _begins_marker(word: bytes) -> bool:
    return any(marker.startswith(word) for marker in _known_words()[1])


def _is_alike(was: bytes, now: bytes) -> bool:
    """Is this number read and written as the other one is: as an integer of the same size, or in as many letters?"""
    if was.lstrip(b"-").isdigit():
        sizes = [int(number) for number in (was, now) if len(number) < 40]
        return len({(-(2**63) <= size < 2**63, abs(size) < 2**64) for size in sizes}) <= 1
    return len(repr(float(was))) == len(repr(float(now)))


def is_ours(code: str) -> bool:
    """Is a code made of words that redaction leaves? The others are of servers, and are replaced."""
    return all(word.encode() in _known_words()[0] for word in _PLAIN.findall(code))
