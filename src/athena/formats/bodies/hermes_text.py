"""How Hermes' templates write tools, calls and results; other families took them over."""

from __future__ import annotations

from collections.abc import Sequence

from athena.formats.bodies.tool_call_blocks import BEGIN, END
from athena.formats.machine.render import json_calls, result_text, tool_lines
from athena.model.parts import ToolCall, ToolResult
from athena.model.request import Tool


def render_calls(calls: Sequence[ToolCall]) -> str:
    """One block per call."""
    return "\n".join(f"{BEGIN}\n{call}\n{END}" for call in json_calls(calls))


def render_results(results: Sequence[ToolResult]) -> str:
    """All results of a turn share one user message."""
    return "\n".join(f"<tool_response>\n{result_text(result)}\n</tool_response>" for result in results)


def render_tools(tools: Sequence[Tool]) -> str:
    """The system text that declares tools and the form of a call."""
    return (
        "# Tools\n\nThese functions can be called to help with the request. Their signatures, one per line:\n"
        f"<tools>\n{tool_lines(tools)}\n</tools>\n\n"
        "To call a function, write one JSON object with its name and arguments between these tags, once per call:\n"
        f'{BEGIN}\n{{"name": <function-name>, "arguments": <object>}}\n{END}'
    )
