"""JSON calls without a marker, where a format allows them: an object or array that stands at the start of a line.

JSON is also what answers are made of, so the guard is tight: a declared name, an arguments key, and no key that calls do not
have. Whatever follows the last call is text.
"""

from __future__ import annotations

import msgspec

from athena.formats.bodies.arguments import json_value
from athena.formats.bodies.named import CallKeys, read_named_calls
from athena.formats.machine.scanner import LOOK_AHEAD, Declined, Scanner, Steps
from athena.formats.machine.writer import CallWriter

BARE_FIELDS = CallKeys(others=("type", "index"), needs_arguments=True)
_INLINE_DEPTH = 16
"""How deep calls behind words may be nested. Every beginning inside of one is tried again: this bounds what they cost."""
_LINE_END = ("\n",)
"""A broken call spoils its line, not what follows."""


def read_bare_array(scan: Scanner, calls: CallWriter, opener: str) -> Steps[None]:
    """`[{"name": ..., "arguments": ...}]`; the opener is its bracket."""
    scan.put_back_taken(len(opener))
    if (yield from scan.follows(len(opener), ("{",), end=False)) is None:
        raise Declined
    yield from _read(scan, calls)


def read_bare_calls(scan: Scanner, calls: CallWriter, opener: str) -> Steps[None]:
    """Objects or an array of them; the opener is the first bracket."""
    scan.put_back_taken(len(opener))
    yield from _read(scan, calls)


def read_inline_call(scan: Scanner, calls: CallWriter, opener: str) -> Steps[None]:
    """One object behind words; the opener is its beginning. It counts if it ends its line: in the middle it is quoted."""
    scan.put_back_taken(len(opener))
    text = yield from json_value(scan, calls, depth=_INLINE_DEPTH)
    if text is None or not (yield from _ends_line(scan)):
        raise Declined
    try:
        call = _read_inline(text)
        arguments = msgspec.json.decode(text, type=dict[str, msgspec.Raw]).get(call.field)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        raise Declined from None
    if arguments is None:
        raise Declined
    calls.open(call.name)
    calls.write(bytes(arguments).decode())
    calls.close()
    calls.settle()


def _ends_line(scan: Scanner) -> Steps[bool]:
    """Does nothing but blanks follow on this line, or the end of the turn? Nothing is taken."""
    blanks = 0
    while blanks < LOOK_AHEAD:
        ahead = yield from scan.peek(blanks + 1)
        if len(ahead) <= blanks or ahead[blanks] in "\r\n":
            return True
        if ahead[blanks] not in " \t":
            return (yield from scan.peek(blanks + 2))[blanks:] == "<|"
        blanks += 1
    return False


class _Inline(msgspec.Struct, forbid_unknown_fields=True):
    """What a call in the middle of a line may hold."""

    name: str
    parameters: dict[str, msgspec.Raw] | msgspec.UnsetType = msgspec.UNSET
    arguments: dict[str, msgspec.Raw] | msgspec.UnsetType = msgspec.UNSET
    type: str | msgspec.UnsetType = msgspec.UNSET

    @property
    def field(self) -> str:
        """The key of the arguments."""
        return "arguments" if self.parameters is msgspec.UNSET else "parameters"


_read_inline = msgspec.json.Decoder(_Inline).decode


def _read(scan: Scanner, calls: CallWriter) -> Steps[None]:
    if not (yield from read_named_calls(scan, calls, _LINE_END, BARE_FIELDS)):
        raise Declined
