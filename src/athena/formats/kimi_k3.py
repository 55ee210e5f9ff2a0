"""Kimi K3 of Moonshot AI (XTML): tags of special tokens, typed arguments.

    <|open|>tools<|sep|><|open|>call tool="add" index="1"<|sep|><|open|>argument key="a" type="number"<|sep|>2<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>

A turn is reasoning, a response and tools, each in such a tag; the prompt opens the first one, so its opening tag is not in the
text. Attributes escape `&` and `"`, nothing else is escaped. Origin: the Kimi-K3 template, vLLM's kimi_k3_tool_parser,
xgrammar's structural tags.
"""  # noqa: E501 - the sample is one line for the model

from __future__ import annotations

from collections.abc import Sequence

from athena.formats.bodies.arguments import json_arguments
from athena.formats.bodies.invoke import attributes
from athena.formats.bodies.near_misses import unlike
from athena.formats.bodies.tagged import TEXT, TaggedArguments, TagParameter, Tags
from athena.formats.machine.base import Format, Opener
from athena.formats.machine.render import arguments_of, plain_value, result_text, spaced_json, tool_json
from athena.formats.machine.scanner import LOOK_AHEAD, Cut, Declined, Lexer, Scanner, Steps
from athena.formats.machine.writer import CallWriter
from athena.model.parts import ToolCall, ToolResult
from athena.model.request import Tool

OPEN, CLOSE, SEP, END = "<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>"


def _spellings(token: str, word: str, end: str = SEP) -> tuple[str, ...]:
    """A tag as it is and with the blanks that detokenisers put between tokens."""
    return tuple(dict.fromkeys(f"{token}{before}{word}{after}{end}" for before in ("", " ") for after in ("", " ")))


def _openings(word: str) -> tuple[str, ...]:
    """The beginning of a tag that has attributes."""
    return (f"{OPEN}{word} ", f"{OPEN} {word} ")


THINK, THINK_END = _spellings(OPEN, "think"), _spellings(CLOSE, "think")
RESPONSE, RESPONSE_END = _spellings(OPEN, "response"), _spellings(CLOSE, "response")
TOOLS, TOOLS_END = _spellings(OPEN, "tools"), _spellings(CLOSE, "tools")
CALL, CALL_END = _openings("call"), _spellings(CLOSE, "call")
JSON, JSON_END = _openings("json"), _spellings(CLOSE, "json")
MESSAGE_END = _spellings(CLOSE, "message")


def read_argument(text: str) -> TagParameter | None:
    """The attributes of an argument."""
    found = attributes(text)
    key, kind = _unescaped(found.get("key", "")), found.get("type", "")
    if not key or OPEN in text or CLOSE in text:
        # A tag that did not end names nothing.
        return None
    return TagParameter(key, TEXT if kind == "string" else None, is_json=kind not in ("", "string"))


_ARGUMENTS = TaggedArguments(
    Tags(
        parameter=_openings("argument"),
        tag_end=SEP,
        read_tag=read_argument,
        parameter_end=_spellings(CLOSE, "argument"),
        call_end=CALL_END,
        section_end=TOOLS_END,
        next_call=CALL,
    )
)
_TAG_END = Lexer((SEP,))
_WORDS_END = Lexer((*RESPONSE_END, *MESSAGE_END, *TOOLS, *CALL, END))


def read_tools(scan: Scanner, calls: CallWriter, opener: str) -> Steps[None]:
    """Calls to the end of their tag; the opener is that tag, or the first call's."""
    inside = opener in CALL
    first = True
    while True:
        after = None if inside else (yield from scan.follows(0, (*CALL, *TOOLS_END), end=False))
        if not inside and after not in CALL:
            break
        if not inside:
            yield from scan.space()
            yield from scan.found(*CALL)
        yield from _call(scan, calls)
        inside = first = False
    if after is not None:
        yield from scan.space()
        yield from scan.found(*TOOLS_END)
        calls.settle()
    elif first:
        yield from scan.space()
        raise Cut if scan.ended() else Declined


def _call(scan: Scanner, calls: CallWriter) -> Steps[None]:
    text, marker = yield from scan.upto(_TAG_END, LOOK_AHEAD * 4)
    if not marker:
        raise Cut
    name = _unescaped(attributes(text).get("tool", ""))
    if not name:
        raise Declined
    scan.take(len(marker))
    calls.open(name)
    if (yield from scan.follows(0, JSON, end=False)) is None:
        yield from _ARGUMENTS.read(scan, calls)
        return
    yield from scan.space()
    yield from scan.found(*JSON)
    try:
        _, marker = yield from scan.upto(_TAG_END, LOOK_AHEAD * 2)
    except Declined:
        marker = ""
    scan.take(len(marker))
    yield from json_arguments(scan, calls, (*JSON_END, *CALL_END))
    for ends in (JSON_END, CALL_END):
        yield from scan.space()
        yield from scan.found(*ends)
    calls.settle()


def read_response(scan: Scanner, calls: CallWriter, opener: str) -> Steps[None]:
    """The answer's words to the end of their tag, which is often that of the message."""
    marker = yield from scan.flow(_WORDS_END, lambda text: calls.say(text, thinking=False))
    if marker in RESPONSE_END:
        scan.take(len(marker))
    calls.settle()


def _unescaped(text: str) -> str:
    return text.replace("&quot;", '"').replace("&amp;", "&")


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;")


def render_calls(calls: Sequence[ToolCall]) -> str:
    """One tag for all calls of a turn, numbered from one."""
    inner = "".join(_rendered(call, number) for number, call in enumerate(calls, 1))
    return f"{TOOLS[0]}{inner}{TOOLS_END[0]}"


def _rendered(call: ToolCall, number: int) -> str:
    arguments = "".join(
        f'{OPEN}argument key="{_escaped(key)}" type="{_type(value)}"{SEP}{plain_value(value)}{CLOSE}argument{SEP}'
        for key, value in arguments_of(call).items()
    )
    return f'{OPEN}call tool="{_escaped(call.name)}" index="{number}"{SEP}{arguments}{CALL_END[0]}'


_TYPES = {'"': "string", "{": "object", "[": "array", "t": "boolean", "f": "boolean", "n": "null"}


def _type(value: str) -> str:
    return _TYPES.get(value[0], "number")


def render_results(results: Sequence[ToolResult]) -> str:
    """One message per result, in the order of the calls."""
    return "".join(
        f'{OPEN}message role="tool" tool="{_escaped(result.name or "")}" index="{number}"{SEP}'
        f"{result_text(result)}{MESSAGE_END[0]}{END}"
        for number, result in enumerate(results, 1)
    )


def render_tools(tools: Sequence[Tool]) -> str:
    """The declaration message; the model was trained on it and needs no instruction besides."""
    declared = spaced_json(_sorted([tool_json(tool) for tool in tools]))
    return f'{OPEN}message role="system" type="tool-declare"{SEP}# Tools\n\n```json\n{declared}\n```{MESSAGE_END[0]}{END}'


def _sorted(value: object) -> object:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value


def inexpressible(call: ToolCall) -> str | None:
    """Only attributes have escapes."""
    arguments = arguments_of(call)
    if not call.name or any(token in text for text in (call.name, *arguments) for token in (OPEN, CLOSE, SEP)):
        return "a name holds a token of the format"
    if any(not key or len(key) > LOOK_AHEAD for key in arguments):
        return "a parameter's name does not fit into a tag"
    if any(token in plain_value(value) for value in arguments.values() for token in (OPEN, CLOSE)):
        return "a value holds a token of the format"
    return None


FORMAT = Format(
    id="kimi_k3",
    reserved=True,
    openers=(
        *(Opener(tag, read_tools, never=unlike(*CALL, *TOOLS_END)) for tag in TOOLS),
        *(Opener(tag, read_tools) for tag in CALL),
        *(Opener(tag, read_response) for tag in RESPONSE),
    ),
    thinking=tuple(zip(THINK, THINK_END, strict=True)),
    closers=(*TOOLS_END, *CALL_END),
    turn_ends=(*RESPONSE_END, *MESSAGE_END, END),
    streams="str",
    render_calls=render_calls,
    render_results=render_results,
    render_tools=render_tools,
    inexpressible=inexpressible,
)
