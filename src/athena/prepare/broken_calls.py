"""Calls in a history whose arguments are no JSON object: a model's cut or broken call that the client kept.

Servers that fill a chat template read those arguments, and one broken call makes them refuse the whole request. So they go
upstream as an object that holds what the model wrote, under the key that they have in dialects of objects anyway. An upstream
that takes its own dialect as it is gets them as the client sent them.
"""

from __future__ import annotations

import msgspec

from athena.calls.arguments import arguments_object
from athena.calls.survey import is_broken
from athena.model.parts import Part, ToolCall, changed
from athena.model.request import Loss, Turn


def mend_broken_calls(turns: tuple[Turn, ...], losses: list[Loss]) -> tuple[Turn, ...]:
    """The turns with the arguments of every function call one JSON object."""
    mended = list(turns)
    for position, turn in enumerate(turns):
        if turn.role != "assistant" or not any(map(_is_broken_call, turn.parts)):
            continue
        parts: list[Part] = []
        for number, part in enumerate(turn.parts):
            if isinstance(part, ToolCall) and is_broken(part):
                path = f"turns[{position}].parts[{number}].arguments"
                losses.append(Loss(path, "the arguments of a call in the history are no JSON object", "repaired"))
                part = changed(part, arguments=msgspec.json.encode(arguments_object(part.arguments)).decode())
            parts.append(part)
        mended[position] = changed(turn, parts=tuple(parts))
    return tuple(mended)


def _is_broken_call(part: Part) -> bool:
    return isinstance(part, ToolCall) and is_broken(part)
