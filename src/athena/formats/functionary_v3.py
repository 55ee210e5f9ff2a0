"""Functionary 3.0, 3.2 and 4r of MeetKai: segments that begin with their recipient, the user included.

    >>>all
    Checking.>>>get_weather
    {"city": "Paris"}

The prompt ends with `>>>`, so an answer begins with a recipient. `all` is visible text; anything else is a tool, with JSON, or
with code where it is an interpreter. `>>>` is ordinary text: it counts before `all` or a declared name at the end of a line.
Origin: llama.cpp's template of functionary v3.2, MeetKai's prompt_template.
"""

from __future__ import annotations

from collections.abc import Sequence

from athena.formats.bodies.arguments import json_arguments, skip_to
from athena.formats.bodies.named import CODE_TOOLS
from athena.formats.bodies.raw_text import read_code, read_raw
from athena.formats.machine.base import Format, Opener
from athena.formats.machine.render import TOOLS, ToolPrompt, result_text
from athena.formats.machine.scanner import Cut, Declined, Lexer, Scanner, Steps
from athena.formats.machine.writer import CallWriter
from athena.model.parts import ToolCall, ToolResult

SEPARATOR, USER = ">>>", "all"
TURN_ENDS = ("<|eot_id|>", "<|eom_id|>")
_ENDS = (SEPARATOR, *TURN_ENDS)
_SEGMENT_END = Lexer(_ENDS)
_NO_RECIPIENT = rf"(?:\s|{SEPARATOR}|[^\s<>]++ )"
_NAME_END = Lexer(("\n", " ", *_ENDS))


def read_segments(scan: Scanner, calls: CallWriter, opener: str) -> Steps[None]:
    """Segments one after another; the first begins behind the opener."""
    while True:
        name, marker = yield from scan.upto(_NAME_END, calls.book.name_limit)
        if not _is_recipient(name, calls):
            raise Declined
        if not marker:
            raise Cut
        if marker != "\n":
            raise Declined
        scan.take(1)
        if name == USER:
            yield from read_raw(scan, calls, _SEGMENT_END, lambda text: calls.say(text, thinking=False), separates)
        else:
            yield from _call(scan, calls, name)
        calls.settle()
        if not (yield from separates(scan, calls, (yield from scan.peek(len(SEPARATOR))))):
            return
        yield from scan.found(SEPARATOR)


def separates(scan: Scanner, calls: CallWriter, marker: str) -> Steps[bool]:
    """Does a recipient's line follow the marker that stands here? The end of the turn needs none."""
    if marker != SEPARATOR:
        return marker in TURN_ENDS
    ahead = yield from scan.peek(len(SEPARATOR) + calls.book.name_limit + 1)
    name, newline, _ = ahead[len(SEPARATOR) :].partition("\n")
    return bool(newline) and _is_recipient(name, calls)


def _is_recipient(name: str, calls: CallWriter) -> bool:
    return name == USER or (bool(name) and len(name.split()) == 1 and calls.admits(name))


def _call(scan: Scanner, calls: CallWriter, name: str) -> Steps[None]:
    head = yield from scan.follows(0, ("{", *_ENDS))
    if name in CODE_TOOLS and head is None:
        calls.open(name)
        yield from read_code(scan, calls, _ENDS, separates)
        return
    if head == "":
        raise Cut
    if head != "{":
        raise Declined
    calls.open(name)
    if not (yield from json_arguments(scan, calls, _ENDS)):
        yield from skip_to(scan, calls, _SEGMENT_END)


def render_calls(calls: Sequence[ToolCall]) -> str:
    """One segment per call."""
    return "".join(f"{SEPARATOR}{call.name}\n{call.arguments or '{}'}" for call in calls)


def render_results(results: Sequence[ToolResult]) -> str:
    """One tool turn per result."""
    return "".join(f"<|start_header_id|>tool<|end_header_id|>\n\n{result_text(result)}{TURN_ENDS[0]}" for result in results)


TOOL_PROMPT = ToolPrompt(
    f"These functions can be called, one per line:\n{TOOLS}\n\n"
    "Write an answer as segments, each headed by its recipient: all is the user, anything else a function.\n"
    f'{SEPARATOR}{USER}\nTEXT{SEPARATOR}NAME\n{{"KEY": "VALUE"}}'
)
"""The system text that declares tools and the form of an answer."""


def inexpressible(call: ToolCall) -> str | None:
    """The name is a line of its own."""
    if not call.name or call.name == USER or call.name != call.name.strip() or len(call.name.split()) > 1:
        return "the name does not fit into a segment's head"
    return "the name holds a marker" if any(end in call.name for end in _ENDS) else None


FORMAT = Format(
    id="functionary_v3",
    openers=(
        Opener(SEPARATOR, read_segments, where="line", never=_NO_RECIPIENT),
        Opener(SEPARATOR, read_segments, auto=False, never=_NO_RECIPIENT),
        Opener("", read_segments, auto=False),
    ),
    turn_ends=TURN_ENDS,
    render_calls=render_calls,
    render_results=render_results,
    render_tools=TOOL_PROMPT,
    inexpressible=inexpressible,
)
