"""May a failed attempt be repeated, and when?

Only while the client has had no byte, and only when the upstream never got the request or said itself "not done". Anything else
may have run and been paid.
"""

from __future__ import annotations

from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from zlib import crc32

from athena.model.events import Error

# Statuses that say "not done": another attempt may help. Others are the client's or the operator's to fix.
_RETRY_STATUSES = frozenset((408, 409, 429, 500, 502, 503, 504, 529))
_NEXT_TARGET_STATUSES = _RETRY_STATUSES | {401, 402, 403, 404}
_NO_PLACE = frozenset(("queue_full", "queue_timeout"))
_OWN_LIMITS = _NO_PLACE | {"memory_limit", "descriptor_limit"}


def is_own_limit(error: Error | None) -> bool:
    """Did the gateway itself run out of something? That says nothing about the upstream, and a client may ask again."""
    return error is not None and error.status is None and error.code in _OWN_LIMITS


def is_retryable(error: Error | None, *, request_sent: bool, after_timeout: bool) -> bool:
    """May the same target be asked again?"""
    if error is None or is_own_limit(error):
        return False
    if error.status is not None:
        return error.status in _RETRY_STATUSES
    if not request_sent:
        return error.kind in ("upstream", "overloaded", "server", "timeout")
    return after_timeout and error.kind == "timeout"


def may_move_on(error: Error) -> bool:
    """Whether another target may be asked after this failure."""
    if error.status is not None:
        return error.status in _NEXT_TARGET_STATUSES
    if is_own_limit(error):
        return error.code in _NO_PLACE
    return error.kind not in ("invalid", "context_length", "content_policy", "too_large")


def is_outage(error: Error | None) -> bool:
    """Does a failure speak against the upstream itself, rather than against the request?"""
    if error is None or is_own_limit(error):
        return False
    if error.status is not None:
        return error.status in _RETRY_STATUSES and error.status != 429
    return error.kind in ("upstream", "overloaded", "server", "timeout")


def pause_before(error: Error, attempt: int, request_id: str) -> float:
    """Seconds until the next attempt: as long as the upstream asks for, else longer each time."""
    if error.retry_after is not None:
        return error.retry_after
    # Spread by the request's own id: many clients that failed together must not come back together. A checksum, because
    # Python's own hash of a string is another one in every process, and a replay must come to the same pause.
    spread = (crc32(request_id.encode()) % 1000) / 1000
    return min(8.0, 0.25 * float(2**attempt)) * (0.5 + spread / 2)


def with_relative_wait(headers: Mapping[str, str], now: float) -> Mapping[str, str]:
    """The headers with a Retry-After date as seconds: the core has no clock."""
    value = headers.get("retry-after", "")
    if not value or value[:1].isdigit() or not value[-1:].isalpha():
        return headers
    try:
        moment = parsedate_to_datetime(value).timestamp()
    except (ValueError, OverflowError, TypeError):
        return headers
    return {**headers, "retry-after": f"{max(0.0, moment - now):.0f}"}
