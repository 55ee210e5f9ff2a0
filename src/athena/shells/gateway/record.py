"""One line per request: what came, where it went, what was found and how it ended. Never a key, never a body."""

from __future__ import annotations

import logging
from typing import Any

import msgspec

LOG = logging.getLogger("athena.request")


class Record(msgspec.Struct):
    """What is known of one request; filled in as it goes."""

    request_id: str
    dialect: str = ""
    key: str = ""
    origin: str = ""
    """The origin of the web page that asked, where it is another site's and allowed."""
    model: str = ""
    upstream: str = ""
    upstream_dialect: str = ""
    upstream_model: str = ""
    format: str = ""
    stream: bool = False
    tools: int = 0
    tool_mode: str = ""
    corrections: str = ""
    """What was left out of the request because the upstream refuses it."""
    calls: int = 0
    text_calls: int = 0
    repairs: int = 0
    bad_calls: int = 0
    unchecked_calls: int = 0
    echoes: int = 0
    """Calls in the model's text that it quoted from the request."""
    warnings: int = 0
    answer_warnings: int = 0
    bad_records: int = 0
    large: bool = False
    """The request is handled in a thread."""
    attempts: int = 0
    status: int = 0
    outcome: str = ""
    error: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    chunks: int = 0
    first_byte_ms: float = 0.0
    duration_ms: float = 0.0
    own_us_per_chunk: float = 0.0


def write(record: Record) -> None:
    """The line, at info when the answer went well, else at warning."""
    level = logging.INFO if record.outcome in ("ok", "client_closed") else logging.WARNING
    if LOG.isEnabledFor(level):
        LOG.log(level, "request", extra={"fields": as_fields(record)})


def as_fields(record: Record) -> dict[str, Any]:
    """The filled fields of a record, in their order."""
    fields: dict[str, Any] = {}
    for name in record.__struct_fields__:
        value = getattr(record, name)
        if value or name in ("calls", "status"):
            fields[name] = round(value, 2) if isinstance(value, float) else value
    return fields
