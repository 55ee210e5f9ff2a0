"""Olmo 3 of AllenAI: Python calls, one per line, between tags.

    <function_calls>get_weather(city="Paris")
    get_time()</function_calls>

The tags are those of Claude's prompt style; what follows them decides (`invoke_xml` wants a tag, this format a name and a
bracket). Literals are JSON or Python. Origin: vLLM's olmo3_tool_parser, Ollama's olmo3 renderer, allenai/open-instruct.
"""

from __future__ import annotations

from collections.abc import Sequence

from athena.formats.bodies.arguments import end_of_block
from athena.formats.bodies.near_misses import NO_PYTHON_CALLS
from athena.formats.bodies.pythonic import read_python_arguments, read_python_calls
from athena.formats.machine.base import Format, Opener
from athena.formats.machine.name_rules import python_words
from athena.formats.machine.render import TOOLS, ToolPrompt, arguments_of, result_text, tool_array
from athena.formats.machine.scanner import Declined, Lexer, Scanner, Steps
from athena.formats.machine.writer import CallWriter
from athena.model.parts import ToolCall, ToolResult

BEGIN, END = "<function_calls>", "</function_calls>"
_CLOSERS = Lexer((END, BEGIN))


def read_block(scan: Scanner, calls: CallWriter, opener: str) -> Steps[None]:
    """Calls up to the closing tag; a list's brackets around them are allowed."""
    yield from scan.space()
    if (yield from scan.peek(1)) == "<":
        raise Declined
    end = "]" if (yield from scan.found("[")) else ""
    if not (yield from read_python_calls(scan, calls, end=end)):
        raise Declined
    yield from end_of_block(scan, calls, _CLOSERS, (END,))


def read_bare_call(scan: Scanner, calls: CallWriter, opener: str) -> Steps[None]:
    """A declared name with its bracket at the start of a line, its tags forgotten."""
    calls.open(opener[:-1], whole=True)
    yield from read_python_arguments(scan, calls)


def render_calls(calls: Sequence[ToolCall]) -> str:
    """One line per call, values as JSON."""
    return BEGIN + "\n".join(_call(call) for call in calls) + END


def _call(call: ToolCall) -> str:
    return f"{call.name}({', '.join(f'{key}={value}' for key, value in arguments_of(call).items())})"


def render_results(results: Sequence[ToolResult]) -> str:
    """One environment turn per result."""
    return "".join(f"<|im_start|>environment\n{result_text(result)}<|im_end|>\n" for result in results)


TOOL_PROMPT = ToolPrompt(
    "These functions can be called; write calls in Python, one per line, every argument by name, as\n"
    f"{BEGIN}name(key=value)\nother(){END}\n"
    f"<functions>{TOOLS}</functions>",
    tool_array,
)


def _name_openers(names: tuple[str, ...]) -> tuple[Opener, ...]:
    return tuple(Opener(f"{name}(", read_bare_call, where="line", auto=False) for name in names)


FORMAT = Format(
    id="olmo3",
    openers=(Opener(BEGIN, read_block, rank=2, never=NO_PYTHON_CALLS),),
    tool_openers=_name_openers,
    closers=(END,),
    turn_ends=("<|im_end|>",),
    streams="value",
    render_calls=render_calls,
    render_results=render_results,
    render_tools=TOOL_PROMPT,
    inexpressible=python_words,
)
