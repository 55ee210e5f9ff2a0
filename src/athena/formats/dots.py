"""dots of rednote: invoke tags, or JSON, in a wrapper of its own.

    <dots_function_call>
    <invoke name="search">
    <parameter name="q">x</parameter>
    </invoke>
    </dots_function_call>

Origin: vLLM's dots_tool_parser and SGLang's dots_detector; how results are written is not known from a template, so they go
in tags like those of its kin. Quotes around names are optional.
"""

from __future__ import annotations

from collections.abc import Sequence

from athena.formats.bodies.invoke import NO_ATTRIBUTE, Invoke, InvokeReader
from athena.formats.bodies.invoke_text import invoke_calls, invoke_rule
from athena.formats.bodies.json_block import json_block_reader
from athena.formats.bodies.near_misses import no_json
from athena.formats.machine.base import Format, Opener
from athena.formats.machine.render import TOOLS, ToolPrompt, result_text
from athena.model.parts import ToolCall, ToolResult

BEGIN, END = "<dots_function_call>", "</dots_function_call>"
SHAPE = Invoke(section_begin=(BEGIN,), section_end=(END,))
READ = InvokeReader(SHAPE)


def render_calls(calls: Sequence[ToolCall]) -> str:
    """One block for all calls of a turn."""
    return f"{BEGIN}\n{invoke_calls(calls)}{END}"


def render_results(results: Sequence[ToolResult]) -> str:
    """One element per result."""
    return "\n".join(f"<tool_response>\n{result_text(result)}\n</tool_response>" for result in results)


TOOL_PROMPT = ToolPrompt(
    f"# Tools\n\nThese functions can be called, one per line:\n<tools>\n{TOOLS}\n</tools>\n\n"
    "To call functions, write one block with an invoke for each call:\n"
    f'{BEGIN}\n<invoke name="NAME">\n<parameter name="KEY">VALUE</parameter>\n</invoke>\n{END}'
)


FORMAT = Format(
    id="dots",
    openers=(
        Opener(BEGIN, READ, never=READ.never),
        Opener(BEGIN, json_block_reader((END,), (BEGIN,)), rank=1, never=no_json()),
        Opener("<invoke", READ, where="line", auto=False, never=NO_ATTRIBUTE),
    ),
    closers=(END, "</invoke>", "</parameter>"),
    streams="str",
    render_calls=render_calls,
    render_results=render_results,
    render_tools=TOOL_PROMPT,
    inexpressible=invoke_rule(END),
)
