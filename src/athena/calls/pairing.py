"""Calls and results side by side: every foreign target wants all results of a turn together, first, in call order.

Runs on every request that goes to another dialect. A history that is already in order comes out as the same objects, so its raw
JSON survives. Idempotent.

A result may come late: functions that run in the background answer after later turns of the model. Where its call stood, the
target gets a result that says there is none yet; the late result is told as text where it arrived. What stands there before it
arrives is the same as afterwards, so prompt caches hold.

Wire facts: docs/reference/wire-facts.md#pairing-and-order.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from athena.errors import InvalidRequest
from athena.model.parts import Part, Refusal, Text, ToolCall, ToolResult, changed, joined_text
from athena.model.request import Loss, Turn

Pairing = Literal["strict", "repair"]
"""`strict`: a result without any call is a client's mistake. `repair`: it becomes text. Both fill in missing results."""

MISSING_RESULT = "no result was recorded"


def pair_results(turns: Iterable[Turn], pairing: Pairing = "strict") -> tuple[tuple[Turn, ...], tuple[Loss, ...]]:
    """The turns with every call answered right after it, and what had to be done for that."""
    pairs = _Pairs(pairing)
    speaking: list[Turn] = []
    between: list[Turn] = []
    for turn in turns:
        if turn.role != "assistant":
            between.append(turn)
            continue
        if between:
            pairs.step(speaking, between)
            speaking, between = [], []
        speaking.append(turn)
    pairs.step(speaking, between)
    return tuple(pairs.paired), tuple(pairs.losses)


class _Pairs:
    """The history as far as it is in order."""

    def __init__(self, pairing: Pairing) -> None:
        self._pairing = pairing
        self._pending: set[str] = set()
        """Calls whose result was not there when the model went on: it may still come."""
        self.paired: list[Turn] = []
        self.losses: list[Loss] = []

    def step(self, speaking: list[Turn], between: list[Turn]) -> None:
        """Assistant turns in a row and what follows them up to the next one.

        A turn whose calls are answered only after a later assistant turn becomes one turn with that one, because every target
        wants results right after the turn that called. A turn none of whose calls is answered gets its missing results at
        once.
        """
        paired = self.paired
        given = {part.call_id for turn in between for part in turn.parts if isinstance(part, ToolResult)}
        calls: list[ToolCall] = []
        for position, turn in enumerate(speaking):
            if calls:
                self._repaired(len(paired) - 1, "joined with the next assistant turn")
                paired[-1] = changed(paired[-1], parts=paired[-1].parts + turn.parts)
            else:
                paired.append(turn)
            calls += [part for part in turn.parts if isinstance(part, ToolCall)]
            if position < len(speaking) - 1 and calls and not any(call.id in given for call in calls):
                paired.extend(self._answered(calls, []))
                calls = []
        paired.extend(self._answered(calls, between))

    def _answered(self, calls: list[ToolCall], between: list[Turn]) -> list[Turn]:
        """The turns up to the next assistant turn, results first."""
        if not calls and not any(isinstance(part, ToolResult) for turn in between for part in turn.parts):
            return between
        wanted = [call.id for call in calls]
        flat = [part for turn in between for part in turn.parts]
        if [part.call_id for part in flat[: len(wanted)] if isinstance(part, ToolResult)] == wanted and not any(
            isinstance(part, ToolResult) for part in flat[len(wanted) :]
        ):
            return between
        position = len(self.paired)
        known = set(wanted)
        found: dict[str, ToolResult] = {}
        others: list[Turn] = []
        for turn in between:
            kept: list[Part] = []
            for part in turn.parts:
                if not isinstance(part, ToolResult):
                    kept.append(part)
                elif part.call_id not in known:
                    kept.extend(self._late_or_orphan(part, position))
                elif part.call_id in found:
                    self.losses.append(Loss(f"turns[{position}]", f"second result for call {part.call_id}"))
                else:
                    found[part.call_id] = part
            if len(kept) == len(turn.parts) and all(new is old for new, old in zip(kept, turn.parts, strict=True)):
                others.append(turn)
            elif kept:
                others.append(changed(turn, parts=tuple(kept), hint=None))
        for call in calls:
            if call.id not in found:
                self._pending.add(call.id)
                self._repaired(position, f"call {call.id} has no result")
        results = tuple(
            found.get(call.id)
            or ToolResult(call_id=call.id, name=call.name, kind=call.kind, is_error=True, parts=(Text(text=MISSING_RESULT),))
            for call in calls
        )
        return [Turn(role="user", parts=results), *others] if results else others

    def _late_or_orphan(self, part: ToolResult, position: int) -> list[Part]:
        if part.call_id in self._pending:
            self._pending.discard(part.call_id)
            self._repaired(position, f"result {part.call_id} came after later turns; kept as text")
        elif self._pairing == "strict":
            raise InvalidRequest(
                f"turns[{position}]: tool result {part.call_id!r} has no matching tool call in the turn before it",
                path=f"turns[{position}]",
                code="orphan_tool_result",
            )
        else:
            self._repaired(position, f"result {part.call_id} has no call; kept as text")
        told = Text(text=f"[result of tool call {part.call_id}]\n{joined_text(part.parts)}")
        return [told, *(inner for inner in part.parts if not isinstance(inner, Text | Refusal))]

    def _repaired(self, position: int, reason: str) -> None:
        self.losses.append(Loss(f"turns[{position}]", reason, "repaired"))
