"""Failing exchanges go into the archive that `athena record` and the inspector read; all others are forgotten."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from athena import __version__
from athena.model.request import Request
from athena.recording.room import Room
from athena.recording.tap import RecordingTap
from athena.serving.record import RequestRecord
from athena.serving.tap import Tap
from athena.shells.config import RecordSettings
from athena.shells.recorder.recorder import DATABASE
from athena.shells.recorder.writer import RecordingWriter

_ROOM = 256 * 1024 * 1024


class FailureKeeper:
    """A watcher that records every exchange and writes those down that are wanted."""

    def __init__(self, state_dir: Path, settings: RecordSettings, secrets: Callable[[], Iterable[str]]) -> None:
        self._room = Room(_ROOM)
        self._taps: dict[str, RecordingTap] = {}
        self._writer = RecordingWriter(
            state_dir / DATABASE, secrets, max_bytes=settings.max_mb * 1024 * 1024, max_age_days=settings.max_age_days
        )

    def wants_bodies(self) -> bool:
        return True

    def watch(self, record: RequestRecord, request: Request, key: str | None) -> Tap:
        return RecordingTap(record, key, self._room, self._over, version=__version__)

    def _over(self, tap: RecordingTap) -> None:
        self._taps[tap.record.request_id] = tap

    def keep_or_drop(self, request_id: str, *, keep: bool) -> bool:
        """Keep the exchange or forget it; is it kept?"""
        tap = self._taps.pop(request_id, None)
        if tap is None:
            return False
        if not keep or not tap.is_whole or tap.asked_as is None:
            tap.drop()
            return False
        self._writer.put(tap)
        return True

    def close(self) -> None:
        """Write what waits. Call it outside of the event loop."""
        for tap in self._taps.values():
            tap.drop()
        self._taps.clear()
        self._writer.close()
