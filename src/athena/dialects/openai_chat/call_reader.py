"""Calls in answers of Chat servers, however they are cut.

An entry of `tool_calls` may lack its index, id or name, repeat them, or come whole; the older `function_call` has neither index
nor id. This file decides which call a piece belongs to; `ToolCallTracker` does the rest.

Wire facts: docs/reference/wire-facts.md#reading-chat-streams.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import NamedTuple

import msgspec

from athena.calls.tracker import PlainArguments, ToolCallTracker, plain_arguments
from athena.dialects.base import DecodeContext
from athena.dialects.openai_chat.reasoning import ReasoningReader, call_signature
from athena.dialects.openai_chat.wire import CallEntry, FunctionEntry, arguments_of
from athena.errors import LimitExceeded
from athena.model.events import Error, Event, ToolCallComplete
from athena.model.parts import CallKind, Opaque
from athena.wire.json_span import JsonSpan


class _Piece(NamedTuple):
    """What one record says of one call."""

    key: Hashable
    choice: int
    call_id: str | None
    name: str | None
    kind: CallKind
    signature: Opaque | None
    arguments: str


class ChoiceCalls(msgspec.Struct, eq=False):
    """The calls of one choice: which of the upstream's keys means which call."""

    index: int
    active: bool = False
    """The last thing said was a piece of a call."""
    last: Hashable = None
    keys: dict[int, Hashable] = {}
    ids: dict[Hashable, str] = {}
    names: dict[Hashable, str] = {}
    """Names that may still grow."""
    made: int = 0
    legacy: Hashable = None
    legacy_name: str = ""
    legacy_span: JsonSpan | None = None
    """Follows the arguments of the call `legacy`."""

    def fresh_key(self) -> Hashable:
        """A key no server can send."""
        self.made += 1
        return (self.index, "made", self.made)


class CallReader:
    """The calls of all choices of one answer."""

    def __init__(self, context: DecodeContext, *, whole: bool, new_id: Callable[[int], str]) -> None:
        self._tracker = ToolCallTracker(new_id=new_id, limits=context.limits, mend=context.mend)
        self._whole = whole
        self._fragments = context.profile.name_fragments and not whole
        self._limits = context.limits
        self._begun: set[Hashable] = set()
        self._named: set[Hashable] = set()
        self._waiting: Hashable = None
        """A call that has appeared and not begun: its name or id is missing."""
        self._held: list[_Piece] = []
        """Pieces of later calls, until it has."""
        self._held_chars = 0
        self.called: set[int] = set()
        """Choices with a call that is whole."""
        self.failed = False

    def read(self, calls: ChoiceCalls, entries: list[CallEntry], reasoning: ReasoningReader, out: list[Event]) -> None:
        for position, entry in enumerate(entries):
            function, custom = entry.function, entry.custom
            call_id = entry.id if isinstance(entry.id, str) and entry.id else None
            name = function.name if function is not None else custom.name if custom is not None else None
            key = (calls.index, "whole", position) if self._whole else self._key(calls, entry.index, call_id, name)
            self._turn_to(calls, key, out)
            if self.failed:
                return
            signature = call_signature(entry.extra_content)
            if call_id is not None:
                calls.ids.setdefault(key, call_id)
                signature = signature or reasoning.signature_of(call_id)
            if function is not None:
                arguments = arguments_of(function.arguments)
            else:
                arguments = (custom.input or "") if custom is not None else ""
            if self._fragments or (type(entry.index) is int and not self._whole):
                name = self._grown_name(calls, key, name, arguments)
            kind: CallKind = "custom" if custom is not None else "function"
            self._take(_Piece(key, calls.index, call_id, name, kind, signature, arguments), out)

    def read_function(self, calls: ChoiceCalls, function: FunctionEntry, out: list[Event]) -> None:
        """A piece of the older form: one call at a time, no id; a new one begins with a new name."""
        arguments = arguments_of(function.arguments)
        if calls.legacy is None or (function.name and self._names_another(calls, function.name)):
            if not function.name and not arguments:
                return
            calls.legacy, calls.legacy_name, calls.legacy_span = calls.fresh_key(), "", JsonSpan()
        key, name = calls.legacy, function.name
        self._turn_to(calls, key, out)
        if self.failed:
            return
        calls.legacy_name = name or calls.legacy_name
        if self._fragments:
            name = self._grown_name(calls, key, name, arguments)
        if arguments and calls.legacy_span is not None:
            calls.legacy_span.feed(arguments)
        self._take(_Piece(key, calls.index, "" if name else None, name, "function", None, arguments), out)

    def going_on(self, calls: ChoiceCalls) -> tuple[int, Hashable] | None:
        """The index and the key of the call whose arguments are coming in, where a piece under this index that has neither id
        nor name changes nothing but the arguments."""
        key = calls.last
        if not calls.active or self._waiting is not None or calls.names or key not in self._begun:
            return None
        return next(((index, key) for index, known in calls.keys.items() if known == key), None)

    def more(self, key: Hashable, arguments: str, out: list[Event]) -> None:
        """Such a piece."""
        if arguments:
            self._tracker.append(out, key, arguments)

    def plain_arguments(self, key: Hashable) -> PlainArguments | None:
        """What watches further pieces of a call; None: each has to be read."""
        return plain_arguments(self._tracker, key)

    def leave(self, calls: ChoiceCalls, out: list[Event]) -> None:
        """Something else begins: calls that are whole are whole."""
        calls.active = False
        self._take_complete_names(calls, out)
        self._wait_no_more(out)
        self._close_finished(out)

    def close(self, choices: list[ChoiceCalls], out: list[Event], *, cut: bool) -> None:
        for calls in choices:
            self._take_complete_names(calls, out)
        self._wait_no_more(out)
        start = len(out)
        self._tracker.close_all(out, cut=cut)
        self._note_ends(out, start)

    # -- which call ----------------------------------------------------------------------------------------------------------

    def _key(self, calls: ChoiceCalls, index: object, call_id: str | None, name: str | None) -> Hashable:
        """By index, else by id, else a name begins the next call, else the last one goes on.

        An index that comes back with another id and a name is a new call: some servers number every call 0.
        """
        if type(index) is int:
            key = calls.keys.get(index)
            if key is None:
                key = calls.keys[index] = (calls.index, index)
            elif call_id is not None and name and calls.ids.get(key, call_id) != call_id:
                key = calls.keys[index] = calls.fresh_key()
            return key
        if call_id is not None:
            for key, known in calls.ids.items():
                if known == call_id:
                    return key
            if calls.last is None or calls.last in calls.ids or name:
                return calls.fresh_key()
            return calls.last
        if calls.last is None or (name and not (self._fragments and calls.last in calls.names)):
            return calls.fresh_key()
        return calls.last

    def _names_another(self, calls: ChoiceCalls, name: str) -> bool:
        span = calls.legacy_span
        if span is not None and span.closed:
            return True
        if self._fragments:
            # More of the name, unless arguments have begun.
            return span is not None and span.started
        return calls.legacy_name != name

    def _turn_to(self, calls: ChoiceCalls, key: Hashable, out: list[Event]) -> None:
        """A piece of the call `key` follows: every other call that is whole has ended."""
        if key != calls.last or not calls.active:
            self._take_complete_names(calls, out, but=key)
            self._close_finished(out, but=key)
        calls.last, calls.active = key, True

    # -- in order of appearance ------------------------------------------------------------------------------------------------

    def _take(self, piece: _Piece, out: list[Event]) -> None:
        """Write a piece, unless an earlier call still waits for its name or id: calls begin in order of appearance."""
        if self._waiting is not None and piece.key != self._waiting:
            self._held_chars += len(piece.arguments)
            if self._held_chars > self._limits.argument_chars:
                raise LimitExceeded("too many arguments for a call without a name", code="arguments_too_large")
            self._held.append(piece)
        elif self._write(piece, out):
            self._waiting = None
            self._replay(out)
        else:
            self._waiting = piece.key

    def _write(self, piece: _Piece, out: list[Event]) -> bool:
        """True when the call has begun."""
        key = piece.key
        if piece.name or piece.call_id is not None or piece.signature is not None:
            started = self._tracker.start_call(
                piece.call_id, piece.name, key, choice=piece.choice, kind=piece.kind, signature=piece.signature
            )
            self._tracker.open(out, started)
            if piece.name:
                self._named.add(key)
            if started is not None:
                self._begun.add(key)
        if piece.arguments:
            self._tracker.append(out, key, piece.arguments)
            if key in self._named:
                self._begun.add(key)
        return key in self._begun

    def _replay(self, out: list[Event]) -> None:
        held, self._held, self._held_chars = self._held, [], 0
        for piece in held:
            self._take(piece, out)

    def _wait_no_more(self, out: list[Event]) -> None:
        """What is missing will not come: a named call begins with an id of ours, one without a name is passed over."""
        while self._waiting is not None:
            key, self._waiting = self._waiting, None
            if key in self._named:
                self._tracker.open(out, self._tracker.start_call("", None, key))
            self._begun.add(key)
            self._replay(out)

    # -- names in pieces -----------------------------------------------------------------------------------------------------

    def _grown_name(self, calls: ChoiceCalls, key: Hashable, name: str | None, arguments: str) -> str | None:
        """The name, once arguments show that it is complete."""
        if name and key not in self._begun:
            held = calls.names.get(key, "")
            if self._fragments or not name.startswith(held):
                # Unless a server is known for it, the same name again is no second half of it, nor a longer one a third.
                name = held + name
            calls.names[key] = name
        return calls.names.pop(key, None) if arguments else None

    def _take_complete_names(self, calls: ChoiceCalls, out: list[Event], but: Hashable = None) -> None:
        """Names that are complete because something else began."""
        for key in [key for key in calls.names if key != but]:
            name = calls.names.pop(key)
            self._take(_Piece(key, calls.index, calls.ids.get(key), name, "function", None, ""), out)

    # -- ends ----------------------------------------------------------------------------------------------------------------

    def _close_finished(self, out: list[Event], but: Hashable = None) -> None:
        start = len(out)
        self._tracker.close_finished(out, but=but)
        self._note_ends(out, start)

    def _note_ends(self, out: list[Event], start: int) -> None:
        """Calls that ended since `start`. One that cannot be used ends the answer; nothing may follow it."""
        for position in range(start, len(out)):
            event = out[position]
            if type(event) is ToolCallComplete:
                self.called.add(event.choice)
            elif type(event) is Error and event.fatal:
                del out[position + 1 :]
                self.failed = True
                return
