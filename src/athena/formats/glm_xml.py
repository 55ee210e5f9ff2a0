"""GLM 4.5 and later: a bare name, then keys and values in tags.

    <tool_call>get_weather<arg_key>city</arg_key><arg_value>北京</arg_value></tool_call>

4.5 and 4.6 put each tag on its own line, 4.7 and 5 write everything in one; both are read. Origin: the templates of GLM-4.6,
GLM-4.7-Flash and Laguna. Values are verbatim, nothing is trimmed. iQuest Q1 has a tag of its own for calls
(`<iquest_tool_call>`), Laguna at times writes `<user>` for it, or the call as a bare JSON object.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from athena.formats.bodies.keyed import Keyed, KeyedCalls
from athena.formats.bodies.near_misses import unlike
from athena.formats.bodies.tool_call_blocks import (
    BEGIN,
    END,
    FUNCTION_OPENER,
    JSON_OPENER,
    KEYED_OPENER,
    read_bare_json,
    read_keyed_body,
)
from athena.formats.machine.base import Format, Opener
from athena.formats.machine.name_rules import BareNameRule
from athena.formats.machine.render import TOOLS, ToolPrompt, arguments_of, plain_value, result_text
from athena.model.parts import ToolCall, ToolResult


def _keyed(call: str, call_end: str) -> KeyedCalls:
    """The same keys and values under another tag."""
    return KeyedCalls(
        Keyed(
            call=call,
            call_end=call_end,
            key="<arg_key>",
            key_end="</arg_key>",
            value="<arg_value>",
            value_end="</arg_value>",
        )
    )


_IQUEST = _keyed("<iquest_tool_call>", "</iquest_tool_call>")
_LAGUNA = _keyed("<user>", "</user>")


def render_calls(calls: Sequence[ToolCall]) -> str:
    """The inline form of 4.7 and 5, which all of them read."""
    return "".join(
        BEGIN + call.name + "".join(
            f"<arg_key>{key}</arg_key><arg_value>{plain_value(value)}</arg_value>" for key, value in arguments_of(call).items()
        ) + END
        for call in calls
    )  # fmt: skip


def render_results(results: Sequence[ToolResult]) -> str:
    """One observation turn for all results."""
    return "<|observation|>" + "".join(f"<tool_response>{result_text(result)}</tool_response>" for result in results)


TOOL_PROMPT = ToolPrompt(
    f"# Tools\n\nThese functions can be called:\n<tools>\n{TOOLS}\n</tools>\n\n"
    "A call names the function and gives each argument as a key and a value:\n"
    f"{BEGIN}NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value>{END}"
)


def _name_openers(names: tuple[str, ...]) -> tuple[Opener, ...]:
    """`<tool_call>` forgotten: a declared name right before its first key."""
    return tuple(
        Opener(f"{name}{gap}<arg_key>", read_keyed_body, where="word", auto=False) for name in names for gap in ("", "\n")
    )


FORMAT = Format(
    id="glm_xml",
    in_reasoning=True,
    openers=(
        KEYED_OPENER,
        msgspec.structs.replace(JSON_OPENER, auto=False),
        msgspec.structs.replace(FUNCTION_OPENER, auto=False),
        Opener("<iquest_tool_call>", _IQUEST.read_call, never=_IQUEST.never_call),
        Opener("<user>", _LAGUNA.read_call, where="line", auto=False, never=_LAGUNA.never_call),
        Opener("", read_bare_json, auto=False, never=unlike("{")),
    ),
    tool_openers=_name_openers,
    closers=(END, "</arg_value>", "</iquest_tool_call>"),
    turn_ends=("<|observation|>", "<|user|>"),
    streams="str",
    render_calls=render_calls,
    render_results=render_results,
    render_tools=TOOL_PROMPT,
    inexpressible=BareNameRule(empty=True, markers=("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", BEGIN, END)),
)  # fmt: skip
