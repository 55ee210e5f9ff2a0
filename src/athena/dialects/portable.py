"""What dialects share to say things of their own in words that any target understands."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from athena.model.parts import Part, ToolResult, changed
from athena.model.request import Turn

Reword = Callable[[Part], "Part | tuple[Part, ...]"]
"""A part said otherwise: by itself where it needs no other words, by another, by several, by none."""


def reworded(turns: Iterable[Turn], reword: Reword) -> tuple[Turn, ...]:
    """The turns with every part put through `reword`, the content of results included.

    Parts that come back as they are keep their turn and its raw JSON as it is.
    """
    return tuple(_reworded_turn(turn, reword) for turn in turns)


def _reworded_turn(turn: Turn, reword: Reword) -> Turn:
    parts = reworded_parts(turn.parts, reword)
    return turn if parts is turn.parts else changed(turn, parts=parts)


def reworded_parts(parts: tuple[Part, ...], reword: Reword) -> tuple[Part, ...]:
    """The parts, put through `reword`; the tuple itself when all of them came back as they are."""
    said: list[Part] = []
    same = True
    for part in parts:
        new = reword(part)
        if isinstance(new, ToolResult):
            inner = reworded_parts(new.parts, reword)
            if inner is not new.parts:
                new = changed(new, parts=inner)
        same = same and new is part
        said.extend(new if isinstance(new, tuple) else (new,))
    return parts if same else tuple(said)
