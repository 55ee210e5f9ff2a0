"""JSON that may be calls: `{"name": ..., "parameters": {...}}`, an array of such, and the wrappers models know from elsewhere.

The rules are tight, because answers are made of JSON too: a name the request declared, one key
for the parameters, and no key besides that calls do not have. The first thing that does not fit makes all of it text. One bad
item rejects its array. Arguments keep the model's own spelling.
"""

from __future__ import annotations

import msgspec

from athena.formats.bodies.arguments import decoded_arguments, pump
from athena.formats.bodies.json_text import JsonPipe
from athena.formats.machine.policies import RepairLevel
from athena.formats.machine.repair import coerced
from athena.formats.machine.scanner import Cut, Declined, Scanner, Steps
from athena.formats.machine.value_types import ToolBook
from athena.prompted.readers import PromptedCall
from athena.wire.json_span import is_json_object

_PARAMETERS = frozenset({"parameters", "arguments"})
_OTHERS = frozenset({"id", "type", "index"})
_NAME_LIMIT = 512
"""Longer names are never tool names."""


class Unusable(Declined):
    """Meant as a call, since it names a declared tool, but unusable."""


class _Draft:
    __slots__ = ("arguments", "name", "repaired", "whole")

    def __init__(self) -> None:
        self.name = ""
        self.arguments: str | None = None
        self.repaired = False
        self.whole = False
        """Nothing is missing but closing brackets."""


class CandidateReader:
    """Reads calls where a bracket stands. One per attempt; `calls` is what is complete so far."""

    def __init__(self, scan: Scanner, book: ToolBook, *, repair: RepairLevel = "syntax", depth_limit: int = 512) -> None:
        self._scan = scan
        self._book = book
        self._repair: RepairLevel = repair
        self._depth_limit = depth_limit
        self.calls: list[PromptedCall] = []
        self.array = False
        self._draft: _Draft | None = None
        self._loose = False

    def read(self) -> Steps[None]:
        """One object or array of calls. Declined: it is none. Cut: the text ended inside it."""
        head = yield from self._scan.peek(1)
        if head == "[":
            self.array = True
            yield from self._items()
        else:
            yield from self._object()
        if not self.calls:
            raise Declined

    def salvage(self) -> bool:
        """The text ended inside: is nothing missing but closing brackets? Then the calls are whole."""
        draft, self._draft = self._draft, None
        if draft is not None:
            if not draft.whole:
                return False
            try:
                self._finish(draft)
            except Declined:
                return False
        elif self._loose:
            # An array that goes on after a comma was cut.
            return False
        self.calls = [msgspec.structs.replace(call, repaired=True) for call in self.calls]
        return bool(self.calls)

    def adopt(self, other: CandidateReader) -> None:
        """Go on where another reader of the same text stood."""
        self.calls, self._draft, self._loose, self.array = other.calls, other._draft, other._loose, other.array

    @property
    def names_a_tool(self) -> bool:
        """Was a declared tool named so far?"""
        return bool(self.calls) or (self._draft is not None and bool(self._draft.name))

    # -- inside --------------------------------------------------------------------------------------------------------------

    def _items(self) -> Steps[None]:
        scan = self._scan
        scan.take(1)
        self._loose = True
        while True:
            yield from scan.space()
            head = yield from scan.peek(1)
            if head == "]" and (not self._loose or (self.calls and self._repair != "off")):
                scan.take(1)
                return
            if head == "{" and self._loose:
                yield from self._object()
                self._loose = False
            elif head == "," and not self._loose:
                scan.take(1)
                self._loose = True
            elif not head:
                raise Cut
            else:
                self._refuse("the array of calls is not valid JSON")

    def _object(self) -> Steps[None]:
        draft = self._draft = _Draft()
        yield from self._fields(draft)
        if self._draft is not None:
            self._draft = None
            self._finish(draft)

    def _finish(self, draft: _Draft) -> None:
        """The object ended: is it a call?"""
        if not draft.name:
            raise Declined
        arguments = draft.arguments
        if arguments is None:
            # Only a name: a call where nothing else is needed.
            schema = self._book.schema(draft.name) or {}
            if schema.get("required"):
                raise Declined
            arguments = "{}"
        text = decoded_arguments(arguments, lenient=True)
        if text is None or not is_json_object(text):
            raise Unusable(f"the parameters of {draft.name} are not a JSON object")
        repaired = draft.repaired
        if self._repair == "schema" and (better := coerced(text, self._book, draft.name)) is not None:
            text, repaired = better, True
        self.calls.append(PromptedCall(draft.name, text, repaired))

    def _fields(self, draft: _Draft) -> Steps[None]:
        """The fields of one object, to its closing brace."""
        scan = self._scan
        scan.take(1)
        first, comma = True, False
        while True:
            yield from scan.space()
            head = yield from scan.peek(1)
            if head == "}" and not first and (not comma or self._repair != "off"):
                draft.repaired = draft.repaired or comma
                scan.take(1)
                return
            if head == "," and not first and not comma:
                scan.take(1)
                comma, draft.whole = True, False
                continue
            if not head:
                raise Cut
            if not (first or comma):
                self._refuse("a call is not valid JSON")
            first, comma = False, False
            yield from self._field(draft)
            if self._draft is None:
                return

    def _field(self, draft: _Draft) -> Steps[None]:
        scan = self._scan
        key = yield from self._string()
        yield from scan.space()
        if not (yield from scan.found(":")):
            if scan.ended():
                raise Cut
            self._refuse("a call is not valid JSON")
        yield from scan.space()
        head = yield from scan.peek(1)
        if not head:
            raise Cut
        if key == "name":
            if draft.name:
                self._refuse("a call has two names")
            name = self._book.resolve((yield from self._string()))
            if not self._book.admits(name):
                raise Declined
            draft.name = name
            draft.whole = draft.arguments is not None
        elif key in _PARAMETERS:
            if draft.arguments is not None:
                self._refuse("a call has its parameters twice")
            draft.arguments = yield from self._value(draft)
            draft.whole = bool(draft.name)
        elif key == "function" and head == "{":
            if draft.name:
                self._refuse("a call has two names")
            yield from self._fields(draft)
        elif key == "tool_calls" and head == "[" and not draft.name:
            yield from self._wrapped(draft)
        elif key in _OTHERS:
            yield from self._value(draft)
            draft.whole = bool(draft.name) and draft.arguments is not None
        else:
            self._refuse(f"a call has a field {key[:40]!r} that calls do not have")

    def _wrapped(self, draft: _Draft) -> Steps[None]:
        """`{"tool_calls": [...]}`: nothing else may stand in the object."""
        if self.array:
            raise Declined
        self.array = True
        self._draft = None
        yield from self._items()
        yield from self._scan.space()
        if not (yield from self._scan.found("}")):
            if self._scan.ended():
                raise Cut
            self._refuse("the list of calls is not alone")

    def _string(self) -> Steps[str]:
        text = yield from self._json(_NAME_LIMIT)
        try:
            return msgspec.json.decode(text, type=str)
        except (msgspec.DecodeError, msgspec.ValidationError, UnicodeEncodeError):
            raise Declined from None

    def _value(self, draft: _Draft) -> Steps[str]:
        pipe = JsonPipe(lenient=self._repair != "off", depth_limit=self._depth_limit)
        pieces: list[str] = []
        yield from pump(self._scan, pipe, pieces.append)
        if not pipe.done:
            self._refuse("the parameters are nested too deep" if pipe.too_deep else "the parameters are not valid JSON")
        draft.repaired = draft.repaired or pipe.repairs > 0
        return "".join(pieces)

    def _json(self, limit: int) -> Steps[str]:
        """A short string: a key or a name."""
        scan = self._scan
        head = yield from scan.peek(1)
        if head != '"' and not (head == "'" and self._repair != "off"):
            raise Declined
        pipe = JsonPipe(lenient=self._repair != "off", depth_limit=1)
        pieces: list[str] = []
        while True:
            # Only the first `limit` characters decide, however they arrive.
            ahead = scan.text[scan.at : scan.at + limit]
            stop = pipe.feed(ahead, 0, scan.final and len(ahead) < limit, pieces)
            scan.take(stop)
            if pipe.done:
                return "".join(pieces)
            if pipe.stuck or len(ahead) >= limit:
                raise Declined
            if scan.final:
                raise Cut
            limit -= stop
            yield

    def _refuse(self, reason: str) -> None:
        raise Unusable(reason) if self.names_a_tool else Declined
