"""Secrets in what is logged: masked by their exact text where they are configured, others by their looks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from athena.shells.config import Secret

MASK = "***"

_BEARER = re.compile(r"(?i)\b(bearer|basic)(\s+)[A-Za-z0-9._~+/=\-]{4,}")
_NAMED = re.compile(
    r"(?i)((?:x-api-key|x-goog-api-key|api[_-]?key|authorization|x-auth-token|set-cookie|cookie|password|client_secret)"
    r"[\"']{0,2}\s{0,4}[:=,]\s{0,4}b?[\"']?)(?!\s|bearer\b|basic\b|null\b|none\b|\$\{)[^\s\"',;&]{4,}"
)
_IN_NAMES = ("key", "auth", "cook", "passw", "secret")
"""One of these is in each name above, whatever the case of its letters: a text without any, as most are, need not be searched.
They have no i, for which the pattern also takes letters that do not fold to it."""
_PREFIXED = re.compile(r"\b(sk-|ath_|AIza|gsk_|xai-|hf_|ghp_|github_pat_|glpat-|AKIA|ya29\.|eyJ)[A-Za-z0-9_\-.]{8,}")
_LONG = re.compile(r"[A-Za-z0-9_+=\-]{32,}")
_DENSE = re.compile(r"[A-Za-z0-9+]{20,}")
_QUERY_KEY = re.compile(r"([?&](?:key|api_key|token)=)[^&\s\"']+")


SHORT_TEXT = 200
TEXTS_SEEN = 512
_OWN_ID = re.compile("req_[0-9a-f]{24}")
"""An id of a request as the gateway makes it; none of the patterns of secrets above can match one."""
_TRACE_ID = re.compile("[0-9a-f]{32}")


class Redactor:
    """Masks secrets in text: those it knows, and what looks like one."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        known = sorted({secret for secret in secrets if len(secret) >= 6}, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, known))) if known else None
        self._seen: dict[str, str] = {}
        """Short texts of which it is known what they are shown as: most of what lines say comes again and again."""

    def __call__(self, text: str) -> str:
        shown = self._seen.get(text)
        if shown is None:
            shown = self._masked(text)
            if len(text) <= SHORT_TEXT:
                if len(self._seen) >= TEXTS_SEEN:
                    self._seen.clear()
                self._seen[text] = shown
        return shown

    def request_id(self, text: str) -> str:
        """The id of a request as a line shows it. It comes once: nothing is remembered of it."""
        if _OWN_ID.fullmatch(text) is None:
            return self._masked(text)
        return text if self._known is None else self._known.sub(MASK, text)

    def trace_id(self, text: str) -> str:
        """The id of a trace, which looks like a key and leads from a line to its spans."""
        if _TRACE_ID.fullmatch(text) is None:
            return self._masked(text)
        return text if self._known is None else self._known.sub(MASK, text)

    def _masked(self, text: str) -> str:
        if self._known is not None:
            text = self._known.sub(MASK, text)
        text = _BEARER.sub(rf"\1\2{MASK}", text)
        folded = text.casefold()
        if any(part in folded for part in _IN_NAMES):
            text = _NAMED.sub(rf"\1{MASK}", text)
        text = _QUERY_KEY.sub(rf"\1{MASK}", text)
        text = _PREFIXED.sub(rf"\1{MASK}", text)
        return _LONG.sub(_mask_dense, text)


def _mask_dense(found: re.Match[str]) -> str:
    """Random text has long pieces of letters and digits mixed; model names and ids do not."""
    text = found.group()
    for piece in _DENSE.findall(text):
        if any(letter.isdigit() for letter in piece) and any(letter.isalpha() for letter in piece):
            return text[:4] + MASK
    return text


def secrets_of(value: Any) -> Iterator[str]:
    """Every secret text in a configuration."""
    if isinstance(value, Secret):
        yield value.reveal()
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            yield from secrets_of(getattr(value, name))
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from secrets_of(item)
    elif isinstance(value, tuple | list):
        for item in value:
            yield from secrets_of(item)
