"""Sections of calls whose name stands in a head before the JSON: Kimi, DeepSeek V3, Solar and their kin.

    section_begin { call_begin head argument_begin JSON call_end } section_end

Any of the outer markers may be missing. What stands between the calls of a section is noise and dropped; but a section marker
with nothing like a call near it is prose about markers and stays.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from athena.formats.bodies.arguments import json_arguments, skip_to
from athena.formats.bodies.near_misses import too_often
from athena.formats.machine.scanner import LOOK_AHEAD, Cut, Declined, Lexer, Scanner, Steps
from athena.formats.machine.writer import CallWriter

SECTIONS_AT_ONCE = 2
"""How often a section's opening may be repeated before its first call: looking ahead is bounded."""


class CallHead(msgspec.Struct, frozen=True):
    """What a call's head says: a name, "" when it has none, or None when only the arguments can tell; an id, or none."""

    name: str | None
    id: str = ""


class Headed(msgspec.Struct, frozen=True):
    """The markers of such a section, each with its accepted spellings."""

    call_begin: tuple[str, ...]
    argument_begin: tuple[str, ...]
    call_end: tuple[str, ...]
    head: Callable[[str, CallWriter], CallHead]
    """The head's text, trimmed, as name and id."""
    section_begin: tuple[str, ...] = ()
    section_end: tuple[str, ...] = ()
    open_call: Callable[[Scanner, CallWriter, str], Steps[None]] | None = None
    """Where more of the head stands behind the argument marker: opens the call itself."""


class HeadedReader:
    """The reader of such sections; openers are the section and call markers."""

    def __init__(self, shape: Headed) -> None:
        boundary = (*shape.call_begin, *shape.section_end, *shape.section_begin)
        self._shape = shape
        self.never_section = too_often(shape.section_begin, SECTIONS_AT_ONCE)
        """What cannot follow a section's opening."""
        self._ends = (*shape.call_end, *boundary)
        self._begins = (*shape.call_begin, *shape.section_begin)
        self._gap = Lexer(boundary)
        self._behind = Lexer(self._ends)
        self._head = Lexer((*shape.argument_begin, *self._ends, "{"))

    def __call__(self, scan: Scanner, calls: CallWriter, opener: str) -> Steps[None]:
        in_call = opener in self._shape.call_begin
        first = True
        while in_call or (yield from self._next_call(scan, calls, first=first)):
            if (yield from self._one_call(scan, calls)):
                yield from self._end_of_call(scan, calls)
            else:
                yield from skip_to(scan, calls, self._behind)
                yield from scan.found(*self._shape.call_end)
                calls.settle()
            in_call = first = False

    def _next_call(self, scan: Scanner, calls: CallWriter, *, first: bool) -> Steps[bool]:
        """Skip what stands between calls. False when the section is over."""
        sections = 0
        while True:
            try:
                text, marker = yield from scan.upto(self._gap, LOOK_AHEAD)
            except Declined:
                if first:
                    raise
                return False
            sections += marker in self._shape.section_begin
            if first and sections > SECTIONS_AT_ONCE:
                raise Declined
            if not marker and text.strip():
                # Prose up to the end: not ours.
                raise Declined
            calls.noise(text)
            if marker:
                scan.take(len(marker))
            if not marker or marker in self._shape.section_end:
                calls.settle()
                return False
            if marker in self._shape.call_begin:
                return True

    def _one_call(self, scan: Scanner, calls: CallWriter) -> Steps[bool]:
        shape = self._shape
        text, marker = yield from scan.upto(self._head, calls.limits.id_chars + 32)
        name = text.strip()
        if len(name) > calls.limits.id_chars or "\n" in name or "```" in name or "**" in name:
            # This is prose about calls: real ids are short and stand on one line.
            raise Declined
        if not marker:
            raise Declined if not name or len(name.split()) > 1 else Cut
        if marker in shape.argument_begin:
            scan.take(len(marker))
            if shape.open_call is not None:
                yield from shape.open_call(scan, calls, name)
                return (yield from json_arguments(scan, calls, self._ends))
        head = shape.head(name, calls)
        if marker in self._begins and not (head.name and calls.book.declared(head.name)):
            # Another call begins where this one's arguments should: what stands between is none.
            calls.noise(name)
            return False
        if head.name == "":
            calls.bad_head("a call that names no tool", name)
            return False
        _open(calls, head)
        if marker in self._ends:
            calls.close()
            return True
        return (yield from json_arguments(scan, calls, self._ends))

    def _end_of_call(self, scan: Scanner, calls: CallWriter) -> Steps[None]:
        try:
            text, marker = yield from scan.upto(self._behind, LOOK_AHEAD)
        except Declined:
            # No end marker in sight: what follows is text.
            return
        if not marker and text.strip(" \t\r\n}`"):
            raise Declined
        calls.noise(text)
        if marker in self._shape.call_end:
            scan.take(len(marker))
        calls.settle()


def _open(calls: CallWriter, head: CallHead) -> None:
    if head.name is None:
        calls.open_unnamed(head.id)
    elif len(head.name.split()) > 1:
        raise Declined
    else:
        calls.open(head.name, head.id)
