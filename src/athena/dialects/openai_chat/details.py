"""`reasoning_details`, the one slot of Chat that holds reasoning state, written for answers and for history.

Readable state is an entry `reasoning.text` with its text and signature, state alone is `reasoning.encrypted`.

Wire facts: docs/reference/wire-facts.md#openrouter.
"""

from __future__ import annotations

from typing import Any

from athena.dialects.openai_chat.vocabulary import FORMAT_OF_FAMILY
from athena.model.parts import Opaque
from athena.opaque import is_envelope


def format_of(state: Opaque) -> str:
    """The entry's format: who can read the state. Our envelopes belong to no family."""
    if is_envelope(state.payload):
        return "unknown"
    return state.format or FORMAT_OF_FAMILY.get(state.family, "unknown")


def state_entry(state: Opaque, text: str, *, summary: bool = False, index: int | None = None) -> dict[str, Any]:
    """State, together with the text it signs."""
    entry: dict[str, Any]
    if text:
        entry = {"type": "reasoning.text", "text": text, "signature": state.payload}
    else:
        entry = {"type": "reasoning.encrypted", "data": state.payload}
    return _placed(entry, state, index)


def state_entries(state: Opaque, text: str, *, summary: bool, first: int) -> list[dict[str, Any]]:
    """The same for history: encrypted state stands after the summary it belongs to, as its maker wrote it."""
    if text and state.kind != "signature" and not is_envelope(state.payload):
        # Only summaries stand beside encrypted state; a dialect between us and the client may not tell them from other text.
        summary = summary or state.kind == "encrypted"
        return [
            text_entry(text, summary=summary, index=first, format=format_of(state)),
            state_entry(state, "", index=first + 1),
        ]
    return [state_entry(state, text, index=first)]


def text_entry(text: str, *, summary: bool, index: int, format: str | None = None) -> dict[str, Any]:  # noqa: A002 - wire name
    """Readable reasoning without state."""
    entry: dict[str, Any] = (
        {"type": "reasoning.summary", "summary": text} if summary else {"type": "reasoning.text", "text": text}
    )
    if format is not None:
        entry["format"] = format
    entry["index"] = index
    return entry


def _placed(entry: dict[str, Any], state: Opaque, index: int | None) -> dict[str, Any]:
    if state.item_id is not None and not is_envelope(state.payload):
        entry["id"] = state.item_id
    entry["format"] = format_of(state)
    if index is not None:
        entry["index"] = index
    return entry


def call_extra_content(state: Opaque) -> dict[str, Any]:
    """State of a call, where Google's own Chat endpoint puts it."""
    return {"google": {"thought_signature": state.payload}}
