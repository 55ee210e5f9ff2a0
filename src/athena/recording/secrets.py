"""Credentials, taken out of everything before it becomes a recording."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from athena.recording.searched import LARGE, SearchedBody, is_in

MASK = b"***"
_SHORTEST = 6
"""Shorter values are not treated as secrets: they would only mangle other text."""
PLACEHOLDERS = frozenset({"athena", "ollama", "lm-studio", "not-needed", "no-key-required"})
"""Keys that are none: programs send them where no key is asked for, `athena` the agents that `athena code` starts. To mask them
would take ordinary words out of answers, and the recording would not be what the client got."""
_CREDENTIAL = re.compile(r"auth|token|secret|cookie|passw|credential|signature|session-key|(?:^|[-_])key(?:$|[-_])|apikey")
_LONGEST_REMEMBERED = 64
"""Names of headers up to this length are remembered: clients choose them."""
_KEPT_QUERY = frozenset({"alt", "beta", "api-version"})


def plain_headers(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The headers, by lower-case name, without those that carry credentials."""
    kept: dict[str, str] = {}
    for name, value in headers:
        name = name.lower()
        if not _carries_credential(name):
            kept[name] = f"{kept[name]}, {value}" if name in kept else value
    return kept


_MOST_NAMES = 40
"""Headers of one message up to which the names of all of them are remembered."""


def plain_mapping(headers: Mapping[str, str]) -> dict[str, str]:
    """The same for headers of which each has a name of its own. Most messages have the names of another one."""
    names = tuple(headers)
    kept = _kept_names(names) if len(names) <= _MOST_NAMES else None
    if kept is None:
        return plain_headers(headers.items())
    if len(kept) == len(names) and type(headers) is dict:
        return headers  # as most answers have them
    return {name: headers[name] for name in kept}


def plain_pairs(headers: Sequence[tuple[bytes, bytes]]) -> dict[str, str]:
    """The same for headers as they are sent."""
    names = tuple([name for name, _ in headers])
    kept = _kept_places(names) if len(names) <= _MOST_NAMES else None
    if kept is None:
        return plain_headers((name.decode("latin-1"), value.decode("latin-1")) for name, value in headers)
    return {name: headers[place][1].decode("latin-1") for place, name in kept}


@lru_cache(64)
def _kept_names(names: tuple[str, ...]) -> tuple[str, ...] | None:
    """Which of these stay; None where they cannot be told by their names alone."""
    if any(name != name.lower() for name in names):
        return None
    return tuple(name for name in names if not _carries_credential(name))


@lru_cache(64)
def _kept_places(names: tuple[bytes, ...]) -> tuple[tuple[int, str], ...] | None:
    """The places of those that stay, and their names."""
    told = [name.decode("latin-1").lower() for name in names]
    if len(set(told)) < len(told):
        return None
    return tuple((place, name) for place, name in enumerate(told) if not _carries_credential(name))


def _carries_credential(name: str) -> bool:
    return _is_credential(name) if len(name) <= _LONGEST_REMEMBERED else _is_credential.__wrapped__(name)


@lru_cache(512)
def _is_credential(name: str) -> bool:
    return not name.startswith(("x-ratelimit-", "anthropic-ratelimit-")) and _CREDENTIAL.search(name) is not None


def plain_query(query: str) -> str:
    """The query without everything that could be a credential: only what our endpoints read stays."""
    return "&".join(pair for pair in query.split("&") if pair.partition("=")[0].lower() in _KEPT_QUERY)


def _spellings(secret: str) -> Iterator[bytes]:
    """The secret as JSON may write it: letters that are not of ASCII, and slashes, as they are or escaped; in one string or
    in one inside of another."""
    for once in (msgspec.json.encode(secret).decode(errors="replace")[1:-1], json.dumps(secret)[1:-1]):
        for written in (once, once.replace("/", "\\/")):
            yield written.encode()
            yield written.replace("\\", "\\\\").replace('"', '\\"').encode()
            yield json.dumps(written)[1:-1].encode()


class Mask:
    """Known secrets, by their exact text, plain or as it stands inside of a JSON string."""

    def __init__(self, secrets: Iterable[str]) -> None:
        known = [secret for secret in secrets if len(secret) >= _SHORTEST and secret not in PLACEHOLDERS]
        plain = {secret.encode("utf-8", "replace") for secret in known}
        written = {msgspec.json.encode(secret)[1:-1] for secret in known}
        spelled = {spelling for secret in known for spelling in _spellings(secret)}
        self._known = sorted(plain | spelled, key=len, reverse=True)
        self._pattern: re.Pattern[bytes] | None = None
        self.is_plain = plain == written
        """Are they written in JSON as they are, however often that is written in JSON again? Then what is written shows whether
        any is in a value."""
        self.has_quotes = any(b'"' in secret for secret in self._known)
        """Has any of them a quote in it? One that has none stands inside of one string of JSON, or outside of all."""
        # A character of ASCII has an escape with two zeros, and of the short ones only that of a slash is not needed.
        self._escapes = [b"\\u00" if all(map(bytes.isascii, self._known)) else b"\\u"]
        if any(b"/" in secret for secret in self._known):
            self._escapes.append(b"\\/")

    @property
    def hides_anything(self) -> bool:
        """Is there any secret at all?"""
        return bool(self._known)

    def finds(self, data: bytes) -> bool:
        """Is any secret in there? Looking for each of them is many times as fast as looking for all of them at once."""
        return self.finds_in((data,))

    def finds_in(self, pieces: Sequence[bytes]) -> bool:
        """Is any secret in one of these?"""
        for secret in self._known:
            for piece in pieces:
                if secret in piece if len(piece) < LARGE else is_in(secret, piece, 0, len(piece)):
                    return True
        return False

    def finds_in_body(self, body: SearchedBody) -> bool:
        """Is any secret in this body?"""
        return any(body.holds(secret) for secret in self._known)

    def finds_escapes(self, data: bytes) -> bool:
        """Where the secrets are plain: is there an escape in this JSON that may stand for a character of one of them?"""
        for escape in self._escapes:  # noqa: SIM110  # as above
            if escape in data:
                return True
        return False

    @property
    def _any(self) -> re.Pattern[bytes]:
        if self._pattern is None:
            self._pattern = re.compile(b"|".join(map(re.escape, self._known)))
        return self._pattern

    def data(self, data: bytes) -> bytes:
        """The bytes without secrets."""
        return self._any.sub(MASK, data) if self.finds(data) else data

    def text(self, text: str) -> str:
        """The text without secrets."""
        if not self._known:
            return text
        data = text.encode("utf-8", "surrogatepass")
        return self._any.sub(MASK, data).decode("utf-8", "surrogatepass") if self.finds(data) else text

    def headers(self, headers: dict[str, str]) -> dict[str, str]:
        """The headers without secrets."""
        if not self._known or not self.finds("\n".join(headers.values()).encode("utf-8", "surrogatepass")):
            return headers
        return {name: self.text(value) for name, value in headers.items()}

    def value(self, value: Any) -> Any:
        """A value as JSON has it, without secrets."""
        if not self._known:
            return msgspec.to_builtins(value)
        encoded = msgspec.json.encode(value)
        return msgspec.json.decode(self.data(encoded)) if self.finds(encoded) else msgspec.to_builtins(value)

    def pieces(self, pieces: list[bytes]) -> list[bytes]:
        """Pieces of one stream without secrets, also without those that are cut into pieces. Each piece stays where it is."""
        whole = b"".join(pieces)
        if not self.finds(whole):
            return pieces
        found = list(self._any.finditer(whole))
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


NO_SECRETS = Mask(())
"""Changes nothing."""


@lru_cache(64)
def masks(secrets: tuple[str, ...]) -> Mask:
    """The mask of these secrets: most requests have the same."""
    return Mask(secrets)
