"""DeepSeek V3.1 and V3.2-Exp: the tokens of V3, the name before the separator, bare JSON after it.

    <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_time<｜tool▁sep｜>{"tz": "UTC"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>

Origin: the template of DeepSeek-V3.1.
"""

from __future__ import annotations

from collections.abc import Sequence

from athena.formats.bodies.deepseek_tokens import (
    CALL_BEGIN,
    CALL_END,
    CALLS_BEGIN,
    CALLS_END,
    OPENERS,
    SEPARATOR,
    TURN_END,
)
from athena.formats.machine.base import Format
from athena.formats.machine.name_rules import BareNameRule
from athena.formats.machine.render import TOOLS, ToolPrompt, result_text
from athena.model.parts import ToolCall, ToolResult


def render_calls(calls: Sequence[ToolCall]) -> str:
    """A section, nothing between its calls."""
    blocks = "".join(f"{CALL_BEGIN[0]}{call.name}{SEPARATOR[0]}{call.arguments or '{}'}{CALL_END[0]}" for call in calls)
    return f"{CALLS_BEGIN[0]}{blocks}{CALLS_END[0]}"


def render_results(results: Sequence[ToolResult]) -> str:
    """One pair of tokens per output."""
    return "".join(f"<｜tool▁output▁begin｜>{result_text(result)}<｜tool▁output▁end｜>" for result in results)


TOOL_PROMPT = ToolPrompt(
    f"## Tools\n\nThese functions can be called:\n{TOOLS}\n\nA call is written exactly so:\n"
    f"{CALLS_BEGIN[0]}{CALL_BEGIN[0]}NAME{SEPARATOR[0]}ARGUMENTS{CALL_END[0]}{CALLS_END[0]}"
)


FORMAT = Format(
    id="deepseek_v31",
    reserved=True,
    openers=OPENERS,
    closers=(*CALLS_END, *CALL_END),
    turn_ends=TURN_END,
    render_calls=render_calls,
    render_results=render_results,
    render_tools=TOOL_PROMPT,
    inexpressible=BareNameRule(reason="the name does not fit into a head", characters=" \n{`<"),
)
