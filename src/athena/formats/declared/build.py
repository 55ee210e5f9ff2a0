"""From a description to the format: the shapes of `formats.bodies`, given the description's markers."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Literal

from athena.calls.ids import hashed, synthesized_id
from athena.formats.bodies.arguments import end_of_block
from athena.formats.bodies.elements import read_elements
from athena.formats.bodies.gemma_literals import GemmaCalls, Syntax
from athena.formats.bodies.headed import CallHead, Headed, HeadedReader
from athena.formats.bodies.json_block import json_block_reader
from athena.formats.bodies.named import CallKeys, read_named_calls
from athena.formats.bodies.near_misses import NO_OBJECT, NO_PYTHON_CALL
from athena.formats.bodies.pythonic import read_python_calls
from athena.formats.bodies.tagged import TEXT, TaggedArguments, TagParameter, Tags
from athena.formats.declared.description import FormatDescription, TypeWords, holes, pieces
from athena.formats.declared.text import DescribedWriter
from athena.formats.machine.base import Format, Opener, Reader
from athena.formats.machine.recognizer import Recognizer, recognizer
from athena.formats.machine.scanner import LOOK_AHEAD, Cut, Declined, Lexer, Scanner, Steps
from athena.formats.machine.writer import CallWriter

_CONTROL = re.compile(r"<[|｜].*>|\[/?[A-Z][A-Z_]+\]", re.DOTALL)
_DEFAULT = CallKeys()
_STREAMS: dict[str, Literal["yes", "str", "value"]] = {
    "json": "yes",
    "headed": "yes",
    "tagged": "str",
    "elements": "value",
    "python": "value",
    "literals": "str",
}
WRAPPERS_AT_ONCE = 3
"""How many opening markers may follow one another before the first call: looking ahead is bounded."""


@lru_cache(maxsize=64)
def declared_format(description: FormatDescription) -> Format:
    """The format that a description declares; made once."""
    writer = DescribedWriter(description)
    openers = _openers(description)
    ends = (*pieces(description.call.end), *pieces(description.section.end))
    return Format(
        id=description.id,
        reserved=any(not opener.plain for opener in openers),
        in_reasoning=description.in_reasoning,
        thinking=description.thinking,
        answer=description.answer,
        openers=openers,
        closers=tuple(dict.fromkeys(ends)),
        turn_ends=description.turn_ends,
        streams=_STREAMS[description.call.body],
        new_id=_nine if description.ids == "nine" else synthesized_id,
        render_calls=writer.calls,
        render_results=writer.results,
        render_tools=writer.tools,
        inexpressible=writer.trouble,
    )


@lru_cache(maxsize=64)
def declared_recognizer(description: FormatDescription, others: bool) -> Recognizer:
    """What to look for: the declared format, with `others` also every format with unmistakable markers."""
    return Recognizer(declared_format(description), recognizer("auto").others if others else ())


def is_control(marker: str) -> bool:
    """Does a marker look like a token that no user can write?"""
    return _CONTROL.fullmatch(marker) is not None


def _nine(seed: str, number: int) -> str:
    return hashed(f"{seed}\0{number}", 9)


def _openers(description: FormatDescription) -> tuple[Opener, ...]:
    call = description.call
    begins = tuple(dict.fromkeys((*pieces(description.section.begin), *pieces(call.begin))))
    ends = tuple(dict.fromkeys((*pieces(call.end), *pieces(description.section.end))))
    match call.body:
        case "json":
            read: Reader = _JsonCalls(begins, ends, _fields(description))
            if not begins:
                heads = ("[", "{") if call.list else ("{",)
                return tuple(Opener(head, read, where="line", auto=False, plain=True, never=_NEVER[head]) for head in heads)
        case "python":
            read = _PythonCalls(begins, ends)
            if not begins:
                return (Opener("[", read, where="line", auto=False, plain=True, never=NO_PYTHON_CALL),)
        case "literals":
            read = _Wrapped(begins, GemmaCalls(Syntax(quote=call.quote.strip(), ends=ends, begins=begins)).read)
        case "headed":
            read = _headed(description)
        case "tagged" | "elements":
            read = _TaggedCalls(description)
    return tuple(Opener(marker, read, plain=not (description.reserved and is_control(begins[0]))) for marker in begins)


_NEVER = {"[": "", "{": NO_OBJECT}


# -- wrappers ------------------------------------------------------------------------------------------------------------------


def _skip_wrappers(scan: Scanner, begins: tuple[str, ...]) -> Steps[None]:
    """Further opening markers behind the first."""
    for _ in range(WRAPPERS_AT_ONCE):
        yield from scan.space()
        if not begins or not (yield from scan.found(*begins)):
            return


class _Wrapped:
    """A reader that may stand behind several opening markers."""

    def __init__(self, begins: tuple[str, ...], read: Reader) -> None:
        self._begins = begins
        self._read = read

    def __call__(self, scan: Scanner, calls: CallWriter, opener: str) -> Steps[None]:
        yield from _skip_wrappers(scan, self._begins)
        yield from self._read(scan, calls, opener)


# -- JSON ----------------------------------------------------------------------------------------------------------------------


def _fields(description: FormatDescription) -> CallKeys:
    keys = description.json
    marked = bool(pieces(description.section.begin) or pieces(description.call.begin))
    return CallKeys(
        name=tuple(dict.fromkeys((keys.name, *_DEFAULT.name))),
        arguments=tuple(dict.fromkeys((keys.arguments, *_DEFAULT.arguments))),
        id=tuple(dict.fromkeys((*((keys.id,) if keys.id else ()), *_DEFAULT.id))),
        wrappers=tuple(dict.fromkeys((*((keys.wrapper,) if keys.wrapper else ()), *_DEFAULT.wrappers))),
        name_is_key=keys.name_is_key,
        others=None if marked else ("type", "index"),
        needs_arguments=not marked,
    )


class _JsonCalls:
    def __init__(self, begins: tuple[str, ...], ends: tuple[str, ...], fields: CallKeys) -> None:
        self._begins = begins
        self._fields = fields
        self._block = json_block_reader(ends, begins, fields) if begins else None

    def __call__(self, scan: Scanner, calls: CallWriter, opener: str) -> Steps[None]:
        if self._block is None:
            # Without a marker the opener is the first bracket of the JSON itself.
            scan.put_back_taken(len(opener))
            if not (yield from read_named_calls(scan, calls, ("\n",), self._fields)):
                raise Declined
            return
        yield from _skip_wrappers(scan, self._begins)
        yield from self._block(scan, calls, opener)


# -- Python --------------------------------------------------------------------------------------------------------------------


class _PythonCalls:
    def __init__(self, begins: tuple[str, ...], ends: tuple[str, ...]) -> None:
        self._begins = begins
        self._ends = ends
        self._closers = Lexer((*ends, *begins))

    def __call__(self, scan: Scanner, calls: CallWriter, opener: str) -> Steps[None]:
        if self._begins:
            yield from _skip_wrappers(scan, self._begins)
            end = "]" if (yield from scan.found("[")) else ""
        else:
            end = "]"
        if not (yield from read_python_calls(scan, calls, end=end)):
            raise Declined
        if self._ends:
            yield from end_of_block(scan, calls, self._closers, self._ends)


# -- a head, then JSON ---------------------------------------------------------------------------------------------------------


def _head_pattern(head: str) -> re.Pattern[str]:
    """A head's form as a pattern of its trimmed text. An index takes any number; a name that appears twice is one name."""
    parts: list[str] = []
    seen: set[str] = set()
    for text, hole in holes(head.strip()):
        parts.append(re.escape(text))
        if hole == "index":
            parts.append("[0-9]{1,9}")
        elif hole in seen:
            parts.append(f"(?P={hole})")
        elif hole:
            seen.add(hole)
            parts.append(rf"(?P<{hole}>\S{{1,512}}?)")
    return re.compile("".join(parts))


def _head_reader(head: str) -> Callable[[str], CallHead | None]:
    pattern = _head_pattern(head)
    whole_is_id = "{index}" in head and "{id}" not in head

    def read(text: str) -> CallHead | None:
        found = pattern.fullmatch(text)
        if found is None:
            return None
        groups = found.groupdict()
        # A head with a counter is what its model knows the call by.
        return CallHead(groups["name"], groups.get("id") or (text if whole_is_id else ""))

    return read


def _headed(description: FormatDescription) -> Reader:
    call = description.call
    *outer, begin = pieces(call.begin)
    end, *outer_ends = pieces(call.end) or ("",)
    argument = call.arguments.strip()
    read_head = _head_reader(call.head)

    def head(text: str, calls: CallWriter) -> CallHead:
        found = read_head(text)
        if found is None and len(text.split()) > 1:
            raise Declined
        return found or CallHead(text)

    return HeadedReader(
        Headed(
            call_begin=(begin,),
            argument_begin=(argument,) if argument else (),
            call_end=(end,) if end else (),
            head=head,
            section_begin=(*pieces(description.section.begin), *outer),
            section_end=(*outer_ends, *pieces(description.section.end)),
        )
    )


# -- a head, then parameters in tags -------------------------------------------------------------------------------------------


class _TaggedCalls:
    """Sections of calls with a head and tagged parameters; openers are the wrappers and the marker of a call."""

    def __init__(self, description: FormatDescription) -> None:
        call = description.call
        form = description.parameter if call.body == "tagged" else None
        *outer, begin = pieces(call.begin)
        end, *outer_ends = pieces(call.end) or ("",)
        self._begin = begin
        self._sections = tuple(dict.fromkeys((*pieces(description.section.begin), *outer)))
        self._section_ends = tuple(dict.fromkeys((*outer_ends, *pieces(description.section.end))))
        self._gap = Lexer((begin, *self._section_ends, *self._sections))
        self._behind_head = call.arguments.strip()
        parameter = form.begin.strip() if form is not None else call.prefix.strip() + "<"
        ends = (*((end,) if end else ()), *self._section_ends)
        # Without a marker of its own a head ends with its line, or where the parameters begin.
        self._head_end = Lexer((self._behind_head,) if self._behind_head else ("\n", parameter, *ends))
        self._body = (parameter, *ends, "{")
        self._head = _head_reader(call.head)
        if form is None:
            prefix = call.prefix.strip()
            tag = end.removeprefix(prefix).strip()
            self._read_arguments: Callable[[Scanner, CallWriter], Steps[None]] = lambda scan, calls: read_elements(
                scan, calls, tag, prefix=prefix
            )
            return
        key_end, *value_begin = pieces(form.key_end)
        tag_end = form.key_end.strip() if form.types is not None else key_end
        self._read_arguments = TaggedArguments(
            Tags(
                parameter=(parameter,),
                parameter_end=(form.end.strip(),),
                call_end=(end,) if end else (),
                section_end=self._section_ends,
                next_call=(begin,),
                tag_end=tag_end,
                value_begin=tuple(value_begin) if form.types is None else (),
                newline=form.key_end.endswith("\n") and form.end.startswith("\n"),
                read_tag=_tag_reader(form.types, is_json=form.values == "json"),
                cdata=form.cdata,
            )
        ).read

    def __call__(self, scan: Scanner, calls: CallWriter, opener: str) -> Steps[None]:
        in_call = opener == self._begin
        first = True
        while in_call or (yield from self._next_call(scan, calls, first=first)):
            yield from self._one_call(scan, calls)
            in_call = first = False

    def _next_call(self, scan: Scanner, calls: CallWriter, *, first: bool) -> Steps[bool]:
        """Skip what stands between calls. False when the section is over."""
        wrappers = 0
        while True:
            try:
                text, marker = yield from scan.upto(self._gap, LOOK_AHEAD)
            except Declined:
                if first:
                    raise
                return False
            wrappers += marker in self._sections
            if (first and wrappers > WRAPPERS_AT_ONCE) or (text.strip() and (not marker or first)):
                raise Declined
            calls.noise(text)
            if marker:
                scan.take(len(marker))
            if not marker or marker in self._section_ends:
                if first and not calls.reserved:
                    raise Declined
                calls.settle()
                return False
            if marker == self._begin:
                return True

    def _one_call(self, scan: Scanner, calls: CallWriter) -> Steps[None]:
        yield from scan.space()
        text, marker = yield from scan.upto(self._head_end, LOOK_AHEAD * 4)
        if not marker:
            raise Cut if len(text.split()) <= 1 else Declined
        head = self._head(text.strip())
        if head is None or head.name is None:
            raise Declined
        if marker == self._behind_head:
            scan.take(len(marker))
        elif (yield from scan.follows(0, self._body, end=False)) is None:
            yield from scan.space()
            raise Cut if scan.ended() else Declined
        calls.open(head.name, head.id)
        yield from self._read_arguments(scan, calls)


def _tag_reader(types: TypeWords | None, *, is_json: bool) -> Callable[[str], TagParameter | None]:
    if types is None:
        return lambda text: TagParameter(text.strip(), is_json=is_json) if text.strip() else None
    before, string = types.before.strip(), types.string

    def read(text: str) -> TagParameter | None:
        key, _, word = text.partition(before)
        if not key.strip():
            return None
        is_text = word.strip() == string
        return TagParameter(key.strip(), TEXT if is_text else None, is_json=bool(word.strip()) and not is_text)

    return read
