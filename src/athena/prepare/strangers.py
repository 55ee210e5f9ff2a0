"""What only the client's own provider understands, on the way to another: parts and unknown fields are left out and reported.

What is left must still say something: a user's turn or a tool's result of which nothing else is left says what was there, and a
turn of the model or of instructions that has become empty goes.
"""

from __future__ import annotations

from typing import Any

import msgspec

from athena.calls.survey import CITED, EXTRAS, FOREIGN, Survey, kinds_of
from athena.dialects.base import EncodeTarget
from athena.errors import UnsupportedFeature
from athena.model.parts import Foreign, Part, Text, ToolResult, changed
from athena.model.request import Loss, Request, Turn

_STRANGE = FOREIGN | EXTRAS | CITED


def leave_strangers(request: Request, looked: Survey, target: EncodeTarget, losses: list[Loss]) -> Request:
    """The request without them. Raises UnsupportedFeature when the target is strict."""
    if not looked.kinds & _STRANGE and not kinds_of(request.system) & _STRANGE:
        return request
    known = _Known(target.strict, losses)
    system = known.parts(request.system, "system", note=False)
    turns: list[Turn] = []
    same = system is request.system
    for position, turn in enumerate(request.turns):
        path = f"turns[{position}]"
        cited = turn.role == "assistant"
        parts = known.parts(turn.parts, f"{path}.parts", note=turn.role == "user", cited=cited)
        if parts is turn.parts and not turn.extras:
            turns.append(turn)
            continue
        same = False
        known.fields(turn.extras, path)
        if parts or not turn.parts:
            turns.append(changed(turn, parts=parts, extras=None))
    if same:
        return request
    return msgspec.structs.replace(request, system=system, turns=tuple(turns))


class _Known:
    def __init__(self, strict: bool, losses: list[Loss]) -> None:
        self._strict = strict
        self._losses = losses

    def fields(self, extras: dict[str, Any] | None, path: str) -> None:
        """Unknown fields of a turn or a part."""
        self._losses.extend(Loss(f"{path}.{key}", "unknown to this upstream", minor=True) for key in extras or ())

    def parts(self, parts: tuple[Part, ...], path: str, *, note: bool, cited: bool = False) -> tuple[Part, ...]:
        """The parts that others understand too; the tuple itself when it holds no others. `cited`: citations may stand here."""
        kept: list[Part] = []
        gone: list[str] = []
        for index, part in enumerate(parts):
            if isinstance(part, Foreign):
                self._drop(part, f"{path}[{index}]")
                gone.append(part.kind)
                continue
            if part.extras:
                self.fields(part.extras, f"{path}[{index}]")
                part = msgspec.structs.replace(part, extras=None)
            if isinstance(part, Text) and part.citations and not cited:
                self._losses.append(Loss(f"{path}[{index}].citations", "only answers hold citations here", minor=True))
                part = changed(part, citations=())
            if isinstance(part, ToolResult):
                inner = self.parts(part.parts, f"{path}[{index}].parts", note=True)
                part = part if inner is part.parts else changed(part, parts=inner)
            kept.append(part)
        if gone and not kept and note:
            kept.append(Text(text=f"[{', '.join(gone)}: cannot be shown here]"))
        return parts if not gone and all(new is old for new, old in zip(kept, parts, strict=True)) else tuple(kept)

    def _drop(self, part: Foreign, path: str) -> None:
        reason = f"{part.kind} means something only to its own provider"
        if self._strict:
            raise UnsupportedFeature(f"{path}: {reason}", path=path)
        self._losses.append(Loss(path, reason))
