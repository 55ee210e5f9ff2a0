"""Credentials, taken out of everything before it becomes a recording."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

MASK = b"***"
_SHORTEST = 6
"""Shorter values are not treated as secrets: they would only mangle other text."""
_CREDENTIAL = re.compile(r"auth|token|secret|cookie|passw|credential|signature|session-key|(?:^|[-_])key(?:$|[-_])|apikey")
_KEPT_QUERY = frozenset({"alt", "beta", "api-version"})


def plain_headers(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The headers, by lower-case name, without those that carry credentials."""
    kept: dict[str, str] = {}
    for name, value in headers:
        name = name.lower()
        if name.startswith(("x-ratelimit-", "anthropic-ratelimit-")) or not _CREDENTIAL.search(name):
            kept[name] = f"{kept[name]}, {value}" if name in kept else value
    return kept


def plain_query(query: str) -> str:
    """The query without everything that could be a credential: only what our doors read stays."""
    return "&".join(pair for pair in query.split("&") if pair.partition("=")[0].lower() in _KEPT_QUERY)


class Mask:
    """Known secrets, by their exact text, plain or as it stands inside of a JSON string."""

    def __init__(self, secrets: Iterable[str]) -> None:
        spellings = {
            spelling
            for secret in secrets
            if len(secret) >= _SHORTEST
            for spelling in (secret.encode("utf-8", "replace"), msgspec.json.encode(secret)[1:-1])
        }
        known = sorted(spellings, key=len, reverse=True)
        self._known = re.compile(b"|".join(map(re.escape, known))) if known else None

    def data(self, data: bytes) -> bytes:
        """The bytes without secrets."""
        return self._known.sub(MASK, data) if self._known is not None else data

    def text(self, text: str) -> str:
        """The text without secrets."""
        if self._known is None:
            return text
        return self.data(text.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")

    def headers(self, headers: dict[str, str]) -> dict[str, str]:
        """The headers without secrets."""
        return {name: self.text(value) for name, value in headers.items()}

    def pieces(self, pieces: list[bytes]) -> list[bytes]:
        """Pieces of one stream without secrets, also without those that are cut into pieces. Each piece stays where it is."""
        if self._known is None:
            return pieces
        whole = b"".join(pieces)
        found = list(self._known.finditer(whole))
        if not found:
            return pieces
        masked: list[bytes] = []
        start = 0
        for piece in pieces:
            end = start + len(piece)
            at, parts = start, []
            for secret in found:
                if secret.end() <= start or secret.start() >= end:
                    continue
                parts.append(whole[at : max(secret.start(), at)])
                if secret.start() >= start:
                    parts.append(MASK)
                at = max(at, min(secret.end(), end))
            masked.append(b"".join(parts) + whole[at:end])
            start = end
        return masked
