"""Errors of the Responses API, both ways.

Codex decides by the code in `response.failed`: it compacts, waits, retries or gives up. So a code that means something to it is
kept, and every kind of error has one.

Wire facts: docs/reference/wire-facts.md#errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from athena.dialects.base import HttpError
from athena.dialects.error_kinds import (
    STATUS_OF,
    is_context_overflow,
    kind_of_status,
    loose_error,
    refuses_images,
    retry_after,
    told_status,
)
from athena.dialects.openai_errors import (
    NO_MODEL_CODES,
    OBJECT_CODES,
    PLAIN_CODES,
    TYPE_AND_CODE,
    UNREADABLE,
    error_object,
    http_error,
    kind_of_code,
)
from athena.errors import ErrorKind
from athena.model.events import Error

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


def error_of(value: object, payload: bytes = b"", status: int | None = None) -> Error:
    """The fatal event for an error object of a response or of a stream: {code, message, ...}, in any disorder."""
    error: Mapping[str, Any] = value if isinstance(value, dict) else {"message": value if isinstance(value, str) else ""}
    message = error.get("message")
    words = [word for key in ("code", "type") if isinstance(word := error.get(key), str) and word not in ("", "error")]
    code = words[0] if words else ""
    if status is None:
        status = told_status(error)
    text = message if isinstance(message, str) and message else "the upstream failed without saying why"
    kind = kind_of_code(code)
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
    kind = kind_of_code(error.code)
    if kind is None or kind in ("invalid", "upstream") or error.kind in ("auth", "permission"):
        return error
    return msgspec.structs.replace(error, kind=kind)


def encode_error(error: Error, request_id: str = "") -> HttpError:
    """An error as an HTTP answer in OpenAI's form."""
    return http_error(STATUS_OF[error.kind], error, error_object(error, error.message, _shown_code(error)))


def _shown_code(error: Error) -> str | None:
    """OpenAI's own name for the kind of error, or a more exact code where clients do not look for a certain one."""
    if error.code in OBJECT_CODES:
        return None
    if error.kind in ("invalid", "permission") or error.code in (*NO_MODEL_CODES, UNREADABLE):
        return error.code or None
    if error.kind == "conflict" and error.code and error.code not in PLAIN_CODES:
        return error.code
    # To clients of this API every failure of an upstream is the server's.
    return "server_error" if error.kind == "upstream" else TYPE_AND_CODE[error.kind][1]


def failed_error(error: Error) -> dict[str, Any]:
    """The `error` of a failed response: a code that clients act on, and how long to wait where that is known."""
    code = error.code if error.code in _MEANINGFUL else _FAILED_CODE.get(error.kind, "server_error")
    message = error.message
    if code == "rate_limit_exceeded" and error.retry_after is not None and "try again in" not in message.lower():
        message = f"{message.rstrip('.')}. Please try again in {error.retry_after:g}s."
    return {"code": code, "message": message}
