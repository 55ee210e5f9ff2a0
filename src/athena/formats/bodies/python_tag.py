"""What follows Llama's `<|python_tag|>`: JSON calls, a built-in tool as `NAME.call(key="value")`, or code for an interpreter.

Code is a call only where the request declares a tool that runs it. It has no end marker but the end of the turn, which most
servers remove: then only the upstream's word that the model stopped by itself makes it whole.
"""

from __future__ import annotations

import re

from athena.formats.bodies.arguments import end_of_block, json_value
from athena.formats.bodies.named import CODE_TOOLS, read_named_calls
from athena.formats.bodies.pythonic import read_python_arguments
from athena.formats.machine.scanner import LOOK_AHEAD, Cut, Declined, Lexer, Scanner, Steps
from athena.formats.machine.writer import CallWriter

TAG = "<|python_tag|>"
TURN_ENDS = ("<|eom_id|>", "<|eot_id|>")

_ENDS = (*TURN_ENDS, TAG)
_CLOSERS = Lexer(_ENDS)
_BUILT_IN = re.compile(r"([^\W\d]\w*)\.call\(")


def read_python_tag(scan: Scanner, calls: CallWriter, opener: str) -> Steps[None]:
    """Anything the models write behind the tag."""
    yield from scan.space()
    head = yield from scan.peek(1)
    if not head:
        raise Cut
    if head in "{[":
        if not (yield from read_named_calls(scan, calls, _ENDS)):
            raise Declined
        yield from end_of_block(scan, calls, _CLOSERS, TURN_ENDS)
        return
    code_tool = next((name for name in CODE_TOOLS if calls.book.declared(name)), "")
    ahead = yield from scan.peek(LOOK_AHEAD)
    built_in = _BUILT_IN.match(ahead)
    if built_in is not None and (not code_tool or calls.book.declared(built_in.group(1))):
        scan.take(built_in.end())
        calls.open(built_in.group(1))
        yield from read_python_arguments(scan, calls)
    elif code_tool:
        yield from _code(scan, calls, code_tool, head)
    else:
        raise Declined


def _code(scan: Scanner, calls: CallWriter, name: str, head: str) -> Steps[None]:
    if head == '"' and (yield from _encoded_code(scan, calls, name)):
        return
    calls.open(name)
    calls.write('{"code": "')
    marker = yield from scan.flow(_CLOSERS, calls.write_text)
    if not marker and not scan.ended_well:
        raise Cut
    calls.write('"}')
    calls.close()
    if marker in TURN_ENDS:
        scan.take(len(marker))
        calls.settle()


def _encoded_code(scan: Scanner, calls: CallWriter, name: str) -> Steps[bool]:
    """The code as a JSON string. False, with nothing taken, when it is Python that begins with a string."""
    if (yield from scan.peek(3)) == '"""':
        return False
    text = yield from json_value(scan, calls)
    if text is None or (yield from scan.follows(0, _ENDS)) is None:
        raise Declined
    calls.open(name)
    calls.write(f'{{"code": {text}}}')
    calls.close()
    yield from end_of_block(scan, calls, _CLOSERS, TURN_ENDS)
    return True
