"""What the errors of OpenAI's two APIs have in common: the words they are known by, and their form.

Chat and Responses write the same body, `{"error": {message, type, param, code}}`, and servers that imitate one of them use the
codes of both.

Wire facts: docs/reference/wire-facts.md#errors.
"""

from __future__ import annotations

from typing import Any

from athena.dialects.base import HttpError
from athena.dialects.error_kinds import whole_seconds
from athena.errors import ErrorKind
from athena.model.events import Error
from athena.wire.surrogates import encode_json

_KIND_OF_CODE: dict[str, ErrorKind] = {
    "context_length_exceeded": "context_length",
    "rate_limit_exceeded": "rate_limit",
    "rate_limit_error": "rate_limit",
    "rate_limit_reached_error": "rate_limit",
    "insufficient_quota": "billing",
    "usage_not_included": "billing",
    "billing_hard_limit_reached": "billing",
    "payment_required": "billing",
    "invalid_api_key": "auth",
    "authentication_error": "auth",
    "unauthorized": "auth",
    "permission_error": "permission",
    "permission_denied": "permission",
    "model_not_found": "not_found",
    "not_found_error": "not_found",
    "previous_response_not_found": "not_found",
    "conflict": "conflict",
    "request_too_large": "too_large",
    "payload_too_large": "too_large",
    "content_filter": "content_policy",
    "content_policy_violation": "content_policy",
    "bio_policy": "content_policy",
    "cyber_policy": "content_policy",
    "misalignment_policy_violation": "content_policy",
    "image_content_policy_violation": "content_policy",
    "server_is_overloaded": "overloaded",
    "provider_overloaded": "overloaded",
    "overloaded_error": "overloaded",
    "engine_overloaded_error": "overloaded",
    "insufficient_system_resource": "overloaded",
    "slow_down": "overloaded",
    "timeout": "timeout",
    "timeout_error": "timeout",
    "provider_timeout": "timeout",
    "vector_store_timeout": "timeout",
    "cancelled": "cancelled",
    "invalid_prompt": "invalid",
    "invalid_request_error": "invalid",
    "badrequesterror": "invalid",
    "server_error": "upstream",
    "internal_error": "upstream",
}

TYPE_AND_CODE: dict[ErrorKind, tuple[str, str | None]] = {
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
"""The names of OpenAI's own APIs for each kind of error, as clients look for them."""

PLAIN_CODES = frozenset({"upstream_status", "invalid_request"})
"""Codes of ours that say no more than the kind does."""
NO_MODEL_CODES = frozenset(("unknown_path", "unsupported_endpoint", "upstream_path", "batch_not_found", "file_not_found"))
"""Codes of errors about a path, a batch or a file: what is not found then is no model."""


UNREADABLE = "store_unreadable"
"""The code of an object that is there and cannot be read, which no client is to take for a passing fault."""
OBJECT_CODES = frozenset(("response_not_found", "conversation_not_found", "item_not_found", "missing_tool_result"))
"""Codes of ours for errors about stored objects that OpenAI gives without one."""


def kind_of_code(code: str) -> ErrorKind | None:
    """What a code, or a type, of an error body means; None for a word that no API of OpenAI's form is known to use."""
    return _KIND_OF_CODE.get(code.lower())


def error_object(error: Error, message: str, code: str | None) -> dict[str, Any]:
    """The `error` of a body, with the code that the dialect shows."""
    return {"message": message, "type": TYPE_AND_CODE[error.kind][0], "param": error.param, "code": code}


def http_error(status: int, error: Error, value: dict[str, Any]) -> HttpError:
    """An error object as a whole HTTP answer. The openai SDKs wait as long as the headers say, to the millisecond."""
    headers: dict[str, str] = {}
    if error.retry_after is not None:
        headers["retry-after"] = str(whole_seconds(error.retry_after))
        headers["retry-after-ms"] = str(round(error.retry_after * 1000))
    return HttpError(status, encode_json({"error": value}), headers)
