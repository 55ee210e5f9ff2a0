"""Opaque reasoning state goes back to the family that minted it and to nobody else (`dialects.md` 2.4, 3.9).

Envelopes are opened here. A part whose state belongs to somebody else loses the state and keeps its readable text; a part that
was nothing but state goes. Where a client dropped what it did not know, the store fills it in again.
"""

from __future__ import annotations

from athena.model.parts import Opaque, Part, Text, Thinking, ToolCall, changed
from athena.model.profile import Profile
from athena.model.request import Loss, Turn
from athena.opaque import Envelope, OpaqueStore, is_envelope


def fit_state(
    turns: tuple[Turn, ...],
    profile: Profile,
    *,
    same: bool,
    envelope: Envelope | None,
    store: OpaqueStore | None,
    tenant: str,
    losses: list[Loss],
) -> tuple[Turn, ...]:
    """The turns with only the state that the target's family can read."""
    fitted: list[Turn] = []
    for position, turn in enumerate(turns):
        if turn.role != "assistant":
            fitted.append(turn)
            continue
        parts: list[Part] = []
        for part in turn.parts:
            kept = _fit_part(part, profile, same, envelope)
            if kept is None or (kept is not part and isinstance(kept, Thinking) and kept.signature is None):
                losses.append(Loss(f"turns[{position}]", "reasoning state of another provider"))
            if kept is not None:
                parts.append(kept)
        if store is not None:
            parts = _remembered(parts, profile, store, tenant)
        if len(parts) == len(turn.parts) and all(new is old for new, old in zip(parts, turn.parts, strict=True)):
            fitted.append(turn)
        else:
            fitted.append(changed(turn, parts=tuple(parts)))
    return tuple(fitted)


def _fit_part(part: Part, profile: Profile, same: bool, envelope: Envelope | None) -> Part | None:
    if not isinstance(part, Thinking | Text | ToolCall) or part.signature is None:
        return part
    state: Opaque | None = part.signature
    if is_envelope(part.signature.payload):
        state = envelope.open(part.signature.payload) if envelope is not None else None
        if state is not None and (state.family != profile.family or not state.payload):
            state = None
    elif not same and state is not None and state.family != profile.family:
        state = None
    if state is part.signature:
        return part
    if state is None and isinstance(part, Thinking) and not part.text:
        return None
    return changed(part, signature=state)


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
                    restored[:0] = [
                        block
                        for block in memory.thinking
                        if block.signature is not None and block.signature.family == profile.family
                    ]
                if part.signature is None and memory.signature is not None and memory.signature.family == profile.family:
                    part = changed(part, signature=memory.signature)
            first = False
        restored.append(part)
    return restored
