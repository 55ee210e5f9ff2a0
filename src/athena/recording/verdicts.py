"""The one word to colour an exchange by."""

from __future__ import annotations

from collections.abc import Mapping

from athena.recording.view import Word
from athena.serving.record import RequestRecord


def verdict_of(record: Mapping[str, object]) -> Word:
    """The one word to colour an exchange by."""
    outcome = record.get("outcome", "")
    if outcome in ("client_closed", "client_stalled"):
        return "left"
    if outcome != "ok":
        return "error"
    if record.get("echoes"):
        return "echo"
    return "repaired" if record.get("repairs") or record.get("text_calls") else "ok"


def is_special(record: RequestRecord) -> bool:
    """Has the exchange another word than `ok`? As `verdict_of` says it, without the fields as a mapping."""
    return record.outcome != "ok" or bool(record.echoes or record.repairs or record.text_calls)
