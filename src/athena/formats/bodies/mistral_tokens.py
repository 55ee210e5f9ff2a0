"""What follows Mistral's `[TOOL_CALLS]`: an array of JSON calls (until Small 3.1) or a name and its arguments (since Small
3.2)."""

from __future__ import annotations

import re

from athena.calls.ids import hashed
from athena.formats.bodies.arguments import end_of_block, json_arguments, skip_to
from athena.formats.bodies.named import read_named_calls
from athena.formats.bodies.near_misses import SPACE, unlike
from athena.formats.machine.scanner import LOOK_AHEAD, Cut, Declined, Lexer, Scanner, Steps
from athena.formats.machine.writer import CallWriter

CALLS = "[TOOL_CALLS]"
CALLS_END = "[/TOOL_CALLS]"
CALL_ID = "[CALL_ID]"
ARGUMENTS = "[ARGS]"
TURN_END = "</s>"

NO_ARRAY = unlike("[", "{", behind={"[": unlike("{", "]")})
NO_NAME = rf"{SPACE}(?:[\[{{]|[^\s\[{{<]++[ \t\r\n]++[^\s\[{{<])"
"""What cannot follow the token: no array of calls, or no name of one."""

_ENDS = (CALLS, CALLS_END, TURN_END)
_NAME = re.compile(r"[^\s\[\]{}()<>\"']++")
_CLOSERS = Lexer(_ENDS)
_NAME_END = Lexer((CALL_ID, ARGUMENTS, "{", *_ENDS))


def new_id(seed: str, number: int) -> str:
    """Mistral's templates take exactly nine letters and digits."""
    return hashed(f"{seed}\0{number}", 9)


def read_array(scan: Scanner, calls: CallWriter, opener: str) -> Steps[None]:
    """`[{"name": ..., "arguments": ...}, ...]` or a single object."""
    yield from scan.space()
    head = yield from scan.peek(1)
    if not head:
        raise Cut
    if head not in "[{":
        raise Declined
    if head == "[" and not (yield from scan.follows(1, ("{", "]"))):
        raise Cut if (yield from scan.follows(1, ())) == "" else Declined
    yield from read_named_calls(scan, calls, _ENDS)
    yield from end_of_block(scan, calls, _CLOSERS, (CALLS_END, TURN_END))


def read_name_and_arguments(scan: Scanner, calls: CallWriter, opener: str) -> Steps[None]:
    """`NAME[CALL_ID]id[ARGS]{...}`; a brace alone may separate name and arguments. The next `[TOOL_CALLS]` is the next call."""
    name, marker = yield from scan.upto(_NAME_END, LOOK_AHEAD * 2)
    name = name.strip()
    if _NAME.fullmatch(name) is None:
        raise Declined
    call_id = ""
    if marker == CALL_ID:
        scan.take(len(CALL_ID))
        call_id, marker = yield from scan.upto(_NAME_END, LOOK_AHEAD)
        call_id = call_id.strip()
        if marker in _ENDS:
            # Neither arguments nor their marker: no call.
            raise Declined
    if not marker:
        raise Cut
    if marker in _ENDS and opener != CALLS:
        raise Declined
    calls.open(name, call_id)
    if marker == ARGUMENTS:
        scan.take(len(ARGUMENTS))
    if not (yield from json_arguments(scan, calls, _ENDS)):
        yield from skip_to(scan, calls, _CLOSERS)
    yield from end_of_block(scan, calls, _CLOSERS, (CALLS_END, TURN_END))
