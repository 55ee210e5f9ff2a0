"""DeepSeek V3 and R1: special tokens with full-width bars, the JSON in a code fence.

    <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather
    ```json
    {"city": "Paris"}
    ```<｜tool▁call▁end｜><｜tool▁calls▁end｜>

Origin: the template of DeepSeek-R1-Distill and vLLM's templates for V3 and R1.
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
    """A section, calls separated by line breaks."""
    blocks = "\n".join(
        f"{CALL_BEGIN[0]}function{SEPARATOR[0]}{call.name}\n```json\n{call.arguments or '{}'}\n```{CALL_END[0]}"
        for call in calls
    )
    return f"{CALLS_BEGIN[0]}{blocks}{CALLS_END[0]}"


def render_results(results: Sequence[ToolResult]) -> str:
    """All outputs of a turn in one pair of tokens."""
    outputs = "\n".join(f"<｜tool▁output▁begin｜>{result_text(result)}<｜tool▁output▁end｜>" for result in results)
    return f"<｜tool▁outputs▁begin｜>{outputs}<｜tool▁outputs▁end｜>"


TOOL_PROMPT = ToolPrompt(
    f"## Tools\n\nThese functions can be called:\n{TOOLS}\n\nA call is written exactly so:\n"
    f"{CALLS_BEGIN[0]}{CALL_BEGIN[0]}function{SEPARATOR[0]}NAME\n```json\nARGUMENTS\n```{CALL_END[0]}{CALLS_END[0]}"
)


FORMAT = Format(
    id="deepseek_v3",
    reserved=True,
    openers=OPENERS,
    closers=(*CALLS_END, *CALL_END),
    turn_ends=TURN_END,
    render_calls=render_calls,
    render_results=render_results,
    render_tools=TOOL_PROMPT,
    inexpressible=BareNameRule(reason="the name does not fit into a head", characters=" \n{`<"),
)
