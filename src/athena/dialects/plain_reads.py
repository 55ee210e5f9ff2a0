"""The short way into a decoder: reads of a stream that bring one piece of text and nothing else, known by their bytes.

Most reads of an answer differ from the one before in their text alone. From a read that the long way has taken and that was
such a piece, `PlainReads` keeps the bytes before and after the text. A read with the same bytes around a JSON string says the
same of everything but its text: the dialect's reader is asked once, with a text of our own in that place, whether the delta's
text stands there. Where a server numbers its records, each is read by the dialect's strict reader instead.

A read holds many records when a server is faster than its reader: `texts_of` takes all of them that are such pieces at once.

Nothing changes by asking; whatever is not recognised goes the long way, which also decides what is right.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from operator import itemgetter
from typing import Protocol

import msgspec

from athena.wire.sse import WireRecord

PLAIN_BYTES = 8 * 1024
"""The longest read that is looked at here."""
_SHORT_BORDER = 24
_WINDOW = 2 * PLAIN_BYTES
"""Bytes in which `texts_of` looks for records in one go, so that a run that ends soon costs little however much follows."""
MOST_TEXTS = 256
"""How many records `texts_of` reads in one go."""
BORDER = b'",\n"'
"""The end of a JSON string and the beginning of the next. No JSON string holds a line's end."""
UNREADABLE_TEXT = (msgspec.DecodeError, UnicodeError)
_PROBE = "another text"
_PROBE_BYTES = _PROBE.encode()
_ATTEMPTS = 8
"""How often the bytes around the text are learnt in vain before they are taken to be never the same twice."""
_NEVER = b"\xff"
"""No read that is JSON in UTF-8 begins so."""

_text = msgspec.json.Decoder(str).decode
_texts = msgspec.json.Decoder(list[str]).decode
_as_lines = msgspec.json.Encoder().encode_lines


class PlainReader(Protocol):
    """Tells the texts of records that are pieces like the last one. Changes nothing."""

    def text_of(self, data: bytes) -> str | None:
        """The text of a read that is one such record from its first byte to its last; None for any other."""

    def texts_of(self, data: bytes, at: int, most: int = MOST_TEXTS) -> tuple[list[str], int]:
        """The texts of the records from `at` on, up to the first that is no such piece, and where that begins. There may be
        more of them than it returns: only an empty list says that the next record is none."""

    @property
    def is_uniform(self) -> bool:
        """Have all records that it reads the same bytes around their text?"""


class PlainFrame(msgspec.Struct, frozen=True, eq=False):
    """How a client's dialect writes further pieces of one text: these bytes, the text as a JSON string, and these."""

    before: bytes
    behind: bytes
    note: Callable[[str], None] | None = None
    """What the encoder wants to know of the texts, joined, before it is asked for anything else."""


class PlainSplice(msgspec.Struct, frozen=True, eq=False):
    """How reads of plain text become the client's bytes without the answer's path, for whoever moves the bytes.

    A record of the upstream is `head`, the text as a JSON string without its quotes, and `tail`; for the client it is `before`,
    the same text as a JSON string of ours, and `behind`. This holds for texts that are not empty and in which `search`
    finds nothing, until anything else is asked of the path. `relayed` is told of the texts before that.
    """

    head: bytes
    tail: bytes
    before: bytes
    behind: bytes
    stays: bool
    """The record goes out as it came, escapes and all."""
    search: Callable[[str], object] | None


def decoded_texts(strings: list[bytes]) -> list[str]:
    """What these JSON strings say."""
    return _texts(b"[%b]" % b",".join(strings))


def framed_texts(texts: list[str], before: bytes, behind: bytes) -> bytes:
    """Each of these texts, at least one, as a JSON string of ours between these bytes."""
    return b"%b%b%b" % (before, _as_lines(texts)[:-1].replace(b"\n", behind + before), behind)


class SplicedRecord(msgspec.Struct, frozen=True, array_like=True):
    """What a `PlainSplice` makes of records, for whoever keeps the texts of a read alone: each as it came, a JSON string, and
    `,` and a line's end between two. No JSON string holds a line's end."""

    head: bytes
    tail: bytes
    before: bytes
    behind: bytes
    stays: bool

    def came(self, texts: bytes) -> bytes:
        """The upstream's records."""
        return b"%b%b%b" % (self.head[:-1], texts.replace(BORDER, self.tail + self.head), self.tail[1:])

    def left(self, texts: bytes) -> bytes:
        """What the client got for them."""
        if self.stays:
            return self.came(texts)
        return framed_texts(_texts(b"[%b]" % texts), self.before, self.behind)


class BurstParts(msgspec.Struct, frozen=True, eq=False):
    """Of what a read of many records consists, some of them plain, and of what the bytes that left for it do."""

    output: bytes
    """All that left. Nobody else may have changed it: it is compared by identity."""
    parts: list[tuple[bytes, bytes | SplicedRecord]]
    """In order: bytes as they came with those that left for them, or texts with the record that both follow from."""


class PlainShape(msgspec.Struct, frozen=True, eq=False):
    """How one dialect writes a plain piece of one kind."""

    place: re.Pattern[bytes]
    """Finds what stands right before the string that holds the text."""
    read: Callable[[str, bytes], str | None]
    """The text of a record, by name and payload, that says nothing else; None for any other record. Changes nothing."""


class PlainReads(msgspec.Struct, eq=False):
    """What one stream's plain pieces look like, in one kind of state."""

    _shape: PlainShape | None = None
    _head: bytes = _NEVER
    _tail: bytes = _NEVER
    _attempts: int = _ATTEMPTS
    served: bool = False
    """Did another read have the bytes that were learnt?"""
    strings: bytes = b""
    """The texts that `text_of` or `texts_of` found last, as a `SplicedRecord` has them."""

    def learn(self, shape: PlainShape, data: bytes) -> bool:
        """Keep what stands around the text of this read, which was a piece of this shape."""
        if shape is self._shape and data.startswith(self._head) and data.endswith(self._tail):
            return True
        if lone_record(data) is None:
            # A record of which only the end came in this read shows nothing new.
            return shape is self._shape and self._head is not _NEVER
        if shape is not self._shape or self.served:
            self._shape, self._attempts = shape, _ATTEMPTS
        self._head, self._tail, self.served = _NEVER, _NEVER, False
        if not self._attempts:
            return False
        self._attempts -= 1
        found = shape.place.search(data)
        end = _string_end(data, found.end()) if found is not None else -1
        if found is None or end < 0:
            return False
        head, tail = data[: found.end() + 1], data[end:]
        record = lone_record(b"%b%b%b" % (head, _PROBE_BYTES, tail))
        if record is None or shape.read(*record) != _PROBE:
            return False
        self._head, self._tail = head, tail
        return True

    def text_of(self, data: bytes) -> str | None:
        """The text of a read that differs from the learnt one in nothing else."""
        head, tail = self._head, self._tail
        if not data.startswith(head) or not data.endswith(tail) or len(data) > PLAIN_BYTES:
            return None
        try:
            # With its quotes, so that what stands between them is one JSON string or is refused.
            came = data[len(head) - 1 : 1 - len(tail)]
            text = _text(came)
        except UNREADABLE_TEXT:
            return None
        self.served = True
        self.strings = came
        return text

    is_uniform = True

    @property
    def around(self) -> tuple[bytes, bytes]:
        """What stands before and after the characters of the text, its quotes included."""
        return self._head, self._tail

    def texts_of(self, data: bytes, at: int, most: int = MOST_TEXTS) -> tuple[list[str], int]:
        """The texts of the records from `at` on that differ from the learnt one in nothing else, and where they end."""
        head, tail = self._head, self._tail
        if not data.startswith(head, at):
            return [], at
        frame = len(head) + len(tail)
        pieces = _parted(data[at + len(head) : at + _WINDOW], tail + head)
        # Behind the last text stands its tail, and then whatever follows.
        rest = pieces.pop()
        end = rest.find(tail)
        if end >= 0:
            pieces.append(rest[:end])
        del pieces[most:]
        if not pieces or max(map(len, pieces)) + frame > PLAIN_BYTES:
            return self._first_texts(pieces, at)
        joined = b'["%b"]' % BORDER.join(pieces)
        try:
            texts = _texts(joined)
        except UNREADABLE_TEXT:
            return self._first_texts(pieces, at)
        # A piece with a quote of its own would be two strings; one that ends with a backslash would hide a border.
        if len(texts) != len(pieces) or b"\\" + BORDER in joined or joined.endswith(b'\\"]'):
            return self._first_texts(pieces, at)
        self.served = True
        self.strings = joined[1:-1]
        return texts, at + len(joined) - 4 - len(BORDER) * (len(pieces) - 1) + frame * len(pieces)

    def _first_texts(self, pieces: list[bytes], at: int) -> tuple[list[str], int]:
        """The same, one record after another."""
        head, tail = self._head, self._tail
        texts: list[str] = []
        strings: list[bytes] = []
        for piece in pieces:
            end = piece.find(tail)
            text = self.text_of(b"%b%b%b" % (head, piece[:end] if end >= 0 else piece, tail))
            if text is None:
                break
            texts.append(text)
            strings.append(self.strings)
            at += len(head) + (end if end >= 0 else len(piece)) + len(tail)
            if end >= 0:
                break  # after it stands a record of another kind
        self.strings = b",\n".join(strings)
        return texts, at


def _parted(data: bytes, border: bytes) -> list[bytes]:
    """The same as `split`. That prepares its search anew for each place where it finds a long border: the beginning of the
    border does as well, if all that follows it is the rest."""
    short, rest = border[:_SHORT_BORDER], border[_SHORT_BORDER:]
    if not rest:
        return data.split(border)
    pieces = data.split(short)
    if len(pieces) > 1 and not pieces[-1].startswith(rest):
        pieces[-2:] = [pieces[-2] + short + pieces[-1]]  # the data ends inside of a border
    parted = [pieces[0], *map(itemgetter(slice(len(rest), None)), pieces[1:])]
    return parted if border.join(parted) == data else data.split(border)


class EachRecord:
    """Has the dialect's reader look at every record, because no two of them have the same bytes around their text."""

    __slots__ = ("_end", "_is_noted", "_read")

    def __init__(self, shape: PlainShape, data: bytes, *, is_noted: bool) -> None:
        """`data` is a record as the server ends it. `is_noted`: the decoder wants to know of each text before the next record
        is looked at."""
        self._read = shape.read
        self._end = b"\r\n\r\n" if data[-4:] == b"\r\n\r\n" else b"\n\n"
        self._is_noted = is_noted

    def text_of(self, data: bytes) -> str | None:
        """The text of a read that is one record of the shape."""
        if len(data) > PLAIN_BYTES:
            return None
        record = lone_record(data)
        return self._read(*record) if record is not None else None

    is_uniform = False

    def texts_of(self, data: bytes, at: int, most: int = MOST_TEXTS) -> tuple[list[str], int]:
        """The texts of the records from `at` on that have the shape; only the first where the decoder wants to know of it."""
        texts: list[str] = []
        most = 1 if self._is_noted else most
        limit = at + _WINDOW
        while len(texts) < most and at < limit and (found := data.find(self._end, at)) >= 0:
            stop = found + len(self._end)
            text = self.text_of(data[at:stop])
            if text is None:
                break
            texts.append(text)
            at = stop
        return texts, at


def _string_end(data: bytes, start: int) -> int:
    """Where the string that begins at `start` has its closing quote; -1: nowhere."""
    at = start + 1
    while (at := data.find(b'"', at)) >= 0:
        before = at
        while data[before - 1] == 0x5C:
            before -= 1
        if (at - before) % 2 == 0:
            return at
        at += 1
    return -1


def lone_record(data: bytes) -> WireRecord | None:
    """The one record that these bytes are from the first to the last, in one of the three ways in which servers write it."""
    size = len(data)
    if data[:6] == b"data: ":
        line = data.find(b"\n")
        if line == size - 2 and data[-1] == 0x0A and data.find(b"\r") < 0:
            return "", data[6:-2]
        if line == size - 3 and data[-4:] == b"\r\n\r\n" and data.find(b"\r") == size - 4:
            return "", data[6:-4]
    elif data[:7] == b"event: ":
        line = data.find(b"\n")
        is_whole = data.find(b"\n", line + 1) == size - 2 and data[-1] == 0x0A
        if is_whole and data[line + 1 : line + 7] == b"data: " and data.find(b"\r") < 0:
            return data[7:line].strip().decode("utf-8", "replace"), data[line + 7 : -2]
    return None
