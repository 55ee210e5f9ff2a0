"""K2 Horizon of IFM: JSON, or a name with keys, perhaps types, and values, in tags with a bar.

    <ifm|tool_calls><ifm|tool_call>f<ifm|arg_key>a</ifm|arg_key><ifm|arg_type>integer</ifm|arg_type><ifm|arg_value>1</ifm|arg_value></ifm|tool_call></ifm|tool_calls>

The wrapper is optional. A type in the markup comes before the schema. Origin: vllm 0.32.0 k2_horizon_tool_parser and sglang
0.5.23 k2_v3_detector; how the template writes results is not known.
"""

from __future__ import annotations

from collections.abc import Sequence

from athena.formats.bodies.json_block import json_block_reader
from athena.formats.bodies.keyed import Keyed, KeyedCalls
from athena.formats.bodies.near_misses import SPACE, unlike
from athena.formats.bodies.tagged import TEXT, TagParameter
from athena.formats.machine.base import Format, Opener
from athena.formats.machine.render import TOOLS, ToolPrompt, json_calls, result_text
from athena.formats.machine.scanner import Scanner, Steps
from athena.formats.machine.writer import CallWriter
from athena.model.parts import ToolCall, ToolResult

KEY_END, TYPE, TYPE_END = "</ifm|arg_key>", "<ifm|arg_type>", "</ifm|arg_type>"


def read_parameter(text: str) -> TagParameter | None:
    """Everything between the key's tag and the value's."""
    key, _, rest = text.partition(KEY_END)
    kind = rest.partition(TYPE)[2].partition(TYPE_END)[0].strip().lower()
    if not key.strip():
        return None
    return TagParameter(
        key.strip(), TEXT if kind in ("string", "str") else None, is_json=bool(kind) and kind not in ("string", "str")
    )


SHAPE = Keyed(
    section="<ifm|tool_calls>",
    section_end="</ifm|tool_calls>",
    call="<ifm|tool_call>",
    call_end="</ifm|tool_call>",
    key="<ifm|arg_key>",
    key_end=KEY_END,
    value="<ifm|arg_value>",
    value_end="</ifm|arg_value>",
    read_tag=read_parameter,
)
_CALLS = KeyedCalls(SHAPE)
_NO_CALL = rf"{SPACE}[<>}}\]\"'=|]"
"""Behind the tag of a call: neither JSON nor a name."""
_read_json = json_block_reader((SHAPE.call_end,), (SHAPE.call, SHAPE.section_end))


def read_call(scan: Scanner, calls: CallWriter, opener: str) -> Steps[None]:
    """One call with either body."""
    yield from scan.space()
    if (yield from scan.peek(1)) in ("{", "["):
        yield from _read_json(scan, calls, opener)
    else:
        yield from _CALLS.read_call(scan, calls, opener)


def read_section(scan: Scanner, calls: CallWriter, opener: str) -> Steps[None]:
    """The wrapper's own tag: what matters are the calls in it, each of which has its opener."""
    if (yield from scan.follows(0, (SHAPE.call,), end=False)) is None:
        yield from _CALLS.read_section(scan, calls, opener)
        return
    while (yield from scan.follows(0, (SHAPE.call,), end=False)) is not None:
        yield from scan.space()
        yield from scan.found(SHAPE.call)
        yield from read_call(scan, calls, SHAPE.call)
    if (yield from scan.follows(0, (SHAPE.section_end,), end=False)) is not None:
        yield from scan.space()
        yield from scan.found(SHAPE.section_end)
        calls.settle()


def render_calls(calls: Sequence[ToolCall]) -> str:
    """One wrapper for all calls of a turn, with the body that keeps types."""
    return SHAPE.section + "".join(f"{SHAPE.call}{call}{SHAPE.call_end}" for call in json_calls(calls)) + SHAPE.section_end


def render_results(results: Sequence[ToolResult]) -> str:
    """One element per result."""
    return "\n".join(f"<ifm|tool_response>{result_text(result)}</ifm|tool_response>" for result in results)


TOOL_PROMPT = ToolPrompt(
    f"# Tools\n\nThese functions can be called, one per line:\n{TOOLS}\n\n"
    "To call functions, write one JSON object per call with its name and arguments between these tags:\n"
    f'{SHAPE.section}{SHAPE.call}{{"name": <function-name>, "arguments": <object>}}{SHAPE.call_end}{SHAPE.section_end}'
)


FORMAT = Format(
    id="ifm",
    reserved=True,
    openers=(Opener(SHAPE.section, read_section, never=unlike(SHAPE.call)), Opener(SHAPE.call, read_call, never=_NO_CALL)),
    thinking=(
        ("<ifm|think>", "</ifm|think>"),
        ("<ifm|think_fast>", "</ifm|think_fast>"),
        ("<ifm|think_faster>", "</ifm|think_faster>"),
    ),
    closers=(SHAPE.section_end, SHAPE.call_end, SHAPE.value_end),
    turn_ends=("<|ifm|im_end|>",),
    streams="str",
    render_calls=render_calls,
    render_results=render_results,
    render_tools=TOOL_PROMPT,
)
