"""Phi-4-mini of Microsoft, and FireFunction 2: a word or a token, then all calls as one JSON array.

    functools[{"name": "get_weather", "arguments": {"city": "Paris"}}]
    <|tool_call|>[{"name": "get_weather", "arguments": {"city": "Paris"}}]<|/tool_call|>

Origin: vLLM's phi4mini_tool_parser and template, the FireFunction 2 template, gorilla's phi_fc. `functools` is ordinary text
(and a Python module): it counts at a word's start with a declared name after it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from athena.formats.bodies.json_block import json_block_reader
from athena.formats.bodies.near_misses import SPACE, no_json, unlike
from athena.formats.machine.base import Format, Opener
from athena.formats.machine.render import TOOLS, ToolPrompt, function_array, json_calls, result_text
from athena.formats.machine.scanner import Cut, Declined, Scanner, Steps
from athena.formats.machine.writer import CallWriter
from athena.model.parts import ToolCall, ToolResult

TOKEN, TOKEN_END = "<|tool_call|>", "<|/tool_call|>"
WORD = "functools"
TURN_ENDS = ("<|end|>", "<|eot_id|>")
_read = json_block_reader((TOKEN_END, "</tool_call>", *TURN_ENDS), (TOKEN, WORD))


_NO_KEY = rf"{SPACE}\{{?+{SPACE}(?:[^\s\"'\w]|\w++{SPACE}[^\s:\w])"
"""Behind the word and a brace: neither a quoted key nor a word with a colon behind it."""
_WITHOUT_KEY = re.compile(_NO_KEY)
_WITH_KEY = re.compile(rf"{SPACE}\{{?+{SPACE}(?:[\"']|\w++{SPACE}[\s:\w])")


def read_word(scan: Scanner, calls: CallWriter, opener: str) -> Steps[None]:
    """The array behind the word. An empty one means that nothing is called; what follows it is the answer."""
    if (yield from scan.found("[]")):
        calls.settle()
        return
    if (yield from scan.follows(0, ("{", "["), end=False)) is None:
        raise Declined
    yield from _read(scan, calls, opener)


def read_bracket(scan: Scanner, calls: CallWriter, opener: str) -> Steps[None]:
    """The same where the bracket is part of the opener."""
    scan.put_back_taken(1)
    yield from read_word(scan, calls, opener)


def read_object(scan: Scanner, calls: CallWriter, opener: str) -> Steps[None]:
    """A single call, whose brace is part of the opener. What has no key is ordinary text, whatever the policy for calls."""
    scan.put_back_taken(1)
    has_key = yield from scan.decide(1, _WITH_KEY, _WITHOUT_KEY)
    if not has_key:
        raise Cut if has_key is None else Declined
    yield from _read(scan, calls, opener)


def render_calls(calls: Sequence[ToolCall]) -> str:
    """One array behind the word."""
    return f"{WORD}[{', '.join(json_calls(calls))}]"


def render_results(results: Sequence[ToolResult]) -> str:
    """One tool turn per result."""
    return "".join(f"<|tool|>{result_text(result)}<|end|>" for result in results)


TOOL_PROMPT = ToolPrompt(
    f"<|tool|>{TOOLS}<|/tool|>\n"
    f'To call tools, answer with nothing but: {WORD}[{{"name": "NAME", "arguments": {{"KEY": "VALUE"}}}}]',
    function_array,
)
"""The part of the system turn that declares tools, and the form of a call."""


FORMAT = Format(
    id="phi4_mini",
    reserved=True,
    openers=(
        Opener(TOKEN, _read, rank=1, never=no_json()),
        Opener(WORD + "[", read_bracket, where="word", plain=True, never=unlike("{", "]")),
        Opener(WORD + "{", read_object, where="word", plain=True, never=_NO_KEY),
        Opener(WORD, read_word, where="word", auto=False, plain=True, never=unlike("{", "[")),
    ),
    closers=(TOKEN_END,),
    turn_ends=TURN_ENDS,
    render_calls=render_calls,
    render_results=render_results,
    render_tools=TOOL_PROMPT,
)
