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
from athena.formats.machine.scanner import LOOK_AHEAD, Cut, Declined, Lexer, Scanner, Steps, end_of_run
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
        self._repeats = tuple(one for one in shape.call_begin if _is_alone(one, (*shape.argument_begin, *self._ends)))
        """The beginnings of calls that another copy of themselves makes no other marker."""

    def __call__(self, scan: Scanner, calls: CallWriter, opener: str) -> Steps[None]:
        begin = opener if opener in self._shape.call_begin else (yield from self._next_call(scan, calls, first=True))
        while begin:
            if begin in self._repeats:
                _drop_repeated(scan, calls, begin)
            if (yield from self._one_call(scan, calls)):
                yield from self._end_of_call(scan, calls)
            else:
                yield from skip_to(scan, calls, self._behind)
                yield from scan.found(*self._shape.call_end)
                calls.settle()
            begin = yield from self._next_call(scan, calls, first=False)

    def _next_call(self, scan: Scanner, calls: CallWriter, *, first: bool) -> Steps[str]:
        """Skip what stands between calls, and take the marker that begins the next; "": the section is over."""
        sections = 0
        while True:
            try:
                text, marker = yield from scan.upto(self._gap, LOOK_AHEAD)
            except Declined:
                if first:
                    raise
                return ""
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
                return ""
            if marker in self._shape.call_begin:
                return marker

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


def _drop_repeated(scan: Scanner, calls: CallWriter, begin: str) -> None:
    """Where the marker that was taken stands again and again, only the last may begin a call.

    The last copy stays: it may be the beginning of a longer marker.
    """
    end = end_of_run(scan.text, scan.at, begin) - len(begin)
    if end > scan.at:
        scan.take_to(end - len(begin))
        calls.settle()
        scan.take_to(end)


def _is_alone(begin: str, markers: tuple[str, ...]) -> bool:
    """Is this marker, with a copy of itself behind it, never the beginning of another of the markers?"""
    rests = [marker.removeprefix(begin) for marker in markers if marker != begin and marker.startswith(begin)]
    return not any(begin.startswith(rest) or rest.startswith(begin) for rest in rests)


def _open(calls: CallWriter, head: CallHead) -> None:
    if head.name is None:
        calls.open_unnamed(head.id)
    elif len(head.name.split()) > 1:
        raise Declined
    else:
        calls.open(head.name, head.id)
