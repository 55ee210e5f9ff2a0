"""Parameters as tagged text: Qwen3-Coder, DSML, GLM, MiniMax M2 and their kin (docs/reference/format-notes.md#tagged-values).

A value has no escapes, so its end is a matter of judgement: a closing tag counts when something legal follows it (another
parameter, the end of the call), else it is part of the value. A missing closing tag is made up for by the next parameter that
the tool declares and the call does not have yet, or by the end of the call, unless the value's own closing tag comes later: a
closer is the format's own before it is a look-alike, and a file that is written may hold either. A line break before a tag that
ends a value by implication belongs to the markup.

The tags cannot say where the last parameter was, so a text that ends after a parameter is a cut call unless the model is
known to have stopped by itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from athena.formats.bodies.arguments import json_arguments, skip_to
from athena.formats.bodies.json_text import quoted
from athena.formats.machine.scanner import LOOK_AHEAD, Cut, Declined, Lexer, Scanner, Steps, ValueSink
from athena.formats.machine.value_types import ValueType, is_json, typed_json
from athena.formats.machine.writer import CallWriter
from athena.wire.json_span import JsonSpan

TEXT = ValueType(frozenset({"string"}))

_AHEAD = 4096
"""How far behind the end of a call its open value may be closed after all."""
_MISSPELT = re.compile(r"[^\s<>=\"']{0,24}+>")
_TAG_WORDS = re.compile(r"[\s\"'=<>:]*+(?:(?:function|invoke|call|name|tool)[\s\"'=<>:]++){0,3}")


class TagParameter(msgspec.Struct, frozen=True):
    """What a parameter's tag says."""

    key: str
    type: ValueType | None = None
    """A type the markup itself declares."""
    is_json: bool = False
    """The markup says that this is JSON; where it is not, the schema decides."""


class Tags(msgspec.Struct, frozen=True):
    """The tags of one format. Each tuple holds the accepted spellings of one thing."""

    parameter: tuple[str, ...]
    """How a parameter's tag begins; what stands between that and `tag_end` goes to `read_tag`."""
    parameter_end: tuple[str, ...]
    """The first spelling is the format's own."""
    call_end: tuple[str, ...]
    section_end: tuple[str, ...] = ()
    next_call: tuple[str, ...] = ()
    """How another call begins: it ends this one."""
    tag_end: str = ">"
    value_begin: tuple[str, ...] = ()
    """A tag between the parameter's own and its value (`<arg_value>`)."""
    newline: bool = False
    """One line break at each end of a value belongs to the markup, when there is one at its beginning."""
    read_tag: Callable[[str], TagParameter | None] = lambda text: TagParameter(text.strip()) if text.strip() else None
    cdata: bool = False
    """A value may be wrapped in `<![CDATA[` `]]>`."""
    look_alikes: tuple[str, ...] = ()
    """Closing tags of another format that count as the parameter's where its own never comes."""


class NamelessParameter(Exception):
    """A parameter whose tag names nothing: the call cannot be used."""


class TaggedArguments:
    """The reader of the parameters of one open call; made once per format."""

    def __init__(self, tags: Tags) -> None:
        self._tags = tags
        self._boundary = (*tags.call_end, *tags.section_end, *tags.next_call)
        self._gap = Lexer((*tags.parameter, *tags.parameter_end, *tags.look_alikes, *self._boundary))
        # A line break ends a tag whose own end is missing.
        self._tag = Lexer((tags.tag_end, "\n") if tags.tag_end == ">" else (tags.tag_end,))
        self._nearly = tuple(sorted({end[:5] for end in tags.parameter_end if end.startswith("</") and len(end) > 8}))
        """How the closing tag of a parameter begins: what goes on otherwise may be misspelt."""
        implied = (*self._boundary, *tags.parameter, *tags.look_alikes)
        stops = (*tags.parameter_end, *implied, *self._nearly)
        self._end = Lexer(self._boundary)
        self._later = Lexer((*tags.parameter_end, *tags.parameter, *tags.next_call))
        in_lines = (*stops, *("\n" + stop for stop in stops))
        self._value_after = {
            "": Lexer((*stops, *("\n" + stop for stop in implied))),
            "\n": Lexer(in_lines),
            "\r\n": Lexer((*in_lines, *("\r\n" + stop for stop in stops))),
        }
        """By the line break at a value's beginning: what ends the value."""
        after = (*tags.parameter, *tags.parameter_end, *tags.look_alikes, *self._boundary)
        # GLM writes line breaks between tags as two characters at times.
        self._after_value = (*after, *("\\n" + one for one in after)) if tags.value_begin else after

    def read(self, scan: Scanner, calls: CallWriter) -> Steps[None]:
        """Parameters to the end of the call, which is closed; its end tag is taken, anything else stays."""
        yield from scan.space()
        if (yield from scan.peek(1)) == "{" and calls.lenient:
            # A JSON object in place of parameters.
            yield from json_arguments(scan, calls, self._boundary)
            yield from self._end_tag(scan)
            calls.settle()
            return
        yield from self._parameters(scan, calls, _Values(calls), inside=False)

    def read_from_parameter(self, scan: Scanner, calls: CallWriter) -> Steps[None]:
        """The same where the beginning of the first parameter's tag was taken already."""
        yield from self._parameters(scan, calls, _Values(calls), inside=True)

    def _parameters(self, scan: Scanner, calls: CallWriter, values: _Values, *, inside: bool) -> Steps[None]:
        tags = self._tags
        try:
            while True:
                if inside:
                    yield from self._parameter(scan, calls, values)
                    inside = False
                marker = yield from self._next(scan, calls)
                if marker in tags.parameter:
                    scan.take(len(marker))
                    inside = True
                elif marker in tags.parameter_end or marker in tags.look_alikes:
                    scan.take(len(marker))
                else:
                    break
        except NamelessParameter:
            calls.fail(f"a call of {calls.name} has a parameter without a name")
            yield from skip_to(scan, calls, self._end)
            yield from self._end_tag(scan)
            calls.settle()
            return
        if not marker and not scan.ended_well:
            raise Cut
        values.finish()
        if marker in tags.call_end:
            scan.take(len(marker))
        calls.settle()

    def _next(self, scan: Scanner, calls: CallWriter) -> Steps[str]:
        """Skip to the next tag. What stands between parameters is noise, but not much of it."""
        while True:
            try:
                text, marker = yield from scan.upto(self._gap, LOOK_AHEAD * 4)
            except Declined:
                calls.noise(scan.take(LOOK_AHEAD))
                continue
            calls.noise(text)
            return marker

    def _end_tag(self, scan: Scanner) -> Steps[None]:
        yield from scan.space()
        yield from scan.found(*self._tags.call_end)

    def _parameter(self, scan: Scanner, calls: CallWriter, values: _Values) -> Steps[None]:
        tags = self._tags
        try:
            text, marker = yield from scan.upto(self._tag, LOOK_AHEAD * 4)
        except Declined:
            return
        if not marker:
            raise Cut
        if marker == tags.tag_end:
            scan.take(len(marker))
        parameter = tags.read_tag(text)
        if tags.value_begin:
            yield from _blanks(scan)
            if not (yield from scan.found(*tags.value_begin)) and (
                yield from scan.follows(0, (*tags.parameter, *self._boundary), end=False)
            ):
                # A key without a value.
                return
        if parameter is None:
            raise NamelessParameter
        lines = (yield from scan.found("\n", "\r\n")) if tags.newline else ""
        if tags.cdata and (yield from scan.found("<![CDATA[")):
            values.begin(parameter)
            yield from self._cdata(scan, values)
        else:
            values.begin(parameter)
            yield from self._text(scan, calls, values, self._value_after[lines])
        values.end()

    def _cdata(self, scan: Scanner, values: _Values) -> Steps[None]:
        marker = yield from scan.flow(_CDATA_END, values.add)
        if not marker:
            raise Cut
        scan.take(len(marker))

    def _text(self, scan: Scanner, calls: CallWriter, values: _Values, lexer: Lexer) -> Steps[None]:
        """A value up to its end; the closing tag is taken, a tag that ends it by implication stays."""
        tags = self._tags
        while True:
            marker = yield from scan.flow(lexer, values.add)
            if not marker:
                raise Cut
            tag = marker.lstrip("\r\n")
            blanks = len(marker) - len(tag)
            if tag in tags.parameter_end:
                # Some models close a call with its own name.
                if (yield from self._is_closed(scan, calls, len(marker))):
                    scan.take(len(marker))
                    return
                size = len(marker)
            elif tag in tags.next_call:
                size = len(marker)
            elif tag in tags.parameter:
                # The line break before the tag is no part of it, and behind that a longer tag may stand.
                size = 0 if (yield from self._begins_another(scan, calls, values, len(marker))) else blanks or len(marker)
            else:
                closer = yield from self._closer(scan, calls, tag, len(marker))
                size = len(marker) if closer is None else (yield from self._goes_on(scan, calls, values, len(marker)))
                if not size and closer:
                    calls.repaired()
                    scan.take(blanks + closer)
                    return
            if not size:
                scan.take(blanks)
                return
            values.add(scan.take(size))

    def _is_closed(self, scan: Scanner, calls: CallWriter, offset: int) -> Steps[bool]:
        """Does something stand behind a closing tag that may follow a value?"""
        # Some models close a call with its own name.
        return (yield from scan.follows(offset, (*self._after_value, f"</{calls.name}>"))) is not None

    def _begins_another(self, scan: Scanner, calls: CallWriter, values: _Values, offset: int) -> Steps[bool]:
        """Does a parameter begin here that the tool declares and the call does not have yet?"""
        ahead = yield from scan.peek(offset + LOOK_AHEAD * 2)
        inside, end, _ = ahead[offset:].partition(self._tags.tag_end)
        parameter = self._tags.read_tag(inside) if end else None
        return parameter is not None and parameter.key not in values.keys and parameter.key in calls.book.parameters(calls.name)

    def _closer(self, scan: Scanner, calls: CallWriter, tag: str, offset: int) -> Steps[int | None]:
        """How long the tag is that stands for the closing one, a look-alike or misspelt. 0: the end of the call; None: text."""
        tags = self._tags
        if tag in tags.look_alikes:
            return len(tag) if (yield from self._is_closed(scan, calls, offset)) else None
        if tag not in self._nearly:
            return 0
        ahead = yield from scan.peek(offset + LOOK_AHEAD)
        found = _MISSPELT.match(ahead, offset)
        if found is None or not (yield from self._is_closed(scan, calls, found.end())):
            return None
        return len(tag) + found.end() - offset

    def _goes_on(self, scan: Scanner, calls: CallWriter, values: _Values, offset: int) -> Steps[int]:
        """How much of what stands here belongs to the value, whose call, or a look-alike of its tags, seems to end: 0, nothing.

        The value's own closing tag, or the next parameter, comes later: all before it is the value's. Another call comes first,
        or nothing at all: the value was not closed.
        """
        if not values.may_hold_tags:
            return 0
        at = offset
        while True:
            at, marker = yield from scan.ahead(at, self._later, _AHEAD)
            if marker is None:
                return at
            if not marker:
                return at if scan.was_cut else 0
            if marker in self._tags.parameter_end:
                goes_on = yield from self._is_closed(scan, calls, at + len(marker))
            elif marker in self._tags.parameter:
                goes_on = yield from self._begins_another(scan, calls, values, at + len(marker))
            else:
                if (yield from self._names_a_tool(scan, calls, at + len(marker))):
                    return 0
                goes_on = False
            if goes_on:
                return at - _line_break(scan.text, scan.at + at, scan.at + offset)
            at += len(marker)

    def _names_a_tool(self, scan: Scanner, calls: CallWriter, offset: int) -> Steps[bool]:
        """Does the name of a tool stand behind the beginning of a call?"""
        ahead = (yield from scan.peek(offset + LOOK_AHEAD * 2))[offset:]
        words = _TAG_WORDS.match(ahead)
        name = ahead[words.end() if words is not None else 0 :]
        if calls.book.open:
            return name[:1].isalnum()
        return any(name.startswith(one) and not name[len(one) : len(one) + 1].isalnum() for one in calls.book.names)


def _line_break(text: str, end: int, start: int) -> int:
    """How long the line break is that ends at `end`, if one begins at `start` or later."""
    for size, line_break in ((2, "\r\n"), (1, "\n")):
        if end - size >= start and text.startswith(line_break, end - size):
            return size
    return 0


_CDATA_END = Lexer(("]]>",))
_LITERAL_BREAKS = ("\\n",)


def _blanks(scan: Scanner) -> Steps[None]:
    """White space between two tags, also as the two characters backslash and n (GLM)."""
    while True:
        yield from scan.space()
        if not (yield from scan.found(*_LITERAL_BREAKS)):
            return


class _Values:
    """Writes parameters as the members of one JSON object: strings as they arrive, other values at their end."""

    __slots__ = ("_calls", "_parameter", "_pieces", "_span", "_spanned", "_streaming", "_type", "add", "keys")

    def __init__(self, calls: CallWriter) -> None:
        self._calls = calls
        self.keys: set[str] = set()
        self._parameter = TagParameter("")
        self._type = TEXT
        self._pieces: list[str] = []
        self._span = JsonSpan()
        self._spanned = 0
        """How many of the pieces the span has seen."""
        self._streaming = False
        self.add: ValueSink = calls.write_text
        """Takes the next piece of the open parameter's value."""

    def begin(self, parameter: TagParameter) -> None:
        self._parameter = parameter
        self._type = parameter.type or self._calls.value_type(parameter.key)
        self._streaming = self._type.is_text and not parameter.is_json
        self._pieces.clear()
        self._span, self._spanned = JsonSpan(), 0
        self.add = self._calls.write_text if self._streaming else self._calls.keeper(self._pieces)
        if self._streaming:
            self._write_key()
            self._calls.write('"')

    @property
    def may_hold_tags(self) -> bool:
        """May the value hold a tag here? Text may, and a list or an object inside of its strings."""
        if self._type.types is None or "string" in self._type.types:
            return True
        for piece in self._pieces[self._spanned :]:
            self._span.feed(piece)
        self._spanned = len(self._pieces)
        return self._span.in_string

    def end(self) -> None:
        if self._streaming:
            self._calls.write('"')
            return
        text = "".join(self._pieces)
        stripped = text.strip()
        value = stripped if self._parameter.is_json and is_json(stripped) else typed_json(text, self._type)
        if value is not None:
            self._write_key()
            self._calls.write(value)

    def finish(self) -> None:
        self._calls.write("}" if self.keys else "{}")
        self._calls.close()

    def _write_key(self) -> None:
        self._calls.write(("," if self.keys else "{") + quoted(self._parameter.key) + ":")
        self.keys.add(self._parameter.key)
