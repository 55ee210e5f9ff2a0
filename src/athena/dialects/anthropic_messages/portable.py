"""A Messages request in words that any target understands.

Tools that the caller runs become functions, toolsets their members. Tools that are added or withdrawn in the middle of the
conversation are declared, or not, and a sentence says so where it happened. An instruction that holds until the next user
message is left out once there is one, as the API itself does it.

Wire facts: docs/reference/wire-facts.md#tool-schemas.
"""

from __future__ import annotations

from itertools import chain, compress
from operator import attrgetter
from typing import Any, get_args

import msgspec

from athena.calls.survey import ALL, DOCUMENTS, EXTRAS, FOREIGN, SYSTEM
from athena.dialects.anthropic_messages.toolsets import members_of
from athena.dialects.anthropic_messages.typed_tools import as_function
from athena.dialects.anthropic_messages.vocabulary import BILLING, NAME
from athena.dialects.portable import reworded, reworded_parts
from athena.model.parts import Document, Foreign, InlineText, Nested, Part, Text, changed
from athena.model.request import Effort, Loss, Request, Tool, Turn, has_kind

_OWN_WORDS = frozenset({"caller", "toolset_name"})
"""Fields of calls and results that say what their pair says already."""


_REWORDED = SYSTEM | FOREIGN | EXTRAS | DOCUMENTS
"""What of a history may have to be said otherwise."""


def portable(request: Request, kinds: int = ALL) -> Request:
    """The request for a target of another dialect."""
    losses = list(request.losses)
    system = request.system
    if any(map(_is_billing, system)):
        system = tuple(part for part in system if not _is_billing(part))
        losses.append(Loss("system", "the line for the provider's billing is not for others", minor=True))
    display = request.reasoning.display
    if display is not None and display not in ("summarized", "omitted"):
        losses.append(Loss("thinking.display", "other providers show reasoning as a whole or not at all", minor=True))
    turns, reasoning = request.turns, request.reasoning
    if kinds & _REWORDED:
        turns, effort = _said_in_time(request, losses)
        turns = reworded(turns, _Rewording(losses).part)
        reasoning = msgspec.structs.replace(reasoning, effort=effort)
    tools = _tools(request, losses, kinds)
    if system is request.system and turns is request.turns and tools is request.tools and len(losses) == len(request.losses):
        return request
    return msgspec.structs.replace(
        request,
        system=system,
        turns=turns,
        tools=tools,
        reasoning=reasoning,
        losses=tuple(losses),
    )


def _said_in_time(request: Request, losses: list[Loss]) -> tuple[tuple[Turn, ...], Effort | None]:
    """The turns without the instructions that held until a user's message which has come, and the effort that holds now."""
    effort = request.reasoning.effort
    last = {turn.role: position for position, turn in enumerate(request.turns)}
    turns: list[Turn] = []
    for position, turn in enumerate(request.turns):
        if turn.role == "system" and turn.extras:
            kept, asked = _system_settings(turn, f"turns[{position}]", losses)
            if asked is not None and last.get("assistant", -1) <= position:
                effort = asked
            if kept.get("clear_at") == "next_user_message" and last.get("user", -1) > position:
                continue
            kept.pop("clear_at", None)
            turn = changed(turn, extras=kept or None)
        if turn.parts or turn.role != "system":
            turns.append(turn)
    return tuple(turns), effort


def _is_billing(part: Part) -> bool:
    return isinstance(part, Foreign) and part.kind == BILLING


def _system_settings(turn: Turn, path: str, losses: list[Loss]) -> tuple[dict[str, Any], Effort | None]:
    """What is left of a system message's own settings, and the effort it asks for."""
    extras = dict(turn.extras or {})
    config = extras.pop("output_config", None)
    effort = config.get("effort") if isinstance(config, dict) else None
    for key in config if isinstance(config, dict) else ():
        if key != "effort":
            losses.append(Loss(f"{path}.output_config.{key}", "unknown to this upstream"))
    return extras, effort if effort in get_args(Effort) else None


_is_inline = attrgetter("inline")


def _tools(request: Request, losses: list[Loss], kinds: int) -> tuple[Tool, ...]:
    gone = _withdrawn(request.turns) if kinds & FOREIGN else set()
    if not gone and not has_kind(request.tools, "hosted") and not any(map(_is_inline, request.tools)):
        return request.tools
    redefined = {tool.name for tool in request.tools if tool.inline}
    tools: list[Tool] = []
    for index, tool in enumerate(request.tools):
        if tool.name in gone or (tool.name in redefined and not tool.inline):
            continue
        if tool.kind != "hosted":
            tools.append(tool)
            continue
        members = members_of(tool)
        function = as_function(tool)
        if members is not None:
            tools.extend(members)
        elif function is not None:
            tools.append(function)
            for key in tool.config or {}:
                if key not in _SAID_BY_SCHEMA:
                    losses.append(Loss(f"tools[{index}].{key}", "other models know no such setting of this tool"))
        else:
            tools.append(tool)
    return tuple(tools)


_SAID_BY_SCHEMA = frozenset({"type", "display_width_px", "display_height_px", "enable_zoom"})


def _withdrawn(turns: tuple[Turn, ...]) -> set[str]:
    """Names of the tools whose last word in the conversation is their removal."""
    gone: set[str] = set()
    for turn in turns:
        for part in turn.parts:
            if isinstance(part, Foreign) and part.kind == "tool_removal":
                gone.add(_changed_tool(part))
            elif isinstance(part, Foreign) and part.kind == "tool_addition":
                gone.discard(_changed_tool(part))
    return gone


_parts_of = attrgetter("parts")
_is_foreign = frozenset((Foreign,)).__contains__


def added_tools(turns: tuple[Turn, ...]) -> list[Any]:
    """The definitions that stand in the conversation itself."""
    found = []
    parts: list[Part] = list(chain.from_iterable(map(_parts_of, turns)))
    # Few are foreign: the others take no step of Python's.
    for part in compress(parts, map(_is_foreign, map(type, parts))):
        if isinstance(part, Foreign) and part.kind == "tool_addition" and isinstance(part.raw, dict):
            tool = part.raw.get("tool")
            if isinstance(tool, dict) and isinstance(tool.get("definition"), dict):
                found.append(tool["definition"])
    return found


def _changed_tool(part: Foreign) -> str:
    """The name that an addition or a removal speaks of."""
    tool = part.raw.get("tool") if isinstance(part.raw, dict) else None
    if not isinstance(tool, dict):
        return ""
    inner = tool.get("definition")
    named: dict[str, Any] = inner if isinstance(inner, dict) else tool
    return str(named.get("name") or named.get("server_name") or named.get("mcp_server_name") or "")


class _Rewording:
    """Parts of messages in plain words."""

    def __init__(self, losses: list[Loss]) -> None:
        self._losses = losses

    def part(self, part: Part) -> Part | tuple[Part, ...]:
        """The part, or what says the same."""
        if part.extras and not _OWN_WORDS.isdisjoint(part.extras):
            part = msgspec.structs.replace(
                part, extras={key: value for key, value in part.extras.items() if key not in _OWN_WORDS} or None
            )
        if isinstance(part, Document):
            return self._document(part)
        if not isinstance(part, Foreign) or part.dialect != NAME or not isinstance(part.raw, dict):
            return part
        if part.kind == "tool_reference":
            return Text(text=f"The tool {part.raw.get('tool_name')} is loaded and can be called.")
        if part.kind == "tool_addition":
            return Text(text=f"From here on the tool {_changed_tool(part)} can be called.")
        if part.kind == "tool_removal":
            return Text(text=f"From here on the tool {_changed_tool(part)} can no longer be called.")
        if part.kind == "browser_state":
            return Text(text=_browser_state(part.raw))
        return part

    def _document(self, part: Document) -> Part | tuple[Part, ...]:
        """Other dialects have neither a context of a document nor documents made of parts."""
        if part.citations:
            self._losses.append(Loss("document.citations", "other providers do not cite what they are given"))
        heading = "\n".join(line for line in (part.title, part.context) if line)
        if isinstance(part.source, Nested):
            inner = reworded_parts(part.source.parts, self.part)
            return (Text(text=heading), *inner) if heading else inner
        if part.context is None and not part.citations:
            return part
        if isinstance(part.source, InlineText) or part.context is None:
            return changed(part, title=heading or None, context=None, citations=False)
        return (Text(text=heading), changed(part, context=None, citations=False))


def _browser_state(state: dict[str, Any]) -> str:
    lines = ["Open tabs:"]
    for tab in state.get("tabs") or ():
        if isinstance(tab, dict):
            mark = " (active)" if tab.get("active") else ""
            lines.append(f"- {tab.get('tab_id')}: {tab.get('title')} {tab.get('url')}{mark}")
    for change in state.get("state_changes") or ():
        if isinstance(change, dict):
            lines.append(msgspec.json.encode(change).decode())
    return "\n".join(lines)
