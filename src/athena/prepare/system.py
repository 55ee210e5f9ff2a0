"""Instructions where the target takes them.

A system turn in the middle of a conversation is never hoisted to the front: that would break prompt caches and order. Where the
target has no such turn it becomes user text in a fixed tag.

Wire facts: docs/reference/wire-facts.md#roles-and-instructions.
"""

from __future__ import annotations

import msgspec

from athena.calls.survey import SYSTEM, Survey
from athena.model.parts import Refusal, Text, changed, joined_text
from athena.model.profile import Profile
from athena.model.request import Loss, Request, Turn


def fit_system(request: Request, looked: Survey, profile: Profile, *, inline: bool, same: bool, losses: list[Loss]) -> Request:
    """`inline`: the dialect takes system turns anywhere, unless the profile says otherwise. Else the profile may take them
    after a user turn; whether they stand right is at home (`same`) for the upstream to say."""
    turns = request.turns
    inline = inline and profile.system_turns == "anywhere"
    if not inline and looked.has(SYSTEM):
        fitted: list[Turn] = []
        for position, turn in enumerate(turns):
            stands = same or (fitted and fitted[-1].role != "assistant")
            if turn.role == "system" and not (profile.mid_system and stands):
                parts = turn.parts
                tagged = f"<system-reminder>\n{joined_text(parts, chr(10))}\n</system-reminder>"
                turn = changed(turn, role="user", parts=(Text(text=tagged),), hint=None)
                losses.append(
                    Loss(f"turns[{position}]", "instructions in mid-conversation are sent as tagged text", "emulated")
                )
                losses += [
                    Loss(f"turns[{position}].parts[{index}]", "only the text of late instructions can be sent")
                    for index, part in enumerate(parts)
                    if not isinstance(part, Text | Refusal)
                ]
            fitted.append(turn)
        turns = tuple(fitted)
    system = request.system
    if system and not profile.system_messages:
        losses.append(Loss("system", "this model has no system role; the instructions lead the first message", "emulated"))
        turns = _before_first_user(turns, joined_text(system, "\n\n"))
        system = ()
    if turns is request.turns and system is request.system:
        return request
    return msgspec.structs.replace(request, turns=turns, system=system)


def _before_first_user(turns: tuple[Turn, ...], text: str) -> tuple[Turn, ...]:
    for position, turn in enumerate(turns):
        if turn.role == "user":
            opened = changed(turn, parts=(Text(text=text), *turn.parts))
            return (*turns[:position], opened, *turns[position + 1 :])
    return (Turn(role="user", parts=(Text(text=text),)), *turns)
