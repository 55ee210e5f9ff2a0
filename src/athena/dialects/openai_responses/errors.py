"""Errors of the Responses API, both ways.

Codex decides by the code in `response.failed`: it compacts, waits, retries or gives up. So a code that means something to it is
kept, and every kind of error has one.

Wire facts: docs/reference/wire-facts.md#errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from athena.dialects.base import (
    STATUS_OF,
    HttpError,
    is_context_overflow,
    kind_of_status,
    loose_error,
    refuses_images,
    retry_after,
    told_status,
)
from athena.errors import ErrorKind
from athena.model.events import Error
from athena.wire.surrogates import encode_json

_KIND_OF_CODE: dict[str, ErrorKind] = {
    "context_length_exceeded": "context_length",
    "insufficient_quota": "billing",
    "usage_not_included": "billing",
    "billing_hard_limit_reached": "billing",
    "rate_limit_exceeded": "rate_limit",
    "server_is_overloaded": "overloaded",
    "slow_down": "overloaded",
    "invalid_prompt": "invalid",
    "invalid_request_error": "invalid",
    "bio_policy": "content_policy",
    "cyber_policy": "content_policy",
    "content_policy_violation": "content_policy",
    "misalignment_policy_violation": "content_policy",
    "image_content_policy_violation": "content_policy",
    "invalid_api_key": "auth",
    "authentication_error": "auth",
    "permission_error": "permission",
    "model_not_found": "not_found",
    "previous_response_not_found": "not_found",
    "request_too_large": "too_large",
    "timeout": "timeout",
    "vector_store_timeout": "timeout",
    "cancelled": "cancelled",
    "server_error": "upstream",
    "internal_error": "upstream",
}
_MEANINGFUL = frozenset({
    "context_length_exceeded", "insufficient_quota", "usage_not_included", "invalid_prompt", "server_is_overloaded",
    "slow_down", "rate_limit_exceeded",
})  # fmt: skip
_FAILED_CODE: dict[ErrorKind, str] = {
    "invalid": "invalid_prompt",
    "content_policy": "invalid_prompt",
    "context_length": "context_length_exceeded",
    "billing": "insufficient_quota",
    "rate_limit": "rate_limit_exceeded",
    "overloaded": "server_is_overloaded",
}
_TYPE_AND_CODE: dict[ErrorKind, tuple[str, str | None]] = {
    "invalid": ("invalid_request_error", None),
    "context_length": ("invalid_request_error", "context_length_exceeded"),
    "content_policy": ("invalid_request_error", "content_policy_violation"),
    "auth": ("invalid_request_error", "invalid_api_key"),
    "billing": ("insufficient_quota", "insufficient_quota"),
    "permission": ("permission_error", None),
    "not_found": ("invalid_request_error", "model_not_found"),
    "conflict": ("invalid_request_error", None),
    "too_large": ("invalid_request_error", "request_too_large"),
    "rate_limit": ("rate_limit_error", "rate_limit_exceeded"),
    "overloaded": ("server_error", "server_is_overloaded"),
    "timeout": ("server_error", "timeout"),
    "cancelled": ("server_error", "cancelled"),
    "upstream": ("server_error", "server_error"),
    "server": ("server_error", "server_error"),
}


def error_of(value: object, payload: bytes = b"", status: int | None = None) -> Error:
    """The fatal event for an error object of a response or of a stream: {code, message, ...}, in any disorder."""
    error: Mapping[str, Any] = value if isinstance(value, dict) else {"message": value if isinstance(value, str) else ""}
    message = error.get("message")
    words = [word for key in ("code", "type") if isinstance(word := error.get(key), str) and word not in ("", "error")]
    code = words[0] if words else ""
    if status is None:
        status = told_status(error)
    text = message if isinstance(message, str) and message else "the upstream failed without saying why"
    kind = _KIND_OF_CODE.get(code)
    if kind is None and code.startswith(("invalid_", "image_")):
        kind = "invalid"
    if kind is None and is_context_overflow(text, code):
        kind = "context_length"
    if kind is None:
        kind = kind_of_status(status) if status is not None else "upstream"
    if kind == "upstream" and refuses_images(text):
        kind = "invalid"
    param = error.get("param")
    return Error(
        message=text,
        kind=kind,
        code=code or "upstream_error",
        status=status,
        retry_after=retry_after({}, None, text),
        param=param if isinstance(param, str) else None,
        raw=payload[:2000].decode("utf-8", "replace"),
    )


def decode_error(status: int, headers: Mapping[str, str], body: bytes) -> Error:
    """An HTTP error of an upstream; its code says more than its status."""
    error = loose_error(status, headers, body)
    kind = _KIND_OF_CODE.get(error.code)
    if kind is None or kind in ("invalid", "upstream") or error.kind in ("auth", "permission"):
        return error
    return msgspec.structs.replace(error, kind=kind)


def encode_error(error: Error, request_id: str = "") -> HttpError:
    """An error as an HTTP answer in OpenAI's form."""
    kind, code = _TYPE_AND_CODE[error.kind]
    if error.kind in ("invalid", "conflict", "permission") or error.code == "unknown_path":
        code = error.code or None
    body = {"error": {"message": error.message, "type": kind, "param": error.param, "code": code}}
    headers: dict[str, str] = {}
    if error.retry_after is not None:
        headers["retry-after"] = str(max(1, round(error.retry_after)))
        headers["retry-after-ms"] = str(round(error.retry_after * 1000))
    return HttpError(STATUS_OF[error.kind], encode_json(body), headers)


def failed_error(error: Error) -> dict[str, Any]:
    """The `error` of a failed response: a code that clients act on, and how long to wait where that is known."""
    code = error.code if error.code in _MEANINGFUL else _FAILED_CODE.get(error.kind, "server_error")
    message = error.message
    if code == "rate_limit_exceeded" and error.retry_after is not None and "try again in" not in message.lower():
        message = f"{message.rstrip('.')}. Please try again in {error.retry_after:g}s."
    return {"code": code, "message": message}
