"""Beam: Harmony's messages with a call's arguments in tags, and the recipient before the channel.

     to=get_weather<|channel|>analysis <|constrain|>xml<|message|><rfl:parameter name="city">
    Paris
    </rfl:parameter><|call|>

Every value stands on lines of its own: a string as it is, anything else as JSON. An answer begins with its recipient, because
the prompt ends with `<|start|>assistant`; further calls have that in front. Read by Harmony's reader, so that calls with JSON
arguments count too. Origin: SGLang's profile of Beam.
"""

from __future__ import annotations

from collections.abc import Sequence

from athena.formats.bodies.harmony_messages import CHANNEL, CONSTRAIN, ENDS, MESSAGE, OPENERS, PARAMETERS, START, render_results
from athena.formats.machine.base import Format
from athena.formats.machine.name_rules import BareNameRule
from athena.formats.machine.render import arguments_of, plain_value, spaced_json, tool_json
from athena.model.parts import ToolCall
from athena.model.request import Tool

_BEGIN, _END = PARAMETERS.parameter[0], PARAMETERS.parameter_end[0]


def render_calls(calls: Sequence[ToolCall]) -> str:
    """One message per call; the first goes on where the prompt ends."""
    return f"{START}assistant".join(map(_call, calls))


def _call(call: ToolCall) -> str:
    parameters = "".join(f'{_BEGIN}name="{key}">\n{plain_value(value)}\n{_END}' for key, value in arguments_of(call).items())
    return f" to={call.name}{CHANNEL}analysis {CONSTRAIN}xml{MESSAGE}{parameters}<|call|>"


def render_tools(tools: Sequence[Tool]) -> str:
    """The system text that declares tools and the form of a call."""
    declared = "\n".join(spaced_json(tool_json(tool)["function"]) for tool in tools)
    return (
        f"# Tools\n\nThese tools can be called, described in JSON Schema:\n{declared}\n\n"
        "To call a tool, write a message to it with a tag for each parameter:\n"
        f' to=NAME{CHANNEL}analysis {CONSTRAIN}xml{MESSAGE}{_BEGIN}name="KEY">\nVALUE\n{_END}<|call|>'
    )


FORMAT = Format(
    id="beam",
    reserved=True,
    openers=OPENERS,
    thinking=(),
    closers=(*ENDS, _END),
    turn_ends=ENDS,
    streams="str",
    render_calls=render_calls,
    render_results=render_results,
    render_tools=render_tools,
    inexpressible=BareNameRule(
        reason="the name does not fit into a header",
        characters=" \n\t<{=",
        markers=(_BEGIN, _END, *ENDS, START, CHANNEL),
    ),
)
