"""Seed-OSS of ByteDance: the tags of Qwen3-Coder in a wrapper of the vendor's namespace, values on one line.

    <seed:tool_call>
    <function=f>
    <parameter=on>True</parameter>
    </function>
    </seed:tool_call>

Values are verbatim, without line breaks of the markup around them; what is not a string was written by Python's `str`.
Origin: the ByteDance-Seed-OSS template and vLLM's seed_oss parser.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from athena.formats.bodies.near_misses import unlike
from athena.formats.bodies.tagged import TaggedArguments
from athena.formats.bodies.tool_call_blocks import FUNCTION_BEGIN, FUNCTION_TAGS, NO_TAG_NAME, tag_name
from athena.formats.machine.base import Format, Opener
from athena.formats.machine.render import (
    TOOLS,
    ToolPrompt,
    arguments_of,
    plain_value,
    python_value,
    result_text,
    tagged_trouble,
)
from athena.formats.machine.scanner import LOOK_AHEAD, Cut, Declined, Lexer, Scanner, Steps
from athena.formats.machine.writer import CallWriter
from athena.model.parts import ToolCall, ToolResult

BEGIN, END = "<seed:tool_call>", "</seed:tool_call>"
TAGS = msgspec.structs.replace(FUNCTION_TAGS, section_end=(END,), next_call=(BEGIN, *FUNCTION_BEGIN), newline=False)
_ARGUMENTS = TaggedArguments(TAGS)
_TAG_END = Lexer((">", "\n", "{"))
_BODY = ("<parameter", "< parameter", *TAGS.call_end, END, "{")


def read_block(scan: Scanner, calls: CallWriter, opener: str) -> Steps[None]:
    """One or several functions behind the opening tag."""
    yield from scan.space()
    if not (yield from scan.found(*FUNCTION_BEGIN, "function=")):
        if scan.ended():
            raise Cut
        raise Declined
    yield from read_functions(scan, calls, opener)


def read_functions(scan: Scanner, calls: CallWriter, opener: str) -> Steps[None]:
    """Functions where the beginning of the first one's tag was taken."""
    while True:
        text, marker = yield from scan.upto(_TAG_END, LOOK_AHEAD * 2)
        if not marker:
            raise Cut
        name = tag_name(text)
        if name is None:
            raise Declined
        if marker == ">":
            scan.take(1)
        if not calls.admits(name) or (yield from scan.follows(0, _BODY)) is None:
            raise Declined
        calls.open(name)
        yield from _ARGUMENTS.read(scan, calls)
        if (yield from scan.follows(0, (*FUNCTION_BEGIN, END), end=False)) is None:
            return
        yield from scan.space()
        if not (yield from scan.found(*FUNCTION_BEGIN)):
            yield from scan.found(END)
            calls.settle()
            return


def render_calls(calls: Sequence[ToolCall]) -> str:
    """One block per call."""
    return "\n".join(_call(call) for call in calls)


def _call(call: ToolCall) -> str:
    parameters = "".join(f"<parameter={key}>{_value(value)}</parameter>\n" for key, value in arguments_of(call).items())
    return f"{BEGIN}\n<function={call.name}>\n{parameters}</function>\n{END}"


def _value(value: str) -> str:
    return plain_value(value) if value.startswith('"') else python_value(value)


def render_results(results: Sequence[ToolResult]) -> str:
    """One tool turn per result."""
    return "".join(f"<seed:bos>tool\n{result_text(result)}<seed:eos>" for result in results)


TOOL_PROMPT = ToolPrompt(
    f"Tool list:\nThese functions can be called, one per line:\n{TOOLS}\n\n"
    "A call is written exactly so, one block per call:\n"
    f"{BEGIN}\n<function=NAME>\n<parameter=KEY>VALUE</parameter>\n</function>\n{END}"
)


def inexpressible(call: ToolCall) -> str | None:
    """Values have no escapes."""
    markers = (*TAGS.parameter_end, *TAGS.call_end, "<parameter", "< parameter", *FUNCTION_BEGIN, BEGIN, END)
    if tag_name(call.name) != call.name:
        return "the name does not fit into a tag"
    return tagged_trouble(call, markers)


FORMAT = Format(
    id="seed_oss",
    openers=(
        Opener(BEGIN, read_block, never=unlike(*FUNCTION_BEGIN, "function=")),
        *(Opener(begin, read_functions, where="line", auto=False, never=NO_TAG_NAME) for begin in FUNCTION_BEGIN),
    ),
    thinking=(
        ("<seed:think>", "</seed:think>"),
        ("<think>", "</think>"),
    ),
    closers=(END, "</function>", "</parameter>"),
    turn_ends=("<seed:eos>",),
    streams="str",
    render_calls=render_calls,
    render_results=render_results,
    render_tools=TOOL_PROMPT,
    inexpressible=inexpressible,
)
