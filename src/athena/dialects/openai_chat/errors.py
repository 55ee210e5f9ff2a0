"""Errors in Chat's shape, both ways.

A body is `{"error": {message, type, param, code}}`; servers also send it flat, with a number as code, as a string, or inside a
200. `kind` comes from the words where they say more than the status.

Wire facts: docs/reference/wire-facts.md#chat-streams.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from athena.dialects.base import HttpError
from athena.dialects.error_kinds import STATUS_OF, is_context_overflow, loose_error, overflow_message
from athena.dialects.openai_errors import NO_MODEL_CODES, PLAIN_CODES, TYPE_AND_CODE, error_object, http_error, kind_of_code
from athena.errors import ErrorKind
from athena.model.events import Error

_OVERFLOW = "Your input exceeds the context window of this model"
"""OpenAI's own words."""

_LOOSE_KINDS = frozenset({"invalid", "permission", "conflict", "cancelled", "upstream", "server"})
"""Kinds for which the table has no name that clients look for: here a more exact code, the upstream's or ours, is shown. All
others go by OpenAI's own names (docs/reference/wire-facts.md#errors), whatever the upstream called it."""


def decode_error(status: int, headers: Mapping[str, str], body: bytes) -> Error:
    error = loose_error(status, headers, body)
    kind = error.kind
    if kind in ("invalid", "upstream") or status < 400:
        kind = _kind_of_words(body, error)
    elif kind == "rate_limit" and "billing" in map(kind_of_code, _words(body)):
        # OpenAI itself says with the status of a rate limit that the account has no credit: waiting does not help.
        kind = "billing"
    return msgspec.structs.replace(error, kind=kind)


def error_in_answer(payload: bytes) -> Error:
    """An error that came with status 200, whole or as a record of a stream."""
    error = decode_error(200, {}, payload)
    if error.status is not None and error.status < 400:
        error = msgspec.structs.replace(error, status=None)
    return error


def _kind_of_words(body: bytes, error: Error) -> ErrorKind:
    if is_context_overflow(error.message, error.code):
        return "context_length"
    for word in (error.code, *_words(body)):
        known = kind_of_code(word)
        if known is not None and known != "upstream" and (known != "invalid" or error.kind == "upstream"):
            return known
    return error.kind


def _words(body: bytes) -> list[str]:
    """Every machine word of an error body: code, type, status, OpenRouter's metadata.error_type."""
    try:
        value: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []
    if isinstance(value, list) and value:
        value = value[0]
    inner = value.get("error", value) if isinstance(value, dict) else None
    if not isinstance(inner, dict):
        return []
    metadata = inner.get("metadata")
    words = [inner.get("code"), inner.get("type"), inner.get("status")]
    if isinstance(metadata, dict):
        words.insert(0, metadata.get("error_type"))
    return [word for word in words if isinstance(word, str) and word]


def encode_error_value(error: Error) -> dict[str, Any]:
    _, code = TYPE_AND_CODE[error.kind]
    if error.code and error.code not in PLAIN_CODES and (error.kind in _LOOSE_KINDS or error.code in NO_MODEL_CODES):
        code = error.code
    return error_object(error, overflow_message(error, _OVERFLOW), code)


def encode_error(error: Error, request_id: str = "") -> HttpError:
    """An error as a whole HTTP answer."""
    status = error.status if error.status is not None and error.status >= 400 else STATUS_OF[error.kind]
    if status >= 500 > STATUS_OF[error.kind]:
        # The server called a fault of the request its own, so that clients would ask again.
        status = STATUS_OF[error.kind]
    return http_error(status, error, encode_error_value(error))
