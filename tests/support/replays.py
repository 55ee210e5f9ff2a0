"""Every exchange that a test's gateway recorded, served again: the answer must come out equal, byte for byte.

With `REPLAY_ALL` set to a file (`./dev fuzz` and `./dev soak` do), every gateway that tests run in a thread is checked when it
stops, and what differs is written there.
"""

from __future__ import annotations

import os
from pathlib import Path

from athena.recording import file
from athena.recording.compare import difference
from athena.recording.redact import redacted, still_reproduces
from athena.recording.replay import replay
from athena.recording.tap import RecordingTap
from athena.shells.gateway.app import Gateway

WANTED = os.environ.get("REPLAY_ALL", "")


def taps(gateway: Gateway) -> list[RecordingTap]:
    """What is in the gateway's ring."""
    recorder = gateway._recorder
    return [kept.tap for kept in recorder._ring._kept.values()] if recorder is not None else []


def unequal(tap: RecordingTap, *, redaction: bool = True) -> list[str]:
    """How a replay differs from what was recorded, read back from its file; and that of its redacted form."""
    (recording,) = file.decode(file.encode(tap.made(())))
    found = difference(recording, replay(recording)).differences
    if redaction:
        clean = redacted(recording, b"k" * 32)
        found += [note for note in clean.header.notes if not still_reproduces(clean)]
        (clean,) = file.decode(file.encode(clean))
        found += [f"redacted: {each}" for each in difference(clean, replay(clean)).differences]
    return found


def check_all(gateway: Gateway) -> None:
    """Write down what differs."""
    if not WANTED:
        return
    with Path(WANTED).open("a", encoding="utf-8") as log:
        for tap in taps(gateway):
            name = f"{os.environ.get('PYTEST_CURRENT_TEST', '')} {tap.record.request_id} {tap.record.model}"
            try:
                found = unequal(tap)
            except Exception as error:  # it is the report that matters here
                found = [repr(error)]
            log.write(f"{'unequal' if found else 'equal'} {name} {found[:2] if found else ''}\n")
