"""Mistral until Small 3.1: a control token, then all calls as one JSON array.

    [TOOL_CALLS] [{"name": "get_time", "arguments": {"tz": "UTC"}}]

There is no closing token: the end of the turn is the end. History carries an `id` of nine letters and digits per call; models
leave it out. Origin: the templates of Mistral Nemo and 7B v0.3, vLLM's mistral templates and parser. The later
form of the family (`mistral_args`) is read too.
"""

from __future__ import annotations

from collections.abc import Sequence

from athena.calls.ids import fitting_id
from athena.formats.bodies.bare_json import read_bare_array
from athena.formats.bodies.json_text import quoted
from athena.formats.bodies.mistral_tokens import (
    CALLS,
    CALLS_END,
    NO_ARRAY,
    NO_NAME,
    TURN_END,
    new_id,
    read_array,
    read_name_and_arguments,
)
from athena.formats.bodies.near_misses import NO_OBJECTS
from athena.formats.machine.base import Format, Opener
from athena.formats.machine.render import TOOLS, ToolPrompt, result_text, tool_array
from athena.model.parts import ToolCall, ToolResult


def render_calls(calls: Sequence[ToolCall]) -> str:
    """One array; each call with the id its result will name."""
    return f"{CALLS} [{', '.join(_call(call) for call in calls)}]"


def _call(call: ToolCall) -> str:
    call_id = f', "id": "{fitting_id(call.id, "mistral")}"' if call.id else ""
    return f'{{"name": {quoted(call.name)}, "arguments": {call.arguments.strip() or "{}"}{call_id}}}'


def render_results(results: Sequence[ToolResult]) -> str:
    """One block per result; the template puts the content in as it is."""
    return "".join(
        f'[TOOL_RESULTS] {{"content": {result_text(result)}, "call_id": "{fitting_id(result.call_id, "mistral")}"}}'
        "[/TOOL_RESULTS]"
        for result in results
    )


TOOL_PROMPT = ToolPrompt(
    f"[AVAILABLE_TOOLS] {TOOLS}[/AVAILABLE_TOOLS]",
    tool_array,
)
"""The declaration the models were trained on; it stands before the last user turn."""


FORMAT = Format(
    id="mistral_json",
    reserved=True,
    openers=(
        Opener(CALLS, read_array, never=NO_ARRAY),
        Opener(CALLS, read_name_and_arguments, auto=False, rank=1, never=NO_NAME),
        Opener("[", read_bare_array, where="line", auto=False, plain=True, never=NO_OBJECTS),
    ),
    closers=(CALLS_END,),
    turn_ends=(TURN_END,),
    new_id=new_id,
    render_calls=render_calls,
    render_results=render_results,
    render_tools=TOOL_PROMPT,
)
