"""A recording as a regression case: what came in, and the events that it must give.

    name = "a call that leaked in reasoning"
    expect = [
      '{"event":"ThinkingDelta","text":"I should look first. "}',
      '{"event":"ToolCallComplete","call":0,"name":"Read","arguments":"{\\"path\\": \\"src/main.py\\"}"}',
    ]
    recording = '''
    {"line":"recording", ...}
    '''

Pieces of one text stand as one event, and ids that are made up are left out, so that a case holds whatever the chunks are. Case
files lie in `tests/cases/exchanges`; `athena replay FILE.toml` runs one.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from typing import Any

import msgspec

from athena.model.events import Event, Extra, KeepAlive, Start, ToolCallDelta, ToolCallStart
from athena.recording import file
from athena.recording.compare import joined
from athena.recording.file import UnreadableRecording
from athena.recording.lines import Recording
from athena.recording.redact import redacted
from athena.recording.replay import NO_CHANGES, Changes, Replayed, replay
from athena.recording.view import Difference
from athena.serving.targets import Target
from athena.typed_values import reader

_UNTOLD = ("id", "signature", "item_id", "usage", "raw", "message")


class Case(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One regression case."""

    name: str
    recording: str
    expect: list[str] = []
    """Events as JSON, in order."""
    status: int = 200
    changes: Changes = NO_CHANGES
    """Settings that are to be different from the recorded ones."""


def case_of(recording: Recording, changes: Changes = NO_CHANGES, *, redact_with: bytes | None) -> str:
    """The text of a case file: what the recording gives with these changes is what is expected of it without them. It is
    redacted with a key, or not at all."""
    kept = recording if redact_with is None else redacted(recording, redact_with)
    expected = replay(kept, changes)
    lines = [
        "# Made by `athena replay --case`. Expected are the events that it gave then; edit them to what it should give.",
        f"name = {_text(_title(kept, expected))}",
        f"status = {expected.status}",
        "expect = [",
        *(f"  {_text(event)}," for event in told(expected.events)),
        "]",
        "recording = '''",
        file.encode(kept).decode().replace("'''", "\\u0027\\u0027\\u0027").rstrip("\n"),
        "'''",
    ]
    return "\n".join(lines) + "\n"


_read = reader(Case)


def read_case(text: str, name: str = "") -> Case:
    """A case file. Raises UnreadableRecording, which names the file if its name is given."""
    try:
        return _read(tomllib.loads(text))
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise UnreadableRecording(f"{name + ': ' if name else ''}this is no case: {error}") from None


def case_recording(case: Case, name: str = "") -> Recording:
    """The exchange of a case. Raises UnreadableRecording, which names the file if its name is given."""
    recordings = file.decode(case.recording.encode(), name)
    if len(recordings) != 1:
        where = f"{name}: " if name else ""
        raise UnreadableRecording(f"{where}a case holds one exchange; this one holds {len(recordings)}")
    return recordings[0]


def run_case(case: Case, changes: Changes = NO_CHANGES, targets: Sequence[Target] | None = None) -> list[Difference]:
    """What differs from what is expected; nothing: the case is green."""
    given = replay(case_recording(case), changes if changes != NO_CHANGES else case.changes, targets=targets)
    now = told(given.events)
    found = [
        Difference(at=number, was=_event(case.expect, number), now=_event(now, number))
        for number in range(max(len(case.expect), len(now)))
        if _event(case.expect, number) != _event(now, number)
    ]
    if not found and given.status != case.status:
        found.append(Difference(at=0, was={"status": case.status}, now={"status": given.status}))
    return found


def told(events: Sequence[Event]) -> list[str]:
    """Events as a case tells them: without what depends on chunks, seeds and the server's mood."""
    found: list[str] = []
    for event in joined(
        [event for event in events if not isinstance(event, Start | KeepAlive | Extra | ToolCallDelta | ToolCallStart)]
    ):
        fields = {name: value for name, value in msgspec.to_builtins(event).items() if name not in _UNTOLD}
        if isinstance(fields.get("finish"), dict):
            fields["finish"] = {"kind": fields["finish"].get("kind", "stop")}
        found.append(msgspec.json.encode(fields).decode())
    return [text for text in found if text != '{"event":"ThinkingDelta"}']


def _event(events: Sequence[str], number: int) -> Any:
    return msgspec.json.decode(events[number]) if number < len(events) else None


def _title(recording: Recording, expected: Replayed) -> str:
    record = expected.record
    return f"{recording.request.dialect} over {record.upstream_dialect}: {record.model}, {recording.header.id}"


def _text(text: str) -> str:
    """A TOML string: literal where it can be."""
    return f"'{text}'" if "'" not in text and text.isprintable() else msgspec.json.encode(text).decode()
