"""PLaMo 3 of Preferred Networks: a request per call, name and JSON in tokens of their own.

    <|plamo:begin_tool_requests:plamo|><|plamo:begin_tool_request:plamo|><|plamo:begin_tool_name:plamo|>f<|plamo:end_tool_name:plamo|><|plamo:begin_tool_arguments:plamo|><|plamo:constrain|>json<|plamo:msg|>{"a": 1}<|plamo:end_tool_arguments:plamo|><|plamo:end_tool_request:plamo|><|plamo:end_tool_requests:plamo|>

Every marker consists of several tokens of the model's vocabulary, so it arrives in pieces. Origin: vllm 0.32.0
parser/plamo3; how results and tools are written is not known from it.
"""  # noqa: E501 - the sample is one line for the model

from __future__ import annotations

from collections.abc import Sequence

from athena.formats.bodies.headed import CallHead, Headed, HeadedReader
from athena.formats.machine.base import Format, Opener
from athena.formats.machine.name_rules import BareNameRule
from athena.formats.machine.render import TOOLS, ToolPrompt, result_text
from athena.formats.machine.scanner import Scanner, Steps
from athena.formats.machine.writer import CallWriter
from athena.model.parts import ToolCall, ToolResult


def _pair(what: str) -> tuple[str, str]:
    return f"<|plamo:begin_{what}:plamo|>", f"<|plamo:end_{what}:plamo|>"


REQUESTS, REQUESTS_END = _pair("tool_requests")
REQUEST, REQUEST_END = _pair("tool_request")
NAME, NAME_END = _pair("tool_name")
ARGUMENTS, ARGUMENTS_END = _pair("tool_arguments")
THINKING = _pair("think")
CONSTRAIN, MESSAGE = "<|plamo:constrain|>json", "<|plamo:msg|>"
TURN_END = "<|plamo:tag|>"


def _head(text: str, calls: CallWriter) -> CallHead:
    return CallHead(text)


def _open_call(scan: Scanner, calls: CallWriter, name: str) -> Steps[None]:
    """Behind the name: the markers before the JSON, any of which may be missing."""
    calls.open(name)
    for marker in (ARGUMENTS, CONSTRAIN, MESSAGE):
        yield from scan.space()
        yield from scan.found(marker)


_SHAPE = Headed(
    section_begin=(REQUESTS, REQUEST),
    section_end=(REQUESTS_END,),
    call_begin=(NAME,),
    argument_begin=(NAME_END,),
    call_end=(ARGUMENTS_END + REQUEST_END, ARGUMENTS_END, REQUEST_END),
    head=_head,
    open_call=_open_call,
)
_READ = HeadedReader(_SHAPE)


def render_calls(calls: Sequence[ToolCall]) -> str:
    """One section with a request per call."""
    written = "".join(
        f"{REQUEST}{NAME}{call.name}{NAME_END}"
        f"{ARGUMENTS}{CONSTRAIN}{MESSAGE}{call.arguments or '{}'}{ARGUMENTS_END}{REQUEST_END}"
        for call in calls
    )
    return f"{REQUESTS}{written}{REQUESTS_END}"


def render_results(results: Sequence[ToolResult]) -> str:
    """Results by name, in the order of their calls."""
    return "\n".join(f"{result.name or 'tool'}: {result_text(result)}" for result in results)


_FORM = f'{REQUEST}{NAME}NAME{NAME_END}{ARGUMENTS}{CONSTRAIN}{MESSAGE}{{"KEY": "VALUE"}}{ARGUMENTS_END}{REQUEST_END}'
TOOL_PROMPT = ToolPrompt(
    f"These functions can be called, one per line:\n{TOOLS}\n\n"
    f"To call functions, write one section with a request per call:\n{REQUESTS}{_FORM}{REQUESTS_END}"
)


FORMAT = Format(
    id="plamo3",
    reserved=True,
    openers=(*(Opener(marker, _READ, never=_READ.never_section) for marker in (REQUESTS, REQUEST)), Opener(NAME, _READ)),
    thinking=(THINKING,),
    closers=(*_SHAPE.call_end, REQUESTS_END),
    turn_ends=(TURN_END,),
    render_calls=render_calls,
    render_results=render_results,
    render_tools=TOOL_PROMPT,
    inexpressible=BareNameRule(
        reason="the name does not fit between tokens", pieces=("<|", "{", "**", "```"), blanks="nowhere"
    ),
)
