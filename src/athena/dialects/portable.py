"""What dialects share to say things of their own in words that any target understands."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from athena.model.parts import Part, ToolResult, changed
from athena.model.request import Turn


def reworded(turns: Iterable[Turn], reword: Callable[[Part], Part | None]) -> tuple[Turn, ...]:
    """The turns with every part put through `reword`, the content of results included; None leaves a part out.

    Parts that come back as they are keep their turn and its raw JSON as it is.
    """
    return tuple(_reworded_turn(turn, reword) for turn in turns)


def _reworded_turn(turn: Turn, reword: Callable[[Part], Part | None]) -> Turn:
    parts = _reworded_parts(turn.parts, reword)
    return turn if parts is turn.parts else changed(turn, parts=parts)


def _reworded_parts(parts: tuple[Part, ...], reword: Callable[[Part], Part | None]) -> tuple[Part, ...]:
    said: list[Part] = []
    same = True
    for part in parts:
        new = reword(part)
        if isinstance(new, ToolResult):
            inner = _reworded_parts(new.parts, reword)
            if inner is not new.parts:
                new = changed(new, parts=inner)
        same = same and new is part
        if new is not None:
            said.append(new)
    return parts if same else tuple(said)
