"""Jamba of AI21, Hunyuan-A13B of Tencent and Apriel of ServiceNow: a JSON array in `<tool_calls>` tags.

    <tool_calls>[
        {"name": "f", "arguments": {"a": 1}}
    ]</tool_calls>

Hunyuan writes its answer in `<answer>`, where the call may stand, and does not call inside `<think>`. Apriel reasons up to
`[BEGIN FINAL RESPONSE]`. Origin: vLLM's jamba and hunyuan_a13b parsers and tests, the Apriel templates. MiniMax M1 shares the
tags (`minimax_m1`): an array is this format's, lines of objects are M1's, and each reads both where it is named.
Apriel's YAML mode is not read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from textwrap import dedent

from athena.formats.bodies.json_block import json_block_reader
from athena.formats.bodies.json_text import quoted
from athena.formats.bodies.near_misses import no_json, unlike
from athena.formats.bodies.yaml_text import yaml_values
from athena.formats.machine.base import THINK, Format, Opener
from athena.formats.machine.render import TOOLS, ToolPrompt, json_calls, result_text
from athena.formats.machine.scanner import Cut, Declined, Lexer, Scanner, Steps
from athena.formats.machine.value_types import typed_json
from athena.formats.machine.writer import CallWriter
from athena.model.parts import ToolCall, ToolResult

BEGIN, END = "<tool_calls>", "</tool_calls>"
_read_array = json_block_reader((END,), (BEGIN,), heads="[")
_END = Lexer((END,))
_ITEM = re.compile(r"^- ", re.MULTILINE)
_NAME = re.compile(r"""name: *["']?([^\s"']+)["']?""")
_read_objects = json_block_reader((END,), (BEGIN,), heads="{")


def read_yaml(scan: Scanner, calls: CallWriter, opener: str) -> Steps[None]:
    """A YAML list of calls, Apriel's other mode: a name, and arguments as lines or as one JSON object. Shown when it ends."""
    if (yield from scan.follows(0, ("-",))) is None:
        raise Declined
    pieces: list[str] = []
    if not (yield from scan.flow(_END, calls.keeper(pieces))):
        raise Cut
    items = [_yaml_call(item) for item in _ITEM.split(dedent("".join(pieces)).strip("\n"))[1:]]
    if not items or not all(name and calls.admits(name) for name, _ in items):
        raise Declined
    scan.take(len(END))
    for name, given in items:
        calls.open(name)
        if isinstance(given, str):
            calls.write(given)
        else:
            typed = {key: typed_json(text, calls.value_type(key)) for key, text in given.items()}
            calls.write("{" + ",".join(f"{quoted(key)}:{value}" for key, value in typed.items() if value is not None) + "}")
        calls.close()
    calls.settle()


def _yaml_call(item: str) -> tuple[str, str | dict[str, str]]:
    """The name and the arguments of one item, as text by key or as JSON; no name when it is no call."""
    head, _, body = item.partition("arguments:")
    name = _NAME.fullmatch(head.rstrip())
    if name is None:
        return "", {}
    if body.strip().startswith("{"):
        return name.group(1), body.strip()
    given = yaml_values(dedent(body.strip("\n")))
    return (name.group(1), given) if given is not None else ("", {})


def render_calls(calls: Sequence[ToolCall]) -> str:
    """One array, a call per line."""
    lines = ",\n".join(f"    {call}" for call in json_calls(calls))
    return f"{BEGIN}[\n{lines}\n]{END}"


def render_results(results: Sequence[ToolResult]) -> str:
    """One element per result, as Hunyuan has it."""
    return "\n".join(f"<tool_response>{result_text(result)}</tool_response>" for result in results)


TOOL_PROMPT = ToolPrompt(
    f"# Tools\n\nThese functions can be called, one per line:\n<tools>\n{TOOLS}\n</tools>\n\n"
    "To call functions, write one JSON array with all calls between these tags:\n"
    f'{BEGIN}[\n    {{"name": "NAME", "arguments": {{"KEY": "VALUE"}}}}\n]{END}'
)


FORMAT = Format(
    id="tool_calls_array",
    openers=(
        Opener(BEGIN, _read_array, never=no_json("[")),
        Opener(BEGIN, _read_objects, auto=False, never=no_json("{")),
        Opener(BEGIN, read_yaml, auto=False, rank=1, never=unlike("-")),
    ),
    thinking=(*THINK, ("Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]")),
    answer=(("<answer>", "</answer>"), ("助手：", "[END FINAL RESPONSE]")),
    closers=(END,),
    turn_ends=("<|end|>", "<|eom|>", "<|im_end|>"),
    render_calls=render_calls,
    render_results=render_results,
    render_tools=TOOL_PROMPT,
)
