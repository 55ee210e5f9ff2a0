"""FunctionGemma of Google: the syntax of Gemma 4 with older tokens.

    <start_function_call>call:get_weather{city:<escape>Paris<escape>}<end_function_call>

Google's page on the model quotes strings only; templates in use quote every value with Python's spelling, so a quoted argument
is typed by the schema. Origin: Google's "FunctionGemma formatting and best practices", vLLM's functiongemma parser and
template, Ollama's parser.
"""

from __future__ import annotations

from collections.abc import Sequence

from athena.formats.bodies.gemma_literals import CALL, GemmaCalls, Syntax
from athena.formats.bodies.gemma_text import call_text, declarations, literal_trouble, response_text
from athena.formats.bodies.near_misses import unlike
from athena.formats.machine.base import Format, Opener
from athena.model.parts import ToolCall, ToolResult
from athena.model.request import Tool

BEGIN, END, QUOTE = "<start_function_call>", "<end_function_call>", "<escape>"
_CALLS = GemmaCalls(Syntax(quote=QUOTE, ends=(END,), begins=(BEGIN,), typed=True))


def render_calls(calls: Sequence[ToolCall]) -> str:
    """Calls back to back."""
    return "".join(f"{BEGIN}{call_text(call, QUOTE)}{END}" for call in calls)


def render_results(results: Sequence[ToolResult]) -> str:
    """Results back to back, each by the name of its tool."""
    return "".join(f"<start_function_response>{response_text(result, QUOTE)}<end_function_response>" for result in results)


def render_tools(tools: Sequence[Tool]) -> str:
    """The declarations of the developer turn."""
    return declarations(tools, QUOTE, "<start_function_declaration>", "<end_function_declaration>")


def inexpressible(call: ToolCall) -> str | None:
    """There is no escape."""
    return literal_trouble(call, QUOTE)


def _name_openers(names: tuple[str, ...]) -> tuple[Opener, ...]:
    return tuple(Opener(f"{CALL}{name}{{", _CALLS.read_from_name, where="word", auto=False) for name in names)


FORMAT = Format(
    id="functiongemma",
    reserved=True,
    openers=(Opener(BEGIN, _CALLS.read, never=unlike(CALL)),),
    tool_openers=_name_openers,
    closers=(END,),
    turn_ends=("<end_of_turn>", "<start_function_response>"),
    streams="value",
    render_calls=render_calls,
    render_results=render_results,
    render_tools=render_tools,
    inexpressible=inexpressible,
)
