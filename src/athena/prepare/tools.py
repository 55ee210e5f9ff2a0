"""Tools and tool choice as the target takes them.

A free-form tool becomes a function with one string, `input`, and comes back as what it was. A choice the target refuses
becomes the nearest one it takes: the tool list is narrowed, a line of instruction says the rest, and the loss is reported.

Wire facts: docs/reference/wire-facts.md#tool-schemas.
"""

from __future__ import annotations

import msgspec

from athena.calls.names import NAMESPACE_SEPARATOR, NameMap
from athena.calls.survey import CUSTOM, Survey
from athena.dialects.base import EncodeTarget
from athena.errors import UnsupportedFeature
from athena.model.parts import Part, Text, ToolCall, ToolResult, changed
from athena.model.profile import Profile
from athena.model.request import Loss, Request, Tool, ToolChoice, Turn, has_kind

INPUT_KEY = "input"


class CustomTools(msgspec.Struct, frozen=True):
    """The free-form tools that were sent as functions, under the names the target knows."""

    names: frozenset[str] = frozenset()
    keys: tuple[tuple[str | None, str], ...] = ()

    def renamed(self, names: NameMap) -> CustomTools:
        if not self.keys:
            return self
        return CustomTools(frozenset(names.target(name, space) for space, name in self.keys), self.keys)


_NO_CUSTOM_TOOLS = CustomTools()


def emulate_custom_tools(
    request: Request, looked: Survey, profile: Profile, losses: list[Loss], *, always: bool = False
) -> tuple[Request, CustomTools]:
    """Free-form tools as functions with one string argument, in definitions and history alike.

    `always`: whatever the upstream takes, this model knows no tools of its own.
    """
    if profile.custom_tools and not always:
        return request, _NO_CUSTOM_TOOLS
    if not looked.kinds & CUSTOM and not has_kind(request.tools, "custom"):
        return request, _NO_CUSTOM_TOOLS
    keys = tuple((tool.namespace, tool.name) for tool in request.tools if tool.kind == "custom")
    for index, tool in enumerate(request.tools):
        if tool.kind == "custom" and tool.grammar is not None:
            losses.append(Loss(f"tools[{index}].format", "the grammar is described to the model, not enforced", "emulated"))
    request = msgspec.structs.replace(
        request,
        tools=tuple(_as_function(tool) if tool.kind == "custom" else tool for tool in request.tools),
        turns=tuple(_plain_calls(turn) for turn in request.turns),
        tool_choice=_plain_choice(request.tool_choice),
    )
    return request, CustomTools(keys=keys)


def _as_function(tool: Tool) -> Tool:
    description = tool.description or ""
    if tool.grammar is not None:
        description += (
            f"\n\nThe input must match this {tool.grammar.get('syntax', '')} grammar:\n{tool.grammar.get('definition', '')}"
        )
    return changed(
        tool,
        kind="function",
        description=description.strip() or None,
        grammar=None,
        schema={
            "type": "object",
            "properties": {INPUT_KEY: {"type": "string", "description": "The whole input, as free text"}},
            "required": [INPUT_KEY],
            "additionalProperties": False,
        },
    )


def _plain_calls(turn: Turn) -> Turn:
    parts: list[Part] = []
    for part in turn.parts:
        if isinstance(part, ToolCall) and part.kind == "custom":
            part = changed(part, kind="function", arguments=msgspec.json.encode({INPUT_KEY: part.arguments}).decode())
        elif isinstance(part, ToolResult) and part.kind == "custom":
            part = changed(part, kind="function")
        parts.append(part)
    if all(new is old for new, old in zip(parts, turn.parts, strict=True)):
        return turn
    return changed(turn, parts=tuple(parts))


def _plain_choice(choice: ToolChoice | None) -> ToolChoice | None:
    if choice is None or choice.kind != "custom":
        return choice
    return msgspec.structs.replace(choice, kind="function")


def fit_choice(request: Request, target: EncodeTarget, losses: list[Loss], *, tools_held: bool = False) -> Request:
    """The tool choice, or the nearest one the target takes; `tools_held`: the provider may know tools that are not declared."""
    choice, profile = request.tool_choice, target.profile
    if choice is None or (tools_held and not request.tools):
        return request
    if not request.tools:
        if choice.mode not in ("none", "auto"):
            losses.append(Loss("tool_choice", "no tools are declared"))
        return msgspec.structs.replace(request, tool_choice=None)
    tools, instruction = request.tools, ""
    if choice.mode == "allowed" and not profile.allowed_choice:
        tools = _only(tools, choice)
        choice = ToolChoice("required" if choice.required else "auto")
        losses.append(Loss("tool_choice", "the allowed set is sent as a shorter tool list", "emulated"))
    if choice.mode == "named" and not profile.named_choice:
        tools = _only(tools, choice)
        choice = ToolChoice("required")
        losses.append(Loss("tool_choice", "the named tool is sent as the only tool", "emulated"))
    forced = choice.mode in ("required", "named") or (choice.mode == "allowed" and choice.required)
    if forced and not _may_force(request, profile):
        if target.strict:
            raise UnsupportedFeature("tool_choice: this model takes no forced tool call", path="tool_choice")
        if choice.names:
            tools = _only(tools, choice)
        instruction = f"Call the tool {choice.names[0]}." if choice.mode == "named" else "Call one of the tools."
        choice = ToolChoice("auto")
        losses.append(Loss("tool_choice", "this model takes no forced tool call; it is asked instead", "emulated"))
    if choice is request.tool_choice:
        return request
    system = (*request.system, Text(text=instruction)) if instruction else request.system
    return msgspec.structs.replace(request, tools=tools, tool_choice=choice, system=system)


def _only(tools: tuple[Tool, ...], choice: ToolChoice) -> tuple[Tool, ...]:
    wanted = set(choice.names)
    kept = tuple(tool for tool in tools if tool.name in wanted or f"{tool.namespace}{NAMESPACE_SEPARATOR}{tool.name}" in wanted)
    return kept or tools


def _may_force(request: Request, profile: Profile) -> bool:
    if not profile.forced_choice:
        return False
    return profile.forced_choice_while_thinking or not is_thinking(request, profile)


def is_thinking(request: Request, profile: Profile) -> bool:
    """Will the model think: because the client asked for it, or because it does unless told not to?"""
    reasoning = request.reasoning
    if reasoning.mode == "off" or reasoning.effort == "none":
        return False
    asked = reasoning.mode != "default" or reasoning.effort is not None or bool(reasoning.budget)
    return asked or (profile.thinks_by_default and reasoning.budget is None)
