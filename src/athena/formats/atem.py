"""Muse Glimmer (ATEM): messages with recipients; a message to a tool holds invoke tags.

     to=f<|message|><atem:function_calls>
    <atem:invoke name="f">
    <atem:parameter name="a">1</atem:parameter>
    </atem:invoke>
    </atem:function_calls><|eot|>

The prompt ends with `<|start|>assistant`, so an answer begins with its recipient: `self` is reasoning, `user` or none the
answer, anything else a tool. Only messages to tools are read for calls; the same tags in reasoning or an answer are words.
Origin: the muse-glimmer template, vLLM's muse_glimmer_tool_parser.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from athena.formats.bodies.arguments import skip_to
from athena.formats.bodies.invoke import Invoke, InvokeReader
from athena.formats.bodies.invoke_text import invoke_calls
from athena.formats.bodies.near_misses import unlike
from athena.formats.machine.base import Format, Opener
from athena.formats.machine.name_rules import BareNameRule
from athena.formats.machine.render import TOOLS, ToolPrompt, result_text
from athena.formats.machine.scanner import LOOK_AHEAD, Cut, Declined, Lexer, Scanner, Steps
from athena.formats.machine.writer import CallWriter
from athena.model.parts import ToolCall, ToolResult

START, MESSAGE, ENDS = "<|start|>", "<|message|>", ("<|eom|>", "<|eot|>")
NAMESPACE = "atem:"
SECTION, SECTION_END = f"<{NAMESPACE}function_calls>", f"</{NAMESPACE}function_calls>"
SHAPE = Invoke(
    section_begin=(SECTION,),
    section_end=(SECTION_END,),
    call=(f"<{NAMESPACE}invoke",),
    call_end=(f"</{NAMESPACE}invoke>",),
    parameter=(f"<{NAMESPACE}parameter",),
    parameter_end=(f"</{NAMESPACE}parameter>",),
    strays=(MESSAGE,),
)
_READ = InvokeReader(SHAPE)
_HEADER_END = Lexer((MESSAGE, *ENDS))
_BODY_END = Lexer((*ENDS, f"{START}assistant"))
_NO_HEADER = unlike("assistant", "to=", MESSAGE)
_HEADER = re.compile(r"\s*(?:assistant\b)?\s*(?:to=(\S+))?\s*")


def read_addressed(scan: Scanner, calls: CallWriter, opener: str) -> Steps[None]:
    """Messages whose first one names a recipient of this family: Harmony has the same token."""
    yield from _messages(scan, calls, addressed=True)


def read_messages(scan: Scanner, calls: CallWriter, opener: str) -> Steps[None]:
    """Messages where the format was named."""
    yield from _messages(scan, calls, addressed=False)


def read_beginning(scan: Scanner, calls: CallWriter, opener: str) -> Steps[None]:
    """The answer's first message, whose `<|start|>assistant` is in the prompt."""
    if (yield from scan.follows(0, ("to=", MESSAGE), end=False)) is None:
        raise Declined
    yield from _messages(scan, calls, addressed=False)


def read_addressed_beginning(scan: Scanner, calls: CallWriter, opener: str) -> Steps[None]:
    """The same where nobody named the format: what follows the address must be of this family."""
    text, marker = yield from scan.upto(_HEADER_END, LOOK_AHEAD * 2)
    if marker != MESSAGE or _HEADER.fullmatch(text) is None:
        raise Declined
    scan.put_back_taken(len(text))
    yield from _messages(scan, calls, addressed=True)


def _messages(scan: Scanner, calls: CallWriter, *, addressed: bool) -> Steps[None]:
    while True:
        text, marker = yield from scan.upto(_HEADER_END, LOOK_AHEAD * 2)
        found = _HEADER.fullmatch(text)
        if found is None or (marker in ENDS):
            raise Declined
        if not marker:
            raise Cut
        scan.take(len(marker))
        recipient = found.group(1)
        if addressed and (
            recipient is None
            or (recipient not in ("self", "user") and (yield from scan.follows(0, (SECTION, *SHAPE.call), end=False)) is None)
        ):
            raise Declined
        if recipient in ("self", "user", None):
            yield from _words(scan, calls, thinking=recipient == "self")
        else:
            yield from _calls(scan, calls)
        yield from scan.found(*ENDS)
        calls.settle()
        if (yield from scan.follows(0, (START, "to="), end=False)) is None:
            return
        yield from scan.space()
        yield from scan.found(START)
        addressed = False


def _words(scan: Scanner, calls: CallWriter, *, thinking: bool) -> Steps[None]:
    yield from scan.flow(_BODY_END, lambda text: calls.say(text, thinking=thinking))


def _calls(scan: Scanner, calls: CallWriter) -> Steps[None]:
    """What a tool is sent. The invoke's name counts, not the recipient's."""
    yield from scan.space()
    marker = yield from scan.found(SECTION, *SHAPE.call)
    if marker:
        yield from _READ(scan, calls, marker)
    elif scan.ended():
        raise Cut
    else:
        calls.bad_head("a message to a tool that holds no call", scan.recorded)
    yield from skip_to(scan, calls, _BODY_END)


def render_calls(calls: Sequence[ToolCall]) -> str:
    """One message per call."""
    return ENDS[0].join(
        f"{START}assistant to={call.name}{MESSAGE}{SECTION}\n{invoke_calls((call,), NAMESPACE)}{SECTION_END}" for call in calls
    ) + (ENDS[1] if calls else "")


def render_results(results: Sequence[ToolResult]) -> str:
    """One message per result, from the tool."""
    return "".join(
        f'{START}tool {result.name or "tool"}{MESSAGE}<tool_output name="{result.name or "tool"}">\n'
        f"{result_text(result)}\n</tool_output>{ENDS[1]}"
        for result in results
    )


_FORM = f'<{NAMESPACE}invoke name="NAME">\n<{NAMESPACE}parameter name="KEY">VALUE</{NAMESPACE}parameter>\n</{NAMESPACE}invoke>'
TOOL_PROMPT = ToolPrompt(
    f"# Tools\n\nThese functions can be called, one per line:\n{TOOLS}\n\n"
    f"To call one, send it a message of this form, one message per call:\n{SECTION}\n{_FORM}\n{SECTION_END}"
)


FORMAT = Format(
    id="atem",
    reserved=True,
    openers=(
        Opener(START, read_messages, auto=False, rank=-2, never=_NO_HEADER),
        Opener(START, read_addressed, rank=-1, never=_NO_HEADER),
        Opener("", read_beginning, auto=False),
        Opener("", read_addressed_beginning, never=unlike("to=")),
    ),
    thinking=(),
    closers=(SECTION_END, *SHAPE.call_end, *ENDS),
    turn_ends=ENDS,
    streams="str",
    render_calls=render_calls,
    render_results=render_results,
    render_tools=TOOL_PROMPT,
    inexpressible=BareNameRule(
        reason="the name does not fit into a header",
        characters=' \t\r\n"<>',
        taken=("self", "user"),
        markers=(*SHAPE.parameter, *SHAPE.parameter_end, *SHAPE.call, *SHAPE.call_end, SECTION_END),
    ),
)
