"""One line per request: what came, where it went, what was found and how it ended. Never a key, never a body."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import msgspec

from athena.model.events import FinishKind, Usage
from athena.model.request import Loss
from athena.quality import Found
from athena.serving.trace import Trace

PATH_SHOWN = 200
MESSAGE_SHOWN = 500


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """What the answer of one attempt shows about its upstream and model."""

    upstream: str
    model: str
    found: tuple[Found, ...]
    """The classes it belongs to; none for an answer without a flaw."""
    has_tools: bool
    """Could it hold calls at all?"""
    streamed: bool
    first_byte_s: float | None
    """Seconds from sending until the client could be shown something; None: it never could."""
    turn: int
    """Of the route's state, when the request was sent."""


class Said(msgspec.Struct):
    """What the answer of the last attempt says about itself."""

    id: str = ""
    model: str = ""
    """Both as its upstream calls them."""
    finishes: tuple[FinishKind, ...] = ()
    """Why it ended, for each of its choices."""


class Details(msgspec.Struct):
    """What is counted about a request besides its line."""

    attempts: list[tuple[str, bool]] = msgspec.field(default_factory=list)
    """Each upstream that was asked, and whether it did its part."""
    judged: list[Judged] = msgspec.field(default_factory=list)
    """What their answers show, in the same order; attempts that say nothing are left out."""
    bad_calls: dict[str, int] = msgspec.field(default_factory=dict)
    unchecked_calls: dict[str, int] = msgspec.field(default_factory=dict)
    """Calls by what was wrong with them, and by why they were not held against their whole schema."""
    losses: tuple[Loss, ...] = ()
    """What of the request did not reach the upstream as it was."""
    answer_losses: tuple[Loss, ...] = ()
    """What of the answer did not reach the client as it was."""
    notes: dict[str, int] = msgspec.field(default_factory=dict)
    """Calls in text that could not be used, by error code."""
    said: Said | None = None
    """None: no upstream was asked."""
    usage: Usage | None = None
    """What the upstream counted of the answer that the client got."""
    prompted_style: str = ""
    echo_rule: str = ""
    echo_note: str = ""
    defect: str = ""
    """The trace of a fault of ours."""


class RequestRecord(msgspec.Struct):
    """What is known of one request; filled in as it goes."""

    request_id: str
    dialect: str = ""
    path: str = ""
    """The path that the client asked for, at most `PATH_SHOWN` characters of it."""
    key: str = ""
    origin: str = ""
    """The origin of the web page that asked, where it is another site's and allowed."""
    model: str = ""
    upstream: str = ""
    upstream_dialect: str = ""
    upstream_model: str = ""
    chosen_by: str = ""
    """Why that target was asked first, where there are several: `order`, `weight`, `health`, `latency`, `cost`, `session` or
    `canary`."""
    url: str = ""
    """Where the last attempt went, without its query."""
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
    error_message: str = ""
    """What the failure said, as the client was told, at most `MESSAGE_SHOWN` characters of it."""
    warning_text: str = ""
    """What was left out, emulated or repaired, by name, as in `x-athena-warnings`."""
    input_tokens: int = 0
    output_tokens: int = 0
    chunks: int = 0
    first_byte_ms: float = 0.0
    duration_ms: float = 0.0
    own_us_per_chunk: float = 0.0
    trace_id: str = ""
    """The trace that the request belongs to, where traces are exported."""
    details: Details = msgspec.field(default_factory=Details)
    trace: Trace | None = None


FIELDS = tuple(name for name in RequestRecord.__struct_fields__ if name not in ("details", "trace"))
"""The fields of a record that its line may show, in their order."""
values_of = attrgetter(*FIELDS)
"""Their values, all of them."""


def as_fields(record: RequestRecord) -> dict[str, Any]:
    """The filled fields of a record, in their order."""
    return fields_of(FIELDS, values_of(record))


def fields_of(names: Sequence[str], values: Sequence[Any]) -> dict[str, Any]:
    """Those of these fields that are filled."""
    return {
        name: round(value, 2) if type(value) is float else value
        for name, value in zip(names, values, strict=True)
        if value or name == "calls" or name == "status"
    }
