"""Invoke tags under a prompt, the style Claude made known; many fine-tunes and agents write it.

    <function_calls>
    <invoke name="f">
    <parameter name="a">1</parameter>
    </invoke>
    </function_calls>

The tags may carry a namespace; the last one may be cut off by a stop sequence. Not real XML: text is raw and spaces are data.
Origin: the vendor's page on legacy tool use, and the prompts of DeepSeek V3.2 and Muse, which use the same shape. The older
form with elements in place of attributes is `invoke_xml_legacy`.
"""

from __future__ import annotations

from collections.abc import Sequence

from athena.formats.bodies.invoke import NO_ATTRIBUTE, Invoke, InvokeReader
from athena.formats.bodies.invoke_text import function_results, invoke_calls, invoke_rule
from athena.formats.machine.base import Format, Opener
from athena.formats.machine.render import TOOLS, ToolPrompt
from athena.model.parts import ToolCall

NAMESPACES = ("", "antml:", "atem:", "anthropic:", "claude:", "minimax:", "tool:", "ns:", "ns0:", "ns1:")


def _tags(before: str, after: str) -> tuple[str, ...]:
    return tuple(before + namespace + after for namespace in NAMESPACES)


SHAPE = Invoke(
    section_begin=_tags("<", "function_calls>"),
    section_end=_tags("</", "function_calls>"),
    call=_tags("<", "invoke"),
    call_end=_tags("</", "invoke>"),
    parameter=_tags("<", "parameter"),
    parameter_end=_tags("</", "parameter>"),
)
READ = InvokeReader(SHAPE)


def render_calls(calls: Sequence[ToolCall]) -> str:
    """One block for all calls of a turn."""
    return f"<function_calls>\n{invoke_calls(calls)}</function_calls>"


TOOL_PROMPT = ToolPrompt(
    f"These tools can be called, one per line:\n<functions>\n{TOOLS}\n</functions>\n\n"
    "To call tools, write one block with an invoke for each call. Strings and numbers are written as they are, lists and "
    "objects as JSON:\n"
    '<function_calls>\n<invoke name="NAME">\n<parameter name="KEY">VALUE</parameter>\n</invoke>\n</function_calls>'
)


FORMAT = Format(
    id="invoke_xml",
    openers=(
        *(Opener(marker, READ, never=READ.never) for marker in SHAPE.section_begin if not marker.startswith("<atem:")),
        *(Opener(marker, READ, where="line", never=NO_ATTRIBUTE) for marker in SHAPE.call if not marker.startswith("<atem:")),
        *(Opener(marker, READ, auto=False, never=READ.never) for marker in SHAPE.section_begin if marker.startswith("<atem:")),
    ),
    closers=(*SHAPE.section_end, *SHAPE.call_end, *SHAPE.parameter_end),
    streams="str",
    render_calls=render_calls,
    render_results=function_results,
    render_tools=TOOL_PROMPT,
    inexpressible=invoke_rule(*SHAPE.parameter, *SHAPE.parameter_end, *SHAPE.call, *SHAPE.call_end, *SHAPE.section_end),
)
