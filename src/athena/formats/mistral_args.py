"""Mistral since Small 3.2: a control token per call, name and arguments after it.

    [TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}[TOOL_CALLS]get_time[ARGS]{}

There is no closing token: the balanced brace ends a call. Small 3.2 puts `[CALL_ID]` and nine characters before `[ARGS]`.
Origin: the templates of Ministral 3, Small 3.2 and Devstral.
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
from athena.formats.machine.name_rules import BareNameRule
from athena.formats.machine.render import TOOLS, ToolPrompt, result_text, tool_array
from athena.model.parts import ToolCall, ToolResult


def render_calls(calls: Sequence[ToolCall]) -> str:
    """The form all of them read; ids are not written, results go by order."""
    return "".join(f"{CALLS}{call.name}{ARGUMENTS}{call.arguments or '{}'}" for call in calls)


def render_results(results: Sequence[ToolResult]) -> str:
    """The form of Small 3.2, which names the call."""
    return "".join(
        f"[TOOL_RESULTS]{fitting_id(result.call_id, 'mistral')}[TOOL_CONTENT]{result_text(result)}[/TOOL_RESULTS]"
        for result in results
    )


TOOL_PROMPT = ToolPrompt(
    f"[AVAILABLE_TOOLS]{TOOLS}[/AVAILABLE_TOOLS]",
    tool_array,
)
"""The declaration the models were trained on."""


FORMAT = Format(
    id="mistral_args",
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
    render_tools=TOOL_PROMPT,
    inexpressible=BareNameRule(reason="the name does not fit between tokens", characters=" \n{["),
)  # fmt: skip
