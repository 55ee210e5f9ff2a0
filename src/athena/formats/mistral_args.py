"""Mistral since Small 3.2: a control token per call, name and arguments behind it.

    [TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}[TOOL_CALLS]get_time[ARGS]{}

There is no closing token: the balanced brace ends a call. Small 3.2 puts `[CALL_ID]` and nine characters before `[ARGS]`.
Origin: the templates of Ministral 3, Small 3.2 and Devstral. Deviations: `formats.md` 2.15.
"""

from __future__ import annotations

from collections.abc import Sequence

from athena.calls.ids import fitting_id
from athena.formats.bodies.mistral_tokens import (
    ARGUMENTS,
    CALLS,
    CALLS_END,
    NO_ARRAY,
    NO_NAME,
    TURN_END,
    new_id,
    read_array,
    read_name_and_arguments,
)
from athena.formats.machine.base import Format, Opener
from athena.formats.machine.render import result_text, spaced_json, tool_json
from athena.model.parts import ToolCall, ToolResult
from athena.model.request import Tool


def render_calls(calls: Sequence[ToolCall]) -> str:
    """The form all of them read; ids are not written, results go by order."""
    return "".join(f"{CALLS}{call.name}{ARGUMENTS}{call.arguments or '{}'}" for call in calls)


def render_results(results: Sequence[ToolResult]) -> str:
    """The form of Small 3.2, which names the call."""
    return "".join(
        f"[TOOL_RESULTS]{fitting_id(result.call_id, 'mistral')}[TOOL_CONTENT]{result_text(result)}[/TOOL_RESULTS]"
        for result in results
    )


def render_tools(tools: Sequence[Tool]) -> str:
    """The declaration the models were trained on."""
    return f"[AVAILABLE_TOOLS]{spaced_json([tool_json(tool) for tool in tools])}[/AVAILABLE_TOOLS]"


def inexpressible(call: ToolCall) -> str | None:
    """Names are written bare between tokens."""
    return "the name does not fit between tokens" if set(call.name) & set(" \n{[") or not call.name else None


FORMAT = Format(
    id="mistral_args",
    models=(
        "mistral-small-3.2*", "mistral-small-2506*", "devstral*", "magistral*", "ministral-3*", "mistral-large-3*",
        "mistral-large-2512*", "mistral-medium*",
    ),
    reserved=True,
    openers=(
        Opener(CALLS, read_name_and_arguments, never=NO_NAME),
        Opener("[TOOL_CALLS", read_name_and_arguments, auto=False, never=NO_NAME),
        Opener(CALLS, read_array, auto=False, rank=1, never=NO_ARRAY),
    ),
    thinking=(("[THINK]", "[/THINK]"), ("<think>", "</think>")),
    closers=(CALLS_END,),
    turn_ends=(TURN_END,),
    new_id=new_id,
    render_calls=render_calls,
    render_results=render_results,
    render_tools=render_tools,
    inexpressible=inexpressible,
)  # fmt: skip
