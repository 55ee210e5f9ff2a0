"""ReAct, for any model under such a prompt: a thought, then an action and its input on lines of their own.

    Thought: need data
    Action: search
    Action Input: {"q": "x"}
    Observation

Thoughts are reasoning. The input is JSON, perhaps in a fence or a string, or free text for the only parameter of the tool (or
for one called `input`). `Observation` is a stop word; what a model makes up after it is left out. LangChain's JSON form (an
object with `action` and `action_input` in a fence) is read too. Everything is ordinary text: read only where the format is
named, with declared names, at the start of a line. Origin: Qwen-Agent's and LangChain's ReAct prompts and parsers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from athena.formats.bodies.arguments import decoded_arguments, json_arguments, json_value, skip_to
from athena.formats.bodies.near_misses import SPACE, unlike
from athena.formats.bodies.pythonic import read_python_arguments
from athena.formats.bodies.raw_text import drop_rest, fence_end, read_code, read_free_text, read_raw, write_free_text
from athena.formats.machine.base import Format, Opener
from athena.formats.machine.render import result_text, spaced_json, tool_json
from athena.formats.machine.scanner import LOOK_AHEAD, Cut, Declined, Lexer, Scanner, Steps
from athena.formats.machine.writer import CallWriter
from athena.model.parts import ToolCall, ToolResult
from athena.model.request import Tool

THOUGHT, ANSWER, OBSERVATION = "Thought:", "Final Answer:", "Observation"
ACTIONS = ("Action:", "动作：", "动作:")
INPUTS = ("Action Input:", "Action input:", "动作输入：", "动作输入:")
_NEXT = (OBSERVATION, THOUGHT, ANSWER, *ACTIONS)
_NEXT_LINES = tuple("\n" + label for label in _NEXT)
_NAME_END = Lexer(("\n", "(", *INPUTS))
_LINES = Lexer(_NEXT_LINES)
_DECORATION = " \t`'\"*[]()"
_LINE = rf"[^\n(:：]{{1,{LOOK_AHEAD}}}+(?:(?<![t入])[:：][^\n(:：]{{0,{LOOK_AHEAD}}}+)?\n"
_NO_ACTION = rf"{SPACE}(?!```){_LINE}{unlike('Action ', 'Ob', '动作输')}"
"""A line with neither a bracket nor a label for the input, and none of the labels below it."""
_ACTION_OBJECT = re.compile(r'\{\s*"action(?:_input)?"')
_FENCED_OBJECT = re.compile(r"```\w*\s*\{")


def read_action(scan: Scanner, calls: CallWriter, opener: str) -> Steps[None]:
    """A name, perhaps decorated, and its input."""
    yield from scan.space()
    if (yield from scan.found("```json", "```")):
        yield from read_langchain(scan, calls, opener)
        return
    text, marker = yield from scan.upto(_NAME_END, calls.book.name_limit + len(_DECORATION))
    if marker == "(" and not text.strip(_DECORATION):
        scan.take(1)
        text, marker = yield from scan.upto(_NAME_END, calls.book.name_limit + len(_DECORATION))
    name = text.strip(_DECORATION)
    if not name or len(name.split()) > 1 or not calls.admits(name):
        raise Declined
    if marker == "(":
        scan.take(1)
        if not (yield from scan.found(")")) or (yield from scan.follows(0, INPUTS, end=False)) is None:
            calls.open(name)
            yield from _python(scan, calls)
            return
    behind = yield from scan.follows(0, (*INPUTS, OBSERVATION))
    if behind is None:
        raise Declined
    if behind in ("", OBSERVATION):
        _without_input(scan, calls, name, behind)
        return
    yield from scan.space()
    yield from scan.found(behind)
    calls.open(name)
    yield from _input(scan, calls)


def _without_input(scan: Scanner, calls: CallWriter, name: str, behind: str) -> None:
    if not behind and not scan.ended_well:
        raise Cut
    calls.open(name)
    calls.close()


def _python(scan: Scanner, calls: CallWriter) -> Steps[None]:
    """`f(...)`; a bracket closed at once was taken whole."""
    if (yield from scan.follows(0, _NEXT)) is not None:
        calls.close()
    else:
        yield from read_python_arguments(scan, calls)


def _input(scan: Scanner, calls: CallWriter) -> Steps[None]:
    behind = yield from scan.follows(0, _NEXT)
    if behind is not None:
        if not behind and not scan.ended_well:
            raise Cut
        calls.close()
        return
    yield from scan.space()
    ahead = yield from scan.peek(16)
    if ahead.startswith("{") or _FENCED_OBJECT.match(ahead):
        if not (yield from json_arguments(scan, calls, _NEXT)):
            yield from skip_to(scan, calls, _LINES)
        elif ahead.startswith("`"):
            yield from fence_end(scan, calls)
    elif ahead.startswith("```"):
        yield from read_code(scan, calls, _NEXT_LINES)
    else:
        yield from read_free_text(scan, calls, _LINES)


def read_langchain(scan: Scanner, calls: CallWriter, opener: str) -> Steps[None]:
    """An object that holds name and input, behind the line that opens its fence."""
    yield from scan.space()
    if _ACTION_OBJECT.match((yield from scan.peek(LOOK_AHEAD))) is None:
        raise Declined
    text = yield from json_value(scan, calls)
    try:
        fields = msgspec.json.decode(text or "", type=dict[str, msgspec.Raw])
        name = msgspec.json.decode(fields.get("action", b""), type=str)
    except (msgspec.DecodeError, UnicodeEncodeError):
        raise Declined from None
    calls.open(name)
    value = bytes(fields.get("action_input", b"{}")).decode()
    arguments = decoded_arguments(value, lenient=calls.lenient)
    if arguments is None:
        write_free_text(calls, value)
    else:
        calls.write(arguments)
        calls.close()
    yield from fence_end(scan, calls)


def read_thought(scan: Scanner, calls: CallWriter, opener: str) -> Steps[None]:
    """Reasoning up to the next label at the start of a line."""
    yield from scan.found(" ")
    yield from read_raw(scan, calls, _LINES, lambda text: calls.say(text, thinking=True))
    calls.settle()


def read_answer(scan: Scanner, calls: CallWriter, opener: str) -> Steps[None]:
    """The label before the answer is not part of it."""
    yield from scan.found(" ")
    calls.settle()


def read_observation(scan: Scanner, calls: CallWriter, opener: str) -> Steps[None]:
    """The stop word behind calls, and whatever was made up behind it."""
    behind = yield from scan.peek(1)
    if not calls.shown or behind not in ("", ":", "\n"):
        raise Declined
    yield from drop_rest(scan, calls)


def render_calls(calls: Sequence[ToolCall]) -> str:
    """One pair of lines per call."""
    return "\n".join(f"{ACTIONS[0]} {call.name}\n{INPUTS[0]} {call.arguments or '{}'}" for call in calls)


def render_results(results: Sequence[ToolResult]) -> str:
    """One observation per result, then the next thought."""
    return "".join(f"\n{OBSERVATION}: {result_text(result)}" for result in results) + f"\n{THOUGHT}"


def render_tools(tools: Sequence[Tool]) -> str:
    """The prompt: the tools and the labels."""
    declared = "\n\n".join(spaced_json(tool_json(tool)["function"]) for tool in tools)
    names = ", ".join(tool.name for tool in tools)
    return (
        f"These tools can be called:\n\n{declared}\n\nWrite lines with these labels, and nothing else:\n\n"
        f"{THOUGHT} what to do next\n{ACTIONS[0]} one of {names}\n{INPUTS[0]} its arguments as a JSON object\n"
        f"{OBSERVATION}: the result, which is given to you\n(as often as needed)\n{ANSWER} the answer"
    )


def inexpressible(call: ToolCall) -> str | None:
    """The name is written bare in a line."""
    name = call.name
    if not name or name != name.strip(_DECORATION) or "(" in name or len(name.split()) > 1:
        return "the name does not fit into a line"
    return "the name holds a label" if any(label in name for label in INPUTS) else None


_READERS = (
    *((label, read_action, _NO_ACTION) for label in ACTIONS),
    (THOUGHT, read_thought, ""),
    (ANSWER, read_answer, ""),
    (OBSERVATION, read_observation, r"[^:\n]"),
)

FORMAT = Format(
    id="react",
    in_reasoning=True,
    openers=(
        *(Opener(label, read, where="line", auto=False, never=never) for label, read, never in _READERS),
        *(Opener(f"```{name}\n", read_langchain, where="line", auto=False, never=unlike("{")) for name in ("", "json")),
        *(Opener("\n" + label, read, auto=False, never=never) for label, read, never in _READERS),
    ),
    render_calls=render_calls,
    render_results=render_results,
    render_tools=render_tools,
    inexpressible=inexpressible,
)
