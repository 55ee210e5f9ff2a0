"""Cohere's Command R7B, Command A and Command 4: a JSON array between action tokens, a plan before it.

    <|START_THINKING|>I will look.<|END_THINKING|><|START_ACTION|>[
        {"tool_call_id": "0", "tool_name": "get_time", "parameters": {"tz": "UTC"}}
    ]<|END_ACTION|>

Ids are decimal and count over the conversation. Answers stand in `<|START_RESPONSE|>` or, since Command 4, `<|START_TEXT|>`;
citations inside them (`<co>word</co: 0:[1]>`) are left as they are. Origin: the templates of Command R7B and Cohere2 MoE,
cohere-melody, SGLang's cohere_command4_detector.
"""

from __future__ import annotations

from collections.abc import Sequence

from athena.formats.bodies.json_block import json_block_reader
from athena.formats.bodies.json_text import quoted
from athena.formats.bodies.near_misses import no_json
from athena.formats.machine.base import Format, Opener
from athena.formats.machine.render import result_text, spaced_json, tool_json
from athena.model.parts import ToolCall, ToolResult
from athena.model.request import Tool

BEGIN, END = "<|START_ACTION|>", "<|END_ACTION|>"
RESPONSE, RESPONSE_END = "<|START_RESPONSE|>", "<|END_RESPONSE|>"
TEXT, TEXT_END = "<|START_TEXT|>", "<|END_TEXT|>"
TURN_END = "<|END_OF_TURN_TOKEN|>"


def render_calls(calls: Sequence[ToolCall]) -> str:
    """One array, a call per line."""
    lines = ",\n".join(f"    {_call(call, number)}" for number, call in enumerate(calls))
    return f"{BEGIN}[\n{lines}\n]{END}"


def _call(call: ToolCall, number: int) -> str:
    return (
        f'{{"tool_call_id": "{_counter(call.id, number)}", "tool_name": {quoted(call.name)}, '
        f'"parameters": {call.arguments.strip() or "{}"}}}'
    )


def _counter(call_id: str, number: int) -> str:
    """The model's own id, else the place in the turn: results follow in the order of their calls."""
    return call_id if call_id.isdecimal() and call_id.isascii() else str(number)


def render_results(results: Sequence[ToolResult]) -> str:
    """One system turn for all results of a turn."""
    lines = ",\n".join(
        f'    {{"tool_call_id": "{_counter(result.call_id, number)}", '
        f'"results": {{"0": {quoted(result_text(result))}}}, "is_error": {"true" if result.is_error else "null"}}}'
        for number, result in enumerate(results)
    )
    return f"<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|><|START_TOOL_RESULT|>[\n{lines}\n]<|END_TOOL_RESULT|>{TURN_END}"


def render_tools(tools: Sequence[Tool]) -> str:
    """The part of the system turn that declares tools."""
    declared = ",\n".join(f"    {spaced_json({**tool_json(tool)['function'], 'responses': None})}" for tool in tools)
    return (
        "## Available Tools\nThese tools and no others can be called. Each is a JSON object with its name, description and\n"
        f"parameters:\n\n```json\n[\n{declared}\n]\n```\n\n"
        f"First plan between <|START_THINKING|> and <|END_THINKING|>, then call between {BEGIN} and {END}."
    )


FORMAT = Format(
    id="cohere_action",
    reserved=True,
    openers=(Opener(BEGIN, json_block_reader((END,), (BEGIN,)), never=no_json()),),
    thinking=(("<|START_THINKING|>", "<|END_THINKING|>"),),
    answer=((RESPONSE, RESPONSE_END), (TEXT, TEXT_END)),
    closers=(END,),
    turn_ends=(TURN_END,),
    render_calls=render_calls,
    render_results=render_results,
    render_tools=render_tools,
)
