"""How Hermes' templates write tools, calls and results; other families took them over."""

from __future__ import annotations

from collections.abc import Sequence

from athena.formats.bodies.tool_call_blocks import BEGIN, END
from athena.formats.machine.render import TOOLS, ToolPrompt, json_calls, result_text
from athena.model.parts import ToolCall, ToolResult


def render_calls(calls: Sequence[ToolCall]) -> str:
    """One block per call."""
    return "\n".join(f"{BEGIN}\n{call}\n{END}" for call in json_calls(calls))


def render_results(results: Sequence[ToolResult]) -> str:
    """All results of a turn share one user message."""
    return "\n".join(f"<tool_response>\n{result_text(result)}\n</tool_response>" for result in results)


TOOL_PROMPT = ToolPrompt(
    "# Tools\n\nThese functions can be called to help with the request. Their signatures, one per line:\n"
    f"<tools>\n{TOOLS}\n</tools>\n\n"
    "To call a function, write one JSON object with its name and arguments between these tags, once per call:\n"
    f'{BEGIN}\n{{"name": <function-name>, "arguments": <object>}}\n{END}'
)
