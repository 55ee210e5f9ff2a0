"""Secrets masked in a stream of bytes, wherever the stream is cut into pieces.

Only bytes that could still become a secret are held back for the next piece: fewer than the longest secret is long. What comes
out does not depend on where the pieces were cut, except for a secret that the stream's own end cuts off, which is masked too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

MASK = b"***"
_SHORTEST = 6
"""Shorter values are not treated as secrets, nor is so short a beginning of one: they would only mangle other text."""


class StreamMask:
    """One stream. Secrets are known by their exact text, plain or as it stands inside a JSON string."""

    def __init__(self, secrets: Iterable[str]) -> None:
        spellings = {spelling for secret in secrets if len(secret) >= _SHORTEST for spelling in _spellings(secret)}
        self._secrets = sorted(spellings, key=len, reverse=True)
        self._known = re.compile(b"|".join(map(re.escape, self._secrets))) if self._secrets else None
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """The next piece without its secrets, less what may be the beginning of one, after what was held back before."""
        if self._known is None:
            return data
        text = self._held + data
        shown: list[bytes] = []
        at = 0
        while True:
            found = self._known.search(text, at)
            held_from = self._unfinished(text, at)
            if found is None or held_from <= found.start():
                shown.append(text[at:held_from])
                self._held = text[held_from:]
                return b"".join(shown)
            shown += (text[at : found.start()], MASK)
            at = found.end()

    def close(self) -> bytes:
        """What was held back, once no more comes; the beginning of a secret is masked as well."""
        held, self._held = self._held, b""
        return MASK if len(held) >= _SHORTEST else held

    def _unfinished(self, text: bytes, start: int) -> int:
        """The first place from which the rest of the text is the beginning of a secret and not the whole; else its end."""
        first = len(text)
        for secret in self._secrets:
            at = text.find(secret[:1], max(start, len(text) - len(secret) + 1), first)
            while at >= 0 and not secret.startswith(text[at:]):
                at = text.find(secret[:1], at + 1, first)
            if at >= 0:
                first = at
        return first


def _spellings(secret: str) -> Iterable[bytes]:
    """The secret as it may be written: as it is, and in a JSON string with and without escaped slashes."""
    plain = secret.encode("utf-8", "surrogateescape")
    in_json = plain.replace(b"\\", b"\\\\").replace(b'"', b'\\"')
    return plain, in_json, in_json.replace(b"/", b"\\/")
