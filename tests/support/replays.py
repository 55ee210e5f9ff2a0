"""Every exchange that a test's gateway recorded, served again: the answer must come out equal, byte for byte.

With `REPLAY_ALL` set to a file (`./dev fuzz`, `./dev soak` and `./dev agents` do), every gateway that tests run in a thread is
checked when it stops, every database of recordings when its tests are over, and what differs is written there.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from athena.recording import file
from athena.recording.compare import difference
from athena.recording.filters import Filter
from athena.recording.lines import Recording
from athena.recording.redact import redacted, still_reproduces
from athena.recording.replay import replay
from athena.recording.retold import retold
from athena.recording.tap import RecordingTap
from athena.shells.gateway.app import Gateway
from athena.shells.recorder.archive import Archive
from athena.shells.recorder.recorder import DATABASE

WANTED = os.environ.get("REPLAY_ALL", "")


def kept(gateway: Gateway) -> list[RecordingTap]:
    """What is in the gateway's ring."""
    recorder = gateway.configured.recorder
    return [tap for _, tap in recorder._ring.exchanges()] if recorder is not None else []


def unequal(recording: Recording, *, redaction: bool = True) -> list[str]:
    """How a replay differs from what was recorded, read back from its file; and that of its redacted form."""
    (recording,) = file.decode(file.encode(recording))
    if recording.header.kind != "served":
        assert difference(recording, retold(recording)).equal
        redacted(recording, b"k" * 32)
        return []
    found = difference(recording, replay(recording)).differences
    if redaction:
        clean = redacted(recording, b"k" * 32)
        found += [note for note in clean.header.notes if not still_reproduces(clean)]
        (clean,) = file.decode(file.encode(clean))
        found += [f"redacted: {each}" for each in difference(clean, replay(clean)).differences]
    return found


def differing(gateway: Gateway) -> dict[str, list[str]]:
    """What a gateway recorded that is not the same when it is replayed, by request; and how it differs."""
    recordings = [exchange.made(()) for exchange in kept(gateway)]
    assert recordings, "nothing was recorded"
    found = {recording.header.id: unequal(recording) for recording in recordings}
    return {name: differences for name, differences in found.items() if differences}


def check_all(gateway: Gateway) -> None:
    """Write down what differs."""
    if WANTED:
        for exchange in kept(gateway):
            _check(partial(exchange.made, ()), f"{exchange.record.request_id} {exchange.record.model}")


def check_archive(state_dir: Path) -> None:
    """The same for what gateways in processes of their own kept on disk."""
    database = state_dir / DATABASE
    if WANTED and database.exists():
        with Archive(database) as archive:
            rows, _ = archive.rows(Filter(), limit=archive.count())
            for row in rows:
                _check(partial(_loaded, archive, row.id), f"{row.id} {row.program} {row.model}")


def _loaded(archive: Archive, name: str) -> Recording:
    recording = archive.load(name)
    assert recording is not None
    return recording


def _check(load: Callable[[], Recording], name: str) -> None:
    try:
        found = unequal(load())
    except Exception as error:  # it is the report that matters here
        found = [repr(error)]
    with Path(WANTED).open("a", encoding="utf-8") as log:
        name = f"{os.environ.get('PYTEST_CURRENT_TEST', '')} {name}"
        log.write(f"{'unequal' if found else 'equal'} {name} {found[:2] if found else ''}\n")
