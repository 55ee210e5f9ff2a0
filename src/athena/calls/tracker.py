"""`ToolCallTracker`: one place that knows the calls of an answer while they stream.

Upstreams name a running call by a key of their own (an index, an item id, a block number) and by a call id that may come late,
twice or never. The tracker keeps the two in separate tables, so call id "0" and index 0 never meet, holds arguments that arrive
before their call has a name, and refuses to complete a call whose arguments are not JSON.

>>> tracker = ToolCallTracker()
>>> tracker.start_call("call_1", "get_weather", provider_id=0).name
'get_weather'
>>> tracker.append_args(0, '{"city": ').arguments
'{"city": '
>>> tracker.append_args("call_1", '"Paris"}').call
0
>>> tracker.complete_call(0).arguments
'{"city": "Paris"}'
>>> [(call.id, call.name) for call in tracker.into_calls()]
[('call_1', 'get_weather')]
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Protocol

from athena.calls.ids import synthesized_id
from athena.errors import LimitExceeded
from athena.model.events import Error, Event, ToolCallComplete, ToolCallDelta, ToolCallStart
from athena.model.limits import DEFAULT_LIMITS, Limits
from athena.model.parts import CallKind, Opaque, ToolCall
from athena.wire.json_span import JsonSpan, is_json_object

_UNCOUNTED = 256 * 1024
"""Characters of arguments that may have been shown before `PlainArguments.passed` is told of them."""


class Mender(Protocol):
    """Puts the arguments of one call right as they stream (`formats.bodies.native_arguments`)."""

    @property
    def repairs(self) -> int:
        """How much was put right so far."""
        ...

    @property
    def held(self) -> str:
        """What was put right and waits for the end of the call."""
        ...

    @property
    def leaves(self) -> Callable[[str], object] | None:
        """Finds in a piece what makes `feed` necessary: one without comes out as it is. None: every piece has to be fed."""
        ...

    def feed(self, piece: str, name: str) -> str:
        """What of the arguments of this tool may be shown now."""
        ...

    def end(self, name: str) -> str:
        """The rest, where the call of this tool has ended."""
        ...


class _Call:
    """A call as far as it is known."""

    __slots__ = (
        "arguments", "choice", "complete", "failed", "id", "item_id", "kind", "mender", "name", "namespace", "number",
        "signature", "size", "span", "span_read", "started",
    )  # fmt: skip

    def __init__(self, number: int, choice: int) -> None:
        self.number = number
        self.id = ""
        self.name = ""
        self.choice = choice
        self.kind: CallKind = "function"
        self.namespace: str | None = None
        self.item_id: str | None = None
        self.signature: Opaque | None = None
        self.arguments: list[str] = []
        self.mender: Mender | None = None
        self.size = 0
        self.started = False
        self.complete = False
        """It has ended, well or not."""
        self.failed = False
        self.span = JsonSpan()
        self.span_read = 0


class PlainArguments:
    """Tells of further pieces of one call's arguments, by their text alone, whether nothing happens to them: they are inside
    of a string, or nobody puts anything right. What `passed` was told of counts as fed."""

    __slots__ = ("_call", "_leaves", "_most")

    def __init__(self, call: _Call, most: int) -> None:
        self._call = call
        self._leaves = call.mender.leaves if call.mender is not None else None
        self._most = most
        """Characters of arguments after which each piece has to be fed, because they may soon be too many."""

    def search(self, text: str) -> object | None:
        """Finds what makes a piece more than that; None: nothing."""
        if self._call.size > self._most:
            return text
        leaves = self._leaves
        return leaves(text) if leaves is not None else None

    def are_plain(self, pieces: Sequence[str]) -> bool:
        """Would `search` find nothing in any of these pieces?"""
        return all(self.search(piece) is None for piece in pieces)

    def passed(self, text: str) -> None:
        """This piece was shown as it is, or these pieces, joined."""
        self._call.size += len(text)
        self._call.arguments.append(text)


class ToolCallTracker:
    """Turns an upstream's pieces of calls into call events, in order of appearance.

    Every method takes the call's id or the upstream's own key of the call (an index, an item id), whichever is at hand.

    Args:
        new_id: Makes an id for a call that came without one, from the call's number; left out: a fixed pattern.
        limits: Bounds of the number of calls and of their arguments; crossing one raises `LimitExceeded`.
        mend: Makes what puts the arguments of one call right as they stream; left out: they stay as they are.

    Examples:
        >>> tracker = ToolCallTracker()
        >>> tracker.start_call("call_1", "get_time", provider_id=0).name
        'get_time'
        >>> tracker.append_args(0, '{"tz": "UTC"}').arguments
        '{"tz": "UTC"}'
        >>> tracker.complete_call(0).arguments
        '{"tz": "UTC"}'
    """

    def __init__(
        self,
        *,
        new_id: Callable[[int], str] | None = None,
        limits: Limits = DEFAULT_LIMITS,
        mend: Callable[[], Mender] | None = None,
    ) -> None:
        self._limits = limits
        self._mend = mend
        self._new_id = new_id or (lambda number: synthesized_id("", number))
        self._calls: list[_Call] = []
        self._by_id: dict[str, _Call] = {}
        self._by_provider: dict[Hashable, _Call] = {}
        self._early: dict[Hashable, list[str]] = {}
        self._early_size = 0
        self.warnings: list[str] = []
        """What was odd about the calls and could be repaired: missing or repeated ids, arguments after the end."""

    def start_call(
        self,
        call_id: str | None,
        name: str | None,
        provider_id: Hashable = None,
        *,
        choice: int = 0,
        kind: CallKind = "function",
        namespace: str | None = None,
        signature: Opaque | None = None,
        item_id: str | None = None,
    ) -> ToolCallStart | None:
        """Register a call, or add what was missing of it. The event comes once, when the name is known.

        A repeated start keeps the arguments. Arguments that came before the name are in the event's `arguments`.

        Args:
            call_id: The call's id; None when it is not known yet, empty when it will never come.
            name: The tool; None when it is not known yet.
            provider_id: The upstream's own key of the call, by which its later pieces are named.
            choice: Which of several answers the call belongs to.
            kind: `custom` for arguments that are free text.
            namespace: The group of tools it belongs to, where the dialect has such.
            signature: Reasoning state that belongs to the call.
            item_id: The upstream's id of the item, beside the call's own.

        Raises:
            LimitExceeded: There are too many calls.
        """
        call = self._find(call_id, provider_id)
        if call is None:
            if len(self._calls) >= self._limits.calls:
                raise LimitExceeded(f"more than {self._limits.calls} tool calls in one answer", code="too_many_calls")
            call = _Call(len(self._calls), choice)
            self._calls.append(call)
            early = self._early.pop(provider_id, []) or self._early.pop(call_id, [])
            call.size = sum(map(len, early))
            self._early_size -= call.size
            call.mender = self._mend() if self._mend is not None and kind == "function" else None
            call.arguments = early if call.mender is None else [call.mender.feed(piece, name or "") for piece in early]
        if provider_id is not None:
            self._by_provider[provider_id] = call
        if call_id and not call.id:
            self._take_id(call, call_id)
        if name and not call.name:
            call.name = name
        call.kind = kind if kind != "function" else call.kind
        call.namespace = call.namespace or namespace
        call.signature = call.signature or signature
        call.item_id = call.item_id or item_id
        if call.started or not call.name:
            return None
        if not call.id and (call_id is not None or call.arguments):
            # The id is late or will never come: a call whose arguments already run cannot wait for it.
            self._name_it(call)
        if not call.id:
            return None
        return self._begin(call)

    def append_args(self, id: Hashable, delta: str) -> ToolCallDelta | None:  # noqa: A002 - the name of the source system
        """Add a piece of arguments, `delta`; `id` is the call's id or the upstream's key. None when it cannot be shown (yet).

        Raises `LimitExceeded` when the arguments grow too large.
        """
        call = self._by_provider.get(id)
        if call is None and isinstance(id, str):
            call = self._by_id.get(id)
        if call is None:
            self._early_size += len(delta)
            if self._early_size > self._limits.argument_chars:
                raise LimitExceeded("too many arguments without a call", code="arguments_too_large")
            self._early.setdefault(id, []).append(delta)
            return None
        if call.complete:
            if delta.strip():
                self.warnings.append(f"arguments after the end of call {call.id or call.name}")
            return None
        call.size += len(delta)
        if call.size > self._limits.argument_chars:
            raise LimitExceeded(
                f"arguments of one call are longer than {self._limits.argument_chars} characters",
                code="arguments_too_large",
            )
        if call.mender is not None:
            delta = call.mender.feed(delta, call.name)
        call.arguments.append(delta)
        return ToolCallDelta(call.number, delta, call.choice) if call.started else None

    def complete_call(self, id: Hashable) -> ToolCallComplete | Error | None:  # noqa: A002
        """End the call `id`. Arguments that are not a JSON object give an `Error` for that call; a second end gives None."""
        call = self._by_provider.get(id)
        if call is None and isinstance(id, str):
            call = self._by_id.get(id)
        if call is None:
            self.warnings.append(f"end of unknown call {id!r}")
            return None
        return self._end(call)

    def contains(self, id: Hashable) -> bool:  # noqa: A002
        """Is `id` the id or the upstream's key of a known call?"""
        return id in self._by_provider or id in self._by_id

    def into_calls(self) -> list[ToolCall]:
        """All calls that ended well, in order of appearance."""
        return [
            ToolCall(
                id=call.id,
                name=call.name,
                arguments=_text(call),
                kind=call.kind,
                namespace=call.namespace,
                item_id=call.item_id,
                signature=call.signature,
            )
            for call in self._calls
            if call.complete and not call.failed
        ]

    def __len__(self) -> int:
        return len(self._calls)

    def len(self) -> int:
        """How many calls are known."""
        return len(self._calls)

    def is_empty(self) -> bool:
        """Whether no call has started yet."""
        return not self._calls

    # -- for decoders: the same steps, written to a list of events ---------------------------------------------------------

    def open(self, out: list[Event], event: ToolCallStart | None) -> None:
        """Write the start `event` to `out`; what arrived before it follows as a delta of its own."""
        if event is None:
            return
        if event.arguments:
            out.append(ToolCallStart(
                event.call, event.id, event.name, event.choice, event.kind, event.namespace, event.signature, event.item_id
            ))  # fmt: skip
            out.append(ToolCallDelta(event.call, event.arguments, event.choice))
        else:
            out.append(event)

    def append(self, out: list[Event], id: Hashable, delta: str) -> None:  # noqa: A002
        """Write `delta` of the call `id` to `out`, and its start when only its id was missing."""
        call = self._by_provider.get(id)
        if call is not None and not call.started and call.name and delta:
            self._name_it(call)
            self.open(out, self._begin(call))
        event = self.append_args(id, delta)
        if event is not None and event.arguments:
            out.append(event)

    def close_finished(self, out: list[Event], *, but: Hashable = None) -> None:
        """End, in `out`, every open call, `but` one, whose arguments are a complete value: another part has begun."""
        keep = self._by_provider.get(but) if but is not None else None
        for call in self._calls:
            if not call.complete and call.started and call is not keep and _is_whole(call):
                self._write_end(out, call)

    def close_all(self, out: list[Event], *, cut: bool) -> None:
        """End, in `out`, every open call: well if its arguments are whole, else as an error of that call.

        An error that ends the answer is the last thing said. `cut` says that the upstream stopped for length: a cut call is
        then expected and its error not fatal.
        """
        for call in self._calls:
            if call.complete:
                continue
            if not call.started:
                if not call.name:
                    out.append(_fail(call, "a tool call without a name", "unnamed_call", fatal=not cut))
                    if not cut:
                        return
                    continue
                self._name_it(call)
                self.open(out, self._begin(call))
            if cut and (call.kind == "custom" or not is_json_object("".join(call.arguments) + _held(call))):
                # A call cut before its first argument is cut too: that it was to have none is not known.
                out.append(_fail(call, f"the arguments of {call.name} are cut", "truncated_call", fatal=False))
                continue
            self._write_end(out, call)
            if out and isinstance(last := out[-1], Error) and last.fatal:
                return

    def write_complete(self, out: list[Event], id: Hashable) -> None:  # noqa: A002
        """Write the end of the call `id` to `out`, for upstreams that say when a call ends."""
        call = self._by_provider.get(id)
        if call is None and isinstance(id, str):
            call = self._by_id.get(id)
        if call is None or call.complete:
            return
        if not call.started:
            if not call.name:
                return
            self._name_it(call)
            self.open(out, self._begin(call))
        self._write_end(out, call)

    # -- inside --------------------------------------------------------------------------------------------------------------

    def _find(self, call_id: str | None, provider_id: Hashable) -> _Call | None:
        if provider_id is not None:
            # Two upstream keys with one call id are two calls: some servers repeat ids.
            return self._by_provider.get(provider_id)
        return self._by_id.get(call_id) if call_id else None

    def _name_it(self, call: _Call) -> None:
        if not call.id:
            call.id = self._new_id(call.number)
            self._by_id.setdefault(call.id, call)
            self.warnings.append(f"call {call.name} came without an id")

    def _take_id(self, call: _Call, call_id: str) -> None:
        if call_id in self._by_id:
            # Results are paired by id: two calls with one id could not be told apart on the way back.
            self.warnings.append(f"second call with id {call_id}")
            call.id = self._new_id(call.number)
            self._by_id.setdefault(call.id, call)
        else:
            call.id = call_id
            self._by_id[call_id] = call

    def _begin(self, call: _Call) -> ToolCallStart:
        call.started = True
        return ToolCallStart(
            call=call.number,
            id=call.id,
            name=call.name,
            choice=call.choice,
            kind=call.kind,
            namespace=call.namespace,
            signature=call.signature,
            item_id=call.item_id,
            arguments="".join(call.arguments),
        )

    def _end(self, call: _Call) -> ToolCallComplete | Error | None:
        if call.complete:
            return None
        if not call.name:
            return _fail(call, "a tool call without a name", "unnamed_call", fatal=True)
        self._name_it(call)
        if call.mender is not None and call.kind == "function":
            call.arguments.append(call.mender.end(call.name))
        arguments = _text(call)
        if call.kind == "function" and not is_json_object(arguments):
            return _fail(call, f"the arguments of {call.name} are not a JSON object", "malformed_call", fatal=True)
        call.complete = True
        return ToolCallComplete(
            call=call.number,
            id=call.id,
            name=call.name,
            arguments=arguments,
            choice=call.choice,
            kind=call.kind,
            namespace=call.namespace,
            signature=call.signature,
            item_id=call.item_id,
            repaired=call.mender is not None and call.mender.repairs > 0,
        )

    def _write_end(self, out: list[Event], call: _Call) -> None:
        before = len(call.arguments)
        event = self._end(call)
        rest = "".join(call.arguments[before:])
        if isinstance(event, ToolCallComplete) and event.arguments and not "".join(call.arguments).strip():
            out.append(ToolCallDelta(call.number, event.arguments, call.choice))
        elif rest and event is not None:
            out.append(ToolCallDelta(call.number, rest, call.choice))
        if event is not None:
            out.append(event)


def plain_arguments(tracker: ToolCallTracker, provider_id: Hashable) -> PlainArguments | None:
    """What tells of further pieces of a call, by the upstream's key, whether they come out as they are, until the next piece of
    it that is appended; None: every piece has to be."""
    call = tracker._by_provider.get(provider_id)
    if call is None or call.complete or not call.started or call.kind != "function":
        return None
    if call.mender is not None and call.mender.leaves is None:
        return None
    return PlainArguments(call, tracker._limits.argument_chars - _UNCOUNTED)


def _text(call: _Call) -> str:
    """The arguments so far; none at all means an empty object."""
    arguments = "".join(call.arguments)
    if call.kind == "function" and arguments.strip() in ("", "null"):
        return "{}"
    return arguments


def _held(call: _Call) -> str:
    """Arguments that wait for the end of the call."""
    return call.mender.held if call.mender is not None else ""


def _is_whole(call: _Call) -> bool:
    if call.kind != "function":
        return False
    if held := _held(call):
        return held.rstrip().endswith("}") and is_json_object(held)
    pieces = call.arguments
    while call.span_read < len(pieces):
        call.span.feed(pieces[call.span_read])
        call.span_read += 1
    return call.span.closed


def _fail(call: _Call, message: str, code: str, *, fatal: bool) -> Error:
    """End a call badly. A call whose start was not shown has no number to name."""
    call.complete = call.failed = True
    return Error(
        message=message, kind="upstream", code=code, fatal=fatal, call=call.number if call.started else None,
        choice=call.choice, raw="".join(call.arguments)[:2000],
    )  # fmt: skip
