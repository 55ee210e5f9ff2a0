"""Errors in Chat's shape, both ways.

A body is `{"error": {message, type, param, code}}`; servers also send it flat, with a number as code, as a string, or inside a
200. `kind` comes from the words where they say more than the status.

Wire facts: docs/reference/wire-facts.md#chat-streams.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from athena.dialects.base import STATUS_OF, HttpError, is_context_overflow, loose_error, overflow_message
from athena.errors import ErrorKind
from athena.model.events import Error
from athena.wire.surrogates import encode_json

_KIND_OF_WORD: dict[str, ErrorKind] = {
    "context_length_exceeded": "context_length",
    "rate_limit_exceeded": "rate_limit",
    "rate_limit_error": "rate_limit",
    "rate_limit_reached_error": "rate_limit",
    "insufficient_quota": "billing",
    "payment_required": "billing",
    "invalid_api_key": "auth",
    "authentication_error": "auth",
    "unauthorized": "auth",
    "permission_error": "permission",
    "permission_denied": "permission",
    "model_not_found": "not_found",
    "not_found_error": "not_found",
    "request_too_large": "too_large",
    "payload_too_large": "too_large",
    "content_filter": "content_policy",
    "content_policy_violation": "content_policy",
    "server_is_overloaded": "overloaded",
    "provider_overloaded": "overloaded",
    "overloaded_error": "overloaded",
    "engine_overloaded_error": "overloaded",
    "insufficient_system_resource": "overloaded",
    "timeout": "timeout",
    "timeout_error": "timeout",
    "provider_timeout": "timeout",
    "invalid_request_error": "invalid",
    "badrequesterror": "invalid",
}

_TYPE_AND_CODE: dict[ErrorKind, tuple[str, str | None]] = {
    "invalid": ("invalid_request_error", None),
    "context_length": ("invalid_request_error", "context_length_exceeded"),
    "content_policy": ("invalid_request_error", "content_policy_violation"),
    "auth": ("invalid_request_error", "invalid_api_key"),
    "billing": ("insufficient_quota", "insufficient_quota"),
    "permission": ("permission_error", None),
    "not_found": ("invalid_request_error", "model_not_found"),
    "conflict": ("invalid_request_error", "conflict"),
    "too_large": ("invalid_request_error", "request_too_large"),
    "rate_limit": ("rate_limit_error", "rate_limit_exceeded"),
    "overloaded": ("server_error", "server_is_overloaded"),
    "timeout": ("server_error", "timeout"),
    "cancelled": ("server_error", "cancelled"),
    "upstream": ("server_error", "upstream_error"),
    "server": ("server_error", "server_error"),
}

_OVERFLOW = "Your input exceeds the context window of this model"
"""OpenAI's own words."""

_LOOSE_KINDS = frozenset({"invalid", "permission", "conflict", "cancelled", "upstream", "server"})
"""Kinds for which the table has no name that clients look for: here a more exact code, the upstream's or ours, is shown. All
others go by OpenAI's own names (docs/reference/wire-facts.md#errors), whatever the upstream called it."""
_PLAIN_CODES = frozenset({"upstream_status", "invalid_request"})
"""Codes of ours that say no more than the kind does."""


def decode_error(status: int, headers: Mapping[str, str], body: bytes) -> Error:
    error = loose_error(status, headers, body)
    kind = error.kind
    if kind in ("invalid", "upstream") or status < 400:
        kind = _kind_of_words(body, error)
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
        known = _KIND_OF_WORD.get(word.lower())
        if known is not None and (known != "invalid" or error.kind == "upstream"):
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
    kind, code = _TYPE_AND_CODE[error.kind]
    if error.code and error.code not in _PLAIN_CODES and (error.kind in _LOOSE_KINDS or error.code == "unknown_path"):
        code = error.code
    return {"message": overflow_message(error, _OVERFLOW), "type": kind, "param": error.param, "code": code}


def encode_error(error: Error, request_id: str = "") -> HttpError:
    """An error as a whole HTTP answer."""
    status = error.status if error.status is not None and error.status >= 400 else STATUS_OF[error.kind]
    if status >= 500 > STATUS_OF[error.kind]:
        # The server called a fault of the request its own, so that clients would ask again.
        status = STATUS_OF[error.kind]
    headers = {}
    if error.retry_after is not None:
        headers["retry-after"] = str(math.ceil(error.retry_after))
        headers["retry-after-ms"] = f"{error.retry_after * 1000:.0f}"
    return HttpError(status, encode_json({"error": encode_error_value(error)}), headers)
