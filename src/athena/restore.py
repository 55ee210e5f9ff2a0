"""Answers in the client's own terms: the mirror of `prepare`, on events.

Tool names come back as the client wrote them, free-form tools as free text, call ids in a form the client's dialect takes and
unique within the conversation. Reasoning state of another family is sealed for the client's opaque slot and remembered for
clients that will drop it, and so is the text of reasoning that the model wants back with its calls. Stop sequences the upstream
does not know are matched here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec

from athena.calls.ids import fitting_id, hashed
from athena.calls.names import NameMap
from athena.model.events import (
    Done,
    Error,
    Event,
    Extra,
    Finish,
    KeepAlive,
    PlainPiece,
    Start,
    TextDelta,
    ThinkingDelta,
    ToolCallComplete,
    ToolCallDelta,
    ToolCallStart,
    WholePart,
)
from athena.model.parts import Opaque, Thinking, ToolCall
from athena.model.profile import IdStyle
from athena.model.request import Turn
from athena.opaque import Envelope, Memory, OpaqueStore
from athena.prepare.tools import INPUT_KEY, CustomTools

UNSIGNED = Opaque(family="", kind="signature", payload="")
"""Stands for "unsigned": a client that replays thinking only with a signature gets this one, sealed."""


class Restore(msgspec.Struct, eq=False, kw_only=True):
    """One per exchange. Feed the upstream's events, get the client's."""

    names: NameMap | None = None
    custom: CustomTools | None = None
    stops: tuple[str, ...] = ()
    id_style: IdStyle = "any"
    native_families: tuple[str, ...] | None = ()
    signs_calls: bool = True
    custom_calls: bool = True
    sign_thinking: bool = False
    envelope: Envelope | None = None
    store: OpaqueStore | None = None
    tenant: str = ""
    seed: str = ""
    native_ends: bool = True
    """The client knows every ending of the upstream's dialect."""
    history: tuple[Turn, ...] = ()
    keeps_text: bool = False
    """The model wants the text of its reasoning back, signed or not."""

    stopped: bool = False
    """A stop sequence was found: the upstream has nothing more to say."""
    _used: frozenset[str] | None = None
    _ids: dict[int, str] = {}
    _taken: set[str] = set()
    _rewritten: set[int] = set()
    _unsigned: set[int] = set()
    _thoughts: dict[int, list[Thinking]] = {}
    _texts: dict[int, list[str]] = {}
    _matchers: dict[int, StopMatcher] = {}

    @property
    def lets_text_pass(self) -> bool:
        """Does text need no look right now? Nothing waits for it and nothing is searched in it."""
        return not (self.stops or self._unsigned)

    @property
    def idle(self) -> bool:
        """Would every answer pass unchanged, as far as is known before it comes?"""
        return not self.names and not self._custom_names and not self.stops

    @property
    def _custom_names(self) -> frozenset[str]:
        return self.custom.names if self.custom is not None else frozenset()

    def feed(self, events: list[Event]) -> list[Event]:
        """The events in the client's terms."""
        if _CHANGED.isdisjoint(map(type, events)) and not (self.stops or self._unsigned or self.stopped):
            return events
        out: list[Event] = []
        steps = _STEPS_WITH_STOPS if self.stops else _STEPS
        for event in events:
            if self.stopped:
                break
            if self._unsigned and type(event) is not ThinkingDelta:
                self._sign(out)
            step = steps[type(event)]
            if step is None:
                out.append(event)
            else:
                step(self, event, out)
        return out

    # -- thinking ----------------------------------------------------------------------------------------------------------

    def _thinking(self, event: ThinkingDelta, out: list[Event]) -> None:
        if self.store is not None:
            self._texts.setdefault(event.choice, []).append(event.text)
        if event.signature is not None:
            self._unsigned.discard(event.choice)
            self._remember_thought(event.choice, event.signature)
            sealed = self._sealed(event.signature)
            if sealed is not event.signature:
                if sealed is None and not event.text:
                    return
                event = msgspec.structs.replace(event, signature=sealed)
        elif self.sign_thinking and self.envelope is not None and event.text:
            self._unsigned.add(event.choice)
        out.append(event)

    def _sign(self, out: list[Event]) -> None:
        for choice in sorted(self._unsigned):
            out.append(ThinkingDelta(choice=choice, signature=self._sealed(UNSIGNED)))
        self._unsigned.clear()

    def _sealed(self, state: Opaque) -> Opaque | None:
        if self.native_families is None or (state.family and state.family in self.native_families):
            return state
        if self.envelope is None:
            return None
        return Opaque(family=state.family, kind=state.kind, payload=self.envelope.seal(state))

    def _remember_thought(self, choice: int, state: Opaque) -> None:
        if self.store is not None:
            text = "".join(self._texts.pop(choice, ()))
            self._thoughts.setdefault(choice, []).append(Thinking(text=text, signature=state))

    def passes(self, event: PlainPiece) -> bool:
        """Would further pieces like this event, the last that was fed, come out as they are?"""
        if type(event) is ToolCallDelta:
            return event.call not in self._rewritten and not (self._unsigned or self.stopped)
        return self.lets_text_pass if type(event) is TextDelta else not self.stopped

    def thinking_note(self, choice: int) -> Callable[[str], None] | None:
        """What is to be told of further pieces of thinking that passed by; None: nothing."""
        return self._texts.setdefault(choice, []).append if self.store is not None else None

    # -- calls -------------------------------------------------------------------------------------------------------------

    def _start(self, event: ToolCallStart, out: list[Event]) -> None:
        call_id = self._client_id(event.call, event.id)
        self._remember_call(event, call_id)
        custom = (event.kind == "custom" or event.name in self._custom_names) and self.custom_calls
        if custom != (event.kind == "custom"):
            self._rewritten.add(event.call)
        namespace, name = self._named(event.name, event.namespace)
        signature = self._call_state(event.signature, call_id, event.choice, out)
        out.append(
            msgspec.structs.replace(
                event,
                id=call_id,
                name=name,
                namespace=namespace,
                signature=signature,
                kind="custom" if custom else "function",
            )
        )

    def _call_state(self, state: Opaque | None, call_id: str, choice: int, out: list[Event]) -> Opaque | None:
        """A call's state for its own slot; where calls have none, it goes ahead as a block that names the call."""
        if state is None or self.signs_calls:
            return self._sealed(state) if state is not None else None
        sealed = self._sealed(msgspec.structs.replace(state, item_id=call_id))
        if sealed is not None:
            out.append(ThinkingDelta(choice=choice, signature=sealed))
        return None

    def _delta(self, event: ToolCallDelta, out: list[Event]) -> None:
        # A rewritten call is shown whole at its end: its text changes from the first character on.
        if event.call not in self._rewritten:
            out.append(event)

    def _complete(self, event: ToolCallComplete, out: list[Event]) -> None:
        namespace, name = self._named(event.name, event.namespace)
        call_id = self._client_id(event.call, event.id)
        signature = self._sealed(event.signature) if event.signature is not None and self.signs_calls else None
        whole = msgspec.structs.replace(event, id=call_id, name=name, namespace=namespace, signature=signature)
        if event.call not in self._rewritten:
            out.append(whole)
            return
        to_function = event.kind == "custom"
        text = msgspec.json.encode({INPUT_KEY: event.arguments}).decode() if to_function else _free_text(event.arguments)
        if text:
            out.append(ToolCallDelta(event.call, text, event.choice))
        out.append(msgspec.structs.replace(whole, kind="function" if to_function else "custom", arguments=text))

    def _named(self, name: str, namespace: str | None) -> tuple[str | None, str]:
        if not self.names or namespace is not None:
            return namespace, name
        return self.names.client(name)

    def _client_id(self, call: int, call_id: str) -> str:
        known = self._ids.get(call)
        if known is not None:
            return known
        fresh = fitting_id(call_id, self.id_style)
        if fresh != call_id:
            # Ids like functions.get_time:0 come again in the next answer: the client must be able to tell the two apart.
            fresh = fitting_id(f"{self.seed}\0{call_id}", self.id_style)
        while fresh in self._taken or fresh in self._used_before():
            # Some servers give two calls of one answer the same id, and some, as models that number their calls, begin anew
            # with each answer; two results could then not be told apart.
            fresh = fitting_id(f"call_{hashed(f'{self.seed}/{call_id}/{call}/{fresh}')}", self.id_style)
        self._taken.add(fresh)
        self._ids[call] = fresh
        return fresh

    def _used_before(self) -> frozenset[str]:
        """Ids of the calls that the client's own history holds; looked for when the answer has a call."""
        if self._used is None:
            parts = (part for turn in self.history for part in turn.parts)
            self._used = frozenset(part.id for part in parts if isinstance(part, ToolCall))
            self.history = ()
        return self._used

    def _remember_call(self, event: ToolCallStart, call_id: str) -> None:
        if self.store is None:
            return
        thoughts = tuple(self._thoughts.pop(event.choice, ()))
        unsigned = "".join(self._texts.pop(event.choice, ()))
        if unsigned and self.keeps_text:
            thoughts += (Thinking(text=unsigned),)
        if thoughts or event.signature is not None:
            self.store.put(self.tenant, call_id, Memory(thinking=thoughts, signature=event.signature))

    # -- stop sequences ----------------------------------------------------------------------------------------------------

    def _text(self, event: TextDelta, out: list[Event]) -> None:
        if event.refusal:
            out.append(event)
            return
        matcher = self._matchers.get(event.choice)
        if matcher is None:
            matcher = self._matchers[event.choice] = StopMatcher(self.stops)
        text = matcher.feed(event.text)
        if text:
            out.append(TextDelta(text, event.choice))
        if matcher.found is not None:
            self.stopped = True
            out.append(Done(Finish("stop_sequence", stop_sequence=matcher.found), event.choice))

    def _done(self, event: Done, out: list[Event]) -> None:
        matcher = self._matchers.get(event.choice)
        if matcher is not None and (rest := matcher.close()):
            out.append(TextDelta(rest, event.choice))
        if event.finish.kind == "malformed" and not self.native_ends:
            # The model meant to call and failed. No other dialect has a word for that, and as a plain end it would pass for a
            # whole answer.
            told = f": {event.finish.details}" if isinstance(event.finish.details, str) else ""
            out.append(Error(f"the upstream ended the answer with {event.finish.raw}{told}", code="malformed_answer"))
            self.stopped = True
            return
        out.append(event)


_Step: TypeAlias = Callable[[Restore, Any, list[Event]], None]
_STEPS: dict[type, _Step | None] = {
    Start: None,
    TextDelta: None,
    ThinkingDelta: Restore._thinking,
    ToolCallStart: Restore._start,
    ToolCallDelta: Restore._delta,
    ToolCallComplete: Restore._complete,
    Done: Restore._done,
    Error: None,
    WholePart: None,
    Extra: None,
    KeepAlive: None,
}
"""What is done with each event; None: it passes as it is. A table, because `match` is slower here (docs/decisions.md), and of
functions, not of bound methods: an object that holds its own methods is left to the collector."""
_CHANGED = frozenset(kind for kind, step in _STEPS.items() if step is not None)
_STEPS_WITH_STOPS: dict[type, _Step | None] = {**_STEPS, TextDelta: Restore._text}


def _free_text(arguments: str) -> str:
    """The free text inside the arguments of an emulated tool; what is not in that form is the text itself."""
    try:
        value = msgspec.json.decode(arguments)
    except msgspec.DecodeError:
        return arguments
    if isinstance(value, dict) and isinstance(value.get(INPUT_KEY), str):
        return str(value[INPUT_KEY])
    return arguments


class StopMatcher:
    """Cuts text at the first stop sequence, however the text is cut into pieces."""

    __slots__ = ("_held", "_longest", "_stops", "found")

    def __init__(self, stops: tuple[str, ...]) -> None:
        self._stops = tuple(stop for stop in stops if stop)
        self._longest = max(map(len, self._stops), default=1)
        self._held = ""
        self.found: str | None = None

    def feed(self, text: str) -> str:
        """What can be shown; after a stop was found, nothing more."""
        if self.found is not None:
            return ""
        text = self._held + text
        self._held = ""
        best = -1
        for stop in self._stops:
            position = text.find(stop)
            if position >= 0 and (best < 0 or position < best):
                best, self.found = position, stop
        if best >= 0:
            return text[:best]
        for size in range(min(self._longest - 1, len(text)), 0, -1):
            if any(stop.startswith(text[-size:]) for stop in self._stops):
                self._held = text[-size:]
                return text[:-size]
        return text

    def close(self) -> str:
        """The text that was held in case it became a stop sequence."""
        held, self._held = self._held, ""
        return held


MEANINGFUL: frozenset[type] = frozenset({TextDelta, ThinkingDelta, ToolCallStart, Done, Error})
"""Events that decide that the answer is a success or a failure."""
