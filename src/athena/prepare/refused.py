"""Turns without what a model refuses wherever it stands: images for one that reads text only, and text that is empty.

What is left must still say something: where an image was stands a word, and so it does where nothing else is left of a turn
that has to be there.
"""

from __future__ import annotations

from athena.model.parts import Image, Part, Refusal, Text, ToolResult, changed
from athena.model.profile import Profile
from athena.model.request import Loss, Turn

_NO_IMAGE = "[An image was here. This model reads text only.]"
_NOTHING = "(empty)"


def without_refused(turns: tuple[Turn, ...], profile: Profile, losses: list[Loss]) -> tuple[Turn, ...]:
    """The turns as this profile takes them; turns that hold nothing it refuses stay the same objects."""
    fitted: list[Turn] = []
    for position, turn in enumerate(turns):
        parts = _fitted(turn.parts, profile, f"turns[{position}].parts", losses)
        if parts is turn.parts:
            fitted.append(turn)
        elif parts or turn.role == "user":
            fitted.append(changed(turn, parts=parts or (Text(text=_NOTHING),)))
    return tuple(fitted)


def _fitted(parts: tuple[Part, ...], profile: Profile, path: str, losses: list[Loss]) -> tuple[Part, ...]:
    fitted: list[Part] = []
    same = True
    for index, part in enumerate(parts):
        new: Part | None = part
        if isinstance(part, Image) and not profile.images:
            losses.append(Loss(f"{path}[{index}]", "this model takes no images"))
            new = Text(text=_NO_IMAGE)
        elif isinstance(part, Text | Refusal) and not profile.empty_content and not part.text.strip():
            new = None
        elif isinstance(part, ToolResult):
            inner = _fitted(part.parts, profile, f"{path}[{index}].parts", losses)
            if inner is not part.parts or (not inner and not profile.empty_content):
                new = changed(part, parts=inner or (Text(text=_NOTHING),))
        same = same and new is part
        if new is not None:
            fitted.append(new)
    return parts if same else tuple(fitted)
