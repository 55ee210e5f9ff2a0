"""Functionary 2 of MeetKai: messages with a recipient, the user included (2 to 2.4), or calls after a token (2.5).

    <|from|>assistant
    <|recipient|>get_time
    <|content|>{"tz": "UTC"}<|stop|>

    I will look.<|reserved_special_token_249|>get_time
    {"tz": "UTC"}<|eot_id|>

The prompt of 2 to 2.4 ends with `<|recipient|>`, so an answer begins with a recipient. `all` is visible text. Origin: MeetKai's
jinja_templates v2 and v2.llama3 and their tests.
"""

from __future__ import annotations

from collections.abc import Sequence

from athena.formats.bodies.arguments import json_arguments, skip_to
from athena.formats.bodies.named import CODE_TOOLS
from athena.formats.bodies.near_misses import at_once, unlike
from athena.formats.bodies.raw_text import drop_rest, read_code, read_raw
from athena.formats.machine.base import Format, Opener
from athena.formats.machine.name_rules import BareNameRule
from athena.formats.machine.render import TOOLS, ToolPrompt, result_text
from athena.formats.machine.scanner import LOOK_AHEAD, Cut, Declined, Lexer, Scanner, Steps
from athena.formats.machine.writer import CallWriter
from athena.model.parts import ToolCall, ToolResult

FROM, RECIPIENT, CONTENT, STOP = "<|from|>", "<|recipient|>", "<|content|>", "<|stop|>"
START = f"{FROM}assistant"
CALL_TOKEN = "<|reserved_special_token_249|>"
TURN_ENDS = (STOP, "<|eot_id|>")
USER = "all"

_ENDS = (f"\n{FROM}", FROM, RECIPIENT, CALL_TOKEN, *TURN_ENDS)
_BODY_END = Lexer(_ENDS)
_RECIPIENT_END = Lexer((f"\n{CONTENT}", CONTENT, "\n", " ", *_ENDS))
_NAME_END = Lexer(("\n", " ", "{", *_ENDS))
_NEXT = (START, RECIPIENT, CALL_TOKEN)


def read_messages(scan: Scanner, calls: CallWriter, opener: str) -> Steps[None]:
    """Messages one after another; the opener begins the first, an empty one stands for a recipient in the prompt."""
    marker = opener
    while True:
        if marker == START:
            yield from scan.space()
            if not (yield from scan.found(RECIPIENT)):
                raise Cut if scan.ended() else Declined
        name = yield from (_called(scan) if marker == CALL_TOKEN else _recipient(scan, certain=bool(marker)))
        if name == USER:
            yield from read_raw(scan, calls, _BODY_END, lambda text: calls.say(text, thinking=False))
        else:
            yield from _call(scan, calls, name)
        yield from scan.found(*TURN_ENDS)
        calls.settle()
        if (yield from scan.follows(0, _NEXT, end=False)) is None:
            return
        yield from scan.space()
        marker = yield from scan.found(*_NEXT)


def read_other(scan: Scanner, calls: CallWriter, opener: str) -> Steps[None]:
    """A message from someone else: a tool's result that the model made up behind its calls, and whatever follows it."""
    if not calls.shown:
        raise Declined
    yield from drop_rest(scan, calls)


def _recipient(scan: Scanner, *, certain: bool) -> Steps[str]:
    """The recipient's name. `certain`: its token stood before it; without one a lone word is text."""
    text, marker = yield from scan.upto(_RECIPIENT_END, LOOK_AHEAD * 2)
    if not marker and certain:
        raise Cut
    if not marker.endswith(CONTENT) or not text:
        raise Declined
    scan.take(len(marker))
    return text


def _called(scan: Scanner) -> Steps[str]:
    text, marker = yield from scan.upto(_NAME_END, LOOK_AHEAD * 2)
    if not marker:
        raise Cut
    if not text or marker not in ("\n", "{"):
        raise Declined
    if marker == "\n":
        scan.take(1)
    return text


def _call(scan: Scanner, calls: CallWriter, name: str) -> Steps[None]:
    calls.open(name)
    if name in CODE_TOOLS and (yield from scan.follows(0, ("{", *_ENDS))) is None:
        yield from read_code(scan, calls, _ENDS)
    elif not (yield from json_arguments(scan, calls, _ENDS)):
        yield from skip_to(scan, calls, _BODY_END)


def render_calls(calls: Sequence[ToolCall]) -> str:
    """One message per call."""
    return "\n".join(f"{START}\n{RECIPIENT}{call.name}\n{CONTENT}{call.arguments or '{}'}" for call in calls) + STOP


def render_results(results: Sequence[ToolResult]) -> str:
    """One message per result, from the tool to all."""
    return "".join(f"\n{FROM}{result.name or 'tool'}\n{RECIPIENT}{USER}\n{CONTENT}{result_text(result)}" for result in results)


TOOL_PROMPT = ToolPrompt(
    f"These functions can be called, one per line:\n{TOOLS}\n\n"
    "Write an answer as messages, each with its recipient: all is the user, anything else a function.\n"
    f'{START}\n{RECIPIENT}NAME\n{CONTENT}{{"KEY": "VALUE"}}{STOP}'
)
"""The system message that declares tools and the form of an answer."""


FORMAT = Format(
    id="functionary_v2",
    reserved=True,
    openers=(
        Opener(START, read_messages, never=unlike(RECIPIENT)),
        Opener(RECIPIENT, read_messages, never=at_once("\n", " ", *_ENDS)),
        Opener(CALL_TOKEN, read_messages, never=at_once("\n", " ", *_ENDS)),
        Opener(FROM, read_other, auto=False),
        Opener("", read_messages, auto=False),
    ),
    closers=TURN_ENDS,
    turn_ends=TURN_ENDS,
    render_calls=render_calls,
    render_results=render_results,
    render_tools=TOOL_PROMPT,
    inexpressible=BareNameRule(reason="the name does not fit into a header", pieces=("<|",), taken=(USER,), blanks="nowhere"),
)
