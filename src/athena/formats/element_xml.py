"""One element per tool, under a prompt: the tool's name is the tag, its arguments are the children.

    <get_weather><city>Paris</city></get_weather>

Any markup may look like this, so it is read only where the format is named, for declared tools, and when the first child is a
declared parameter. Attributes count as arguments; in the variant with YAML the body is `key: value` lines. Origin: the
morph-xml and yaml-xml protocols of minpeter/ai-sdk-tool-call-middleware.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from textwrap import dedent

from athena.formats.bodies.elements import read_elements
from athena.formats.bodies.invoke import attributes
from athena.formats.bodies.json_text import quoted
from athena.formats.bodies.yaml_text import YAML_LINE, yaml_values
from athena.formats.machine.base import Format, Opener
from athena.formats.machine.render import TOOLS, ToolPrompt, arguments_of, plain_value, result_text, tagged_trouble
from athena.formats.machine.scanner import LOOK_AHEAD, Cut, Declined, Lexer, Scanner, Steps
from athena.formats.machine.value_types import typed_json
from athena.formats.machine.writer import CallWriter
from athena.model.parts import ToolCall, ToolResult

_TAG_END = Lexer((">",))
_WORD = re.compile(r"[\w.\-]+")


def read_tool(scan: Scanner, calls: CallWriter, opener: str) -> Steps[None]:
    """Behind `<NAME` and the character after it."""
    name, given = opener[1:-1], ""
    if opener[-1] != ">":
        text, marker = yield from scan.upto(_TAG_END, LOOK_AHEAD * 4)
        if not marker:
            raise Cut
        scan.take(1)
        given = opener[-1] + text
    if given.rstrip().endswith("/"):
        calls.open(name)
        _write(calls, attributes(given))
        return
    declared = calls.book.parameters(name)
    ahead = (yield from scan.peek(LOOK_AHEAD)).lstrip()
    line = YAML_LINE.match(ahead)
    if line is not None and line.group(1) in declared:
        yield from _yaml(scan, calls, name)
        return
    words, child, rest = ahead.partition("<")
    key = _WORD.match(rest)
    closes = not words.strip() and rest.startswith(f"/{name}>"[: max(1, len(rest))])
    if not closes and (not child or key is None or (declared and key.group() not in declared)):
        raise Cut if scan.final and not ahead else Declined
    calls.open(name)
    yield from read_elements(scan, calls, f"</{name}>", given=attributes(given))


def _write(calls: CallWriter, given: dict[str, str]) -> None:
    """All arguments of the open call, as text; it is closed."""
    typed = {key: typed_json(text, calls.value_type(key)) for key, text in given.items()}
    calls.write("{" + ",".join(f"{quoted(key)}:{value}" for key, value in typed.items() if value is not None) + "}")
    calls.close()
    calls.settle()


def _yaml(scan: Scanner, calls: CallWriter, name: str) -> Steps[None]:
    """Lines of `key: value`, lists and objects in brackets, longer texts as block scalars."""
    calls.open(name)
    lexer = Lexer((f"</{name}>",))
    pieces: list[str] = []
    marker = yield from scan.flow(lexer, calls.keeper(pieces))
    if not marker:
        raise Cut
    scan.take(len(marker))
    given = yaml_values(dedent("".join(pieces)))
    if given is None:
        calls.fail(f"the arguments of {name} are not lines of YAML")
        return
    _write(calls, given)


def render_calls(calls: Sequence[ToolCall]) -> str:
    """One element per call."""
    return "\n".join(_call(call) for call in calls)


def _call(call: ToolCall) -> str:
    children = "".join(f"<{key}>{plain_value(value)}</{key}>\n" for key, value in arguments_of(call).items())
    return f"<{call.name}>\n{children}</{call.name}>"


def render_results(results: Sequence[ToolResult]) -> str:
    """One element per result."""
    return "\n".join(
        f"<tool_response>\n<tool_name>{result.name or ''}</tool_name>\n<result>{result_text(result)}</result>\n</tool_response>"
        for result in results
    )


TOOL_PROMPT = ToolPrompt(
    f"# Tools\n\nThese tools can be called, one per line:\n<tools>\n{TOOLS}\n</tools>\n\n"
    "To call a tool, write an element with its name and one child per argument, lists and objects as JSON:\n"
    "<TOOL>\n<KEY>VALUE</KEY>\n</TOOL>"
)


def inexpressible(call: ToolCall) -> str | None:
    """Values have no escapes, and tags are names and keys."""
    keys = tuple(arguments_of(call))
    if not _WORD.fullmatch(call.name) or not all(_WORD.fullmatch(key) and key != call.name for key in keys):
        return "a name does not fit into a tag"
    return tagged_trouble(call, (f"</{call.name}>", *(f"<{slash}{key}>" for key in keys for slash in ("", "/"))))


def _name_openers(names: tuple[str, ...]) -> tuple[Opener, ...]:
    return tuple(Opener(f"<{name}{after}", read_tool, auto=False) for name in names for after in (">", " ", "/", "\n"))


FORMAT = Format(
    id="element_xml",
    openers=(),
    tool_openers=_name_openers,
    streams="str",
    render_calls=render_calls,
    render_results=render_results,
    render_tools=TOOL_PROMPT,
    inexpressible=inexpressible,
)
