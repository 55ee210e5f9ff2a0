"""A Gemini request in words that any target understands: the computer tool as the functions that the client runs for it, the
choice of one value out of an enum as an instruction.

The functions and their arguments are those of Google's published reference for computer use: coordinates run from 0 to 999,
whatever the size of the screen.
"""

from __future__ import annotations

import msgspec

from athena.calls.survey import ALL
from athena.dialects.gemini.spelling import EitherCase
from athena.model.parts import Text
from athena.model.request import Loss, Request, Tool
from athena.schemas import Schema


def _fields(required: Schema | None = None, optional: Schema | None = None) -> Schema:
    return {"type": "object", "properties": {**(required or {}), **(optional or {})}, "required": list(required or ())}


def _place(name: str, edge: str) -> Schema:
    return {name: {"type": "integer", "description": f"0 to 999 from the {edge}."}}


_SPOT = {**_place("x", "left"), **_place("y", "top")}
_END = {**_place("destination_x", "left"), **_place("destination_y", "top")}
_DIRECTION: Schema = {"direction": {"type": "string", "enum": ["up", "down", "left", "right"]}}

_ANYWHERE: dict[str, tuple[str, Schema]] = {
    "wait_5_seconds": ("Wait five seconds.", _fields()),
    "click_at": ("Click at a point.", _fields(_SPOT)),
    "hover_at": ("Move the pointer to a point without clicking.", _fields(_SPOT)),
    "type_text_at": (
        "Click at a point and type text there.",
        _fields(
            {**_SPOT, "text": {"type": "string"}},
            {
                "press_enter": {"type": "boolean", "description": "Press Enter afterwards; true if left out."},
                "clear_before_typing": {"type": "boolean", "description": "Clear the field first; true if left out."},
            },
        ),
    ),
    "key_combination": (
        "Press keys together.",
        _fields({"keys": {"type": "string", "description": "The keys joined by +, such as control+c."}}),
    ),
    "scroll_document": ("Scroll the whole page.", _fields(_DIRECTION)),
    "scroll_at": (
        "Scroll at a point.",
        _fields({**_SPOT, **_DIRECTION}, {"magnitude": {"type": "integer", "description": "0 to 999; 800 if left out."}}),
    ),
    "drag_and_drop": ("Drag from one point to another.", _fields({**_SPOT, **_END})),
}
_IN_BROWSERS: dict[str, tuple[str, Schema]] = {
    "open_web_browser": ("Open the browser.", _fields()),
    "go_back": ("Go to the page before.", _fields()),
    "go_forward": ("Go to the page after.", _fields()),
    "search": ("Go to the start page of a search engine.", _fields()),
    "navigate": ("Go to an address.", _fields({"url": {"type": "string"}})),
}


def portable(request: Request, kinds: int = ALL) -> Request:
    """The request for a target of another dialect."""
    request = _enum_in_words(request)
    if not any(tool.hosted == "computerUse" for tool in request.tools):
        return request
    losses = list(request.losses)
    tools: list[Tool] = []
    for index, tool in enumerate(request.tools):
        tools.extend(_computer(tool, f"tools[{index}]", losses) if tool.hosted == "computerUse" else (tool,))
    return msgspec.structs.replace(request, tools=tuple(tools), losses=tuple(losses))


def _enum_in_words(request: Request) -> Request:
    """`text/x.enum`: no other dialect can ask for a bare value of an enum."""
    output = request.output
    if output.kind != "text" or output.schema is None:
        return request
    values = output.schema.get("enum")
    listed = (
        ", ".join(str(value) for value in values) if isinstance(values, list) else msgspec.json.encode(output.schema).decode()
    )
    line = Text(text=f"Answer with exactly one of these values and nothing else: {listed}")
    return msgspec.structs.replace(
        request,
        system=(*request.system, line),
        output=msgspec.structs.replace(output, schema=None),
        losses=(*request.losses, Loss("responseSchema", "the values are told to the model, not enforced", "emulated")),
    )


def _computer(tool: Tool, path: str, losses: list[Loss]) -> list[Tool]:
    config = EitherCase(dict(tool.config or {}))
    browser = config.word("environment") in (None, "ENVIRONMENT_BROWSER")
    excluded = config.texts("excludedPredefinedFunctions")
    for key in config.rest() or ():
        losses.append(Loss(f"{path}.computerUse.{key}", "other models know no such setting of this tool"))
    functions = {**_IN_BROWSERS, **_ANYWHERE} if browser else _ANYWHERE
    return [
        Tool(name=name, description=description, schema=schema)
        for name, (description, schema) in functions.items()
        if name not in excluded
    ]
