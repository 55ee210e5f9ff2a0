"""Invoke tags of the older kind (Claude 2 and early 3 under a prompt): the name and each argument are elements.

    <function_calls>
    <invoke>
    <tool_name>get_weather</tool_name>
    <parameters>
    <city>Paris</city>
    </parameters>
    </invoke>
    </function_calls>

Origin: the vendor's page on legacy tool use; parts of it only from public pages.
"""

from __future__ import annotations

from collections.abc import Sequence

from athena.formats.bodies.elements import read_elements
from athena.formats.bodies.invoke_text import function_results
from athena.formats.bodies.near_misses import unlike
from athena.formats.machine.base import Format, Opener
from athena.formats.machine.render import TOOLS, ToolPrompt, arguments_of, plain_value, tagged_trouble
from athena.formats.machine.scanner import LOOK_AHEAD, Cut, Declined, Lexer, Scanner, Steps
from athena.formats.machine.writer import CallWriter
from athena.model.parts import ToolCall

BEGIN, END = "<function_calls>", "</function_calls>"
INVOKE, INVOKE_END = "<invoke>", "</invoke>"
NAME, NAME_END = "<tool_name>", "</tool_name>"
PARAMETERS, PARAMETERS_END = "<parameters>", "</parameters>"
_NAME_END = Lexer((NAME_END,))


def read_section(scan: Scanner, calls: CallWriter, opener: str) -> Steps[None]:
    """Invokes to the end of the section."""
    if opener == INVOKE:
        yield from _invoke(scan, calls)
    first = opener != INVOKE
    while (yield from scan.follows(0, (INVOKE,), end=False)) is not None:
        yield from scan.space()
        yield from scan.found(INVOKE)
        yield from _invoke(scan, calls)
        first = False
    if first:
        yield from scan.space()
        raise Cut if scan.ended() else Declined
    if (yield from scan.follows(0, (END,), end=False)) is not None:
        yield from scan.space()
        yield from scan.found(END)
        calls.settle()


def _invoke(scan: Scanner, calls: CallWriter) -> Steps[None]:
    yield from scan.space()
    if not (yield from scan.found(NAME)):
        raise Cut if scan.ended() else Declined
    text, marker = yield from scan.upto(_NAME_END, LOOK_AHEAD * 2)
    if not marker:
        raise Cut
    scan.take(len(marker))
    calls.open(text.strip())
    yield from scan.space()
    if not (yield from scan.found(PARAMETERS)):
        yield from read_elements(scan, calls, INVOKE_END)
        return
    yield from read_elements(scan, calls, PARAMETERS_END)
    if (yield from scan.follows(0, (INVOKE_END,), end=False)) is not None:
        yield from scan.space()
        yield from scan.found(INVOKE_END)
        calls.settle()


def render_calls(calls: Sequence[ToolCall]) -> str:
    """One section for all calls of a turn."""
    return f"{BEGIN}\n{''.join(map(_call, calls))}{END}"


def _call(call: ToolCall) -> str:
    parameters = "".join(f"<{key}>{plain_value(value)}</{key}>\n" for key, value in arguments_of(call).items())
    return f"{INVOKE}\n{NAME}{call.name}{NAME_END}\n{PARAMETERS}\n{parameters}{PARAMETERS_END}\n{INVOKE_END}\n"


TOOL_PROMPT = ToolPrompt(
    f"These tools can be called, one per line:\n<tools>\n{TOOLS}\n</tools>\n\n"
    "To call tools, write one section with an invoke for each call, every argument as an element of its name:\n"
    f"{BEGIN}\n{INVOKE}\n{NAME}TOOL{NAME_END}\n{PARAMETERS}\n<KEY>VALUE</KEY>\n{PARAMETERS_END}\n{INVOKE_END}\n{END}"
)


def inexpressible(call: ToolCall) -> str | None:
    """Values have no escapes, and their tags are their keys."""
    if set(call.name) & set("<>\n") or call.name != call.name.strip() or not call.name:
        return "the name does not fit into an element"
    keys = tuple(arguments_of(call))
    if any(set(key) & set(" /\t\r") for key in keys):
        return "a parameter's name does not fit into a tag"
    return tagged_trouble(call, (PARAMETERS_END, *(f"<{slash}{key}>" for key in keys for slash in ("", "/"))))


FORMAT = Format(
    id="invoke_xml_legacy",
    openers=(
        Opener(BEGIN, read_section, rank=1, never=unlike(INVOKE)),
        Opener(INVOKE, read_section, where="line", never=unlike(NAME)),
    ),
    closers=(END, INVOKE_END, PARAMETERS_END),
    streams="str",
    render_calls=render_calls,
    render_results=function_results,
    render_tools=TOOL_PROMPT,
    inexpressible=inexpressible,
)
