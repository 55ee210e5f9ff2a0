"""Tools the API knows by a dated type instead of a schema.

The client-side ones (shell, editor, memory, computer) are run by the caller, so another family can use them as plain functions
with the input the caller's program expects. Field names come from the `anthropic` package (beta memory commands, member inputs
of the computer toolset) and, for shell and editor, from the vendor's published tool reference. A toolset is one entry that
stands for many tools and has no single function.

Wire facts: docs/reference/wire-facts.md#anthropic-tools-and-thinking.
"""

from __future__ import annotations

import re
from typing import Any

from athena.model.parts import changed
from athena.model.request import Tool

_DATED = re.compile(r"(.+?)_(\d{8})")
_VARIANT = re.compile(r"tool_search_tool_(regex|bm25)")

_DEFAULT_NAMES = {"text_editor": "str_replace_based_edit_tool", "computer_toolset": "computer", "browser_toolset": "browser"}


def family_of(type_name: str) -> str:
    """The undated type: `web_search` of `web_search_20260318`, `tool_search` of both its variants."""
    dated = _DATED.fullmatch(type_name)
    family = dated.group(1) if dated else type_name
    return "tool_search" if _VARIANT.fullmatch(family) else family


def default_name(family: str) -> str:
    """The name of a typed tool that carries none."""
    return _DEFAULT_NAMES.get(family, family)


def as_function(tool: Tool) -> Tool | None:
    """The tool as a function any model can call; None when the provider runs it or it stands for several tools."""
    if tool.kind != "hosted" or tool.hosted is None:
        return None
    config = tool.config or {}
    kind = str(config.get("type", ""))
    if tool.hosted == "bash":
        return _function(tool, "Run a command in a persistent shell session.", _BASH)
    if tool.hosted == "text_editor":
        return _function(tool, "View, create and edit text files.", _editor_schema(kind))
    if tool.hosted == "memory":
        return _function(tool, "Read and write files of a persistent memory directory, /memories.", _MEMORY)
    if tool.hosted == "computer":
        return _function(tool, _screen(config), _computer_schema(config))
    return None


def _function(tool: Tool, description: str, schema: dict[str, Any]) -> Tool:
    return changed(tool, kind="function", hosted=None, config=None, description=description, schema=schema)


def _object(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


def _text(description: str) -> dict[str, Any]:
    return {"type": "string", "description": description}


def _integers(count: int, description: str) -> dict[str, Any]:
    return {"type": "array", "items": {"type": "integer"}, "minItems": count, "maxItems": count, "description": description}


_BASH = _object(
    {
        "command": _text("The command to run. Needed unless restart is true."),
        "restart": {"type": "boolean", "description": "Start the shell session anew instead of running a command."},
    }
)

_EDIT_FIELDS: dict[str, Any] = {
    "path": _text("Absolute path of the file or directory."),
    "view_range": _integers(2, "view: first and last line to show, counted from 1; -1 is the end."),
    "file_text": _text("create: the whole content of the new file."),
    "old_str": _text("str_replace: the text to replace; it must stand in the file exactly once."),
    "new_str": _text("str_replace: the text to put in its place."),
    "insert_line": {"type": "integer", "description": "insert: the line behind which to insert; 0 is the start."},
}

_MEMORY = _object(
    {
        "command": {"type": "string", "enum": ["view", "create", "str_replace", "insert", "delete", "rename"]},
        **_EDIT_FIELDS,
        "insert_text": _text("insert: the text to insert."),
        "old_path": _text("rename: the present path."),
        "new_path": _text("rename: the new path."),
    },
    "command",
)


def _editor_schema(kind: str) -> dict[str, Any]:
    """`undo_edit` went with the version of April 2025; `insert_text` came with that of July, before it was `new_str`."""
    commands = ["view", "create", "str_replace", "insert"]
    if kind and kind < "text_editor_20250429":
        commands.append("undo_edit")
    fields: dict[str, Any] = {"command": {"type": "string", "enum": commands}, **_EDIT_FIELDS}
    if kind and kind < "text_editor_20250728":
        fields["new_str"] = _text("str_replace: the text to put in place of old_str. insert: the text to insert.")
    else:
        fields["insert_text"] = _text("insert: the text to insert.")
    return _object(fields, "command", "path")


_ACTIONS = (
    "key", "type", "mouse_move", "left_click", "left_click_drag", "right_click", "middle_click", "double_click", "screenshot",
    "cursor_position",
)  # fmt: skip
_LATER_ACTIONS = ("left_mouse_down", "left_mouse_up", "scroll", "hold_key", "wait", "triple_click")


def _screen(config: dict[str, Any]) -> str:
    width, height = config.get("display_width_px"), config.get("display_height_px")
    size = f" The screen is {width} by {height} pixels." if width and height else ""
    return f"Use mouse, keyboard and screen of a computer.{size}"


def _computer_schema(config: dict[str, Any]) -> dict[str, Any]:
    kind = str(config.get("type", ""))
    actions = [*_ACTIONS]
    fields: dict[str, Any] = {
        "coordinate": _integers(2, "x and y in pixels from the top left corner."),
        "text": _text("type: the text. key and hold_key: the keys, such as ctrl+s. Clicks and scroll: keys to hold meanwhile."),
        "start_coordinate": _integers(2, "left_click_drag: where to start."),
    }
    if kind >= "computer_20250124" or not kind:
        actions += _LATER_ACTIONS
        fields["duration"] = {"type": "number", "description": "hold_key and wait: seconds."}
        fields["scroll_direction"] = {"type": "string", "enum": ["up", "down", "left", "right"]}
        fields["scroll_amount"] = {"type": "integer", "description": "scroll: clicks of the wheel."}
    if config.get("enable_zoom"):
        actions.append("zoom")
        fields["region"] = _integers(4, "zoom: x0, y0, x1, y1 of the region to show enlarged.")
    return _object({"action": {"type": "string", "enum": actions}, **fields}, "action")
