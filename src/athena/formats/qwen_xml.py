"""Qwen3-Coder: parameters as tagged text, plain words around the `<tool_call>` tokens.

    <tool_call>
    <function=set>
    <parameter=n>
    3
    </parameter>
    </function>
    </tool_call>

Origin: the templates of Qwen3-Coder, Qwen3.5, Nemotron 3 and Step 3.5; its deviations come from issue threads. A
value that holds its own closing tag keeps it unless something legal follows (`bodies/tagged`).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from athena.formats.bodies.tool_call_blocks import (
    BEGIN,
    END,
    FUNCTION_BEGIN,
    FUNCTION_OPENER,
    FUNCTION_TAGS,
    JSON_OPENER,
    KEYED_OPENER,
    NO_TAG_NAME,
    read_bare_function,
)
from athena.formats.machine.base import Format, Opener
from athena.formats.machine.name_rules import BareNameRule
from athena.formats.machine.render import TOOLS, ToolPrompt, arguments_of, plain_value, result_text
from athena.model.parts import ToolCall, ToolResult


def render_calls(calls: Sequence[ToolCall]) -> str:
    """One block per call, one line break inside each end of a value."""
    return "\n".join(_call(call) for call in calls)


def _call(call: ToolCall) -> str:
    parameters = "".join(
        f"<parameter={key}>\n{plain_value(value)}\n</parameter>\n" for key, value in arguments_of(call).items()
    )
    return f"{BEGIN}\n<function={call.name}>\n{parameters}</function>\n{END}"


def render_results(results: Sequence[ToolResult]) -> str:
    """All results of a turn share one user message."""
    return "\n".join(f"<tool_response>\n{result_text(result)}\n</tool_response>" for result in results)


TOOL_PROMPT = ToolPrompt(
    f"# Tools\n\nThese functions can be called:\n<tools>\n{TOOLS}\n</tools>\n\n"
    "A call is written exactly so, with every value on lines of its own between its tags:\n"
    f"{BEGIN}\n<function=NAME>\n<parameter=KEY>\nVALUE\n</parameter>\n</function>\n{END}"
)


def _bare_function(begin: str, *, auto: bool) -> Opener:
    return Opener(begin, read_bare_function, where="line", auto=auto, never=NO_TAG_NAME)


FORMAT = Format(
    id="qwen_xml",
    in_reasoning=True,
    openers=(
        FUNCTION_OPENER,
        *(_bare_function(begin, auto=True) for begin in FUNCTION_BEGIN if begin.startswith("<function=")),
        *(_bare_function(begin, auto=False) for begin in FUNCTION_BEGIN if "name" not in begin),
        msgspec.structs.replace(JSON_OPENER, auto=False),
        msgspec.structs.replace(KEYED_OPENER, auto=False),
    ),
    closers=(END, "</function>", "</function_invocation>", "</parameter>"),
    turn_ends=("<|im_end|>",),
    streams="str",
    render_calls=render_calls,
    render_results=render_results,
    render_tools=TOOL_PROMPT,
    inexpressible=BareNameRule(
        empty=True,
        markers=(*FUNCTION_TAGS.parameter_end, *FUNCTION_TAGS.call_end, "<parameter", *FUNCTION_TAGS.next_call, END),
    ),
)  # fmt: skip
