"""What of events redaction may not change, and whether a redacted recording still gives it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from athena.model.events import Error, Event, Extra, TextDelta, ThinkingDelta, ToolCallComplete, ToolCallDelta, ToolCallStart
from athena.recording.compare import joined
from athena.recording.lines import Recording
from athena.recording.replay import Replayed
from athena.recording.words import is_ours


def _uninterrupted(events: Iterable[Event]) -> list[Event]:
    """The events with rare fields behind the pieces of a text or of arguments that they came between: how much of those was
    held at that moment depends on what they say."""
    found: list[Event] = []
    aside: list[Event] = []
    said: tuple[Any, ...] = ()
    for event in events:
        if isinstance(event, Extra) and said:
            aside.append(event)
            continue
        about = _said_of(event)
        if about != said:
            found += aside
            aside.clear()
            said = about
        found.append(event)
    return found + aside


def _said_of(event: Event) -> tuple[Any, ...]:
    """What an event is a piece of; nothing for one that is none."""
    match event:
        case ToolCallDelta():
            return ToolCallDelta, event.call
        case TextDelta() | ThinkingDelta():
            return type(event), event.choice
        case _:
            return ()


def shape(events: Iterable[Event], declared: Collection[str]) -> list[tuple[Any, ...]]:
    """What of events redaction may not change: their kinds, the declared tools they name, their places and lengths.

    Pieces of one text count as one: where a piece ends like a marker begins, it is held for a moment, whatever it says.
    """
    found: list[tuple[Any, ...]] = []
    for event in joined(_uninterrupted(events)):
        fields = {name: getattr(event, name) for name in event.__struct_fields__}
        known: list[Any] = [type(event).__name__]
        for name, value in fields.items():
            if name in ("text", "arguments") and isinstance(value, str):
                known.append((name, len(value.encode("utf-8", "surrogatepass"))))
            elif isinstance(value, bool | int) and name in (
                "call",
                "choice",
                "refusal",
                "summary",
                "fatal",
                "last",
                "repaired",
            ):
                known.append((name, value))
        if isinstance(event, ToolCallStart | ToolCallComplete):
            known.append(("name", event.name if event.name in declared else len(event.name)))
        if isinstance(event, Error):
            known.append(("code", event.code if is_ours(event.code) else len(event.code)))
        finish = fields.get("finish")
        if finish is not None:
            known.append(("finish", finish.kind))
        found.append(tuple(known))
    return found


def says_otherwise(before: Replayed | None, after: Replayed | None) -> list[str]:
    if before is None or after is None:
        return [] if before is after else ["the redacted request cannot be read any more"]
    if before.status != after.status:
        return [f"redacted, it does not reproduce its answer: the status was {before.status} and is {after.status}"]
    declared = {tool.name for tool in before.request.tools}
    was, now = shape(before.events, declared), shape(after.events, declared)
    if was == now:
        return []
    at = next((number for number, (a, b) in enumerate(zip(was, now, strict=False)) if a != b), min(len(was), len(now)))
    return [f"redacted, it does not reproduce its events: event {at} differs ({len(was)} events were, {len(now)} are)"]


def still_reproduces(recording: Recording) -> bool:
    """Does a redacted recording say that it reproduces its events?"""
    return not any(note.startswith("redacted, it does not") for note in recording.header.notes)
