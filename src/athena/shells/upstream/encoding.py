"""Undoing a content encoding that was not asked for (every request says `accept-encoding: identity`).

Hostile upstream: output comes in bounded steps, so a small input never becomes a large buffer, and the whole is bounded in
size and in ratio. The format facts are RFC 1950 (zlib), 1951 (deflate), 1952 (gzip); some servers send raw deflate under the
name of zlib's, so the first two bytes decide.
"""

from __future__ import annotations

import zlib
from typing import Literal

from athena.errors import UpstreamProtocol

# Below this much output the ratio says nothing: a short repetitive answer may be small on the wire.
_RATIO_FREE_BYTES = 1024 * 1024
_RAW_DEFLATE, _ZLIB, _GZIP = -15, 15, 31


class ContentDecoder:
    """`feed` wire bytes, `take` decoded ones in bounded steps, `finish` at the end of the body."""

    __slots__ = ("_coding", "_full", "_inflater", "_max_bytes", "_max_ratio", "_produced", "_step", "_waiting", "_wire")

    def __init__(self, coding: Literal["gzip", "deflate"], *, max_bytes: int, max_ratio: int, step: int) -> None:
        self._coding = coding
        self._inflater = zlib.decompressobj(_GZIP) if coding == "gzip" else None
        self._max_bytes = max_bytes
        self._max_ratio = max_ratio
        self._step = step
        self._waiting = b""
        self._full = False
        self._wire = 0
        self._produced = 0

    def feed(self, data: bytes) -> None:
        self._wire += len(data)
        self._waiting = self._waiting + data if self._waiting else data

    def take(self) -> bytes:
        """The next decoded bytes; b"" when more input is needed."""
        while self._waiting or self._full:
            inflater = self._inflater
            if inflater is None:
                if len(self._waiting) < 2:
                    return b""
                inflater = self._inflater = zlib.decompressobj(_deflate_kind(self._waiting))
            elif inflater.eof:
                # gzip allows members one after another; anything else after the end is not ours to guess.
                if self._coding != "gzip":
                    raise _broken("bytes follow the end of the compressed body")
                inflater = self._inflater = zlib.decompressobj(_GZIP)
            try:
                output = inflater.decompress(self._waiting, self._step)
            except zlib.error as cause:
                raise _broken(f"the body is not valid {self._coding}") from cause
            self._waiting = inflater.unused_data if inflater.eof else inflater.unconsumed_tail
            # A full step may leave output inside the inflater with no input left to wait for.
            self._full = len(output) == self._step and not inflater.eof
            if output:
                self._count(len(output))
                return output
        return b""

    def finish(self) -> None:
        """The body ended: is the compressed stream whole?"""
        if self._wire and (self._inflater is None or not self._inflater.eof):
            raise _broken("the compressed body is cut off")

    def _count(self, size: int) -> None:
        self._produced += size
        bound = max(_RATIO_FREE_BYTES, self._wire * self._max_ratio)
        if self._produced > min(bound, self._max_bytes):
            raise UpstreamProtocol("the compressed body grows beyond all reason", code="decompression_limit")


def decoder_for(content_encoding: str, *, max_bytes: int, max_ratio: int, step: int) -> ContentDecoder | None:
    """The decoder for a Content-Encoding value; None for identity."""
    match content_encoding.strip().lower():
        case "" | "identity":
            return None
        case "gzip" | "x-gzip":
            return ContentDecoder("gzip", max_bytes=max_bytes, max_ratio=max_ratio, step=step)
        case "deflate":
            return ContentDecoder("deflate", max_bytes=max_bytes, max_ratio=max_ratio, step=step)
        case other:
            raise UpstreamProtocol(f"the upstream encoded its answer as {other[:40]!r}, unasked", code="unknown_encoding")


def _deflate_kind(start: bytes) -> int:
    is_zlib = start[0] & 0x0F == 8 and (start[0] << 8 | start[1]) % 31 == 0
    return _ZLIB if is_zlib else _RAW_DEFLATE


def _broken(message: str) -> UpstreamProtocol:
    return UpstreamProtocol(message, code="broken_encoding")
