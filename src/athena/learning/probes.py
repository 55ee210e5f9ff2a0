"""What a template is asked to render: conversations made of words that no template contains, so that each is found again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from athena.errors import AthenaError

Variables: TypeAlias = dict[str, Any]
Render: TypeAlias = Callable[[Variables], str]
"""Renders the template with these variables. Raises RenderFailed."""

USER = "uquzzle"
CONTENT = "cowlbrim"
REASONING = "rhumtarn"
RESULT = "tvexplum"


class RenderFailed(AthenaError):
    """The template refuses these variables, or fails on them."""


class ProbeCall(msgspec.Struct, frozen=True):
    """A call that is rendered and must be found again."""

    name: str
    arguments: Mapping[str, Any]
    id: str = "abcdefgh1"

    def message(self, *, encoded: bool) -> dict[str, Any]:
        """The call as an assistant message holds it; `encoded`: its arguments are JSON text."""
        arguments: Any = msgspec.json.encode(self.arguments).decode() if encoded else dict(self.arguments)
        return {"id": self.id, "type": "function", "function": {"name": self.name, "arguments": arguments}}


STRINGS = {"kalpone": "valpone", "kbettwo": "vbettwo", "kgamtri": "vgamtri"}
TYPES = {
    "kalpone": "valpone",
    "kbettwo": 730191,
    "kgamtri": 730192.25,
    "kheltet": True,
    "kimquin": {"kinside": ["vinside"]},
    "kjosext": ["vitemone", "vitemtwo"],
}
FIRST = ProbeCall("fnordalpha", STRINGS, "abcdefgh1")
SECOND = ProbeCall("gwombatbeta", {"kleftnon": "vleftnon"}, "abcdefgh2")
LONG_ID = "call_abcdefghijklmnopqrstu"

_JSON_TYPES = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    dict: "object",
    list: "array",
    type(None): "null",
}


def schema_of(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """A schema that such arguments fit."""
    properties = {key: {"type": _JSON_TYPES[type(value)], "description": "a value"} for key, value in arguments.items()}
    return {"type": "object", "properties": properties, "required": list(arguments)}


def tools_of(calls: Sequence[ProbeCall]) -> list[dict[str, Any]]:
    """The tools that such calls are of, one for each name."""
    arguments: dict[str, dict[str, Any]] = {}
    for call in calls:
        arguments.setdefault(call.name, {}).update(call.arguments)
    return [
        {"type": "function", "function": {"name": name, "description": "A tool.", "parameters": schema_of(known)}}
        for name, known in arguments.items()
    ]


class Way(msgspec.Struct, frozen=True):
    """How this template wants its variables."""

    encoded: bool = False
    """Arguments as JSON text; else as an object."""
    no_content: str | None = ""
    """What stands for no content beside calls."""

    def conversation(
        self,
        calls: Sequence[ProbeCall] = (),
        *,
        content: str | None = None,
        reasoning: str | None = None,
        tools: Sequence[ProbeCall] = (FIRST, SECOND),
        generate: bool = False,
        assistant: bool = True,
    ) -> Variables:
        """The variables of one question and, with `assistant`, its answer."""
        messages: list[dict[str, Any]] = [{"role": "user", "content": USER}]
        if assistant:
            answer: dict[str, Any] = {"role": "assistant", "content": content if content is not None else self.no_content}
            if calls:
                answer["tool_calls"] = [call.message(encoded=self.encoded) for call in calls]
            if reasoning is not None:
                # Every template reads one of these names.
                answer |= {"reasoning_content": reasoning, "thinking": reasoning, "reasoning": reasoning}
            messages.append(answer)
        return {
            "messages": messages,
            "tools": tools_of((*tools, *calls)),
            "add_generation_prompt": generate,
            "enable_thinking": True,
        }


WAYS = (Way(), Way(no_content=None), Way(encoded=True), Way(encoded=True, no_content=None))
