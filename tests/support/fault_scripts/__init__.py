"""The faults, by the names docs/reference/faults.md gives them. Each answers one request; what it leaves out is the fault."""

from __future__ import annotations

from support.fault_scripts import (
    broken_json,
    call_forms,
    call_texts,
    connections,
    echoes,
    ends,
    event_streams,
    http_itself,
    other_things,
    sizes,
    statuses,
)
from support.fault_scripts.registry import FAULTS

__all__ = [
    "FAULTS",
    "broken_json",
    "call_forms",
    "call_texts",
    "connections",
    "echoes",
    "ends",
    "event_streams",
    "http_itself",
    "other_things",
    "sizes",
    "statuses",
]
