"""What differs between a recording and its replay, or between two replays: event by event.

A recording holds no events. What its client was told is read back from the client's own bytes, in the client's dialect.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from itertools import islice, zip_longest
from typing import Any

import msgspec

from athena.dialects import get_dialect
from athena.dialects.base import DecodeContext
from athena.errors import AthenaError
from athena.model.events import (
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
from athena.recording import lines
from athena.recording.lines import Recording
from athena.recording.replay import Changes, Replayed
from athena.recording.view import Difference, Equality

_MOST = 200
_MOST_COMPARED = 5000
"""Events up to which insertions are told from changes; above, the first that differ are named."""


def difference(recording: Recording, replayed: Replayed) -> Equality:
    """How this version's answer differs from the recorded one: in its status, its bytes, or in what upstreams were sent."""
    found: list[str] = []
    head = next((line for line in recording.happened if isinstance(line, lines.ClientHead)), None)
    was = head.status if head is not None else 0
    if was != replayed.status:
        found.append(f"status: was {was}, is {replayed.status}")
    attempts = [line for line in recording.happened if isinstance(line, lines.Attempt)]
    if len(attempts) != len(replayed.calls):
        found.append(f"attempts: were {len(attempts)}, are {len(replayed.calls)}")
    for number, (line, call, path) in enumerate(zip(attempts, replayed.calls, replayed.paths, strict=False), 1):
        if line.path != path:
            found.append(f"attempt {number}: path: was {line.path}, is {path}")
        if line.body.data != call.body and (line.body.data or call.body):
            found.append(f"attempt {number}: the upstream's request: {_first_difference(line.body.data, call.body)}")
    before, after = recording.client_bytes, replayed.output
    if before != after:
        found += _of_bytes(recording, before, after, streamed=replayed.request.stream)
    return Equality(equal=not found, differences=found[:_MOST])


def _of_bytes(recording: Recording, before: bytes, after: bytes, *, streamed: bool) -> list[str]:
    """Different bytes, as different events where there are any."""
    dialect = recording.request.dialect
    was, now = events_of(before, dialect, streamed=streamed), events_of(after, dialect, streamed=streamed)
    differing = differences(was, now) if was and now else []
    if not differing:
        return [f"the client's bytes, in which the same events stand: {_first_difference(before, after)}"]
    return [f"event {each.at}: was {_words(each.was)}, is {_words(each.now)}" for each in differing]


def events_of(body: bytes, dialect: str, *, streamed: bool) -> list[Event]:
    """The events that a client's own SDK would read from these bytes; empty where they cannot be read."""
    try:
        decoder = get_dialect(dialect).decoder(DecodeContext(), stream=streamed and body.lstrip()[:1] != b"{")
        return [*decoder.feed(body), *decoder.close()]
    except (AthenaError, msgspec.MsgspecError, ValueError):
        return []


def differences_of_settings(was: Replayed, now: Replayed, changes: Changes) -> list[Difference]:
    """What the changed settings make different in the events, or in the status. Where a text was cut is no difference for other
    chunks, and what belongs to the client's dialect alone is none for another client."""
    if was.request.dialect != now.request.dialect:
        return differences(list(_without_dialect(was.events)), list(_without_dialect(now.events)), whole=True)
    found = differences(was.events, now.events, whole=changes.chunks != "recorded")
    if not found and was.status != now.status:
        found.append(Difference(at=0, was={"status": was.status}, now={"status": now.status}))
    return found


def _without_dialect(events: Sequence[Event]) -> Iterator[Event]:
    """The events without what each dialect has in a way of its own: ids, signatures of thoughts, fields that no other has."""
    for event in events:
        match event:
            case Start() | Extra() | KeepAlive():
                continue
            case TextDelta():
                yield msgspec.structs.replace(event, signature=None)
            case ThinkingDelta():
                if event.text:
                    yield msgspec.structs.replace(event, signature=None, item_id=None)
            case ToolCallStart() | ToolCallComplete():
                yield msgspec.structs.replace(event, id="", signature=None, item_id=None)
            case _:
                yield event


def differences(was: Sequence[Event], now: Sequence[Event], *, whole: bool = False) -> list[Difference]:
    """The events that differ, in order. `whole`: pieces of one text count as one, wherever they were cut."""
    if whole:
        was, now = joined(was), joined(now)
    if len(was) + len(now) > _MOST_COMPARED:
        pairs = ((at, a, b) for at, (a, b) in enumerate(zip_longest(was, now)) if a != b)
        return [Difference(at=at, was=_plain(a), now=_plain(b)) for at, a, b in islice(pairs, _MOST)]
    before, after = [msgspec.json.encode(event) for event in was], [msgspec.json.encode(event) for event in now]
    found: list[Difference] = []
    for kind, a, b, c, d in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if kind == "equal":
            continue
        for offset in range(max(b - a, d - c)):
            found.append(
                Difference(
                    at=(c if c < d else a) + offset,
                    was=_plain(was[a + offset]) if a + offset < b else None,
                    now=_plain(now[c + offset]) if c + offset < d else None,
                )
            )
    return found[:_MOST]


def joined(events: Sequence[Event]) -> list[Event]:
    """The events with neighbouring pieces of one text, thought or call in one."""
    found: list[Event] = []
    for event in events:
        last = found[-1] if found else None
        if (
            isinstance(event, TextDelta)
            and isinstance(last, TextDelta)
            and last.choice == event.choice
            and last.signature is None
        ) or (
            isinstance(event, ThinkingDelta)
            and isinstance(last, ThinkingDelta)
            and (last.choice, last.summary, last.item_id) == (event.choice, event.summary, event.item_id)
            and last.signature is None
        ):
            found[-1] = msgspec.structs.replace(event, text=last.text + event.text)
        elif isinstance(event, ToolCallDelta) and isinstance(last, ToolCallDelta) and last.call == event.call:
            found[-1] = msgspec.structs.replace(event, arguments=last.arguments + event.arguments)
        else:
            found.append(event)
    return found


def _plain(event: Event | None) -> Any:
    return msgspec.to_builtins(event)


def _words(event: Any) -> str:
    if event is None:
        return "nothing"
    fields = ", ".join(f"{name}={value!r}" for name, value in event.items() if name != "event")
    text = f"{event['event']}({fields})"
    return text if len(text) <= 200 else text[:197] + "..."


def _first_difference(before: bytes, after: bytes) -> str:
    at = common_prefix(before, after)
    start = max(at - 20, 0)
    was, now = before[start : at + 40], after[start : at + 40]
    return f"byte {at} of {len(before)}: was {was!r}, is {now!r}"


def common_prefix(one: bytes, other: bytes) -> int:
    """How many bytes both begin with."""
    low, high = 0, min(len(one), len(other))
    # In each comparison one of them is looked at where it is, and not copied.
    if other.startswith(one[:high]):
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if other.startswith(one[low:middle], low):
            low = middle
        else:
            high = middle
    return low


def common_suffix(one: bytes, other: bytes, most: int) -> int:
    """How many bytes both end with, at most that many."""
    if not most:
        return 0
    low, high = 0, most
    if other.endswith(one[-high:]):
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if other.endswith(one[len(one) - middle : len(one) - low], 0, len(other) - low):
            low = middle
        else:
            high = middle
    return low
