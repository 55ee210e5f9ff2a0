"""JSON arguments of an open call, passed on as they arrive.

The scanner inside `JsonPipe`, not an end marker, decides where they end: a marker inside a string is data.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from athena.formats.bodies.json_text import JsonPipe, strict_json
from athena.formats.bodies.json_tokens import STRING
from athena.formats.machine.scanner import LOOK_AHEAD, Cut, Declined, Lexer, Scanner, Steps, ValueSink, lexer_of
from athena.formats.machine.writer import CallWriter
from athena.wire.json_span import is_json_object

_FENCE_END = Lexer(("\n", "{"))


class Pipe(Protocol):
    """Reads one value as it arrives and knows where it ends."""

    done: bool
    stuck: bool
    quote: str
    """The quote character of the open string. In a double-quoted one, text that JSON allows passes unchanged."""

    def feed(self, text: str, at: int, final: bool, out: list[str]) -> int:
        """Read from `at`, write to `out`; the answer is where the unread text begins."""
        ...


def pump(scan: Scanner, pipe: Pipe, sink: ValueSink) -> Steps[None]:
    """Let one value through, until the pipe is done or stuck."""
    out: list[str] = []

    def straight(text: str) -> bool:
        if text:
            if pipe.quote == '"' and scan.is_used_up and STRING.leaves(text) is None:
                sink(text)
                return True
            scan.push(text)
        scan.take_to(pipe.feed(scan.text, scan.at, scan.final, out))
        if out:
            sink(out[0] if len(out) == 1 else "".join(out))
            out.clear()
        return not (pipe.done or pipe.stuck)

    while straight(""):
        if scan.final:
            raise Cut
        scan.straight = straight
        yield


def json_value(scan: Scanner, calls: CallWriter, *, depth: int = 512) -> Steps[str | None]:
    """One whole JSON value as text; None when it is none, or nested deeper than `depth`."""
    pieces: list[str] = []
    pipe = JsonPipe(lenient=calls.lenient, depth_limit=min(depth, calls.limits.json_depth))
    yield from pump(scan, pipe, pieces.append)
    calls.repaired_later(pipe.repairs)
    calls.broken = (pipe.depth, bool(pipe.quote))
    return "".join(pieces) if pipe.done else None


def json_arguments(scan: Scanner, calls: CallWriter, ends: tuple[str, ...] = ()) -> Steps[bool]:
    """The arguments of the open call; the call is closed when they end. False when they are unusable.

    `ends` are the markers that may stand behind them, or in their place when there are none.
    """
    calls.broken = (0, False)
    yield from scan.space()
    if (yield from scan.found("```")):
        yield from _fence_language(scan)
        yield from scan.found("```")
        yield from scan.space()
    if (yield from scan.follows(0, ends, end=False)) is not None:
        calls.close()
        return True
    head = yield from scan.peek(1)
    if not head:
        raise Cut
    if head != "{" and not (yield from _odd_arguments(scan, calls, ends, head)):
        return not calls.is_open
    if not calls.is_open:
        return True
    pipe = JsonPipe(lenient=calls.lenient, depth_limit=calls.limits.json_depth)
    yield from pump(scan, pipe, calls.write)
    if pipe.stuck and (yield from scan.follows(0, ends, end=False)) is not None:
        missing: list[str] = []
        if pipe.close_open(missing):
            calls.write("".join(missing))
    calls.repaired(pipe.repairs)
    if not pipe.done:
        calls.broken = (pipe.depth, bool(pipe.quote))
        calls.fail(f"the arguments of {calls.name or 'a call'} are {'nested too deep' if pipe.too_deep else 'not JSON'}")
        return False
    calls.close()
    return True


def skip_to(scan: Scanner, calls: CallWriter, lexer: Lexer) -> Steps[str]:
    """Drop the rest of a call that cannot be used, up to the next marker; the marker stays. "" is the end of the text."""
    while True:
        text, marker = yield from scan.piece(lexer)
        calls.noise(text)
        calls.settle()
        if marker is not None:
            return marker


TURN_ENDS = frozenset({
    "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<|return|>", "<|endoftext|>", "<|end_of_text|>", "</s>",
    "<｜end▁of▁sentence｜>", "[e~[", "<|observation|>", "<|user|>", "<|END_OF_TURN_TOKEN|>", "<turn|>", "<end_of_turn>",
    "<|message_sep|>", "<seed:eos>",
})  # fmt: skip
"""What ends a turn in some template: it ends no block, so words before it belong to the answer."""


def end_of_block(scan: Scanner, calls: CallWriter, closers: Lexer, taken: tuple[str, ...]) -> Steps[str]:
    """Behind a whole call: drop a little noise up to an end marker and take it if it is one of `taken`.

    No marker in sight, or only the end of the turn: what follows is text and stays. Answers the marker, "" for the end or none.
    """
    try:
        text, marker = yield from scan.upto(closers, LOOK_AHEAD)
    except Declined:
        return ""
    if text.strip(" \t\r\n}]`") and (marker not in taken or marker in TURN_ENDS):
        # Words up to the block's own end are noise inside it; words up to anything else are the answer's.
        raise Declined
    calls.noise(text)
    if marker in taken:
        scan.take(len(marker))
    calls.settle()
    return marker


def _fence_language(scan: Scanner) -> Steps[None]:
    try:
        _, marker = yield from scan.upto(_FENCE_END, 16)
    except Declined:
        return
    if marker == "\n":
        scan.take(1)
    yield from scan.space()


def _odd_arguments(scan: Scanner, calls: CallWriter, ends: tuple[str, ...], head: str) -> Steps[bool]:
    """Arguments that do not begin with a brace. True when an object follows after all; else the call is closed or failed."""
    if (yield from scan.found("null", "None")):
        calls.close()
        return False
    if head in "\"'":
        text = yield from json_value(scan, calls)
        inner = None if text is None else decoded_arguments(text, lenient=calls.lenient)
        if inner is None:
            calls.fail(f"the arguments of {calls.name or 'a call'} are a string that holds no object")
        else:
            calls.repaired()
            calls.write(inner)
            calls.close()
        return False
    if calls.lenient:
        try:
            text, marker = yield from scan.upto(lexer_of(("{", *ends)), LOOK_AHEAD)
        except Declined:
            marker = ""
        if marker == "{":
            calls.repaired()
            return True
    calls.fail(f"the arguments of {calls.name or 'a call'} are not a JSON object")
    return False


def decoded_arguments(value: str, *, lenient: bool) -> str | None:
    """A collected arguments value as the text of an object: an object as it is, null as an empty one, a string decoded once."""
    stripped = value.strip()
    if stripped in ("", "null"):
        return "{}"
    if stripped.startswith("{"):
        return stripped
    if not stripped.startswith('"') or not lenient:
        return None
    try:
        inner = msgspec.json.decode(stripped, type=str)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return None
    if inner.strip() in ("", "null"):
        return "{}"
    if is_json_object(inner):
        return inner.strip()
    mended = strict_json(inner.strip())
    return mended if mended is not None and mended.startswith("{") else None
