"""Solar Open 2 of Upstage: a name on the line of its token, then one token for each part of an argument.

    <|tool_call:start|>get_weather
    <|tool_arg:start|>city<|tool_arg:value|>Paris<|tool_arg:end|>
    <|tool_call:end|>

Origin: vLLM's solar_open2 tool and reasoning parsers. Values stand there as they are; the tool's schema types them.
"""

from __future__ import annotations

from collections.abc import Sequence

from athena.formats.bodies.keyed import Keyed, KeyedCalls
from athena.formats.bodies.tagged import TagParameter
from athena.formats.machine.base import Format, Opener
from athena.formats.machine.name_rules import BareNameRule
from athena.formats.machine.render import TOOLS, ToolPrompt, arguments_of, plain_value, result_text
from athena.model.parts import ToolCall, ToolResult


def read_key(text: str) -> TagParameter | None:
    """What stands between the tokens of a key and its value."""
    key = text.strip()
    return TagParameter(key) if key else None


SHAPE = Keyed(
    call="<|tool_call:start|>",
    call_end="<|tool_call:end|>",
    key="<|tool_arg:start|>",
    key_end="",
    value="<|tool_arg:value|>",
    value_end="<|tool_arg:end|>",
    read_tag=read_key,
)
THINK = (("<|think:start|>", "<|think:end|>"),)
_CALLS = KeyedCalls(SHAPE)


def render_calls(calls: Sequence[ToolCall]) -> str:
    """One block per call."""
    return "\n".join(map(_call, calls))


def _call(call: ToolCall) -> str:
    arguments = "".join(
        f"{SHAPE.key}{key}{SHAPE.value}{plain_value(value)}{SHAPE.value_end}\n" for key, value in arguments_of(call).items()
    )
    return f"{SHAPE.call}{call.name}\n{arguments}{SHAPE.call_end}"


def render_results(results: Sequence[ToolResult]) -> str:
    """One line per result; how the template writes them is not known."""
    return "\n".join(result_text(result) for result in results)


TOOL_PROMPT = ToolPrompt(
    f"# Tools\n\nThese functions can be called, one per line:\n{TOOLS}\n\n"
    "A call names the function and gives each argument on a line of its own:\n"
    f"{SHAPE.call}NAME\n{SHAPE.key}KEY{SHAPE.value}VALUE{SHAPE.value_end}\n{SHAPE.call_end}"
)


FORMAT = Format(
    id="solar_open2",
    reserved=True,
    openers=(Opener(SHAPE.call, _CALLS.read_call, never=_CALLS.never_call),),
    thinking=THINK,
    closers=(SHAPE.call_end, SHAPE.value_end),
    streams="str",
    render_calls=render_calls,
    render_results=render_results,
    render_tools=TOOL_PROMPT,
    inexpressible=BareNameRule(
        reason="the name does not fit into a line",
        characters=" \t\r\n<>{}[]\"'=|",
        markers=(SHAPE.call, SHAPE.call_end, SHAPE.key, SHAPE.value, SHAPE.value_end),
    ),
)
