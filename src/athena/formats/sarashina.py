"""Sarashina of SB Intuitions: a Python list of dictionaries, after a token that most servers remove.

    <|tool_calls|>[{'name': 'f', 'arguments': {'a': True}}]

Origin: SMG's sarashina parser. Solar Open has the same token (`solar_open`): a list is this format's, call tokens are Solar's.
Without the token only declared names count, at the start of a line.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from athena.formats.bodies.arguments import pump
from athena.formats.bodies.near_misses import NO_OBJECTS, unlike
from athena.formats.bodies.python_literals import python_to_json
from athena.formats.bodies.python_span import PythonSpan
from athena.formats.machine.base import Format, Opener
from athena.formats.machine.render import TOOLS, ToolPrompt, python_value, result_text
from athena.formats.machine.scanner import LOOK_AHEAD, Cut, Declined, Scanner, Steps
from athena.formats.machine.value_types import is_json
from athena.formats.machine.writer import CallWriter
from athena.model.parts import ToolCall, ToolResult

TOKEN = "<|tool_calls|>"
TURN_END = "</s>"

_NAME_FIRST = re.compile(r"""\{\s*(['"])name\1\s*:\s*(['"])([^'"\\]+)\2""")
_CALL_FIRST = re.compile(r"""\s*\{\s*['"](?:name|arguments)['"]""")


def read_token(scan: Scanner, calls: CallWriter, opener: str) -> Steps[None]:
    """A list behind the token."""
    yield from scan.space()
    if not (yield from scan.found("[")):
        if scan.ended():
            raise Cut
        raise Declined
    yield from _dictionaries(scan, calls)


def read_list(scan: Scanner, calls: CallWriter, opener: str) -> Steps[None]:
    """A list without the token: it must look like calls from the beginning."""
    ahead = yield from scan.peek(LOOK_AHEAD)
    if _CALL_FIRST.match(ahead) is None:
        raise Declined
    yield from _dictionaries(scan, calls)


def _dictionaries(scan: Scanner, calls: CallWriter) -> Steps[None]:
    found = 0
    while True:
        yield from scan.space()
        if found and (yield from scan.found(",")):
            continue
        if (yield from scan.found("]")):
            calls.settle()
            return
        head = yield from scan.peek(1)
        if head != "{":
            if not head and not found:
                raise Cut
            # Behind a whole call: what follows is text.
            return
        yield from _dictionary(scan, calls)
        found += 1


def _dictionary(scan: Scanner, calls: CallWriter) -> Steps[None]:
    """One call. Its name is shown as soon as it is known, its arguments when the dictionary ends."""
    named = _NAME_FIRST.match((yield from scan.peek(LOOK_AHEAD * 2)))
    if named is not None:
        calls.open(named.group(3))
    text = yield from _bracketed(scan, calls)
    try:
        fields = msgspec.json.decode((text if is_json(text) else python_to_json(text)) or "", type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeEncodeError):
        fields = {}
    name = _string(fields.get("name"))
    if not calls.is_open:
        if name is None:
            calls.bad_head("a tool call that cannot be read", text)
            return
        calls.open(name)
    if name is None or calls.book.resolve(name) != calls.name:
        calls.fail(f"a call of {calls.name} is no dictionary of a name and arguments")
        return
    calls.write(bytes(fields.get("arguments", fields.get("parameters", b"{}"))).decode())
    calls.close()


def _string(raw: msgspec.Raw | None) -> str | None:
    try:
        return None if raw is None else msgspec.json.decode(raw, type=str)
    except msgspec.DecodeError:
        return None


def _bracketed(scan: Scanner, calls: CallWriter) -> Steps[str]:
    """A bracket and everything to its closing one."""
    pieces: list[str] = []
    yield from pump(scan, PythonSpan(bracketed=True), calls.keeper(pieces))
    return "".join(pieces)


def render_calls(calls: Sequence[ToolCall]) -> str:
    """One list behind the token."""
    written = ", ".join(f"{{'name': {call.name!r}, 'arguments': {python_value(call.arguments or '{}')}}}" for call in calls)
    return f"{TOKEN}[{written}]"


def render_results(results: Sequence[ToolResult]) -> str:
    """One line per result; the template's own form is not known."""
    return "\n".join(f"{result.name or 'tool'}: {result_text(result)}" for result in results)


TOOL_PROMPT = ToolPrompt(
    f"These functions can be called, one per line:\n{TOOLS}\n\n"
    f"To call functions: {TOKEN}[{{'name': 'NAME', 'arguments': {{'KEY': 'VALUE'}}}}]"
)
"""A system text that declares tools and the form of a call."""


FORMAT = Format(
    id="sarashina",
    reserved=True,
    openers=(
        Opener(TOKEN, read_token, rank=1, never=unlike("[")),
        Opener("[", read_list, where="line", auto=False, plain=True, never=NO_OBJECTS),
    ),
    turn_ends=(TURN_END,),
    streams="call",
    render_calls=render_calls,
    render_results=render_results,
    render_tools=TOOL_PROMPT,
)
