"""Every exchange that a test's gateway recorded, served again: the answer must come out equal, byte for byte.

With `REPLAY_ALL` set to a file (`./dev fuzz`, `./dev soak` and `./dev agents` do), every exchange that a recorder of this
process or of a fork is handed is written into a folder beside that file, whatever becomes of it in the recorder. They are
checked when a gateway in a thread stops and when all tests are over, and databases of recordings when their own tests are over.
The file says how each came out; those that differ stay in the folder.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from athena.recording import file
from athena.recording.compare import difference
from athena.recording.filters import Filter
from athena.recording.lines import Recording
from athena.recording.redact import redacted
from athena.recording.replay import replay
from athena.recording.retold import retold
from athena.recording.shapes import still_reproduces
from athena.recording.tap import RecordingTap
from athena.shells.gateway.app import Gateway
from athena.shells.recorder.archive import Archive
from athena.shells.recorder.recorder import DATABASE, Recorder

WANTED = os.environ.get("REPLAY_ALL", "")
_COLLECTED = Path(f"{WANTED}.exchanges")
_numbers = itertools.count()


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


def collect_all() -> None:
    """Collect the exchanges of every recorder of this process."""
    over = Recorder._over

    def collected(self: Recorder, tap: RecordingTap) -> None:
        if tap.is_whole and tap.asked_as is not None:
            _collect(tap)
        over(self, tap)

    Recorder._over = collected  # type: ignore[method-assign]
    _COLLECTED.mkdir(exist_ok=True)


def _collect(tap: RecordingTap) -> None:
    name = f"{os.getpid()}-{next(_numbers)}"
    try:
        data = file.encode(tap.made(()))
    except Exception as error:  # no recording is a difference too, when it is read
        data = repr(error).encode()
    part = _COLLECTED / f"{name}.part"
    part.write_bytes(data)
    part.rename(part.with_suffix(".athena"))


def check_collected() -> None:
    """Write down how the exchanges that were collected so far come out. Of several processes each takes what it finds."""
    if not WANTED:
        return
    for path in _COLLECTED.glob("*.athena"):
        taken = path.with_suffix(f".{os.getpid()}")
        try:
            path.rename(taken)
        except FileNotFoundError:
            continue  # another took it
        data = taken.read_bytes()
        if _check(lambda: file.decode(data)[0], path.stem):  # noqa: B023  # it is called at once
            taken.unlink()
        else:
            taken.rename(taken.with_suffix(".unequal"))


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


def _check(load: Callable[[], Recording], name: str) -> bool:
    """Does it come out equal?"""
    try:
        recording = load()
        name = f"{name} {recording.header.id} {recording.outcome.record.get('model', '')}"
        found = unequal(recording)
    except Exception as error:  # it is the report that matters here
        found = [repr(error)]
    with Path(WANTED).open("a", encoding="utf-8") as log:
        name = f"{os.environ.get('PYTEST_CURRENT_TEST', '')} {name}"
        log.write(f"{'unequal' if found else 'equal'} {name} {found[:2] if found else ''}\n")
    return not found


if WANTED:
    collect_all()
