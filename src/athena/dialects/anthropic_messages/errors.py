"""Errors of the Messages API, both ways.

Wire facts: docs/reference/wire-facts.md#anthropic-errors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from athena.dialects.base import HttpError
from athena.dialects.error_kinds import (
    STATUS_OF,
    is_context_overflow,
    kind_of_status,
    loose_error,
    overflow_message,
    refuses_images,
    retry_after,
    whole_seconds,
)
from athena.errors import ErrorKind
from athena.model.events import Error

_KIND_OF_TYPE: dict[str, ErrorKind] = {
    "invalid_request_error": "invalid",
    "authentication_error": "auth",
    "billing_error": "billing",
    "permission_error": "permission",
    "not_found_error": "not_found",
    "conflict_error": "conflict",
    "request_too_large": "too_large",
    "rate_limit_error": "rate_limit",
    "api_error": "upstream",
    "timeout_error": "timeout",
    "overloaded_error": "overloaded",
}

_TYPE_OF_KIND: dict[ErrorKind, str] = {
    "invalid": "invalid_request_error",
    "context_length": "invalid_request_error",
    "content_policy": "invalid_request_error",
    "auth": "authentication_error",
    "billing": "billing_error",
    "permission": "permission_error",
    "not_found": "not_found_error",
    "conflict": "conflict_error",
    "too_large": "request_too_large",
    "rate_limit": "rate_limit_error",
    "overloaded": "overloaded_error",
    "timeout": "timeout_error",
    "cancelled": "api_error",
    "upstream": "api_error",
    "server": "api_error",
}

_RECOVERABLE = frozenset({"thread_unsupported_request"})
"""Codes of ours that the API's own SDKs look for in `details` and recover from."""

_OVERFLOWS = ("prompt is too long", "maximum context length is")
"""Agents compact their history when the message says one of these."""


def decode_error(status: int, headers: Mapping[str, str], body: bytes) -> Error:
    """An upstream's error body; any other server's shape is read as well as it can be."""
    try:
        value: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        value = None
    inner = value.get("error") if isinstance(value, dict) else None
    name = inner.get("type") if isinstance(inner, dict) else None
    if not isinstance(inner, dict) or not isinstance(name, str) or name not in _KIND_OF_TYPE:
        return loose_error(status, headers, body)
    return error_of_object(inner, status=status, wait=retry_after(headers), raw=body[:2000].decode("utf-8", "replace"))


def error_of_object(inner: object, *, status: int | None = None, wait: float | None = None, raw: str = "") -> Error:
    """The `error` object of a body or of a stream's error event."""
    fields: dict[Any, Any] = inner if isinstance(inner, dict) else {"message": inner}
    name, message = fields.get("type"), fields.get("message")
    name = name if isinstance(name, str) else ""
    text = message if isinstance(message, str) and message else name or "the upstream reported an error"
    kind = _KIND_OF_TYPE.get(name) or (kind_of_status(status) if status is not None and status >= 400 else "upstream")
    if status is not None and status >= 500 and kind == "invalid":
        kind = kind_of_status(status)
    if kind == "invalid" and is_context_overflow(text, name):
        kind = "context_length"
    elif kind == "upstream" and refuses_images(text):
        kind = "invalid"
    details = fields.get("details")
    return Error(
        message=text,
        kind=kind,
        code=name or "upstream_error",
        status=status,
        retry_after=wait,
        raw=raw,
        details=details if isinstance(details, dict) else None,
    )


def encode_error(error: Error, request_id: str = "") -> HttpError:
    """An error as a whole HTTP answer."""
    headers: dict[str, str] = {}
    if error.retry_after is not None:
        headers["retry-after"] = str(whole_seconds(error.retry_after))
        headers["retry-after-ms"] = str(max(0, math.ceil(error.retry_after * 1000)))
    status = 529 if error.kind == "overloaded" else STATUS_OF[error.kind]
    return HttpError(status, msgspec.json.encode(error_body(error, request_id)), headers)


def error_body(error: Error, request_id: str = "") -> dict[str, Any]:
    """The body of an error answer, which is also the payload of a stream's error event.

    `type` is always one of the API's own, because clients switch on it; our name for the cause is the extra `code`.
    """
    message = overflow_message(error, _OVERFLOWS[0], _OVERFLOWS)
    inner: dict[str, Any] = {"type": _TYPE_OF_KIND[error.kind], "message": message, "code": error.code}
    if error.param:
        inner["param"] = error.param
    details = {"error_code": error.code} if error.code in _RECOVERABLE else error.details
    if details:
        inner["details"] = details
    body: dict[str, Any] = {"type": "error", "error": inner}
    if request_id:
        body["request_id"] = request_id
    return body
