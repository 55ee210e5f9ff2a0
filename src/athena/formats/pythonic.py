"""Pythonic calls: a list of Python function calls as the whole message. Llama 3.2 and 4, ToolACE, Gemma 3 under a prompt.

    [get_weather(city="Paris", days=3), get_time()]

Llama 4 may put `<|python_start|>` and `<|python_end|>` around it, Gemma 3 a `tool_code` fence. Origin: vLLM's pythonic
parsers and templates (whose rendering of history is lossy, so ours writes Python literals). The brackets are ordinary text:
only declared names count, and the format is read only where it is named.
"""

from __future__ import annotations

from collections.abc import Sequence

from athena.formats.bodies.arguments import end_of_block
from athena.formats.bodies.near_misses import NO_PYTHON_CALL, NO_PYTHON_CALLS
from athena.formats.bodies.pythonic import read_python_arguments, read_python_calls
from athena.formats.machine.base import Format, Opener
from athena.formats.machine.name_rules import python_words
from athena.formats.machine.render import (
    TOOLS,
    ToolPrompt,
    arguments_of,
    function_array,
    python_value,
    result_text,
    spaced_json,
)
from athena.formats.machine.scanner import Declined, Lexer, Scanner, Steps
from athena.formats.machine.writer import CallWriter
from athena.model.parts import ToolCall, ToolResult

START, END, TAG = "<|python_start|>", "<|python_end|>", "<|python_tag|>"
FENCES = ("```tool_code", "```python", "```py")
_ENDS = (END, "<|eom_id|>", "<|eot_id|>", "```")
_CLOSERS = Lexer(_ENDS)


def read_list(scan: Scanner, calls: CallWriter, opener: str) -> Steps[None]:
    """Behind the opening bracket; the closing one may be missing at the end."""
    if not (yield from read_python_calls(scan, calls, end="]", certain=False)):
        raise Declined


def read_marked(scan: Scanner, calls: CallWriter, opener: str) -> Steps[None]:
    """A list or bare calls behind a token or in a fence."""
    yield from scan.space()
    end = "]" if (yield from scan.found("[")) else ""
    if not (yield from read_python_calls(scan, calls, end=end)):
        raise Declined
    yield from end_of_block(scan, calls, _CLOSERS, _ENDS)


def read_bare_call(scan: Scanner, calls: CallWriter, opener: str) -> Steps[None]:
    """A declared name with its bracket at the start of a line, no list around it."""
    calls.open(opener[:-1], whole=True)
    yield from read_python_arguments(scan, calls)


def render_calls(calls: Sequence[ToolCall]) -> str:
    """One list with all calls."""
    return "[" + ", ".join(_call(call) for call in calls) + "]"


def _call(call: ToolCall) -> str:
    return f"{call.name}({', '.join(f'{key}={python_value(value)}' for key, value in arguments_of(call).items())})"


def render_results(results: Sequence[ToolResult]) -> str:
    """The content of an `ipython` turn: JSON."""
    return "\n".join(spaced_json(result_text(result)) for result in results)


TOOL_PROMPT = ToolPrompt(
    "These functions can be called:\n"
    f"{TOOLS}\n\n"
    "To call functions, answer with nothing but a list of calls in Python, every argument by name:\n"
    "[name1(key1=value1, key2=value2), name2(key=value)]",
    function_array,
)


def _name_openers(names: tuple[str, ...]) -> tuple[Opener, ...]:
    return tuple(Opener(f"{name}(", read_bare_call, where="line", auto=False) for name in names)


FORMAT = Format(
    id="pythonic",
    openers=(
        Opener("[", read_list, where="line", auto=False, never=NO_PYTHON_CALL),
        *(Opener(marker, read_marked, auto=False, never=NO_PYTHON_CALLS) for marker in (START, TAG)),
        *(Opener(fence + "\n", read_marked, where="line", auto=False, never=NO_PYTHON_CALLS) for fence in FENCES),
    ),
    tool_openers=_name_openers,
    closers=(END,),
    turn_ends=("<|eom_id|>", "<|eot_id|>", "<end_of_turn>"),
    streams="value",
    render_calls=render_calls,
    render_results=render_results,
    render_tools=TOOL_PROMPT,
    inexpressible=python_words,
)
