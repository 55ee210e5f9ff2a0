"""Calls as a name and then keys and values in tags of their own, as GLM writes them, under other families' tags.

<wrapper> { <call>NAME [<separator>] { <key>KEY</key> <value>VALUE</value> } </call> } </wrapper>
"""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from athena.formats.bodies.near_misses import no_name, unlike
from athena.formats.bodies.tagged import TaggedArguments, TagParameter, Tags
from athena.formats.machine.scanner import LOOK_AHEAD, Cut, Declined, Lexer, Scanner, Steps
from athena.formats.machine.writer import CallWriter

_PLAIN_NAME = re.compile(r"[^\s<>{}\[\]\"'=|]+")


class Keyed(msgspec.Struct, frozen=True):
    """The tags."""

    call: str
    call_end: str
    key: str
    key_end: str
    value: str
    value_end: str
    section: str = ""
    section_end: str = ""
    separator: str = ""
    """Behind the name."""
    read_tag: Callable[[str], TagParameter | None] | None = None
    """Where more than the key stands before the value: reads everything from the key to the value's tag."""


class KeyedCalls:
    """The reader of such calls; made once per format."""

    def __init__(self, shape: Keyed) -> None:
        self._shape = shape
        section_end = (shape.section_end,) if shape.section_end else ()
        self._begins = (shape.call, *section_end)
        separator = (shape.separator,) if shape.separator else ()
        self._name_end = Lexer(("\n", shape.key, shape.call_end, shape.call, *separator))
        self._body = (shape.key, shape.call_end, "{")
        self.never_call = no_name(*separator, *self._body)
        """What cannot follow the tag of a call, and of a section."""
        self.never_section = unlike(shape.call)
        tags = Tags(
            parameter=(shape.key,),
            tag_end=shape.key_end,
            value_begin=(shape.value,),
            parameter_end=(shape.value_end,),
            call_end=(shape.call_end,),
            section_end=section_end,
            next_call=(shape.call,),
        )
        if shape.read_tag is not None:
            tags = msgspec.structs.replace(tags, tag_end=shape.value, value_begin=(), read_tag=shape.read_tag)
        self._arguments = TaggedArguments(tags)

    def read_section(self, scan: Scanner, calls: CallWriter, opener: str) -> Steps[None]:
        """Calls to the end of the wrapper, whose opening tag was taken."""
        first = True
        while True:
            after = yield from scan.follows(0, self._begins, end=False)
            if after == self._shape.call:
                yield from scan.space()
                yield from scan.found(after)
                yield from self.read_call(scan, calls, after)
                first = False
                continue
            if first:
                yield from scan.space()
                raise Cut if scan.ended() else Declined
            if after is not None:
                yield from scan.space()
                yield from scan.found(after)
                calls.settle()
            return

    def read_call(self, scan: Scanner, calls: CallWriter, opener: str) -> Steps[None]:
        """One call, whose opening tag was taken."""
        yield from scan.space()
        text, marker = yield from scan.upto(self._name_end, LOOK_AHEAD * 2)
        name = text.strip()
        if not marker:
            raise Cut if not name or _PLAIN_NAME.fullmatch(name) else Declined
        if not _PLAIN_NAME.fullmatch(name):
            raise Declined
        separator = self._shape.separator
        if marker == "\n" and separator and (yield from scan.follows(0, (separator,), end=False)) is not None:
            yield from scan.space()
            marker = separator
        if marker == separator:
            scan.take(len(marker))
        elif (yield from scan.follows(0, self._body, end=False)) is None:
            yield from scan.space()
            raise Cut if scan.ended() else Declined
        calls.open(name)
        yield from self._arguments.read(scan, calls)
