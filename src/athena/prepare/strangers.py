"""Parts that only the client's own provider understands, on the way to another: left out and reported.

What is left must still say something: a user's turn or a tool's result of which nothing else is left says what was there, and a
turn of the model or of instructions that has become empty goes.
"""

from __future__ import annotations

import msgspec

from athena.dialects.base import Target
from athena.errors import UnsupportedFeature
from athena.model.parts import Foreign, Part, Text, ToolResult, changed
from athena.model.request import Loss, Request, Turn


def leave_strangers(request: Request, target: Target, losses: list[Loss]) -> Request:
    """The request without them. Raises UnsupportedFeature when the target is strict."""
    known = _Known(target.strict, losses)
    system = known.parts(request.system, "system", note=False)
    turns: list[Turn] = []
    same = system is request.system
    for position, turn in enumerate(request.turns):
        parts = known.parts(turn.parts, f"turns[{position}].parts", note=turn.role == "user")
        if parts is turn.parts:
            turns.append(turn)
            continue
        same = False
        if parts:
            turns.append(changed(turn, parts=parts))
    if same:
        return request
    return msgspec.structs.replace(request, system=system, turns=tuple(turns))


class _Known:
    def __init__(self, strict: bool, losses: list[Loss]) -> None:
        self._strict = strict
        self._losses = losses

    def parts(self, parts: tuple[Part, ...], path: str, *, note: bool) -> tuple[Part, ...]:
        """The parts that others understand too; the tuple itself when it holds no others."""
        kept: list[Part] = []
        gone: list[str] = []
        for index, part in enumerate(parts):
            if isinstance(part, Foreign):
                self._drop(part, f"{path}[{index}]")
                gone.append(part.kind)
                continue
            if isinstance(part, ToolResult):
                inner = self.parts(part.parts, f"{path}[{index}].parts", note=True)
                part = part if inner is part.parts else changed(part, parts=inner)
            kept.append(part)
        if gone and not kept and note:
            kept.append(Text(text=f"[{', '.join(gone)}: can not be shown here]"))
        return parts if not gone and all(new is old for new, old in zip(kept, parts, strict=True)) else tuple(kept)

    def _drop(self, part: Foreign, path: str) -> None:
        reason = f"{part.kind} means something only to its own provider"
        if self._strict:
            raise UnsupportedFeature(f"{path}: {reason}", path=path)
        self._losses.append(Loss(path, reason))
