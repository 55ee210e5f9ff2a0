"""Opaque reasoning state goes back to the family that minted it and to no other.

Envelopes are opened here. A part whose state belongs to another family loses the state and keeps its readable text; a part that
was nothing but state goes. Where a client dropped what it did not know, the store fills it in again: state for the family that
minted it, and the text of reasoning for a model that wants it back.

Wire facts: docs/reference/wire-facts.md#opaque-reasoning-state.
"""

from __future__ import annotations

from typing import TypeGuard

from athena.calls.survey import SIGNED, Survey
from athena.model.parts import Opaque, Part, Text, Thinking, ToolCall, changed
from athena.model.profile import Profile
from athena.model.request import Loss, Turn
from athena.opaque import Envelope, OpaqueStore, is_envelope


def fit_state(
    looked: Survey,
    profile: Profile,
    *,
    same: bool,
    envelope: Envelope | None,
    store: OpaqueStore | None,
    tenant: str,
    losses: list[Loss],
) -> tuple[Turn, ...]:
    """The turns with only the state that the target's family can read."""
    turns = looked.turns
    if not looked.kinds & SIGNED and not (store is not None and store.holds_any(tenant, looked.call_ids())):
        return turns
    fitted: list[Turn] = []
    for position, turn in enumerate(turns):
        if turn.role != "assistant":
            fitted.append(turn)
            continue
        parts: list[Part] = []
        for part in turn.parts:
            kept, lost = _fit_part(part, profile, same, envelope)
            if lost:
                losses.append(Loss(f"turns[{position}]", "reasoning state of another provider", minor=True))
            if kept is not None:
                parts.append(kept)
        parts = _on_their_calls(parts)
        if store is not None:
            parts = _remembered(parts, profile, store, tenant)
        if len(parts) == len(turn.parts) and all(new is old for new, old in zip(parts, turn.parts, strict=True)):
            fitted.append(turn)
        else:
            fitted.append(changed(turn, parts=tuple(parts)))
    return tuple(fitted)


def _fit_part(part: Part, profile: Profile, same: bool, envelope: Envelope | None) -> tuple[Part | None, bool]:
    """The part with state that the target can read, or without, or nothing; and whether state was lost."""
    if not isinstance(part, Thinking | Text | ToolCall) or part.signature is None:
        return part, False
    state: Opaque | None = part.signature
    empty = False
    if is_envelope(part.signature.payload):
        state = envelope.open(part.signature.payload) if envelope is not None else None
        # Our own mark for "unsigned" holds nothing that could be lost.
        empty = state is not None and not state.payload
        if state is not None and not (_reads(profile, state) and state.payload):
            state = None
    elif not _reads(profile, part.signature) and not (same and "unknown" in (part.signature.family, profile.family)):
        # At home, with an unknown server, the client's own value is taken for that server's.
        state = None
    if state is part.signature:
        return part, False
    lost = state is None and not empty
    if state is None and isinstance(part, Thinking) and not part.text:
        return None, lost
    return changed(part, signature=state), lost


def _reads(profile: Profile, state: Opaque) -> bool:
    """Did this upstream, or one of its family, mint the state?"""
    return state.family == profile.state_family or state.family == profile.family


def _wants(profile: Profile, block: Thinking) -> bool:
    """Is this thinking of use to the target: state that it can read, or text that it asks for?"""
    if block.signature is not None:
        return _reads(profile, block.signature)
    return profile.reasoning_replay != "never"


def _on_their_calls(parts: list[Part]) -> list[Part]:
    """State of a call that travelled in a block of its own, because the client's dialect has no slot on calls, moves back."""
    carried = [part for part in parts if _is_state_of_call(part)]
    if not carried:
        return parts
    moved = [part for part in parts if not _is_state_of_call(part)]
    for block in carried:
        state = block.signature
        assert state is not None
        for position, part in enumerate(moved):
            if isinstance(part, ToolCall) and part.id == state.item_id:
                moved[position] = changed(part, signature=state)
    return moved


def _is_state_of_call(part: Part) -> TypeGuard[Thinking]:
    if not isinstance(part, Thinking) or part.text or part.signature is None:
        return False
    return part.signature.kind == "thought_signature" and part.signature.item_id is not None


def _remembered(parts: list[Part], profile: Profile, store: OpaqueStore, tenant: str) -> list[Part]:
    """Put back what the client dropped: the thinking before a step's first call, and the signatures of its calls."""
    first = True
    restored: list[Part] = []
    for part in parts:
        if isinstance(part, ToolCall):
            memory = store.get(tenant, part.id)
            if memory is not None:
                has_thinking = any(isinstance(other, Thinking) for other in parts)
                if first and not has_thinking:
                    restored[:0] = [block for block in memory.thinking if _wants(profile, block)]
                if part.signature is None and memory.signature is not None and _reads(profile, memory.signature):
                    part = changed(part, signature=memory.signature)
            first = False
        restored.append(part)
    return restored
