"""Hunyuan 3 and 4 of Tencent: names, keys and values in tags that may carry a suffix of the checkpoint.

    <tool_calls>
    <tool_call>get_time<tool_sep>
    <arg_key>tz</arg_key>
    <arg_value>UTC</arg_value>
    </tool_call>
    </tool_calls>

The suffix (`<tool_calls:opensource>`) is the same on all tags of a checkpoint. Values are verbatim. Origin: the tencent-Hy3
template, vLLM's hy_v3 and hy_v4 parsers, SGLang's hunyuan_detector.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from athena.formats.bodies.keyed import Keyed, KeyedCalls
from athena.formats.machine.base import Format, Opener
from athena.formats.machine.name_rules import BareNameRule
from athena.formats.machine.render import TOOLS, ToolPrompt, arguments_of, plain_value, result_text
from athena.formats.machine.scanner import LOOK_AHEAD, Cut, Declined, Lexer, Scanner, Steps
from athena.formats.machine.writer import CallWriter
from athena.model.parts import ToolCall, ToolResult

_TAG_END = Lexer((">",))
_LONGEST_SUFFIX = LOOK_AHEAD // 2
_NO_SUFFIX = rf"(?:>|[^>]{{{_LONGEST_SUFFIX + 1}}})"
OPEN_SOURCE = ":opensource"


def shape(suffix: str) -> Keyed:
    """The tags with a suffix."""
    return Keyed(
        section=f"<tool_calls{suffix}>",
        section_end=f"</tool_calls{suffix}>",
        call=f"<tool_call{suffix}>",
        call_end=f"</tool_call{suffix}>",
        separator=f"<tool_sep{suffix}>",
        key=f"<arg_key{suffix}>",
        key_end=f"</arg_key{suffix}>",
        value=f"<arg_value{suffix}>",
        value_end=f"</arg_value{suffix}>",
    )


PLAIN = shape("")


@lru_cache(maxsize=16)
def _calls(suffix: str) -> KeyedCalls:
    return KeyedCalls(shape(suffix))


def _suffix(scan: Scanner, opener: str) -> Steps[str]:
    """The rest of an opening tag that ends in a colon."""
    if opener.endswith(">"):
        return ""
    text, marker = yield from scan.upto(_TAG_END, _LONGEST_SUFFIX)
    if not marker:
        raise Cut
    if not text or len(text.split()) != 1:
        raise Declined
    scan.take(1)
    return ":" + text


def read_section(scan: Scanner, calls: CallWriter, opener: str) -> Steps[None]:
    """The wrapper and its calls."""
    suffix = yield from _suffix(scan, opener)
    yield from _calls(suffix).read_section(scan, calls, opener)


def read_call(scan: Scanner, calls: CallWriter, opener: str) -> Steps[None]:
    """A call whose wrapper is missing."""
    suffix = yield from _suffix(scan, opener)
    yield from _calls(suffix).read_call(scan, calls, opener)


def render_calls(calls: Sequence[ToolCall]) -> str:
    """One wrapper for all calls of a turn."""
    return f"{PLAIN.section}\n{''.join(map(_call, calls))}{PLAIN.section_end}"


def _call(call: ToolCall) -> str:
    arguments = "".join(
        f"{PLAIN.key}{key}{PLAIN.key_end}\n{PLAIN.value}{plain_value(value)}{PLAIN.value_end}\n"
        for key, value in arguments_of(call).items()
    )
    return f"{PLAIN.call}{call.name}{PLAIN.separator}\n{arguments}{PLAIN.call_end}\n"


def render_results(results: Sequence[ToolResult]) -> str:
    """One wrapper for all results."""
    inner = "".join(f"<tool_response>\n{result_text(result)}\n</tool_response>\n" for result in results)
    return f"<tool_responses>\n{inner}</tool_responses>"


TOOL_PROMPT = ToolPrompt(
    f"# Tools\n\nThese functions can be called, one per line:\n<tools>\n{TOOLS}\n</tools>\n\n"
    "A call names the function and gives each argument as a key and a value:\n"
    f"{PLAIN.section}\n{PLAIN.call}NAME{PLAIN.separator}\n{PLAIN.key}KEY{PLAIN.key_end}\n"
    f"{PLAIN.value}VALUE{PLAIN.value_end}\n{PLAIN.call_end}\n{PLAIN.section_end}"
)


FORMAT = Format(
    id="hunyuan_xml",
    openers=(
        Opener("<tool_calls>", read_section, rank=2, never=_calls("").never_section),
        Opener("<tool_calls:", read_section, never=_NO_SUFFIX),
        Opener("<tool_call>", read_call, rank=3, never=_calls("").never_call),
        Opener("<tool_call:", read_call, never=_NO_SUFFIX),
    ),
    thinking=(("<think>", "</think>"), (f"<think{OPEN_SOURCE}>", f"</think{OPEN_SOURCE}>")),
    closers=tuple(f"</{tag}{suffix}>" for tag in ("tool_calls", "tool_call", "arg_value") for suffix in ("", OPEN_SOURCE)),
    streams="str",
    render_calls=render_calls,
    render_results=render_results,
    render_tools=TOOL_PROMPT,
    inexpressible=BareNameRule(
        reason="the name does not fit before a tag",
        characters=" \t\r\n<>{}[]\"'=|",
        markers=(PLAIN.call, PLAIN.call_end, PLAIN.key, PLAIN.key_end, PLAIN.value, PLAIN.value_end, PLAIN.section_end),
    ),
)
