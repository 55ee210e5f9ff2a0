"""Calls as `<invoke name="...">` with `<parameter name="...">` inside, under whatever prefix a family gives its tags.

    <wrapper> { <invoke name="NAME"> { <parameter name="KEY">VALUE</parameter> } </invoke> } </wrapper>

DSML, MiniMax M2, Step 3, Claude's prompt format and others. Wrappers may be missing; attributes may be quoted singly or not
at all.
"""

from __future__ import annotations

import re

import msgspec

from athena.formats.bodies.near_misses import repeated
from athena.formats.bodies.tagged import TEXT, TaggedArguments, TagParameter, Tags
from athena.formats.machine.scanner import LOOK_AHEAD, Cut, Declined, Lexer, Scanner, Steps
from athena.formats.machine.writer import CallWriter

WRAPPERS_AT_ONCE = 2
"""How often a section's opening may be repeated before its first call: looking ahead is bounded."""
NO_ATTRIBUTE = r"[ \t\r\n]*+[^ \t\r\n\w\"'.\-]"
"""What cannot follow the tag of a call."""
_NO_ATTRIBUTE = re.compile(NO_ATTRIBUTE)
_ATTRIBUTE = re.compile(r"""([\w.-]+)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>/]+))""")


class Invoke(msgspec.Struct, frozen=True):
    """The tags, each with its accepted spellings; tags with attributes without their end."""

    call: tuple[str, ...] = ("<invoke",)
    call_end: tuple[str, ...] = ("</invoke>",)
    parameter: tuple[str, ...] = ("<parameter",)
    parameter_end: tuple[str, ...] = ("</parameter>",)
    section_begin: tuple[str, ...] = ()
    section_end: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    """Markers that may stand between calls and mean nothing."""
    newline: bool = False
    cdata: bool = False
    look_alikes: tuple[str, ...] = ()
    """Closing tags of other formats that count as a parameter's where its own never comes."""
    strays: tuple[str, ...] = ()
    """Tokens that the model writes inside a call's tag, or in the place of its end: they are left out."""


def attributes(text: str) -> dict[str, str]:
    """The attributes of a tag. No entities: templates write them raw."""
    return {
        name: double if double is not None else single if single is not None else bare
        for name, double, single, bare in (found.groups() for found in _ATTRIBUTE.finditer(text))
    }


def named_parameter(text: str) -> TagParameter | None:
    """A parameter's tag; DSML says in it whether the value is a string."""
    found = attributes(text)
    key = found.get("name", "")
    if not key:
        return None
    kind = found.get("string", "").lower()
    return TagParameter(key, TEXT if kind == "true" else None, is_json=kind == "false")


class InvokeReader:
    """The reader of such calls; openers are the wrappers and, where a format accepts it, the call tags themselves."""

    def __init__(self, shape: Invoke) -> None:
        self._shape = shape
        options = (*shape.call, *shape.section_end, *shape.ignored)
        self.never = repeated(shape.section_begin, options, WRAPPERS_AT_ONCE)
        """What cannot follow a wrapper's opening tag."""
        self._gap = Lexer((*shape.call, *shape.section_end, *shape.section_begin, *shape.ignored))
        self._arguments = TaggedArguments(
            Tags(
                parameter=shape.parameter,
                parameter_end=shape.parameter_end,
                call_end=shape.call_end,
                section_end=shape.section_end,
                next_call=shape.call,
                newline=shape.newline,
                read_tag=named_parameter,
                cdata=shape.cdata,
                look_alikes=shape.look_alikes,
            )
        )
        self._tag = Lexer((">", "\n", *shape.strays))
        self._body = (*shape.parameter, *shape.call_end, *shape.section_end, *shape.call, *shape.ignored, "{")

    def __call__(self, scan: Scanner, calls: CallWriter, opener: str) -> Steps[None]:
        in_call = opener in self._shape.call
        first = True
        while in_call or (yield from self._next_call(scan, calls, first=first)):
            yield from self._one_call(scan, calls)
            in_call = first = False

    def _next_call(self, scan: Scanner, calls: CallWriter, *, first: bool) -> Steps[bool]:
        wrappers = 0
        while True:
            try:
                text, marker = yield from scan.upto(self._gap, LOOK_AHEAD)
            except Declined:
                if first:
                    raise
                return False
            wrappers += marker in self._shape.section_begin
            if first and wrappers > WRAPPERS_AT_ONCE:
                raise Declined
            if text.strip() and (not marker or first):
                raise Declined
            calls.noise(text)
            if marker:
                scan.take(len(marker))
            if not marker or marker in self._shape.section_end:
                if first and not calls.reserved:
                    raise Declined
                calls.settle()
                return False
            if marker in self._shape.call:
                return True

    def _one_call(self, scan: Scanner, calls: CallWriter) -> Steps[None]:
        text = yield from self._tag_text(scan)
        found = attributes(text)
        name = found.get("name", "")
        if not name or _NO_ATTRIBUTE.match(text) is not None:
            raise Declined
        if not text.rstrip().endswith("/"):
            yield from self._check_body(scan)
        prefix, _, rest = name.partition(".")
        if rest == prefix and not calls.book.declared(name):
            # A tool in a namespace of its own name.
            name = prefix
        calls.open(name)
        if text.rstrip().endswith("/"):
            calls.close()
            calls.settle()
        else:
            yield from self._arguments.read(scan, calls)

    def _tag_text(self, scan: Scanner) -> Steps[str]:
        """What stands in the tag of a call, to its end, which is taken."""
        text = ""
        while True:
            piece, marker = yield from scan.upto(self._tag, LOOK_AHEAD * 4)
            text += piece
            if not marker:
                raise Cut
            if marker != "\n":
                scan.take(len(marker))
            if marker not in self._shape.strays:
                return text
            if len(text) > LOOK_AHEAD * 4:
                raise Declined
            if (yield from scan.follows(0, (*self._shape.parameter, *self._shape.call_end), end=False)) is not None:
                return text + '"' if text.count('"') % 2 else text

    def _check_body(self, scan: Scanner) -> Steps[None]:
        """Words behind the tag of a call make it a sentence about tags."""
        if (yield from scan.follows(0, self._body)) is None:
            raise Declined
