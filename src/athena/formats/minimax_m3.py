"""MiniMax M3: a token before every tag, one element per argument, nested for lists and objects.

    ]<]minimax[>[<tool_call>
    ]<]minimax[>[<invoke name="f">]<]minimax[>[<tags>]<]minimax[>[<item>a]<]minimax[>[</item>]<]minimax[>[</tags>]<]minimax[>[</invoke>
    ]<]minimax[>[</tool_call>

Because of the token a value may hold any tag of its own. Origin: the MiniMax-M3 template, vLLM's minimax_m3 parser, SGLang's
detector. Quantised models forget the opening tag of the first argument.
"""  # noqa: E501 - the sample is one line for the model

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from athena.formats.bodies.elements import element_json, read_elements
from athena.formats.bodies.invoke import attributes
from athena.formats.bodies.near_misses import unlike
from athena.formats.machine.base import Format, Opener
from athena.formats.machine.render import (
    TOOLS,
    ToolPrompt,
    arguments_of,
    plain_value,
    result_text,
    tool_elements,
)
from athena.formats.machine.scanner import LOOK_AHEAD, Cut, Declined, Lexer, Scanner, Steps
from athena.formats.machine.value_types import SchemaTypes
from athena.formats.machine.writer import CallWriter
from athena.model.parts import ToolCall, ToolResult

TOKEN = "]<]minimax[>["
BEGIN, END, INVOKE, INVOKE_END = "<tool_call>", "</tool_call>", "<invoke", "</invoke>"
_TAG_END = Lexer((">",))


def read_section(scan: Scanner, calls: CallWriter, opener: str) -> Steps[None]:
    """Tags one after another, each behind its token, to the end of the section."""
    before = calls.commits
    while True:
        yield from scan.space()
        tag = yield from scan.found(BEGIN, END, INVOKE, INVOKE_END)
        if tag == INVOKE:
            yield from _invoke(scan, calls)
        elif not tag:
            raise Cut if scan.ended() and calls.commits == before else Declined
        if tag == END:
            calls.settle()
            return
        if (yield from scan.follows(0, (TOKEN,), end=False)) is None:
            if calls.commits > before:
                return
            yield from scan.space()
            raise Cut if scan.ended() else Declined
        yield from scan.space()
        yield from scan.found(TOKEN)


def _invoke(scan: Scanner, calls: CallWriter) -> Steps[None]:
    text, marker = yield from scan.upto(_TAG_END, LOOK_AHEAD * 4)
    if not marker:
        raise Cut
    name = attributes(text).get("name", "")
    if not name:
        raise Declined
    scan.take(1)
    calls.open(name)
    if text.rstrip().endswith("/"):
        calls.close()
        calls.settle()
    else:
        yield from read_elements(scan, calls, INVOKE_END, prefix=TOKEN)


def render_calls(calls: Sequence[ToolCall]) -> str:
    """One section for all calls of a turn."""
    return f"{TOKEN}{BEGIN}\n{''.join(map(_call, calls))}{TOKEN}{END}"


def _call(call: ToolCall) -> str:
    elements = "".join(_element(key, value) for key, value in arguments_of(call).items())
    return f'{TOKEN}{INVOKE} name="{call.name}">{elements}{TOKEN}{INVOKE_END}\n'


def _element(key: str, value: str) -> str:
    return f"{TOKEN}<{key}>{_content(value)}{TOKEN}</{key}>"


def _content(value: str) -> str:
    if value.startswith("{"):
        fields = msgspec.json.decode(value, type=dict[str, msgspec.Raw])
        return "".join(_element(key, bytes(raw).decode()) for key, raw in fields.items())
    if value.startswith("["):
        items = msgspec.json.decode(value, type=list[msgspec.Raw])
        return "".join(_element("item", bytes(raw).decode()) for raw in items)
    return plain_value(value)


def render_results(results: Sequence[ToolResult]) -> str:
    """One tool turn for all results."""
    return "]~b]tool" + "".join(f"\n<response>{result_text(result)}</response>" for result in results) + "[e~[\n"


TOOL_PROMPT = ToolPrompt(
    f"# Tools\n\nThese tools can be called, described in JSON Schema:\n<tools>\n{TOOLS}</tools>\n\n"
    f"To call tools, write one section with an invoke for each call and {TOKEN} before every tag; lists are made of item "
    "elements, objects of an element per key:\n"
    f'{TOKEN}{BEGIN}\n{TOKEN}{INVOKE} name="NAME">{TOKEN}<KEY>VALUE{TOKEN}</KEY>{TOKEN}{INVOKE_END}\n{TOKEN}{END}',
    tool_elements,
)


def inexpressible(call: ToolCall) -> str | None:
    """The token cannot be written in a value, and what stands in lists and objects carries no types."""
    if set(call.name) & set('"\n<>') or not call.name:
        return "the name does not fit into an attribute"
    for key, value in arguments_of(call).items():
        if _unfit(key):
            return f"the parameter name {key!r} does not fit into a tag"
        if TOKEN in plain_value(value) + TOKEN[:-1]:
            return f"the value of {key} holds the format's own token"
        if value[0] in "{[":
            kind = {"type": "object" if value[0] == "{" else "array"}
            read = element_json(_content(value), kind, SchemaTypes(None), TOKEN)
            if read is None or msgspec.json.decode(read) != msgspec.json.decode(value) or _odd_keys(msgspec.json.decode(value)):
                return f"the value of {key} would be read as something else"
    return None


def _unfit(key: str) -> bool:
    return not key or bool(set(key) & set("<>/ \t\r\n\"'")) or key == "parameter" or len(key) > LOOK_AHEAD


def _odd_keys(value: Any) -> bool:
    if isinstance(value, dict):
        return any(_unfit(key) or _odd_keys(item) for key, item in value.items())
    return isinstance(value, list) and any(map(_odd_keys, value))


FORMAT = Format(
    id="minimax_m3",
    reserved=True,
    openers=(Opener(TOKEN, read_section, never=unlike(BEGIN, END, INVOKE, INVOKE_END)),),
    thinking=(("<mm:think>", "</mm:think>"),),
    closers=(f"{TOKEN}{END}", f"{TOKEN}{INVOKE_END}"),
    turn_ends=("[e~[",),
    streams="value",
    render_calls=render_calls,
    render_results=render_results,
    render_tools=TOOL_PROMPT,
    inexpressible=inexpressible,
)
