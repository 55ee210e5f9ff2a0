"""ERNIE 4.5 Thinking of Baidu: Hermes blocks after the reasoning, answers in `<response>`.

    ...
    </think>

    <tool_call>
    {"name": "f", "arguments": {}}
    </tool_call>

Some servers leave the byte token of a line break (`<0x0A>`) in the text; around calls and at the end it is dropped. Origin:
vLLM's ernie45_tool_parser and its tests; how the template writes results is not known, so ours follow Hermes.
"""

from __future__ import annotations

from athena.formats.bodies.hermes_text import TOOL_PROMPT, render_calls, render_results
from athena.formats.bodies.near_misses import SPACE
from athena.formats.bodies.tool_call_blocks import BEGIN, END, read_json_block
from athena.formats.machine.base import Format, Opener
from athena.formats.machine.scanner import Scanner, Steps
from athena.formats.machine.writer import CallWriter

LINE_BREAK = "<0x0A>"
_NO_JSON = rf"{SPACE}(?:{LINE_BREAK}{SPACE}){{0,16}}(?:[^\s`{{\[<]|<[^0])"


def read_block(scan: Scanner, calls: CallWriter, opener: str) -> Steps[None]:
    """A Hermes block, with line breaks in either spelling behind its tag."""
    yield from scan.space()
    while (yield from scan.found(LINE_BREAK)):
        yield from scan.space()
    yield from read_json_block(scan, calls, opener)


FORMAT = Format(
    id="ernie45",
    openers=(Opener(BEGIN, read_block, auto=False, never=_NO_JSON),),
    answer=(("<response>", "</response>"),),
    closers=(END,),
    turn_ends=(LINE_BREAK, "</s>"),
    render_calls=render_calls,
    render_results=render_results,
    render_tools=TOOL_PROMPT,
)
