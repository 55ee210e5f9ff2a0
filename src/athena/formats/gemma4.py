"""Gemma 4 of Google: calls in a literal syntax of its own, strings between quoting tokens.

    <|tool_call>call:f{city:<|"|>Tokyo<|"|>,n:3,tags:[<|"|>a<|"|>]}<tool_call|>

Values are typed by their syntax. Reasoning is a channel whose end is often missing before a call. Origin: the
google-gemma-4-31B-it template, vLLM's gemma4 parser, SGLang's gemma4_detector.
"""

from __future__ import annotations

from collections.abc import Sequence

from athena.formats.bodies.gemma_literals import CALL, GemmaCalls, Syntax
from athena.formats.bodies.gemma_text import call_text, declarations, literal_trouble, response_text
from athena.formats.bodies.near_misses import unlike
from athena.formats.machine.base import Format, Opener
from athena.model.parts import ToolCall, ToolResult
from athena.model.request import Tool

BEGIN, END, QUOTE = "<|tool_call>", "<tool_call|>", '<|"|>'
_CALLS = GemmaCalls(Syntax(quote=QUOTE, ends=(END, "</tool_call>"), begins=(BEGIN,)))


def render_calls(calls: Sequence[ToolCall]) -> str:
    """Calls back to back."""
    return "".join(f"{BEGIN}{call_text(call, QUOTE)}{END}" for call in calls)


def render_results(results: Sequence[ToolResult]) -> str:
    """Results back to back, each by the name of its tool."""
    return "".join(f"<|tool_response>{response_text(result, QUOTE)}<tool_response|>" for result in results)


def render_tools(tools: Sequence[Tool]) -> str:
    """The declarations the model was trained on; it needs no instruction besides."""
    return declarations(tools, QUOTE, "<|tool>", "<tool|>")


def inexpressible(call: ToolCall) -> str | None:
    """There is no escape."""
    return literal_trouble(call, QUOTE)


def _name_openers(names: tuple[str, ...]) -> tuple[Opener, ...]:
    return tuple(Opener(f"{CALL}{name}{{", _CALLS.read_from_name, where="word", auto=False) for name in names)


FORMAT = Format(
    id="gemma4",
    reserved=True,
    openers=(Opener(BEGIN, _CALLS.read, never=unlike(CALL)),),
    tool_openers=_name_openers,
    thinking=(("<|channel>thought", "<channel|>"),),
    closers=(END, "</tool_call>"),
    turn_ends=("<turn|>", "<|tool_response>"),
    streams="str",
    render_calls=render_calls,
    render_results=render_results,
    render_tools=render_tools,
    inexpressible=inexpressible,
)
