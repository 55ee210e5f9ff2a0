"""Reasoning of answers, in all the fields it comes in.

`reasoning`, `reasoning_content` and `reasoning_details` may carry the same text at once: one is read, the richest first.
Entries of `reasoning_details` also carry the state that has to go back: a signature, or encrypted data.

Wire facts: docs/reference/wire-facts.md#servers-that-bend-a-dialect.
"""

from __future__ import annotations

from typing import Any

import msgspec

from athena.dialects.openai_chat.vocabulary import family_of_format
from athena.dialects.openai_chat.wire import ChatMessage
from athena.model.events import Event, ThinkingDelta
from athena.model.parts import Opaque


class ReasoningReader(msgspec.Struct, eq=False):
    """Reads the reasoning of one choice from whichever field carries it."""

    _choice: int
    pending: dict[str, Opaque] = {}
    """State that was sent ahead of the call it belongs to, by the call's id."""
    _plain: list[str] = []
    fields: tuple[str, ...] = ()
    format: str | None = None

    def read(self, message: ChatMessage, out: list[Event]) -> bool:
        """Write what a delta says; True when the set of fields in use grew."""
        told = False
        used: list[str] = []
        details = message.reasoning_details
        if isinstance(details, list) and details:
            used.append("reasoning_details")
            for entry in details:
                if isinstance(entry, dict):
                    told = self._entry(entry, out, told)
        for field, text in (("reasoning", message.reasoning), ("reasoning_content", message.reasoning_content)):
            if isinstance(text, str) and text:
                used.append(field)
                if not told:
                    out.append(ThinkingDelta(text, self._choice))
                    self._plain.append(text)
                    told = True
        if used and not set(used) <= set(self.fields):
            self.fields = tuple(dict.fromkeys((*self.fields, *used)))
            return True
        return False

    def note(self, text: str) -> None:
        """A piece of text in a field that is known to be in use."""
        self._plain.append(text)

    def signature_of(self, call_id: str) -> Opaque | None:
        """The state that was sent ahead of the call it belongs to."""
        return self.pending.pop(call_id, None) if self.pending else None

    def close(self, out: list[Event]) -> None:
        """State that named a call which never came stands for itself."""
        for state in self.pending.values():
            out.append(ThinkingDelta(choice=self._choice, signature=state))
        self.pending.clear()

    def _entry(self, entry: dict[str, Any], out: list[Event], told: bool) -> bool:
        kind = entry.get("type")
        name = entry.get("format")
        if isinstance(name, str):
            self.format = name
        if kind == "reasoning.encrypted":
            self._state(entry, out)
            return told
        summary = kind == "reasoning.summary"
        text = entry.get("summary" if summary else "text")
        if isinstance(text, str) and text:
            if not self._told_before(text):
                out.append(ThinkingDelta(text, self._choice, None, summary))
            told = True
        signature = entry.get("signature")
        if isinstance(signature, str) and signature:
            out.append(ThinkingDelta(choice=self._choice, signature=signed(entry, self.format)))
        return told

    def _told_before(self, text: str) -> bool:
        """Is this an entry that repeats, to sign it, what the plain fields streamed (as this dialect's own encoder does)?"""
        if not self._plain:
            return False
        plain = "".join(self._plain)
        self._plain.clear()
        return plain == text

    def _state(self, entry: dict[str, Any], out: list[Event]) -> None:
        state = encrypted(entry)
        if state is None:
            return
        if state.kind == "thought_signature" and state.item_id:
            # Gemini's state belongs to the call of that id, which comes in the same record or later.
            self.pending[state.item_id] = state
        else:
            out.append(ThinkingDelta(choice=self._choice, signature=state))


def signed(entry: dict[str, Any], name: str | None = None) -> Opaque:
    """The signature of a readable entry."""
    own = entry.get("format")
    name = own if isinstance(own, str) else name
    return Opaque(
        family=family_of_format(name), kind="signature", payload=str(entry["signature"]), item_id=_id(entry), format=name
    )


def encrypted(entry: dict[str, Any]) -> Opaque | None:
    """The state of an entry that is nothing else."""
    data = entry.get("data")
    if not isinstance(data, str) or not data:
        return None
    name = entry.get("format")
    family = family_of_format(name)
    return Opaque(
        family=family,
        kind="redacted" if family == "anthropic" else "thought_signature" if family == "gemini" else "encrypted",
        payload=data,
        item_id=_id(entry),
        format=name if isinstance(name, str) else None,
    )


def _id(entry: dict[str, Any]) -> str | None:
    found = entry.get("id")
    return found if isinstance(found, str) and found else None


def call_signature(extra_content: object) -> Opaque | None:
    """Gemini's thought signature on a call, as Google's own Chat endpoint writes it."""
    google = extra_content.get("google") if isinstance(extra_content, dict) else None
    signature = google.get("thought_signature") if isinstance(google, dict) else None
    if not isinstance(signature, str) or not signature:
        return None
    return Opaque(family="gemini", kind="thought_signature", payload=signature)
