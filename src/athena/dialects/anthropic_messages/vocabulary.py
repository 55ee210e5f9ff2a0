"""Words of the Messages API that both directions need.

Wire facts: docs/reference/wire-facts.md#anthropic-messages.
"""

from __future__ import annotations

from athena.model.events import FinishKind

NAME = "anthropic_messages"
FAMILY = "anthropic"
"""Whose reasoning state stands in a client's `signature` and `data` fields unless an envelope says otherwise."""

BILLING = "x-anthropic-billing-header"
"""How a system block begins that an agent writes for the provider's billing. It changes from session to session, so that no
prefix of a prompt would ever be found in another provider's cache."""

OLD_VERSION = "2023-06-01"
NEW_VERSION = "2026-10-21"
"""From this wire version on, any sampling parameter is an error."""

UNKNOWN_EVENT = "unknown_event"
"""`Extra` field that holds an unknown stream event: it has no place in a whole answer."""

TEXT_BLOCK_END = "text_block_end"
"""`Extra` field between two text blocks in a row, which the neutral events would otherwise join."""

FINISH_OF: dict[str, FinishKind] = {
    "end_turn": "stop",
    "max_tokens": "length",
    "stop_sequence": "stop_sequence",
    "tool_use": "tool",
    "pause_turn": "pause",
    "compaction": "pause",
    "refusal": "refusal",
    "model_context_window_exceeded": "context",
}

STOP_REASON_OF: dict[FinishKind, str] = {
    "stop": "end_turn",
    "stop_sequence": "stop_sequence",
    "tool": "tool_use",
    "length": "max_tokens",
    "context": "model_context_window_exceeded",
    "refusal": "refusal",
    "filter": "refusal",
    "pause": "pause_turn",
    "continuation": "max_tokens",
    "malformed": "end_turn",
}
