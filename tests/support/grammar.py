"""The grammar of `model/events.py` as a check, and the form in which two event lists are compared."""

from __future__ import annotations

import msgspec

from athena.model.events import (
    Done,
    Error,
    Event,
    Extra,
    KeepAlive,
    Start,
    TextDelta,
    ThinkingDelta,
    ToolCallComplete,
    ToolCallDelta,
    ToolCallStart,
)
from athena.wire.json_span import is_json_object


def check_grammar(events: list[Event]) -> None:
    """Raise AssertionError where a list of events breaks the grammar."""
    assert events, "an answer without any event"
    open_calls: dict[int, list[str]] = {}
    ended: set[int] = set()
    for position, event in enumerate(events):
        last = position == len(events) - 1
        if isinstance(event, Start):
            assert not any(isinstance(other, Start) for other in events[:position]), "two starts"
        elif isinstance(event, ToolCallStart):
            assert event.call not in open_calls, "a call started twice"
            assert event.call not in ended, "a call started after its end"
            assert event.name, "a call without a name"
            assert event.id, "a call without an id"
            assert not event.arguments, "a start with arguments leaves the tracker"
            open_calls[event.call] = []
        elif isinstance(event, ToolCallDelta):
            open_calls[event.call].append(event.arguments)
        elif isinstance(event, ToolCallComplete):
            streamed = "".join(open_calls.pop(event.call))
            ended.add(event.call)
            if not event.repaired:
                assert streamed == event.arguments, f"streamed {streamed!r}, completed {event.arguments!r}"
            if event.kind == "function":
                assert is_json_object(event.arguments), f"completed with {event.arguments!r}"
        elif isinstance(event, Error):
            if event.call is not None:
                open_calls.pop(event.call, None)
                ended.add(event.call)
            if event.fatal:
                assert last, "events after a fatal error"
        elif isinstance(event, Done):
            assert event.last == last, "exactly the last Done ends the answer"
            assert not open_calls, f"ended with open calls {open_calls}"
    terminal = events[-1]
    assert (isinstance(terminal, Done) and terminal.last) or (isinstance(terminal, Error) and terminal.fatal), terminal


def merged(events: list[Event]) -> list[Event]:
    """Adjacent deltas of one kind joined; keep-alives and empty deltas left out."""
    out: list[Event] = []
    for event in events:
        last = out[-1] if out else None
        if isinstance(event, KeepAlive | Extra):
            continue
        if isinstance(event, TextDelta) and isinstance(last, TextDelta):
            if (event.choice, event.refusal) == (last.choice, last.refusal) and last.signature is None:
                out[-1] = msgspec.structs.replace(event, text=last.text + event.text)
                continue
        elif isinstance(event, ThinkingDelta) and isinstance(last, ThinkingDelta):
            if event.choice == last.choice and last.signature is None and event.summary == last.summary:
                out[-1] = msgspec.structs.replace(event, text=last.text + event.text)
                continue
        elif isinstance(event, ToolCallDelta) and isinstance(last, ToolCallDelta) and event.call == last.call:
            out[-1] = msgspec.structs.replace(event, arguments=last.arguments + event.arguments)
            continue
        out.append(event)
    return out
