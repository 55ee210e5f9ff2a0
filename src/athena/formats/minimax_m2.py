"""MiniMax M2 (M2, 2.1, 2.5, 2.7): invoke tags in a wrapper of the vendor's namespace.

    <minimax:tool_call>
    <invoke name="search">
    <parameter name="tags">["a","b"]</parameter>
    </invoke>
    </minimax:tool_call>

Origin: MiniMax-AI/MiniMax-M2 docs/tool_calling_guide.md and the model's template. Values are verbatim, nothing is trimmed; the
wrapper may be missing.
"""

from __future__ import annotations

from collections.abc import Sequence

from athena.formats.bodies.invoke import NO_ATTRIBUTE, Invoke, InvokeReader
from athena.formats.bodies.invoke_text import invoke_calls, invoke_rule
from athena.formats.machine.base import Format, Opener
from athena.formats.machine.render import TOOLS, ToolPrompt, result_text, tool_elements
from athena.model.parts import ToolCall, ToolResult

BEGIN, END = "<minimax:tool_call>", "</minimax:tool_call>"
SHAPE = Invoke(section_begin=(BEGIN,), section_end=(END,))
READ = InvokeReader(SHAPE)


def render_calls(calls: Sequence[ToolCall]) -> str:
    """One block for all calls of a turn."""
    return f"{BEGIN}\n{invoke_calls(calls)}{END}"


def render_results(results: Sequence[ToolResult]) -> str:
    """One tool turn for all results."""
    return "]~b]tool" + "".join(f"\n<response>{result_text(result)}</response>" for result in results) + "[e~[\n"


TOOL_PROMPT = ToolPrompt(
    f"# Tools\n\nThese tools can be called, described in JSON Schema:\n<tools>\n{TOOLS}</tools>\n\n"
    "To call tools, write one block with an invoke for each call:\n"
    f'{BEGIN}\n<invoke name="NAME">\n<parameter name="KEY">VALUE</parameter>\n</invoke>\n{END}',
    tool_elements,
)


FORMAT = Format(
    id="minimax_m2",
    in_reasoning=True,
    openers=(
        Opener(BEGIN, READ, never=READ.never),
        Opener("<invoke", READ, where="line", auto=False, never=NO_ATTRIBUTE),
    ),
    closers=(END, "</invoke>", "</parameter>"),
    turn_ends=("[e~[",),
    streams="str",
    render_calls=render_calls,
    render_results=render_results,
    render_tools=TOOL_PROMPT,
    inexpressible=invoke_rule(END),
)
