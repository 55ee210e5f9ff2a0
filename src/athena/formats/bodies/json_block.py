"""Calls as JSON with name and arguments between two tags, where a format takes that besides its own body."""

from __future__ import annotations

from athena.formats.base import Reader
from athena.formats.bodies.arguments import end_of_block
from athena.formats.bodies.named import ANY_FIELDS, Fields, read_named_calls
from athena.formats.scanner import Cut, Declined, Lexer, Scanner, Steps
from athena.formats.writer import CallWriter


def json_block_reader(end: tuple[str, ...], again: tuple[str, ...] = (), fields: Fields = ANY_FIELDS) -> Reader:
    """The reader behind the opening tag: objects or arrays of calls to one of the tags in `end`, which is taken.

    `again`: tags that begin another block, where this one was not closed.
    """
    return _JsonBlock(end, again, fields)


class _JsonBlock:
    def __init__(self, end: tuple[str, ...], again: tuple[str, ...], fields: Fields) -> None:
        self._taken = end
        self._ends = (*end, *again)
        self._fields = fields
        self._closers = Lexer(self._ends)

    def __call__(self, scan: Scanner, calls: CallWriter, opener: str) -> Steps[None]:
        yield from scan.space()
        head = yield from scan.peek(1)
        if not head:
            raise Cut
        if head not in "{[" or not (yield from read_named_calls(scan, calls, self._ends, self._fields)):
            raise Declined
        yield from end_of_block(scan, calls, self._closers, self._taken)
