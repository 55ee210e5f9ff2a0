"""DeepSeek V3.2 and V4 (DSML), GigaChat 3.5 (GCML): invoke tags whose names carry a special token.

    <｜DSML｜tool_calls>
    <｜DSML｜invoke name="get_weather">
    <｜DSML｜parameter name="city" string="true">杭州</｜DSML｜parameter>
    <｜DSML｜parameter name="days" string="false">5</｜DSML｜parameter>
    </｜DSML｜invoke>
    </｜DSML｜tool_calls>

The wrapper is `function_calls` in V3.2, `tool_calls` in V4, ` calls` in V4.1. Values are verbatim; `string` tells strings
from JSON. Origin: the V3.2 and V4 templates and SGLang's reference encoders.
"""

from __future__ import annotations

from collections.abc import Sequence

from athena.formats.bodies.invoke import NO_ATTRIBUTE, Invoke, InvokeReader
from athena.formats.machine.base import Format, Opener
from athena.formats.machine.name_rules import BareNameRule
from athena.formats.machine.render import TOOLS, ToolPrompt, arguments_of, plain_value, result_text
from athena.model.parts import ToolCall, ToolResult

TOKEN = "｜DSML｜"
_SPELLINGS = tuple(f"{spelling}{gap}" for spelling in (TOKEN, "|DSML|", "｜｜DSML｜｜", "｜GCML｜") for gap in ("", " "))
_WRAPPERS = ("function_calls", "tool_calls", "toolcalls", "calls")


def _tags(slash: str, names: tuple[str, ...], end: str) -> tuple[str, ...]:
    return tuple(f"<{slash}{token}{name}{end}" for token in _SPELLINGS for name in names)


SHAPE = Invoke(
    section_begin=_tags("", _WRAPPERS, ">"),
    section_end=(*_tags("/", _WRAPPERS, ">"), "</function_calls>", "</tool_calls>"),
    call=_tags("", ("invoke",), ""),
    call_end=(*_tags("/", ("invoke",), ">"), "</invoke>"),
    parameter=_tags("", ("parameter",), ""),
    parameter_end=_tags("/", ("parameter",), ">"),
    look_alikes=("</parameter>",),
)
READ = InvokeReader(SHAPE)


def render_calls(calls: Sequence[ToolCall]) -> str:
    """The V4 form."""
    return f"<{TOKEN}tool_calls>\n{''.join(map(_call, calls))}</{TOKEN}tool_calls>"


def _call(call: ToolCall) -> str:
    parameters = "".join(
        f'<{TOKEN}parameter name="{key}" string="{"true" if value.startswith(chr(34)) else "false"}">'
        f"{plain_value(value)}</{TOKEN}parameter>\n"
        for key, value in arguments_of(call).items()
    )
    return f'<{TOKEN}invoke name="{call.name}">\n{parameters}</{TOKEN}invoke>\n'


def render_results(results: Sequence[ToolResult]) -> str:
    """The V4 form: results in a user turn."""
    return "\n\n".join(f"<tool_result>{result_text(result)}</tool_result>" for result in results)


TOOL_PROMPT = ToolPrompt(
    f"## Tools\n\nThese functions can be called:\n{TOOLS}\n\n"
    "A call is written exactly so; string is true for text, false for a value in JSON:\n"
    f'<{TOKEN}tool_calls>\n<{TOKEN}invoke name="NAME">\n'
    f'<{TOKEN}parameter name="KEY" string="true|false">VALUE</{TOKEN}parameter>\n</{TOKEN}invoke>\n</{TOKEN}tool_calls>'
)


FORMAT = Format(
    id="deepseek_dsml",
    reserved=True,
    openers=(
        *(Opener(marker, READ, never=READ.never) for marker in SHAPE.section_begin),
        *(Opener(marker, READ, never=NO_ATTRIBUTE) for marker in SHAPE.call),
    ),
    closers=(*SHAPE.section_end, *SHAPE.call_end, *SHAPE.parameter_end),
    turn_ends=("<｜end▁of▁sentence｜>",),
    streams="str",
    render_calls=render_calls,
    render_results=render_results,
    render_tools=TOOL_PROMPT,
    inexpressible=BareNameRule(
        reason="the name does not fit into an attribute",
        characters='"\n>',
        empty=True,
        markers=(*SHAPE.parameter_end, *SHAPE.call_end, *SHAPE.section_end, *SHAPE.parameter, *SHAPE.call),
    ),
)
