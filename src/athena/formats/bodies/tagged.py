"""Parameters as tagged text: Qwen3-Coder, DSML, GLM, MiniMax M2 and their kin (`formats.md` 1.5).

A value has no escapes, so its end is a matter of judgement: a closing tag counts when something legal follows it (another
parameter, the end of the call), else it is part of the value. A missing closing tag is made up for by the next parameter that
the tool declares and the call does not have yet, or by the end of the call.

The tags can not say where the last parameter was, so a text that ends behind a parameter is a cut call unless the model is
known to have stopped by itself.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from athena.formats.bodies.arguments import json_arguments, skip_to
from athena.formats.bodies.json_text import quoted
from athena.formats.machine.scanner import LOOK_AHEAD, Cut, Declined, Lexer, Scanner, Sink, Steps
from athena.formats.machine.value_types import ValueType, is_json, typed_json
from athena.formats.machine.writer import CallWriter

TEXT = ValueType(frozenset({"string"}))


class Parameter(msgspec.Struct, frozen=True):
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
    call_end: tuple[str, ...]
    section_end: tuple[str, ...] = ()
    next_call: tuple[str, ...] = ()
    """How another call begins: it ends this one."""
    tag_end: str = ">"
    value_begin: tuple[str, ...] = ()
    """A tag between the parameter's own and its value (`<arg_value>`)."""
    newline: bool = False
    """One line break at each end of a value belongs to the markup, when there is one at its beginning."""
    read_tag: Callable[[str], Parameter | None] = lambda text: Parameter(text.strip()) if text.strip() else None
    cdata: bool = False
    """A value may be wrapped in `<![CDATA[` `]]>`."""


class NamelessParameter(Exception):
    """A parameter whose tag names nothing: the call can not be used."""


class TaggedArguments:
    """The reader of the parameters of one open call; made once per format."""

    def __init__(self, tags: Tags) -> None:
        self._tags = tags
        self._boundary = (*tags.call_end, *tags.section_end, *tags.next_call)
        self._gap = Lexer((*tags.parameter, *tags.parameter_end, *self._boundary))
        # A line break ends a tag whose own end is missing.
        self._tag = Lexer((tags.tag_end, "\n") if tags.tag_end == ">" else (tags.tag_end,))
        stops = (*tags.parameter_end, *self._boundary, *tags.parameter)
        self._end = Lexer(self._boundary)
        in_lines = (*stops, *("\n" + stop for stop in stops))
        self._value_after = {
            "": Lexer(stops),
            "\n": Lexer(in_lines),
            "\r\n": Lexer((*in_lines, *("\r\n" + stop for stop in stops))),
        }
        """By the line break at a value's beginning: what ends the value."""
        after = (*tags.parameter, *tags.parameter_end, *self._boundary)
        # GLM writes line breaks between tags as two characters at times.
        self._after_value = (*after, *("\\n" + one for one in after)) if tags.value_begin else after
        self._after_call = (*tags.section_end, *tags.next_call)

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
                elif marker in tags.parameter_end:
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
                if (yield from scan.follows(len(marker), (*self._after_value, f"</{calls.name}>"))) is not None:
                    scan.take(len(marker))
                    return
            elif (yield from self._ends_by_implication(scan, calls, values, marker, tag)):
                scan.take(blanks)
                return
            values.add(scan.take(len(marker)))

    def _ends_by_implication(self, scan: Scanner, calls: CallWriter, values: _Values, marker: str, tag: str) -> Steps[bool]:
        tags = self._tags
        if tag in tags.call_end or tag in tags.section_end:
            after = self._after_call if tag in tags.call_end else tags.next_call
            found = yield from scan.follows(len(marker), after)
            # At the end of a text that may be cut, the tag may as well be part of a value that is text.
            return found is not None and (found != "" or scan.ended_well or not values.may_be_text)
        if tag in tags.next_call:
            return False
        ahead = yield from scan.peek(len(marker) + LOOK_AHEAD * 2)
        inside, end, _ = ahead[len(marker) :].partition(tags.tag_end)
        parameter = tags.read_tag(inside) if end else None
        return parameter is not None and parameter.key not in values.keys and parameter.key in calls.book.parameters(calls.name)


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

    __slots__ = ("_calls", "_parameter", "_pieces", "_streaming", "_type", "add", "keys")

    def __init__(self, calls: CallWriter) -> None:
        self._calls = calls
        self.keys: set[str] = set()
        self._parameter = Parameter("")
        self._type = TEXT
        self._pieces: list[str] = []
        self._streaming = False
        self.add: Sink = calls.write_text
        """Takes the next piece of the open parameter's value."""

    def begin(self, parameter: Parameter) -> None:
        self._parameter = parameter
        self._type = parameter.type or self._calls.value_type(parameter.key)
        self._streaming = self._type.is_text and not parameter.is_json
        self._pieces.clear()
        self.add = self._calls.write_text if self._streaming else self._calls.keeper(self._pieces)
        if self._streaming:
            self._write_key()
            self._calls.write('"')

    @property
    def may_be_text(self) -> bool:
        """May the open parameter hold any text, tags too?"""
        return self._type.types is None or "string" in self._type.types

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
