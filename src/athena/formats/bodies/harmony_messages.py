"""The messages of Harmony's channels, as gpt-oss writes them, and Beam with other arguments."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from athena.formats.bodies.arguments import json_arguments, skip_to
from athena.formats.bodies.invoke import named_parameter
from athena.formats.bodies.near_misses import unlike
from athena.formats.bodies.tagged import TaggedArguments, Tags
from athena.formats.machine.base import Opener
from athena.formats.machine.render import result_text, spaced_json
from athena.formats.machine.scanner import LOOK_AHEAD, Cut, Declined, Lexer, Scanner, Steps
from athena.formats.machine.writer import CallWriter
from athena.model.parts import ToolResult

START, CHANNEL, CONSTRAIN, MESSAGE = "<|start|>", "<|channel|>", "<|constrain|>", "<|message|>"
ENDS = ("<|end|>", "<|call|>", "<|return|>")

_HEADER = Lexer((MESSAGE, CHANNEL, CONSTRAIN, START, *ENDS, "{"))
_BODY = Lexer((*ENDS, START, CHANNEL))
_NEXT = (START, CHANNEL)
PARAMETERS = Tags(
    parameter=("<rfl:parameter ",),
    parameter_end=("</rfl:parameter>",),
    call_end=ENDS,
    next_call=(START,),
    newline=True,
    read_tag=named_parameter,
)
"""Beam writes arguments as tags inside Harmony's messages."""
_PARAMETERS = TaggedArguments(PARAMETERS)
_FUNCTIONS = "functions."
_ADDRESS = re.compile(r"[ \t\r\n]*+to=([^\s<{]++)[ \t\r\n]*+")
_RECIPIENT = re.compile(r"\bto\s*=\s*([^\s<{]+)")
_CHANNEL_WORD = re.compile(r"analysis|commentary|final")
_ROLE = re.compile(r"\s*([\w.\-]+)")
_ROLE_WORDS, _CHANNEL_WORDS = 2, 4
_OUR_ROLES = ("assistant", "system", "developer", "user", "tool")


class MessageHeader(msgspec.Struct, frozen=True):
    """What a message is: a call of a tool, reasoning or visible text."""

    tool: str | None
    thinking: bool


def read_beginning(scan: Scanner, calls: CallWriter, opener: str) -> Steps[None]:
    """An answer that begins with its recipient, because `<|start|>assistant` is in the prompt."""
    text, marker = yield from scan.upto(_HEADER, LOOK_AHEAD * 2)
    address = _ADDRESS.fullmatch(text)
    if address is None or (marker != CHANNEL and not address.group(1).startswith(_FUNCTIONS)):
        raise Declined
    scan.put_back_taken(len(text))
    yield from read_messages(scan, calls, START)


def read_messages(scan: Scanner, calls: CallWriter, opener: str) -> Steps[None]:
    """Messages one after another, until something stands there that is no message."""
    marker = opener
    first = True
    while True:
        header = yield from _header(scan, calls, marker, first=first)
        first = False
        if header is None:
            return
        if header.tool is not None:
            yield from _call(scan, calls, header.tool)
        else:
            yield from _words(scan, calls, thinking=header.thinking)
        calls.settle()
        if (yield from scan.follows(0, _NEXT, end=False)) is None:
            return
        yield from scan.space()
        marker = yield from scan.found(*_NEXT)


def _header(scan: Scanner, calls: CallWriter, opener: str, *, first: bool) -> Steps[MessageHeader | None]:
    """Everything up to `<|message|>`. None: the text ended in a header that was no call's."""
    role, rest, before = "", "", opener
    while True:
        text, marker = yield from scan.upto(_HEADER, LOOK_AHEAD * 4)
        if len(text.split()) > (_ROLE_WORDS if before == START else _CHANNEL_WORDS):
            # A sentence about tokens.
            raise Declined
        if before == START:
            role += text
        else:
            rest += " " + text
        if marker == "{" and _RECIPIENT.search(role + rest) is None:
            raise Declined
        if not marker:
            if first and not (role + rest).strip() and not scan.was_cut:
                # A token at the end of a sentence.
                raise Declined
            _cut_header(calls, role, rest)
            return None
        if marker == "{":
            break
        if marker in ENDS or (marker == START and before != START and not rest.strip()):
            if not _CHANNEL_WORD.search(rest):
                raise Declined
            scan.take(len(marker))
            return None
        scan.take(len(marker))
        before = marker
        if marker == MESSAGE:
            break
    if not _CHANNEL_WORD.search(rest) and not _RECIPIENT.search(role + rest) and opener != START:
        # An unknown channel: the model's own words, not for the reader.
        return MessageHeader(None, thinking=True)
    return _meaning(calls, role, rest)


def _meaning(calls: CallWriter, role: str, rest: str) -> MessageHeader:
    found = _RECIPIENT.search(role) or _RECIPIENT.search(rest)
    word = _CHANNEL_WORD.search(rest)
    channel = word.group() if word else ""
    if found is not None:
        if found.group(1) == "assistant":
            return MessageHeader(None, thinking=True)
        return MessageHeader(_tool_name(calls, found.group(1)), thinking=False)
    speaker = _ROLE.match(role)
    if speaker is not None and speaker.group(1) not in _OUR_ROLES and calls.book.declared(speaker.group(1)):
        return MessageHeader(speaker.group(1), thinking=False)
    return MessageHeader(None, thinking=channel == "analysis" or (not channel and bool(rest.strip())))


def _tool_name(calls: CallWriter, recipient: str) -> str:
    name = calls.book.resolve(recipient)
    for glued in ("json", "code"):
        if not calls.book.declared(name) and name.endswith(glued) and calls.book.declared(name.removesuffix(glued)):
            return name.removesuffix(glued)
    return name


def _cut_header(calls: CallWriter, role: str, rest: str) -> None:
    """The text ended inside a header: a call that was under way is cut, anything else was nothing yet."""
    if _RECIPIENT.search(role + rest):
        raise Cut
    words = (role + rest).strip()
    if words and not _CHANNEL_WORD.search(words) and not "assistant".startswith(words) and len(words.split()) > 1:
        raise Declined
    calls.settle()


def _call(scan: Scanner, calls: CallWriter, name: str) -> Steps[None]:
    calls.open(name)
    if (yield from scan.follows(0, PARAMETERS.parameter, end=False)) is not None:
        yield from _PARAMETERS.read(scan, calls)
        return
    yield from json_arguments(scan, calls, (*ENDS, *_NEXT))
    marker = yield from skip_to(scan, calls, _BODY)
    if marker in ENDS:
        scan.take(len(marker))


def _words(scan: Scanner, calls: CallWriter, *, thinking: bool) -> Steps[None]:
    """A message's text as it arrives. A marker counts only where one may stand: an answer about Harmony may name them."""
    while True:
        marker = yield from scan.flow(_BODY, lambda text: calls.say(text, thinking=thinking))
        if not marker:
            return
        if marker in ENDS:
            if (yield from scan.follows(len(marker), _NEXT)) is not None:
                scan.take(len(marker))
                return
        elif (yield from _begins_message(scan, marker)):
            return
        calls.say(scan.take(len(marker)), thinking=thinking)


def _begins_message(scan: Scanner, marker: str) -> Steps[bool]:
    if marker == START:
        return (yield from scan.follows(len(marker), ("assistant", "functions."))) is not None
    return (yield from scan.follows(len(marker), ("analysis", "commentary", "final"))) is not None


def render_results(results: Sequence[ToolResult]) -> str:
    """One message per result, from the tool to the assistant, its content as JSON."""
    return "".join(
        f"{START}functions.{result.name or 'tool'} to=assistant{CHANNEL}commentary{MESSAGE}"
        f"{spaced_json(result_text(result))}<|end|>"
        for result in results
    )


OPENERS = (
    Opener(CHANNEL, read_messages),
    Opener(START, read_messages),
    Opener("", read_beginning, never=unlike("to=")),
)
