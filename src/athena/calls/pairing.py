"""Calls and results side by side: every target wants all results of a turn together, first, in call order (`dialects.md` 3.6).

Runs on every request before it is encoded. A history that is already in order comes out as the same objects, so its raw JSON
survives. Idempotent.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from athena.errors import InvalidRequest
from athena.model.parts import Part, Text, ToolCall, ToolResult, changed, joined_text
from athena.model.request import Loss, Turn

Pairing = Literal["strict", "repair"]
"""`strict`: a result without its call is a client's mistake. `repair`: it becomes text. Both fill in missing results."""

MISSING_RESULT = "no result was recorded"


def pair_results(turns: Iterable[Turn], pairing: Pairing = "strict") -> tuple[tuple[Turn, ...], tuple[Loss, ...]]:
    """The turns with every call answered right behind it, and what had to be done for that."""
    losses: list[Loss] = []
    paired: list[Turn] = []
    speaking: list[Turn] = []
    between: list[Turn] = []
    for turn in turns:
        if turn.role != "assistant":
            between.append(turn)
            continue
        if between:
            _pair_step(speaking, between, paired, pairing, losses)
            speaking, between = [], []
        speaking.append(turn)
    _pair_step(speaking, between, paired, pairing, losses)
    return tuple(paired), tuple(losses)


def _pair_step(speaking: list[Turn], between: list[Turn], paired: list[Turn], pairing: Pairing, losses: list[Loss]) -> None:
    """One step: assistant turns in a row and what follows them up to the next one.

    A turn whose calls are answered only behind a later assistant turn becomes one turn with that one, because every target
    wants results right behind the turn that called. A turn none of whose calls is answered gets its missing results at once.
    """
    given = {part.call_id for turn in between for part in turn.parts if isinstance(part, ToolResult)}
    calls: list[ToolCall] = []
    for position, turn in enumerate(speaking):
        if calls:
            losses.append(Loss(f"turns[{len(paired) - 1}]", "joined with the assistant turn behind it", "repaired"))
            paired[-1] = changed(paired[-1], parts=paired[-1].parts + turn.parts)
        else:
            paired.append(turn)
        calls += [part for part in turn.parts if isinstance(part, ToolCall)]
        if position < len(speaking) - 1 and calls and not any(call.id in given for call in calls):
            paired.extend(_answered(calls, [], pairing, losses, len(paired)))
            calls = []
    paired.extend(_answered(calls, between, pairing, losses, len(paired)))


def _answered(calls: list[ToolCall], between: list[Turn], pairing: Pairing, losses: list[Loss], position: int) -> list[Turn]:
    """The turns up to the next assistant turn, results first."""
    if not calls and not any(isinstance(part, ToolResult) for turn in between for part in turn.parts):
        return between
    wanted = [call.id for call in calls]
    flat = [part for turn in between for part in turn.parts]
    if [part.call_id for part in flat[: len(wanted)] if isinstance(part, ToolResult)] == wanted and not any(
        isinstance(part, ToolResult) for part in flat[len(wanted) :]
    ):
        return between
    known = set(wanted)
    found: dict[str, ToolResult] = {}
    others: list[Turn] = []
    for turn in between:
        kept: list[Part] = []
        for part in turn.parts:
            if not isinstance(part, ToolResult):
                kept.append(part)
            elif part.call_id not in known:
                kept.append(_orphan(part, pairing, losses, position))
            elif part.call_id in found:
                losses.append(Loss(f"turns[{position}]", f"second result for call {part.call_id}"))
            else:
                found[part.call_id] = part
        if len(kept) == len(turn.parts) and all(new is old for new, old in zip(kept, turn.parts, strict=True)):
            others.append(turn)
        elif kept:
            others.append(changed(turn, parts=tuple(kept), hint=None))
    for call in calls:
        if call.id not in found:
            losses.append(Loss(f"turns[{position}]", f"call {call.id} has no result", "repaired"))
    results = tuple(
        found.get(call.id)
        or ToolResult(call_id=call.id, name=call.name, kind=call.kind, is_error=True, parts=(Text(text=MISSING_RESULT),))
        for call in calls
    )
    return [Turn(role="user", parts=results), *others] if results else others


def _orphan(part: ToolResult, pairing: Pairing, losses: list[Loss], position: int) -> Part:
    if pairing == "strict":
        raise InvalidRequest(
            f"turns[{position}]: tool result {part.call_id!r} has no matching tool call in the turn before it",
            path=f"turns[{position}]",
            code="orphan_tool_result",
        )
    losses.append(Loss(f"turns[{position}]", f"result {part.call_id} has no call; kept as text", "repaired"))
    return Text(text=f"[result of tool call {part.call_id}]\n{joined_text(part.parts)}")
