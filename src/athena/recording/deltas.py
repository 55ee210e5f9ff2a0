"""A request's body told by what an earlier one holds: turn n of an agent holds turn n-1, and is stored once.

A delta is a list of pieces, each a place in the earlier body or bytes of its own. What both begin and end with is found by
comparing bytes; between them, pieces that begin where messages begin are looked for. So a header that changes with every
request, or a mark that moves from message to message, costs its own length and no more.
"""

from __future__ import annotations

import re
from itertools import pairwise

import msgspec

from athena.recording.compare import common_prefix, common_suffix

_BEGINNINGS = re.compile(rb'\{"(?:role|type|id|name|parts|text|function|functionCall|functionResponse)"')
_SHORTEST = 48
"""Pieces that are shorter are not worth a place in the list."""
_WORTH = 0.7
"""A delta that has more bytes of its own than this share is none."""


def delta(base: bytes, body: bytes) -> bytes | None:
    """How `body` follows from `base`; None where it does not."""
    start = common_prefix(base, body)
    rest = min(len(base), len(body)) - start
    end = common_suffix(base, body, rest)
    pieces: list[list[int] | bytes] = []
    if start:
        pieces.append([0, start])
    middle = body[start : len(body) - end]
    pieces += _matched(base[start : len(base) - end], start, middle)
    if end:
        pieces.append([len(base) - end, end])
    own = sum(len(piece) for piece in pieces if isinstance(piece, bytes))
    if own > _WORTH * len(body):
        return None
    return msgspec.msgpack.encode(pieces)


def restored(base: bytes, told: bytes) -> bytes:
    """The body of which `delta` told."""
    pieces: list[list[int] | bytes] = msgspec.msgpack.decode(told)
    return b"".join(piece if isinstance(piece, bytes) else base[piece[0] : piece[0] + piece[1]] for piece in pieces)


def _matched(base: bytes, offset: int, body: bytes) -> list[list[int] | bytes]:
    if not body:
        return []
    if len(body) < 4 * _SHORTEST or not base:
        return [body]
    known = {base[start:end]: start for start, end in _cuts(base)}
    pieces: list[list[int] | bytes] = []
    for start, end in _cuts(body):
        piece = body[start:end]
        at = known.get(piece) if end - start >= _SHORTEST else None
        last = pieces[-1] if pieces else None
        if at is None:
            if isinstance(last, bytes):
                pieces[-1] = last + piece
            else:
                pieces.append(piece)
        elif isinstance(last, list) and last[0] + last[1] == offset + at:
            last[1] += end - start
        else:
            pieces.append([offset + at, end - start])
    return pieces


def _cuts(data: bytes) -> list[tuple[int, int]]:
    places = [0, *(found.start() for found in _BEGINNINGS.finditer(data)), len(data)]
    return [(start, end) for start, end in pairwise(places) if end > start]
