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
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from importlib import resources
from typing import Any

import msgspec

from athena.model.request import Request
from athena.recording.lines import Recording
from athena.typed_values import reader

_WORD = re.compile(
    rb"\\+u[0-9A-Fa-f]{4}"  # a letter as an escape
    rb"|\\+."  # any other escape: its letter is no word
    rb"|[A-Za-z0-9]+"
    rb"|[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}",
    re.DOTALL,
)
_PLAIN = re.compile(r"[A-Za-z0-9]+")
_LETTERS, _CAPITALS = b"bhjkqvwxyz", b"BHJKQVWXYZ"
"""No marker of a text format begins with one of these: a drawn word is never held because it might be one."""
_FILLERS = {2: "é".encode(), 3: "一".encode(), 4: "😀".encode()}


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
    kept = {word.encode() for name in names for word in _PLAIN.findall(name)}
    return frozenset(kept) | markers | {b"true", b"false", b"null", b"True", b"False", b"None", b"functions"}, letters


def _schema_names(schema: Any, depth: int = 0) -> Iterator[str]:
    if depth > 40:
        return
    if isinstance(schema, Mapping):
        for name, inner in schema.items():
            if name == "properties" and isinstance(inner, Mapping):
                yield from (str(key) for key in inner)
            if name in ("enum", "required") and isinstance(inner, Sequence) and not isinstance(inner, str):
                yield from (item for item in inner if isinstance(item, str))
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

    def text(self, data: bytes, *, structural: bool = False) -> bytes:
        """The text with its words replaced; as many bytes as before."""
        kept = self._structural if structural else self._kept
        return _WORD.sub(lambda found: self._word(found.group(), kept), data)

    def plain(self, text: str, *, structural: bool = False) -> str:
        """A text as `text` gives it for bytes."""
        return self.text(text.encode("utf-8", "replace"), structural=structural).decode("utf-8", "replace")

    def id(self, text: str) -> str:
        """The made-up id that takes the place of this one."""
        return hmac.digest(self._key, text.encode("utf-8", "replace"), "sha256").hex()[:16] if text else ""

    def _word(self, word: bytes, kept: frozenset[bytes]) -> bytes:
        first = word[0]
        if first == 0x5C:
            return self._escape(word)
        if first >= 0x80:
            return word if word in self._letters else _FILLERS[len(word)]
        if word in kept or (len(word) <= 2 and word.isdigit()):
            return word
        found = self._known.get(word)
        if found is None:
            found = self._known[word] = self._drawn(word)
        return found

    def _escape(self, word: bytes) -> bytes:
        """Behind several backslashes as well: texts in texts are escaped more than once."""
        digits = word.lstrip(b"\\")
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

    def _drawn(self, word: bytes) -> bytes:
        dice = hashlib.shake_256(self._key + word).digest(len(word))
        made = bytearray(len(word))
        for number, (letter, die) in enumerate(zip(word, dice, strict=True)):
            if 0x30 <= letter <= 0x39:
                made[number] = letter if letter == 0x30 else 0x31 + die % 9
            else:
                made[number] = (_CAPITALS if letter < 0x61 else _LETTERS)[die % len(_LETTERS)]
        return bytes(made)


def is_ours(code: str) -> bool:
    """Is a code made of words that redaction leaves? The others are of servers, and are replaced."""
    return all(word.encode() in _known_words()[0] for word in _PLAIN.findall(code))
