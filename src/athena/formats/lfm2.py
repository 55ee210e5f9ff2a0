"""LFM2 and LFM2.5 of Liquid AI: Python calls, or JSON, between special tokens.

    <|tool_call_start|>[calculator(expression="5 * 7")]<|tool_call_end|>

The template writes strings in single quotes without escaping what is in them, dictionaries as JSON and lists as Python, so a
quote ends a string only where a value may end. Origin: the LFM2 templates, vLLM's lfm2_tool_parser and its tests, SGLang's
lfm2_detector.
"""

from __future__ import annotations

from collections.abc import Sequence

from athena.formats.bodies.arguments import end_of_block
from athena.formats.bodies.json_block import json_block_reader
from athena.formats.bodies.near_misses import SPACE
from athena.formats.bodies.pythonic import read_python_calls
from athena.formats.machine.base import Format, Opener
from athena.formats.machine.name_rules import python_words
from athena.formats.machine.render import (
    TOOLS,
    ToolPrompt,
    arguments_of,
    function_array,
    python_value,
    result_text,
)
from athena.formats.machine.scanner import Cut, Declined, Lexer, Scanner, Steps
from athena.formats.machine.writer import CallWriter
from athena.model.parts import ToolCall, ToolResult

BEGIN, END = "<|tool_call_start|>", "<|tool_call_end|>"
_CLOSERS = Lexer((END, BEGIN))
_FENCES = ("```python\n", "```py\n", "```\n")
_NO_CALL = rf"{SPACE}[^\s`\[{{\w]"
_ECHO_LIMIT = 4096
"""An echoed body that is longer stays text."""

_read_json = json_block_reader((END,), (BEGIN,))


def read_block(scan: Scanner, calls: CallWriter, opener: str) -> Steps[None]:
    """A list of calls, bare calls, or JSON; then what the model echoes of it."""
    yield from scan.space()
    yield from scan.found(*_FENCES)
    yield from scan.space()
    if (yield from scan.follows(0, ("{", "[{", "[ {", "[\n{"), end=False)) is not None:
        yield from _read_json(scan, calls, opener)
    else:
        yield from _read_python(scan, calls)
    yield from _drop_echo(scan, calls)


def _read_python(scan: Scanner, calls: CallWriter) -> Steps[None]:
    end = "]" if (yield from scan.found("[")) else ""
    if not (yield from read_python_calls(scan, calls, end=end)):
        if not end and not scan.ended():
            raise Declined
        if not end:
            raise Cut
    yield from end_of_block(scan, calls, _CLOSERS, (END,))


def _drop_echo(scan: Scanner, calls: CallWriter) -> Steps[None]:
    """The body once more, without its opening token but with the closing one: not for the reader."""
    while (yield from scan.follows(0, ("[",), end=False)) is not None:
        try:
            text, marker = yield from scan.upto(_CLOSERS, _ECHO_LIMIT)
        except Declined:
            return
        if marker != END or "(" not in text:
            # No orphan token behind it: text of the answer.
            raise Declined
        calls.noise(text)
        scan.take(len(END))
        calls.settle()


def render_calls(calls: Sequence[ToolCall]) -> str:
    """One list with all calls; strings escaped, unlike the template's, because it cannot be read back otherwise."""
    return f"{BEGIN}[{', '.join(_call(call) for call in calls)}]{END}"


def _call(call: ToolCall) -> str:
    return f"{call.name}({', '.join(f'{key}={python_value(value)}' for key, value in arguments_of(call).items())})"


def render_results(results: Sequence[ToolResult]) -> str:
    """One tool turn per result."""
    return "".join(
        f"<|im_start|>tool\n<|tool_response_start|>{result_text(result)}<|tool_response_end|><|im_end|>\n" for result in results
    )


TOOL_PROMPT = ToolPrompt(
    f"List of tools: <|tool_list_start|>{TOOLS}<|tool_list_end|>",
    function_array,
)
"""The declaration the models were trained on."""


FORMAT = Format(
    id="lfm2",
    reserved=True,
    openers=(Opener(BEGIN, read_block, never=_NO_CALL),),
    closers=(END,),
    turn_ends=("<|im_end|>",),
    streams="value",
    render_calls=render_calls,
    render_results=render_results,
    render_tools=TOOL_PROMPT,
    inexpressible=python_words,
)
