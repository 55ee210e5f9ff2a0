"""Tools of this API that the client runs itself and that have a type instead of a schema: shells, patches, a computer, a search
for tools.

Any model can use them as functions. The client, though, waits for items of its own type, so a call of such a function goes back
as that item, and the items of the history become calls and results. Field names are those of the `openai` package.

Wire facts: docs/reference/wire-facts.md#responses-items.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from athena.calls.arguments import arguments_text
from athena.dialects.openai_responses.vocabulary import NAME
from athena.model.parts import Base64, FileRef, Foreign, Image, Part, Source, Text, ToolCall, ToolResult, Url
from athena.model.request import Tool

Item = dict[str, Any]


class _Kind(msgspec.Struct, frozen=True):
    """One type of tool: its function, and its items."""

    description: str
    schema: dict[str, Any]
    call: str
    """The type of the item that calls it; the result's has `_output` after it."""
    prefix: str
    """How ids of such items begin."""


def _object(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


def _text(description: str) -> dict[str, Any]:
    return {"type": "string", "description": description}


_TIMEOUT = {"type": "integer", "description": "Milliseconds after which it is ended."}
_POINT = {"x": {"type": "integer"}, "y": {"type": "integer"}}
_ACTION = {
    "type": "object",
    "properties": {
        "type": {
            "type": "string",
            "enum": ["click", "double_click", "drag", "keypress", "move", "screenshot", "scroll", "type", "wait"],
        },
        "x": {"type": "integer", "description": "Pixels from the left: click, double_click, move, scroll."},
        "y": {"type": "integer", "description": "Pixels from the top: click, double_click, move, scroll."},
        "button": {"type": "string", "enum": ["left", "right", "wheel", "back", "forward"], "description": "click."},
        "path": {"type": "array", "items": _object(_POINT, "x", "y"), "description": "drag: the points of the way."},
        "scroll_x": {"type": "integer", "description": "scroll: pixels to the right."},
        "scroll_y": {"type": "integer", "description": "scroll: pixels down."},
        "text": _text("type: the text."),
        "keys": {
            "type": "array",
            "items": {"type": "string"},
            "description": "keypress: the keys. Mouse actions: keys to hold meanwhile.",
        },
    },
    "required": ["type"],
}

_KINDS: dict[str, _Kind] = {
    "local_shell": _Kind(
        "Run a command in the shell of the user's machine.",
        _object(
            {
                "command": {"type": "array", "items": {"type": "string"}, "description": "The program and its arguments."},
                "env": {
                    "type": "object",
                    "additionalProperties": {"type": "string"},
                    "description": "Environment variables to set.",
                },
                "timeout_ms": _TIMEOUT,
                "user": _text("The user to run it as."),
                "working_directory": _text("The directory to run it in."),
            },
            "command",
        ),
        "local_shell_call",
        "lsh_",
    ),
    "shell": _Kind(
        "Run shell commands, one after another.",
        _object(
            {
                "commands": {"type": "array", "items": {"type": "string"}, "description": "The commands."},
                "timeout_ms": _TIMEOUT,
                "max_output_length": {"type": "integer", "description": "Characters of output to keep."},
            },
            "commands",
        ),
        "shell_call",
        "sh_",
    ),
    "apply_patch": _Kind(
        "Create, change or delete one file of the workspace.",
        _object(
            {
                "type": {"type": "string", "enum": ["create_file", "update_file", "delete_file"]},
                "path": _text("The file, relative to the workspace's root."),
                "diff": _text("create_file, update_file: the unified diff to apply."),
            },
            "type",
            "path",
        ),
        "apply_patch_call",
        "apc_",
    ),
    "computer": _Kind(
        "Use mouse, keyboard and screen of a computer. The answer is a screenshot.",
        _object({"actions": {"type": "array", "items": _ACTION, "description": "What to do, in order."}}, "actions"),
        "computer_call",
        "cu_",
    ),
    "computer_use_preview": _Kind(
        "Use mouse, keyboard and screen of a computer. The answer is a screenshot.",
        _object({"action": _ACTION}, "action"),
        "computer_call",
        "cu_",
    ),
    "tool_search": _Kind(
        "Find tools that are not loaded yet. What is found can be called from then on.",
        _object({"query": _text("What the tool should do.")}, "query"),
        "tool_search_call",
        "tsc_",
    ),
}
_KIND_OF_CALL = {
    "local_shell_call": "local_shell", "shell_call": "shell", "apply_patch_call": "apply_patch", "computer_call": "computer",
    "tool_search_call": "tool_search",
}  # fmt: skip


def is_client_run(tool: Tool) -> bool:
    """Does the client run this typed tool, rather than the provider?"""
    if tool.kind != "hosted" or tool.hosted not in _KINDS:
        return False
    config = tool.config or {}
    if tool.hosted == "tool_search":
        return config.get("execution") == "client"
    if tool.hosted == "shell":
        place = config.get("environment")
        return not isinstance(place, dict) or place.get("type") == "local"
    return True


class TypedTools:
    """The typed tools of one request that its client runs, under the names of their functions."""

    __slots__ = ("_kinds", "_names")

    def __init__(self, tools: Iterable[Tool]) -> None:
        tools = tuple(tools)
        taken = {tool.name for tool in tools if tool.kind != "hosted" and tool.namespace is None}
        self._names: dict[str, str] = {}
        for tool in tools:
            if is_client_run(tool) and tool.hosted is not None and tool.hosted not in self._names:
                name = tool.hosted
                while name in taken:
                    name += "_tool"
                taken.add(name)
                self._names[tool.hosted] = name
        self._kinds = {name: kind for kind, name in self._names.items()}

    def name_of(self, kind: str) -> str:
        """The function's name for a type of tool, which an earlier request may have declared."""
        if kind == "computer" and kind not in self._names:
            kind = "computer_use_preview" if "computer_use_preview" in self._names else kind
        return self._names.get(kind, kind)

    def holds(self, name: str) -> bool:
        """Is this the function of a typed tool?"""
        return name in self._kinds

    def function(self, tool: Tool) -> Tool:
        """A typed tool as a function."""
        kind = _KINDS[tool.hosted or ""]
        config = tool.config or {}
        description, schema = kind.description, kind.schema
        if tool.hosted == "tool_search":
            given = config.get("parameters")
            description = config.get("description") or description
            schema = given if isinstance(given, dict) else schema
        elif tool.hosted == "computer_use_preview":
            size = f"{config.get('display_width')} by {config.get('display_height')} pixels"
            description = f"{description} The screen is {size}, its system is {config.get('environment')}."
        return Tool(name=self.name_of(tool.hosted or ""), description=description, schema=schema)

    def item(self, name: str, call_id: str, arguments: str, seed: str) -> Item | None:
        """The item that calls a typed tool; None where the arguments do not fill it. `seed` ends its id."""
        kind = self._kinds[name]
        try:
            given = msgspec.json.decode(arguments or "{}")
        except msgspec.DecodeError:
            return None
        fields = _call_fields(kind, given) if isinstance(given, dict) else None
        if fields is None:
            return None
        return {
            "id": _KINDS[kind].prefix + seed,
            "type": _KINDS[kind].call,
            "status": "completed",
            "call_id": call_id,
            **fields,
        }


def _call_fields(kind: str, given: dict[str, Any]) -> Item | None:
    match kind:
        case "local_shell":
            command = given.get("command")
            if isinstance(command, str):
                command = ["bash", "-lc", command]
            if not _is_texts(command):
                return None
            env = given.get("env")
            rest = {key: given[key] for key in ("timeout_ms", "user", "working_directory") if given.get(key) is not None}
            return {"action": {"type": "exec", "command": command, "env": env if isinstance(env, dict) else {}, **rest}}
        case "shell":
            commands = given.get("commands")
            commands = [commands] if isinstance(commands, str) else commands
            if not _is_texts(commands):
                return None
            limits = {key: given.get(key) for key in ("timeout_ms", "max_output_length")}
            return {"action": {"commands": commands, **limits}, "environment": {"type": "local"}}
        case "apply_patch":
            needed = ("type", "path") if given.get("type") == "delete_file" else ("type", "path", "diff")
            if not all(isinstance(given.get(key), str) for key in needed):
                return None
            return {"operation": {key: given[key] for key in needed}}
        case "computer":
            actions = given.get("actions")
            if not isinstance(actions, list) or not all(_is_action(action) for action in actions):
                return None
            return {"actions": actions, "pending_safety_checks": []}
        case "computer_use_preview":
            action = given.get("action")
            return {"action": action, "pending_safety_checks": []} if _is_action(action) else None
        case _:
            return {"arguments": given, "execution": "client"}


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(entry, str) for entry in value)


def _is_action(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("type"), str)


# -- the history -------------------------------------------------------------------------------------------------------------


class TypedHistory:
    """Items of typed tools as calls and results. Ask for them in order: some results name their call by its item's id."""

    def __init__(self, tools: TypedTools) -> None:
        self._tools = tools
        self._calls: dict[str, str] = {}

    def part(self, foreign: Foreign) -> Part:
        """The call or result that an item stands for; any other item as it is."""
        item = foreign.raw
        if foreign.dialect != NAME or not isinstance(item, dict):
            return foreign
        kind = _KIND_OF_CALL.get(foreign.kind)
        if kind is not None and isinstance(item.get("call_id"), str):
            # The API's types name the call by its item's id, OpenAI's own agent library by its call_id.
            self._calls[item["call_id"]] = item["call_id"]
            if isinstance(item.get("id"), str):
                self._calls[item["id"]] = item["call_id"]
            return ToolCall(id=item["call_id"], name=self._tools.name_of(kind), arguments=_arguments(kind, item))
        kind = _KIND_OF_CALL.get(foreign.kind.removesuffix("_output")) if foreign.kind.endswith("_output") else None
        if foreign.kind == "tool_search_output":
            kind = "tool_search"
        call_id = item.get("call_id") or self._calls.get(str(item.get("id")))
        if kind is None or not isinstance(call_id, str):
            return foreign
        failed = item.get("status") == "failed"
        return ToolResult(call_id=call_id, name=self._tools.name_of(kind), parts=_result(kind, item), is_error=failed)


def _arguments(kind: str, item: Item) -> str:
    if kind in ("local_shell", "shell"):
        action = item.get("action")
        given = {key: value for key, value in action.items() if key != "type" and value} if isinstance(action, dict) else {}
    elif kind == "apply_patch":
        given = item.get("operation") or {}
    elif kind == "computer":
        given = {"actions": item["actions"]} if item.get("actions") else {"action": item.get("action")}
    else:
        given = item.get("arguments") or {}
    return arguments_text(given if isinstance(given, dict) else {"arguments": given})


def _result(kind: str, item: Item) -> tuple[Part, ...]:
    output = item.get("output")
    if kind == "tool_search":
        return (Text(text=f"Tools found: {', '.join(tool_names(item.get('tools'))) or 'none'}."),)
    if kind == "computer" and isinstance(output, dict):
        source = _screenshot(output)
        return (Image(source=source),) if source is not None else ()
    if output is None:
        return (Text(text=str(item.get("status") or "")),)
    return (Text(text=output if isinstance(output, str) else msgspec.json.encode(output).decode()),)


def _screenshot(output: Item) -> Source | None:
    url, file_id = output.get("image_url"), output.get("file_id")
    if isinstance(url, str) and url.startswith("data:"):
        head, _, data = url[5:].partition(",")
        return Base64(mime=head.split(";")[0] or "image/png", data=data)
    if isinstance(url, str):
        return Url(url=url)
    return FileRef(id=file_id) if isinstance(file_id, str) else None


def tool_names(tools: Any) -> list[str]:
    """What the entries of a tool list are called, members of namespaces included."""
    names: list[str] = []
    for tool in tools if isinstance(tools, list) else ():
        if isinstance(tool, dict) and tool.get("type") == "namespace":
            names += [f"{tool.get('name')}.{name}" for name in tool_names(tool.get("tools"))]
        elif isinstance(tool, dict):
            names.append(str(tool.get("name") or tool.get("type")))
    return names
