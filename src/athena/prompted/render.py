"""The request side: tools and tool history as text, put where the model reads it.

Runs on a prepared request: results are paired with their calls, names fit the target, free-form tools are functions. Tool
definitions and results are one line of `safe_json` each, so no name, description or result can end its place and speak as
somebody else. Text of users and of the model itself is never rewritten.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from athena.calls.ids import fitting_id
from athena.formats import ALIASES, format_names, get_format
from athena.formats.machine.base import Format
from athena.formats.machine.detect import detect_format
from athena.formats.machine.render import result_text
from athena.model.parts import Part, Text, ToolCall, ToolResult, changed
from athena.model.request import Loss, Request, Tool, ToolChoice, Turn
from athena.prompted import templates
from athena.prompted.errors import ToolValidationError
from athena.prompted.options import PromptedOptions
from athena.prompted.templates import escaped_json, filled, safe_json
from athena.wire.json_span import is_json_object

_JOINT = "\n\n"
_LOOKALIKES = (("<", "‹"), ("[", "⁅"), ("◁", "◃"), ("✿", "❀"), ("```", "'''"))


class PromptPlan(msgspec.Struct, frozen=True):
    """What the answer is to be read for."""

    tools: tuple[Tool, ...]
    """Only these may be called."""
    style: str = "json"
    """`json`, a format's id, or a custom parser's name."""
    required: bool = False
    """A call must come."""
    single: bool = False
    """At most one call."""


class Rendered(msgspec.Struct, frozen=True):
    """A request without tools, and how to read its answer; `plan` None: nothing is to be looked for."""

    request: Request
    plan: PromptPlan | None = None
    losses: tuple[Loss, ...] = ()
    prompt_length: int = 0
    tool_names: tuple[str, ...] = ()


def render_request(request: Request, options: PromptedOptions, *, model: str = "") -> Rendered:
    """The request for a model without tools. Unchanged when it has neither tools nor a tool history."""
    if not request.tools and not _has_history(request):
        return Rendered(request)
    losses: list[Loss] = []
    style = taught_style(options, model or request.model)
    plan, tools = _plan(request, options, style, losses)
    writer = _Writer(style)
    results: list[ToolResult] = []
    turns = [_rendered_turn(turn, writer, options, results, losses) for turn in request.turns]
    prompt = _prompt(plan, tools, request.tool_choice, options, style, results, losses)
    if options.prompt_bytes and len(prompt) * 4 > options.prompt_bytes:
        size = len(prompt.encode("utf-8", "surrogatepass"))
        if size > options.prompt_bytes:
            raise ToolValidationError(
                f"the tools make a prompt of {size} bytes; at most {options.prompt_bytes} are allowed", path="tools"
            )
    request = _without_controls(msgspec.structs.replace(request, turns=tuple(turns)))
    if prompt:
        request = _injected(request, prompt, system_messages=options.system_messages)
    request = msgspec.structs.replace(request, turns=merged_turns(request.turns))
    return Rendered(request, plan, tuple(losses), len(prompt), tuple(tool.name for tool in tools))


def taught_style(options: PromptedOptions, model: str) -> str:
    """What the model is taught to write."""
    if options.style in options.parsers:
        return options.style
    style = detect_format(model) if options.style == "auto" else ALIASES.get(options.style, options.style)
    return "json" if style == "standard" else style


def correction_turns(answer: str, reason: str) -> tuple[Turn, ...]:
    """What is added to the conversation when the model is asked once more."""
    said = (Turn(role="assistant", parts=(Text(text=answer),)),) if answer.strip() else ()
    words = templates.CORRECTION.replace("{reason}", reason)
    return (*said, Turn(role="user", parts=(Text(text=words),)))


# -- the prompt --------------------------------------------------------------------------------------------------------------


def _plan(
    request: Request, options: PromptedOptions, style: str, losses: list[Loss]
) -> tuple[PromptPlan | None, tuple[Tool, ...]]:
    """What to teach and what to look for; None when the client wants no calls."""
    choice = request.tool_choice or ToolChoice()
    tools: list[Tool] = []
    seen: set[str] = set()
    for index, tool in enumerate(request.tools):
        if tool.kind == "hosted":
            losses.append(Loss(f"tools[{index}]", "runs at its provider and cannot be taught in a prompt"))
            continue
        if options.name_chars and len(tool.name) > options.name_chars:
            raise ToolValidationError(
                f"tools[{index}]: the name has {len(tool.name)} characters; at most {options.name_chars} are allowed",
                path=f"tools[{index}]",
            )
        if not tool.name or tool.name in seen:
            what = f"the name {tool.name!r} is used twice" if tool.name else "a tool has no name"
            raise ToolValidationError(f"tools[{index}]: {what}", path=f"tools[{index}]")
        seen.add(tool.name)
        tools.append(tool)
    if options.max_tools and len(tools) > options.max_tools:
        raise ToolValidationError(f"{len(tools)} tools; at most {options.max_tools} are allowed", path="tools")
    if choice.mode == "none" or not tools:
        return None, ()
    callable_tools = tools
    if choice.names and choice.mode in ("named", "allowed"):
        callable_tools = [tool for tool in tools if tool.name in choice.names]
        if not callable_tools:
            raise ToolValidationError(f"tool_choice names {choice.names[0]!r}, which is not declared", path="tool_choice")
    required = choice.mode in ("required", "named") or (choice.mode == "allowed" and choice.required)
    plan = PromptPlan(tuple(callable_tools), style, required=required, single=request.parallel is False)
    losses.append(Loss("tools", "taught in the prompt and read from the answer's text", "emulated"))
    return plan, tuple(tools)


def _prompt(
    plan: PromptPlan | None,
    tools: Sequence[Tool],
    choice: ToolChoice | None,
    options: PromptedOptions,
    style: str,
    results: Sequence[ToolResult],
    losses: list[Loss],
) -> str:
    """All instructions for the model as one text; empty when there are none."""
    pieces: list[str] = []
    if plan is not None:
        pieces.append(tool_text(tools, options, style, losses))
        pieces += _choice_words(plan, choice)
    if results:
        lines = [safe_json(_result_fields(result)) for result in results]
        pieces.append("\n".join([templates.RESULTS_IN_PROMPT, *lines]))
    return _JOINT.join(pieces)


def tool_text(tools: Sequence[Tool], options: PromptedOptions, style: str, losses: list[Loss] | None = None) -> str:
    """The instructions for tools in the taught style, or in the operator's own template."""
    lines = "\n".join(safe_json(_tool_fields(tool)) for tool in tools)
    if options.template is not None:
        return filled(options.template, lines)
    if style == "json" or style in options.parsers:
        return filled(templates.JSON_TEMPLATE, lines)
    if style == "hermes":
        return filled(templates.HERMES_TEMPLATE, lines)
    taught = get_format(style)
    return taught.render_tools([_defused_tool(tool, taught, losses) for tool in tools])


def _tool_fields(tool: Tool) -> dict[str, Any]:
    # Always a description: a definition that a model repeats must not look like a call.
    fields: dict[str, Any] = {"name": tool.name, "description": tool.description or ""}
    fields["parameters"] = tool.schema if tool.schema is not None else {"type": "object", "properties": {}}
    if tool.strict:
        fields["strict"] = True
    return fields


def _choice_words(plan: PromptPlan, choice: ToolChoice | None) -> list[str]:
    words: list[str] = []
    if choice is not None and choice.mode == "named":
        words.append(templates.MUST_CALL_NAMED.replace("{name}", safe_json(choice.names[0])))
    elif choice is not None and choice.mode == "allowed":
        names = ", ".join(safe_json(tool.name) for tool in plan.tools)
        words.append(templates.ONLY_THESE.replace("{names}", names))
    if plan.required and (choice is None or choice.mode != "named"):
        words.append(templates.MUST_CALL)
    if plan.single:
        words.append(templates.ONE_CALL)
    return words


# -- text that would be markup -----------------------------------------------------------------------------------------------


def _defused_tool(tool: Tool, taught: Format, losses: list[Loss] | None) -> Tool:
    """A tool whose texts hold none of the format's own markers: most formats have no way to quote them."""
    fields = {"description": tool.description, "schema": tool.schema}
    defused = {name: _defused(value, _markers(taught)) for name, value in fields.items()}
    if defused == fields:
        return tool
    if losses is not None:
        losses.append(Loss(f"tools[{tool.name}]", f"markup of {taught.id} in its texts is written differently", "emulated"))
    return changed(tool, **defused)


def _markers(taught: Format) -> tuple[str, ...]:
    markers = [opener.marker for opener in taught.openers] + [*taught.closers, *taught.turn_ends]
    markers += [delimiter for pair in taught.thinking for delimiter in pair]
    return tuple(marker for marker in markers if len(marker) > 1)


def _defused(value: Any, markers: tuple[str, ...]) -> Any:
    if isinstance(value, str):
        if escaped_json(value) != value or any(marker in value for marker in markers):
            for sign, other in _LOOKALIKES:
                value = value.replace(sign, other)
        return value
    if isinstance(value, dict):
        return {_defused(key, markers): _defused(item, markers) for key, item in value.items()}
    return [_defused(item, markers) for item in value] if isinstance(value, list) else value


# -- the history -------------------------------------------------------------------------------------------------------------


class _Writer:
    """Earlier calls and results in the taught style."""

    def __init__(self, style: str) -> None:
        self._format = None if style == "json" or style not in format_names() else get_format(style)

    def calls(self, calls: Sequence[ToolCall]) -> str:
        """The calls of one turn, as the model would have written them."""
        taught = self._format
        if taught is not None and all(_is_expressible(call, taught) for call in calls):
            return taught.render_calls([changed(call, id=_plain_id(call.id)) for call in calls])
        return "[" + ", ".join(_call_json(call) for call in calls) + "]"

    def results(self, results: Sequence[ToolResult]) -> str:
        lines = [safe_json(_result_fields(result)) for result in results]
        if self._format is None:
            return "\n".join([templates.RESULTS_HEAD, *lines])
        # The format's own frame around our JSON: a result can then not close the frame it stands in.
        framed = [
            changed(result, call_id=_plain_id(result.call_id), parts=(Text(text=line),), structured=None)
            for result, line in zip(results, lines, strict=True)
        ]
        return self._format.render_results(framed)


def _is_expressible(call: ToolCall, taught: Format) -> bool:
    return is_json_object(call.arguments or "{}") and taught.inexpressible(call) is None


def _plain_id(call_id: str) -> str:
    """The id, or a hash of it where it holds what a format could take for markup: formats write ids as they are."""
    return call_id if call_id.isprintable() and escaped_json(call_id) == call_id else fitting_id("\0" + call_id, "chat")


def _call_json(call: ToolCall) -> str:
    arguments = call.arguments.strip() or "{}"
    arguments = escaped_json(arguments) if is_json_object(arguments) else safe_json(arguments)
    return f'{{"id": {safe_json(call.id)}, "name": {safe_json(call.name)}, "parameters": {arguments}}}'


def _result_fields(result: ToolResult) -> dict[str, Any]:
    fields: dict[str, Any] = {"tool_call_id": result.call_id}
    if result.name:
        fields["name"] = result.name
    if result.is_error:
        fields["is_error"] = True
    fields["result"] = result_text(result)
    return fields


def _rendered_turn(turn: Turn, writer: _Writer, options: PromptedOptions, listed: list[ToolResult], losses: list[Loss]) -> Turn:
    """One turn without calls and results: both have become text in their places."""
    if not any(isinstance(part, ToolCall | ToolResult) for part in turn.parts):
        return turn
    parts: list[Part] = []
    calls = [part for part in turn.parts if isinstance(part, ToolCall)]
    results = [part for part in turn.parts if isinstance(part, ToolResult)]
    for part in turn.parts:
        if isinstance(part, ToolCall):
            if part is calls[-1]:
                _append_text(parts, writer.calls(calls))
        elif isinstance(part, ToolResult):
            if part is not results[-1]:
                continue
            if options.results == "prompt":
                listed.extend(results)
                _append_text(parts, templates.RESULTS_ELSEWHERE)
            else:
                _append_text(parts, writer.results(results))
            parts += _other_content(results)
        else:
            parts.append(part)
    return changed(turn, parts=tuple(parts), hint=None)


def _append_text(parts: list[Part], text: str) -> None:
    last = parts[-1] if parts else None
    if isinstance(last, Text) and last.signature is None:
        parts[-1] = changed(last, text=f"{last.text}{_JOINT}{text}")
    else:
        parts.append(Text(text=text))


def _other_content(results: Sequence[ToolResult]) -> list[Part]:
    """Images and documents of results, after the text that says whose they are."""
    parts: list[Part] = []
    for result in results:
        content = [part for part in result.parts if not isinstance(part, Text)]
        if content:
            parts.append(Text(text=templates.CONTENT_OF.replace("{id}", safe_json(result.call_id))))
            parts += content
    return parts


# -- where it goes -----------------------------------------------------------------------------------------------------------


def _has_history(request: Request) -> bool:
    return any(isinstance(part, ToolCall | ToolResult) for turn in request.turns for part in turn.parts)


def _without_controls(request: Request) -> Request:
    """No tools, no choice, no parallel switch: the model knows none of them."""
    if not request.tools and request.tool_choice is None and request.parallel is None:
        return request
    return msgspec.structs.replace(request, tools=(), tool_choice=None, parallel=None)


def _injected(request: Request, prompt: str, *, system_messages: bool) -> Request:
    """Behind the last of the leading instructions; without any where the model reads first.

    Never after instructions in mid-conversation: the prompt would move with every new one, and with it everything that a
    prompt cache knows of the conversation.
    """
    turns = list(request.turns)
    if request.system:
        last = request.system[-1]
        if isinstance(last, Text):
            system = (*request.system[:-1], changed(last, text=f"{last.text}{_JOINT}{prompt}"))
        else:
            system = (*request.system, Text(text=prompt))
        return msgspec.structs.replace(request, system=system)
    if system_messages:
        return msgspec.structs.replace(request, system=(Text(text=prompt),))
    for position, turn in enumerate(turns):
        if turn.role == "user":
            turns[position] = _with_first_text(turn, prompt)
            return msgspec.structs.replace(request, turns=tuple(turns))
    turns.insert(0, Turn(role="user", parts=(Text(text=prompt),)))
    return msgspec.structs.replace(request, turns=tuple(turns))


def _with_first_text(turn: Turn, text: str) -> Turn:
    first = turn.parts[0] if turn.parts else None
    if isinstance(first, Text):
        return changed(turn, parts=(changed(first, text=f"{text}{_JOINT}{first.text}"), *turn.parts[1:]))
    return changed(turn, parts=(Text(text=text), *turn.parts))


def merged_turns(turns: Sequence[Turn]) -> tuple[Turn, ...]:
    """Never two messages of one role in a row: many models without tools take none."""
    merged: list[Turn] = []
    for turn in turns:
        last = merged[-1] if merged else None
        if last is not None and last.role == turn.role and turn.role != "system":
            parts = list(last.parts)
            for part in turn.parts:
                if isinstance(part, Text) and part.cache is None and part.signature is None:
                    _append_text(parts, part.text)
                else:
                    parts.append(part)
            merged[-1] = changed(last, parts=tuple(parts))
        else:
            merged.append(turn)
    return tuple(merged)
