"""Llama 3.1 to 3.3: a JSON object as the whole message, perhaps after a control token.

    <|python_tag|>{"name": "a", "parameters": {"x": 1}}; {"name": "b", "parameters": {}}

The template writes one call without the token; models write several, with any separator. Built-in tools are written
`<|python_tag|>NAME.call(key="value")`, code for an interpreter stands bare after the token. Origin: the templates of Llama
3.1, 3.2 and 3.3, vLLM's llama_tool_parser, SGLang's llama32_detector. Without the token only declared names count, at the
start of a line or as an object that ends it.
"""

from __future__ import annotations

from collections.abc import Sequence

from athena.formats.bodies.bare_json import read_bare_calls, read_inline_call
from athena.formats.bodies.function_tags import BEGIN as FUNCTION_TAG
from athena.formats.bodies.function_tags import read_function_tags
from athena.formats.bodies.near_misses import NO_OBJECT, NO_STRING
from athena.formats.bodies.python_tag import TAG, TURN_ENDS, read_python_tag
from athena.formats.bodies.tool_call_blocks import NO_TAG_NAME
from athena.formats.machine.base import Format, Opener
from athena.formats.machine.render import json_calls, result_text, spaced_json, tool_json
from athena.model.parts import ToolCall, ToolResult
from athena.model.request import Tool

_NAMED = ('{"name":', '{"name" :', '{ "name":')


def render_calls(calls: Sequence[ToolCall]) -> str:
    """The object of the template; several calls as the models separate them."""
    return "; ".join(json_calls(calls, arguments="parameters"))


def render_results(results: Sequence[ToolResult]) -> str:
    """One `ipython` turn per result, its content as JSON."""
    return "".join(
        f"<|start_header_id|>ipython<|end_header_id|>\n\n{spaced_json(result_text(result))}<|eot_id|>" for result in results
    )


def render_tools(tools: Sequence[Tool]) -> str:
    """The text that declares tools and the form of a call; the template puts it before the first user message."""
    return (
        "These functions can be called. To call one, answer with nothing but a JSON object of its name and its parameters:\n"
        '{"name": FUNCTION, "parameters": {NAME: VALUE}}\nNo variables.\n\n'
        + "\n\n".join(spaced_json(tool_json(tool)) for tool in tools)
    )


FORMAT = Format(
    id="llama3_json",
    reserved=True,
    openers=(
        Opener(TAG, read_python_tag),
        Opener("{", read_bare_calls, where="line", auto=False, plain=True, never=NO_OBJECT),
        *(Opener(begin, read_bare_calls, where="line", auto=False, plain=True, never=NO_STRING) for begin in _NAMED),
        *(Opener(begin, read_inline_call, where="word", auto=False, plain=True, rank=1, never=NO_STRING) for begin in _NAMED),
        Opener(FUNCTION_TAG, read_function_tags, auto=False, plain=True, never=NO_TAG_NAME),
    ),
    turn_ends=TURN_ENDS,
    render_calls=render_calls,
    render_results=render_results,
    render_tools=render_tools,
)
