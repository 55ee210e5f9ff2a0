"""InternLM 2 to 3 and Intern-S1 of Shanghai AI Lab: JSON between action tokens, the plugin token before it.

    <|action_start|><|plugin|>
    {"name": "f", "parameters": {"a": 1}}<|action_end|>

Behind `<|interpreter|>` stands code instead, a call only where the request declares a tool that runs it. Origin: vLLM's
internlm2_tool_parser and template, SGLang's internlm_detector. Without the tokens a line of JSON with a declared name counts.
"""

from __future__ import annotations

from collections.abc import Sequence

from athena.formats.bodies.bare_json import read_bare_calls
from athena.formats.bodies.json_block import json_block_reader
from athena.formats.bodies.named import CODE_TOOLS
from athena.formats.bodies.near_misses import NO_OBJECT, unlike
from athena.formats.bodies.raw_text import read_code
from athena.formats.machine.base import Format, Opener
from athena.formats.machine.render import TOOLS, ToolPrompt, function_array, json_calls, result_text
from athena.formats.machine.scanner import Cut, Declined, Scanner, Steps
from athena.formats.machine.writer import CallWriter
from athena.model.parts import ToolCall, ToolResult

BEGIN, END = "<|action_start|>", "<|action_end|>"
PLUGIN, INTERPRETER = "<|plugin|>", "<|interpreter|>"
TURN_END = "<|im_end|>"
_read_json = json_block_reader((END,), (BEGIN, TURN_END))


def read_action(scan: Scanner, calls: CallWriter, opener: str) -> Steps[None]:
    """A plugin's JSON or an interpreter's code."""
    yield from scan.space()
    if (yield from scan.found(INTERPRETER)):
        name = next((name for name in CODE_TOOLS if calls.book.declared(name)), "")
        if not name:
            raise Declined
        calls.open(name)
        yield from read_code(scan, calls, (END, TURN_END))
        if (yield from scan.follows(0, (END,), end=False)) is not None:
            yield from scan.space()
            yield from scan.found(END)
        calls.settle()
        return
    if not (yield from scan.found(PLUGIN)) and scan.ended():
        raise Cut
    yield from _read_json(scan, calls, opener)


def render_calls(calls: Sequence[ToolCall]) -> str:
    """One action per call."""
    return "".join(f"{BEGIN}{PLUGIN}\n{call}{END}" for call in json_calls(calls, arguments="parameters"))


def render_results(results: Sequence[ToolResult]) -> str:
    """One environment turn per result."""
    return "".join(f"<|im_start|>environment name={PLUGIN}\n{result_text(result)}{TURN_END}\n" for result in results)


TOOL_PROMPT = ToolPrompt(
    f"<|im_start|>system name={PLUGIN}\n{TOOLS}{TURN_END}\n",
    function_array,
)
"""The system turn that declares plugins; the models were trained on it."""


FORMAT = Format(
    id="internlm",
    reserved=True,
    openers=(
        Opener(BEGIN, read_action, never=unlike(PLUGIN, INTERPRETER, "{", "[", "`")),
        Opener("{", read_bare_calls, where="line", auto=False, plain=True, never=NO_OBJECT),
    ),
    closers=(END,),
    turn_ends=(TURN_END,),
    render_calls=render_calls,
    render_results=render_results,
    render_tools=TOOL_PROMPT,
)
