"""GLM-4-9B-Chat and GLM-4-0414 of Zhipu: the name on a line, JSON below, nothing else.

    get_weather
    {"city": "Paris"}

Everything is ordinary text, so it counts only where the answer begins (or after `<|assistant|>`, which separates the calls of
0414), with a declared name and an object below it. Origin: gorilla's glm handler, vLLM's tool_chat_template_glm4.
"""

from __future__ import annotations

from collections.abc import Sequence

from athena.formats.bodies.arguments import json_arguments, skip_to
from athena.formats.machine.base import Format, Opener
from athena.formats.machine.name_rules import BareNameRule
from athena.formats.machine.render import result_text, spaced_json, tool_json
from athena.formats.machine.scanner import Cut, Declined, Lexer, Scanner, Steps
from athena.formats.machine.writer import CallWriter
from athena.model.parts import ToolCall, ToolResult
from athena.model.request import Tool

SEPARATOR = "<|assistant|>"
TURN_ENDS = ("<|observation|>", "<|user|>")
_ENDS = (*TURN_ENDS, SEPARATOR)
_LINE = Lexer(("\n", " ", *_ENDS))
_AFTER_BROKEN = Lexer((*_ENDS, "\n"))


def read(scan: Scanner, calls: CallWriter, opener: str) -> Steps[None]:
    """A line with a declared name, and an object below."""
    yield from scan.space()
    text, marker = yield from scan.upto(_LINE, calls.book.name_limit)
    name = text.strip()
    if not name or not calls.admits(name) or len(name.split()) > 1:
        raise Declined
    if not marker:
        raise Cut
    if marker != "\n" or (yield from scan.follows(0, ("{",))) is None:
        raise Declined
    if (yield from scan.follows(0, ("{",), end=False)) is None:
        raise Cut
    calls.open(name)
    if not (yield from json_arguments(scan, calls, _ENDS)):
        yield from skip_to(scan, calls, _AFTER_BROKEN)


def read_object(scan: Scanner, calls: CallWriter, opener: str) -> Steps[None]:
    """The object below a declared name on a line of its own, behind words; the opener is the name and the first brace."""
    scan.put_back_taken(1)
    calls.open(opener.removesuffix("\n{"))
    if not (yield from json_arguments(scan, calls, _ENDS)):
        yield from skip_to(scan, calls, _AFTER_BROKEN)


def _name_openers(names: tuple[str, ...]) -> tuple[Opener, ...]:
    return tuple(Opener(f"{name}\n{{", read_object, where="line", auto=False) for name in names)


def render_calls(calls: Sequence[ToolCall]) -> str:
    """Name and JSON, the calls of one turn separated as 0414 does it."""
    return SEPARATOR.join(f"{call.name}\n{call.arguments or '{}'}" for call in calls)


def render_results(results: Sequence[ToolResult]) -> str:
    """One observation per result."""
    return "".join(f"{TURN_ENDS[0]}\n{result_text(result)}" for result in results)


def render_tools(tools: Sequence[Tool]) -> str:
    """The part of the system text that declares tools, one heading each, in the models' first language."""
    declared = "".join(
        f"\n\n## {tool.name}\n\n{spaced_json(tool_json(tool)['function'])}\n在调用上述函数时，请使用 Json 格式表示调用的参数。"
        for tool in tools
    )
    return f"# 可用工具{declared}"


FORMAT = Format(
    id="glm4_legacy",
    openers=(Opener("", read, auto=False), Opener(SEPARATOR, read, auto=False)),
    tool_openers=_name_openers,
    turn_ends=TURN_ENDS,
    render_calls=render_calls,
    render_results=render_results,
    render_tools=render_tools,
    inexpressible=BareNameRule(reason="the name does not fit into a line", pieces=("<|",), blanks="nowhere"),
)
