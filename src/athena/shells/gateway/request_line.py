"""The line that is logged about each request."""

from __future__ import annotations

import logging

from athena.serving.record import Record, as_fields

LOG = logging.getLogger("athena.request")


def write(record: Record) -> None:
    """The line, at info when the answer went well, else at warning."""
    level = logging.INFO if record.outcome in ("ok", "client_closed") else logging.WARNING
    if LOG.isEnabledFor(level):
        LOG.log(level, "request", extra={"fields": as_fields(record)})
