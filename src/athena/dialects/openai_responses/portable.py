"""A Responses request in words that any target understands.

Typed tools that the client runs become functions, their items calls and results of these functions, and a result that names no
call becomes text.

Wire facts: docs/reference/wire-facts.md#tool-schemas.
"""

from __future__ import annotations

import msgspec

from athena.calls.survey import ADRIFT, ALL, FOREIGN
from athena.dialects.openai_responses.typed_tools import TypedHistory, TypedTools, is_client_run
from athena.dialects.portable import reworded
from athena.model.parts import Foreign, Part, Text, ToolResult, changed, joined_text
from athena.model.request import Loss, Request, Tool, ToolChoice


def portable(request: Request, kinds: int = ALL) -> Request:
    """The request for a target of another dialect."""
    losses = list(request.losses)
    typed = TypedTools(request.tools)
    history = TypedHistory(typed)

    def reword(part: Part) -> Part | tuple[Part, ...]:
        if isinstance(part, Foreign):
            return history.part(part)
        if isinstance(part, ToolResult) and not part.call_id:
            losses.append(Loss("input", "a result that names no call is sent as text", "emulated"))
            told = Text(text=f"[result of the tool {part.name or 'that ran'}]\n{joined_text(part.parts)}")
            return (told, *(inner for inner in part.parts if not isinstance(inner, Text)))
        return part

    turns = reworded(request.turns, reword) if kinds & (FOREIGN | ADRIFT) else request.turns
    return msgspec.structs.replace(
        request,
        tools=_tools(request.tools, typed, losses),
        turns=turns,
        tool_choice=_choice(request.tool_choice, typed),
        losses=tuple(losses),
    )


_SAID = frozenset({"execution", "parameters", "description", "display_width", "display_height", "environment"})


def _tools(tools: tuple[Tool, ...], typed: TypedTools, losses: list[Loss]) -> tuple[Tool, ...]:
    """The declared tools, then those that were found in the course of the conversation, each once and in order."""
    known: dict[tuple[str | None, str, str | None], Tool] = {}
    spaces: set[str] = set()
    for index, tool in enumerate(tools):
        if tool.namespace is not None and tool.namespace_description and tool.namespace not in spaces:
            # What is said of all members stands with the first: elsewhere a namespace is only the beginning of a name.
            said = f"{tool.namespace}: {tool.namespace_description}"
            tool = changed(tool, description=f"{tool.description}\n\n{said}" if tool.description else said)
        spaces.add(tool.namespace or "")
        known.setdefault((tool.namespace, tool.name, tool.hosted), _tool(tool, typed, f"tools[{index}]", losses))
    return tuple(known.values())


def _tool(tool: Tool, typed: TypedTools, path: str, losses: list[Loss]) -> Tool:
    if not is_client_run(tool):
        return tool
    for key in tool.config or {}:
        if key not in _SAID:
            losses.append(Loss(f"{path}.{key}", "other models know no such setting of this tool"))
    place = (tool.config or {}).get("environment")
    if isinstance(place, dict) and place.get("skills"):
        losses.append(Loss(f"{path}.environment.skills", "other models know no such setting of this tool"))
    return typed.function(tool)


def _choice(choice: ToolChoice | None, typed: TypedTools) -> ToolChoice | None:
    """A choice that names a typed tool, as the choice of its function."""
    if choice is None or choice.kind != "hosted" or not choice.names:
        return choice
    name = typed.name_of(choice.names[0])
    return msgspec.structs.replace(choice, names=(name,), kind="function") if typed.holds(name) else choice
