"""`<function=NAME>{...}</function>`: JSON arguments in a tag that holds the name. Llama 3.1 under its custom-tool prompt.

Tagged parameters in the same tag are Qwen3-Coder's and declined here.
"""

from __future__ import annotations

from athena.formats.bodies.arguments import end_of_block, json_arguments, skip_to
from athena.formats.bodies.tool_call_blocks import tag_name
from athena.formats.machine.scanner import LOOK_AHEAD, Cut, Declined, Lexer, Scanner, Steps
from athena.formats.machine.writer import CallWriter

BEGIN = "<function="
NAMED_BEGIN = "<function name="
END = "</function>"

_TURN_ENDS = ("<|eom_id|>", "<|eot_id|>")
_BEGINS = (BEGIN, NAMED_BEGIN)
_ENDS = (END, *_BEGINS, *_TURN_ENDS)
_CLOSERS = Lexer(_ENDS)
_TAG_END = Lexer((">", "{", "\n"))


def read_function_tags(scan: Scanner, calls: CallWriter, opener: str) -> Steps[None]:
    """One or several adjacent functions; the beginning of the first tag is the opener."""
    while True:
        text, marker = yield from scan.upto(_TAG_END, LOOK_AHEAD * 2)
        if not marker:
            raise Cut
        name = tag_name(text)
        if name is None or not calls.admits(name):
            raise Declined
        if marker == ">":
            scan.take(1)
        body = yield from scan.follows(0, ("{", END))
        if body is None:
            raise Declined
        if not body:
            raise Cut
        calls.open(name)
        if not (yield from json_arguments(scan, calls, _ENDS)):
            yield from skip_to(scan, calls, _CLOSERS)
        yield from end_of_block(scan, calls, _CLOSERS, (END, *_TURN_ENDS))
        if (yield from scan.follows(0, _BEGINS, end=False)) is None:
            return
        yield from scan.space()
        yield from scan.found(*_BEGINS)
