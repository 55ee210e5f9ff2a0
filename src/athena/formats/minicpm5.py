"""MiniCPM 5 of OpenBMB: a tag per function and per parameter, difficult values in CDATA.

    <function name="f"><param name="t"><![CDATA[a<b]]></param></function>

There is no wrapper. What is not a string was written by Python's `str`. Origin: the openbmb-MiniCPM5-1B template, vLLM's
minicpm5xml_tool_parser and its tests, SGLang's minicpm5_detector.
"""

from __future__ import annotations

from collections.abc import Sequence

from athena.formats.bodies.near_misses import SPACE
from athena.formats.bodies.tagged import TaggedArguments, TagParameter, Tags
from athena.formats.bodies.tool_call_blocks import tag_name
from athena.formats.machine.base import Format, Opener
from athena.formats.machine.render import TOOLS, ToolPrompt, arguments_of, plain_value, python_value, result_text
from athena.formats.machine.scanner import LOOK_AHEAD, Cut, Declined, Lexer, Scanner, Steps
from athena.formats.machine.writer import CallWriter
from athena.model.parts import ToolCall, ToolResult

BLANKS = (" ", "", "Ġ")
"""The blank in a tag: as it is, lost, and as the tokenizer's glyph."""


def read_parameter(text: str) -> TagParameter | None:
    """The name in a tag, behind `name=`."""
    key = tag_name(text)
    return TagParameter(key) if key else None


FUNCTION = tuple(f"<function{blank}name=" for blank in BLANKS)
TAGS = Tags(
    parameter=(*(f"<param{blank}name=" for blank in BLANKS), "<param>"),
    parameter_end=("</param>", "</param>Ċ"),
    call_end=("</function>",),
    next_call=FUNCTION,
    read_tag=read_parameter,
    cdata=True,
)
_ARGUMENTS = TaggedArguments(TAGS)
_TAG_END = Lexer((">", "\n"))
_NO_NAME = rf"{SPACE}[<>{{}}]"
_BODY = ("<param", "</function>", "{", "Ċ")


def read_function(scan: Scanner, calls: CallWriter, opener: str) -> Steps[None]:
    """One function behind `name=`."""
    text, marker = yield from scan.upto(_TAG_END, LOOK_AHEAD * 2)
    if not marker:
        raise Cut
    name = tag_name(text.removesuffix("/"))
    if name is None or marker != ">" or not calls.admits(name):
        raise Declined
    scan.take(1)
    if text.endswith("/"):
        calls.open(name)
        calls.close()
        calls.settle()
        return
    if (yield from scan.follows(0, _BODY)) is None:
        raise Declined
    calls.open(name)
    yield from _ARGUMENTS.read(scan, calls)


def render_calls(calls: Sequence[ToolCall]) -> str:
    """Functions one after another."""
    return "\n".join(_call(call) for call in calls)


def _call(call: ToolCall) -> str:
    parameters = "".join(f'<param name="{key}">{_value(value)}</param>' for key, value in arguments_of(call).items())
    return f'<function name="{call.name}">{parameters}</function>'


def _value(value: str) -> str:
    text = plain_value(value) if value.startswith('"') else python_value(value)
    return f"<![CDATA[{text}]]>" if set(text) & set("<&\n") else text


def render_results(results: Sequence[ToolResult]) -> str:
    """All results of a turn share one user message."""
    return "\n".join(f"<tool_response>\n{result_text(result)}\n</tool_response>" for result in results)


TOOL_PROMPT = ToolPrompt(
    f"# Tools\n\nThese functions can be called, one per line:\n<tools>\n{TOOLS}\n</tools>\n\n"
    "A call is written exactly so; a value with line breaks, < or & stands in <![CDATA[ and ]]>:\n"
    '<function name="NAME"><param name="KEY">VALUE</param></function>'
)


def inexpressible(call: ToolCall) -> str | None:
    """CDATA has no escapes."""
    arguments = arguments_of(call)
    if any(tag_name(name) != name or "/" in name for name in (call.name, *arguments)):
        return "a name does not fit into a tag"
    if any("]]>" in plain_value(value) for value in arguments.values()):
        return "a value holds the end of CDATA"
    return None


FORMAT = Format(
    id="minicpm5",
    openers=tuple(Opener(marker, read_function, rank=1, never=_NO_NAME) for marker in FUNCTION),
    closers=("</function>", "</param>", "<tool_sep>"),
    turn_ends=("<|im_end|>",),
    streams="str",
    render_calls=render_calls,
    render_results=render_results,
    render_tools=TOOL_PROMPT,
    inexpressible=inexpressible,
)
