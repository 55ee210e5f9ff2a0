"""Toolsets: one entry of `tools` that stands for many tools which the caller runs, as functions of their own.

A member is called by its own name with `toolset_name` beside it, so its functions share a namespace. Names and fields of the
members are those of the `anthropic` package (`BetaComputerMemberInput`, `BetaBrowserMemberInput`).
"""

from __future__ import annotations

from typing import Any

from athena.model.request import Tool
from athena.schemas import Schema


def members_of(tool: Tool) -> tuple[Tool, ...] | None:
    """The enabled members of a toolset as functions; None for any other tool."""
    table = _TOOLSETS.get(tool.hosted or "") if tool.kind == "hosted" else None
    if table is None:
        return None
    space, members = table
    given = (tool.config or {}).get("configs")
    configs: dict[str, Any] = given if isinstance(given, dict) else {}
    tools: list[Tool] = []
    for name, (description, schema) in members.items():
        config = configs.get(name)
        config = config if isinstance(config, dict) else {}
        if config.get("enabled") is not False:
            deferred = tool.deferred or config.get("defer_loading") is True
            tools.append(Tool(name=name, namespace=space, description=description, schema=schema, deferred=deferred))
    return tuple(tools)


def _fields(required: Schema | None = None, optional: Schema | None = None) -> Schema:
    return {"type": "object", "properties": {**(required or {}), **(optional or {})}, "required": list(required or ())}


def _text(description: str) -> Schema:
    return {"type": "string", "description": description}


def _whole(description: str) -> Schema:
    return {"type": "integer", "description": description}


def _numbers(count: int, description: str) -> Schema:
    return {"type": "array", "items": {"type": "integer"}, "minItems": count, "maxItems": count, "description": description}


_DIRECTION: Schema = {"type": "string", "enum": ["up", "down", "left", "right"]}

# -- the computer ------------------------------------------------------------------------------------------------------------

_POINT = _numbers(2, "x and y in pixels from the top left corner.")
_HELD = _text("Keys to hold meanwhile, such as ctrl+shift.")
_AT_POINT = _fields(optional={"coordinate": _POINT, "text": _HELD})
_HERE = "at the coordinate, or where the cursor is."

_COMPUTER: dict[str, tuple[str, Schema]] = {
    "key": (
        "Press a key or a combination of keys, such as Return or ctrl+s.",
        _fields({"text": _text("The keys.")}, {"repeat": _whole("How often; 1 if left out.")}),
    ),
    "hold_key": (
        "Hold a key or a combination of keys for some time.",
        _fields({"text": _text("The keys."), "duration": _whole("Seconds.")}),
    ),
    "type": ("Type text on the keyboard.", _fields({"text": _text("The text.")})),
    "cursor_position": ("Get the cursor's x and y in pixels.", _fields()),
    "mouse_move": ("Move the cursor without clicking.", _fields({"coordinate": _POINT})),
    "left_mouse_down": ("Press and hold the left mouse button where the cursor is.", _fields()),
    "left_mouse_up": ("Release the left mouse button.", _fields()),
    "left_click": (f"Click the left mouse button {_HERE}", _AT_POINT),
    "left_click_drag": (
        "Press the left mouse button at start_coordinate, drag to coordinate and release.",
        _fields({"coordinate": _POINT, "start_coordinate": _POINT}, {"text": _HELD}),
    ),
    "right_click": (f"Click the right mouse button {_HERE}", _AT_POINT),
    "middle_click": (f"Click the middle mouse button {_HERE}", _AT_POINT),
    "double_click": (f"Double-click the left mouse button {_HERE}", _AT_POINT),
    "triple_click": (f"Triple-click the left mouse button {_HERE}", _AT_POINT),
    "scroll": (
        f"Scroll {_HERE}",
        _fields(
            {"scroll_direction": _DIRECTION, "scroll_amount": _whole("Clicks of the wheel.")},
            {"coordinate": _POINT, "text": _HELD},
        ),
    ),
    "wait": ("Wait for some time.", _fields({"duration": _whole("Seconds.")})),
    "screenshot": ("Take a screenshot of the screen.", _fields()),
    "zoom": (
        "Take a screenshot of a region, enlarged.",
        _fields({"region": _numbers(4, "x0, y0, x1, y1 in pixels of the whole screenshot.")}),
    ),
}

# -- the browser -------------------------------------------------------------------------------------------------------------

_TAB: Schema = {"tab_id": _text("The tab; the active one if left out.")}
_SPOT: Schema = {
    "type": "object",
    "description": "A point of the viewport, in pixels.",
    "properties": {"type": {"const": "coordinate"}, "x": {"type": "integer"}, "y": {"type": "integer"}},
    "required": ["type", "x", "y"],
}
_ELEMENT: Schema = {
    "type": "object",
    "description": "An element, by its reference from read_page or find, such as ref_7.",
    "properties": {"type": {"const": "ref"}, "ref": {"type": "string"}},
    "required": ["type", "ref"],
}
_CLICK = _fields({"target": {"anyOf": [_SPOT, _ELEMENT]}}, {"modifiers": _text("Keys to hold, such as ctrl+shift."), **_TAB})
_ON = "at a point or on an element."

_BROWSER: dict[str, tuple[str, Schema]] = {
    "navigate": ("Go to an address.", _fields({"url": _text("The address, or back, forward or reload.")}, _TAB)),
    "list_tabs": ("List the open tabs with id, title and address.", _fields()),
    "new_tab": ("Open an empty tab and get its id.", _fields()),
    "switch_tab": ("Make a tab the active one.", _fields({"tab_id": _text("The tab.")})),
    "close_tab": ("Close a tab.", _fields({"tab_id": _text("The tab.")})),
    "read_page": (
        "Get the page as a tree of elements with references such as ref_7.",
        _fields(
            optional={
                "filter": {
                    "type": "string",
                    "enum": ["all", "interactive"],
                    "description": "Left out: what is visible. interactive: only that. all: also what is off the viewport.",
                },
                "depth": _whole("Depth of the tree; 15 if left out."),
                "ref": _text("An element, to read only what is below it."),
                **_TAB,
            }
        ),
    ),
    "get_page_text": ("Get the visible text of the page.", _fields(optional=_TAB)),
    "read_console": ("Get what the console printed since the last read.", _fields(optional=_TAB)),
    "read_network": ("Get the network requests since the last read.", _fields(optional=_TAB)),
    "find": (
        "Find up to 20 elements by a description in words.",
        _fields({"query": _text("What to find, such as: search bar.")}, _TAB),
    ),
    "form_input": (
        "Set the value of a form element.",
        _fields({"target": _ELEMENT, "value": {"type": ["string", "number", "boolean"]}}, _TAB),
    ),
    "file_upload": (
        "Choose files in a file input; paths or document_ids are needed.",
        _fields(
            {"target": _ELEMENT},
            {
                "paths": {"type": "array", "items": {"type": "string"}},
                "document_ids": {"type": "array", "items": {"type": "string"}},
                **_TAB,
            },
        ),
    ),
    "scroll_to": ("Scroll an element into view.", _fields({"target": _ELEMENT}, _TAB)),
    "screenshot": ("Take a screenshot of the viewport.", _fields(optional=_TAB)),
    "zoom": (
        "Take a screenshot of a region of the viewport, enlarged.",
        _fields({"region": _numbers(4, "x0, y0, x1, y1 in pixels of the viewport.")}, _TAB),
    ),
    "left_click": (f"Click the left mouse button {_ON}", _CLICK),
    "right_click": (f"Click the right mouse button {_ON}", _CLICK),
    "middle_click": (f"Click the middle mouse button {_ON}", _CLICK),
    "double_click": (f"Double-click the left mouse button {_ON}", _CLICK),
    "triple_click": (f"Triple-click the left mouse button {_ON}", _CLICK),
    "hover": (f"Move the cursor without clicking, {_ON}", _fields({"target": {"anyOf": [_SPOT, _ELEMENT]}}, _TAB)),
    "left_click_drag": (
        "Press the left mouse button at one point, drag to another and release.",
        _fields({"from": _SPOT, "target": _SPOT}, _TAB),
    ),
    "left_mouse_down": ("Press and hold the left mouse button.", _fields({"target": _SPOT}, _TAB)),
    "left_mouse_up": ("Release the left mouse button.", _fields({"target": _SPOT}, _TAB)),
    "mouse_move": ("Move the cursor without clicking.", _fields({"target": _SPOT}, _TAB)),
    "scroll": (
        "Scroll at a point.",
        _fields(
            {"target": _SPOT, "scroll_direction": _DIRECTION},
            {"scroll_amount": _whole("Notches of the wheel, 1 to 10; 3 if left out."), **_TAB},
        ),
    ),
    "type": ("Type text where the focus is.", _fields({"text": _text("The text.")}, _TAB)),
    "key": (
        "Press keys: + combines them, spaces separate presses in a row.",
        _fields({"text": _text("The keys, such as ctrl+a.")}, {"repeat": _whole("How often; 1 if left out."), **_TAB}),
    ),
    "hold_key": (
        "Hold a key or a combination of keys for some time.",
        _fields({"text": _text("The keys."), "duration": {"type": "number", "description": "Seconds, at most 30."}}, _TAB),
    ),
    "wait": ("Wait for some time.", _fields({"duration": {"type": "number", "description": "Seconds, at most 30."}}, _TAB)),
    "javascript_exec": (
        "Run JavaScript in the page and get the value of the last expression; do not write return.",
        _fields({"text": _text("The code.")}, _TAB),
    ),
}

_TOOLSETS: dict[str, tuple[str, dict[str, tuple[str, Schema]]]] = {
    "computer_toolset": ("computer", _COMPUTER),
    "browser_toolset": ("browser", _BROWSER),
}
