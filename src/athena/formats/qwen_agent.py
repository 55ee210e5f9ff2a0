"""Qwen, Qwen1.5 and Qwen2 under Qwen-Agent's own prompt: lines headed by words between flowers (U+273F).

    ✿FUNCTION✿: get_weather
    ✿ARGS✿: {"city": "Paris"}
    ✿RESULT✿

Results are put into the same assistant message after `✿RESULT✿`, and the model goes on after `✿RETURN✿`. Both are stop
words; what a model makes up after `✿RESULT✿` is left out. Origin: Qwen-Agent's qwen_fncall_prompt.
"""

from __future__ import annotations

from collections.abc import Sequence

from athena.formats.bodies.arguments import json_arguments, skip_to
from athena.formats.bodies.named import CODE_TOOLS
from athena.formats.bodies.raw_text import drop_rest, fence_end, read_code
from athena.formats.machine.base import Format, Opener
from athena.formats.machine.render import result_text, spaced_json
from athena.formats.machine.scanner import LOOK_AHEAD, Cut, Declined, Lexer, Scanner, Steps
from athena.formats.machine.writer import CallWriter
from athena.model.parts import ToolCall, ToolResult
from athena.model.request import Tool

FUNCTION, ARGUMENTS, RESULT, RETURN = "✿FUNCTION✿", "✿ARGS✿", "✿RESULT✿", "✿RETURN✿"
TURN_END = "<|im_end|>"
_ENDS = (FUNCTION, ARGUMENTS, RESULT, RETURN, TURN_END)
_MARKERS = Lexer(_ENDS)
_NAME_END = Lexer(("\n", *_ENDS))
_NO_NAME = r"[:：]?+[ \t]*+(?:[\n✿]|[^\s✿<]++[ \t]++[^\s✿<])"
_COLONS = (":", "：")
_COMMENTS = ("#", "//")


def read_call(scan: Scanner, calls: CallWriter, opener: str) -> Steps[None]:
    """A name, then its arguments; several arguments are several calls of it, none is a call without arguments."""
    yield from scan.found(*_COLONS)
    text, _ = yield from scan.upto(_NAME_END, LOOK_AHEAD * 2)
    name = text.strip()
    if not name or len(name.split()) > 1 or "✿" in name or not calls.admits(name):
        raise Declined
    behind = yield from scan.follows(0, _ENDS)
    if behind is None:
        raise Declined
    if behind == "" and not scan.ended_well:
        raise Cut
    if behind != ARGUMENTS:
        calls.open(name)
        calls.close()
    while (yield from scan.follows(0, (ARGUMENTS,), end=False)) is not None:
        yield from scan.space()
        yield from scan.found(ARGUMENTS)
        yield from scan.found(*_COLONS)
        calls.open(name)
        yield from _arguments(scan, calls, name)
        yield from _comment(scan, calls)


def _arguments(scan: Scanner, calls: CallWriter, name: str) -> Steps[None]:
    if name in CODE_TOOLS and (yield from scan.follows(0, ("{", *_ENDS))) is None:
        yield from read_code(scan, calls, tuple("\n" + end for end in _ENDS))
        return
    fenced = (yield from scan.follows(0, ("```",), end=False)) is not None
    if not (yield from json_arguments(scan, calls, _ENDS)):
        yield from skip_to(scan, calls, _MARKERS)
    elif fenced:
        yield from fence_end(scan, calls)


def _comment(scan: Scanner, calls: CallWriter) -> Steps[None]:
    """A comment behind the arguments, up to the next marker or the end of its line."""
    if (yield from scan.follows(0, _COMMENTS, end=False)) is None:
        return
    yield from scan.space()
    yield from skip_to(scan, calls, _NAME_END)


def read_result(scan: Scanner, calls: CallWriter, opener: str) -> Steps[None]:
    """The stop word behind calls, and whatever was made up behind it."""
    if not calls.shown:
        raise Declined
    yield from drop_rest(scan, calls)


def read_return(scan: Scanner, calls: CallWriter, opener: str) -> Steps[None]:
    """The word before the answer is not part of it; when the prompt ends with it, the answer begins with its colon."""
    colon = yield from scan.found(*_COLONS)
    if not opener and (not colon or (yield from scan.peek(1)) not in (" ", "\n")):
        raise Declined
    yield from scan.found(" ")
    calls.settle()


def render_calls(calls: Sequence[ToolCall]) -> str:
    """One pair of lines per call."""
    return "".join(f"{FUNCTION}: {call.name}\n{ARGUMENTS}: {call.arguments or '{}'}\n" for call in calls)


def render_results(results: Sequence[ToolResult]) -> str:
    """One line per result, then the word behind which the model goes on."""
    return "".join(f"\n{RESULT}: {result_text(result)}" for result in results) + f"\n{RETURN}: "


def render_tools(tools: Sequence[Tool]) -> str:
    """The system text that declares tools and the form of a call."""
    declared = "\n\n".join(
        f"### {tool.name}\n\n{tool.name}: {tool.description or ''} Parameters: {spaced_json(tool.schema or {})}"
        for tool in tools
    )
    return (
        f"# Tools\n\n## These tools can be called:\n\n{declared}\n\n"
        "## To call tools, put these lines into the answer, one pair per call, before the results:\n\n"
        f"{FUNCTION}: NAME\n{ARGUMENTS}: the input as a JSON object\n{RESULT}: what the tool gave\n"
        f"{RETURN}: the answer, based on the results"
    )


def inexpressible(call: ToolCall) -> str | None:
    """The name is written bare in a line."""
    if not call.name or "✿" in call.name or call.name != call.name.strip() or len(call.name.split()) > 1:
        return "the name does not fit into a line"
    return "the name begins with a colon" if call.name.startswith(_COLONS) else None


FORMAT = Format(
    id="qwen_agent",
    openers=(
        Opener(FUNCTION, read_call, never=_NO_NAME),
        Opener(RESULT, read_result, auto=False),
        Opener(RETURN, read_return, auto=False),
        Opener("", read_return, auto=False, never=r"[^:：]"),
    ),
    turn_ends=(TURN_END,),
    render_calls=render_calls,
    render_results=render_results,
    render_tools=render_tools,
    inexpressible=inexpressible,
)
