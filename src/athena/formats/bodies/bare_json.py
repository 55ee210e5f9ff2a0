"""JSON calls without a marker, where a format allows them: an object or array that stands at the start of a line.

JSON is also what answers are made of, so the guard is tight: a declared name, an arguments key, and no key that calls do not
have. Whatever follows the last call is text.
"""

from __future__ import annotations

from athena.formats.bodies.named import Fields, read_named_calls
from athena.formats.machine.scanner import Declined, Scanner, Steps
from athena.formats.machine.writer import CallWriter

BARE_FIELDS = Fields(others=("type", "index"), needs_arguments=True)
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


def _read(scan: Scanner, calls: CallWriter) -> Steps[None]:
    if not (yield from read_named_calls(scan, calls, _LINE_END, BARE_FIELDS)):
        raise Declined
