"""Calls as JSON with name and arguments between two markers: an array, an object, or several in a row."""

from __future__ import annotations

from athena.formats.bodies.arguments import end_of_block
from athena.formats.bodies.named import ANY_FIELDS, CallKeys, read_named_calls
from athena.formats.machine.base import Reader
from athena.formats.machine.scanner import Cut, Declined, Lexer, Scanner, Steps
from athena.formats.machine.writer import CallWriter

_FENCES = ("```json", "```")


def json_block_reader(
    end: tuple[str, ...], again: tuple[str, ...] = (), fields: CallKeys = ANY_FIELDS, *, heads: str = "{["
) -> Reader:
    """The reader behind the opening marker: objects or arrays of calls to one of the markers in `end`, which is taken.

    `again`: markers that begin another block, where this one was not closed. `heads`: how the body may begin; formats that
    share a marker are told apart by it.
    """
    return _JsonBlock(end, again, fields, heads)


class _JsonBlock:
    def __init__(self, end: tuple[str, ...], again: tuple[str, ...], fields: CallKeys, heads: str) -> None:
        self._taken = end
        self._ends = (*end, *again)
        self._fields = fields
        self._heads = tuple(heads)
        self._closers = Lexer(self._ends)

    def __call__(self, scan: Scanner, calls: CallWriter, opener: str) -> Steps[None]:
        yield from scan.space()
        if (yield from scan.found(*_FENCES)):
            yield from scan.space()
        head = yield from scan.peek(1)
        if not head:
            raise Cut
        if head not in self._heads:
            raise Declined
        if head == "[" and (yield from scan.follows(1, ("]",), end=False)) is not None:
            yield from self._empty(scan, calls)
            return
        if not (yield from read_named_calls(scan, calls, self._ends, self._fields)):
            raise Declined
        yield from end_of_block(scan, calls, self._closers, self._taken)

    def _empty(self, scan: Scanner, calls: CallWriter) -> Steps[None]:
        """A list without a call is how some models say that they call nothing. In ordinary text its end marker must follow."""
        scan.take(1)
        yield from scan.space()
        scan.take(1)
        closed = yield from scan.follows(0, self._taken, end=False)
        if closed is None and not calls.reserved:
            raise Declined
        if closed is not None:
            yield from scan.space()
            yield from scan.found(closed)
        calls.settle()
