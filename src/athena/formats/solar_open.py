"""Solar Open of Upstage: messages of a kind; a message of calls holds id, name and JSON after tokens.

    <|begin|>assistant<|tool_calls|><|tool_call:begin|>a1b2c3d4e5<|tool_call:name|>f<|tool_call:args|>{"a": 1}<|tool_call:end|><|calls|>

Reasoning is a message after `<|think|>`, the answer one after `<|content|>`; ids are ten lower-case letters and digits.
Origin: the template of Solar-Open-100B.
"""  # noqa: E501 - the sample is one line for the model

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

from athena.formats.bodies.headed import CallHead, Headed, HeadedReader
from athena.formats.bodies.messages import MessageReader, Messages
from athena.formats.machine.base import Format, Opener
from athena.formats.machine.name_rules import BareNameRule
from athena.formats.machine.render import TOOLS, ToolPrompt, result_text
from athena.formats.machine.scanner import LOOK_AHEAD, Cut, Lexer, Scanner, Steps
from athena.formats.machine.writer import CallWriter
from athena.model.parts import ToolCall, ToolResult

START, THINK, CONTENT = "<|begin|>assistant", "<|think|>", "<|content|>"
CALLS, CALLS_END = "<|tool_calls|>", "<|calls|>"
CALL, NAME, ARGUMENTS, CALL_END = "<|tool_call:begin|>", "<|tool_call:name|>", "<|tool_call:args|>", "<|tool_call:end|>"
ENDS = ("<|end|>", "<|flush|>", CALLS_END)

_ID = re.compile(r"[a-z0-9]{10}")
_NAME_END = Lexer((ARGUMENTS, CALL_END, CALL, CALLS_END, "{"))


def _nameless(text: str, calls: CallWriter) -> CallHead:
    return CallHead("", text)


def _open_call(scan: Scanner, calls: CallWriter, call_id: str) -> Steps[None]:
    name, marker = yield from scan.upto(_NAME_END, LOOK_AHEAD * 4)
    if not marker:
        raise Cut
    if marker == ARGUMENTS:
        scan.take(len(marker))
    calls.open(name.strip(), call_id)


_SHAPE = Headed(
    section_begin=(CALLS,),
    section_end=(CALLS_END,),
    call_begin=(CALL,),
    argument_begin=(NAME,),
    call_end=(CALL_END,),
    head=_nameless,
    open_call=_open_call,
)
_read_calls = HeadedReader(_SHAPE)
_READ = MessageReader(
    Messages(
        start=(START,),
        thinking=(THINK,),
        text=(CONTENT,),
        calls=(CALLS, CALL),
        ends=ENDS,
        read_calls=_read_calls,
    )
)


def native_id(call_id: str) -> str:
    """An id as the model writes it; a foreign one always becomes the same."""
    if _ID.fullmatch(call_id):
        return call_id
    return hashlib.sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()[:10]


def render_calls(calls: Sequence[ToolCall]) -> str:
    """One message with all calls."""
    written = "".join(
        f"{CALL}{native_id(call.id or str(number))}{NAME}{call.name}{ARGUMENTS}{call.arguments or '{}'}{CALL_END}"
        for number, call in enumerate(calls)
    )
    return f"{START}{CALLS}{written}{CALLS_END}"


def render_results(results: Sequence[ToolResult]) -> str:
    """One tool message with all results."""
    written = "".join(
        f"<|tool_response:begin|>{native_id(result.call_id)}<|tool_response:name|>{result.name or 'tool'}"
        f"<|tool_response:result|>{result_text(result)}<|tool_response:end|>"
        for result in results
    )
    return f"<|begin|>tool<|tool_response|>{written}<|end|>"


TOOL_PROMPT = ToolPrompt(
    f"## Tools\n\nThese functions can be called, one per line:\n{TOOLS}\n\n"
    "To call functions, write for each an id of ten lower-case letters and digits, its name and its arguments:\n"
    f'{CALLS}{CALL}ID{NAME}NAME{ARGUMENTS}{{"KEY": "VALUE"}}{CALL_END}{CALLS_END}'
)
"""The part of the system text that declares tools and the form of a call."""


FORMAT = Format(
    id="solar_open",
    reserved=True,
    openers=(
        *(Opener(marker, _READ) for marker in (START, CALL)),
        Opener(CALLS, _READ, never=_read_calls.never_section),
        *(Opener(marker, _READ, auto=False) for marker in (THINK, CONTENT)),
    ),
    thinking=(),
    new_id=lambda seed, number: native_id(f"{seed}:{number}"),
    closers=(CALL_END, CALLS_END),
    turn_ends=ENDS,
    render_calls=render_calls,
    render_results=render_results,
    render_tools=TOOL_PROMPT,
    inexpressible=BareNameRule(reason="the name does not fit between tokens", pieces=("<|", "{"), blanks="inside"),
)
