"""Errors of the Google API style: `{"error": {code, message, status, details}}`.

Wire facts: docs/reference/wire-facts.md#gemini-answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from athena.dialects.base import HttpError
from athena.dialects.error_kinds import (
    STATUS_OF,
    is_context_overflow,
    loose_error,
    overflow_message,
    refuses_images,
    whole_seconds,
)
from athena.errors import ErrorKind
from athena.model.events import Error

_STATUS: dict[ErrorKind, str] = {
    "invalid": "INVALID_ARGUMENT",
    "context_length": "INVALID_ARGUMENT",
    "content_policy": "INVALID_ARGUMENT",
    "auth": "UNAUTHENTICATED",
    "billing": "RESOURCE_EXHAUSTED",
    "permission": "PERMISSION_DENIED",
    "not_found": "NOT_FOUND",
    "conflict": "ABORTED",
    "too_large": "INVALID_ARGUMENT",
    "rate_limit": "RESOURCE_EXHAUSTED",
    "overloaded": "UNAVAILABLE",
    "timeout": "DEADLINE_EXCEEDED",
    "cancelled": "CANCELLED",
    "upstream": "INTERNAL",
    "server": "INTERNAL",
}
_KINDS: dict[str, ErrorKind] = {
    "INVALID_ARGUMENT": "invalid",
    "FAILED_PRECONDITION": "invalid",
    "OUT_OF_RANGE": "invalid",
    "UNIMPLEMENTED": "invalid",
    "UNAUTHENTICATED": "auth",
    "PERMISSION_DENIED": "permission",
    "NOT_FOUND": "not_found",
    "ABORTED": "conflict",
    "ALREADY_EXISTS": "conflict",
    "RESOURCE_EXHAUSTED": "rate_limit",
    "CANCELLED": "cancelled",
    "UNAVAILABLE": "overloaded",
    "DEADLINE_EXCEEDED": "timeout",
    "INTERNAL": "upstream",
    "UNKNOWN": "upstream",
    "DATA_LOSS": "upstream",
}


_OVERFLOW = "The input token count exceeds the maximum number of tokens allowed"


def decode_error(status: int, headers: Mapping[str, str], body: bytes) -> Error:
    """An upstream's error body, whatever its shape. A body inside a stream has status 200 and says its own."""
    error = loose_error(status, headers, body)
    kind = _KINDS.get(error.code, error.kind)
    if error.status in (402, 413) or (kind == "upstream" and refuses_images(error.message)):
        kind = error.kind
    if kind == "invalid" and is_context_overflow(error.message, ""):
        kind = "context_length"
    elif kind == "invalid" and "API_KEY_INVALID" in error.raw:
        # The one refusal of a key that does not say so by its status.
        kind = "auth"
    return msgspec.structs.replace(error, kind=kind)


def error_object(error: Error, request_id: str = "") -> dict[str, Any]:
    """The body. `error` is its first and only key: the python SDK looks at how the text begins."""
    details: list[dict[str, Any]] = [
        {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": error.code.upper(), "domain": "athena"}
    ]
    if error.param:
        violation = {"field": error.param, "description": error.message}
        details.append({"@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": [violation]})
    if error.retry_after is not None:
        delay = f"{error.retry_after:g}s"
        details.append({"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay})
    if request_id:
        details.append({"@type": "type.googleapis.com/google.rpc.RequestInfo", "requestId": request_id})
    return {
        "error": {
            "code": _code(error),
            "message": overflow_message(error, _OVERFLOW),
            "status": _STATUS[error.kind],
            "details": details,
        }
    }


def encode_error(error: Error, request_id: str = "") -> HttpError:
    """An error as a whole HTTP answer."""
    headers = {} if error.retry_after is None else {"retry-after": str(whole_seconds(error.retry_after))}
    body = msgspec.json.encode(error_object(error, request_id))
    return HttpError(_code(error), body, headers)


def _code(error: Error) -> int:
    """The HTTP status: that of the kind, but for the few that no kind stands for."""
    return error.status if error.status in (405, 408, 415, 421) else STATUS_OF[error.kind]
