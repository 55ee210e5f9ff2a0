"""The thread that writes recordings to disk: nobody waits for it, and what it cannot write is dropped and counted."""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path

from athena.errors import AthenaError
from athena.recording.grouped import Group, Grouping
from athena.recording.packed import PackedExchange
from athena.recording.parted import Parted
from athena.recording.searched import SearchedBodies
from athena.recording.served_by import SettingsMemo
from athena.recording.tap import RecordingTap
from athena.shells.recorder.archive import Archive

LOG = logging.getLogger("athena")
_BATCH = 256
"""Exchanges that are written in one go, at most: to begin and end it takes as long as to write five of them."""
_GATHER_S = 0.2
_WAITING = 1000
"""Exchanges that may wait to be written."""
_TRIM_EVERY_S = 60.0
_SAY_AGAIN_S = 300.0
_TRY_AGAIN_S = 10.0


class RecordingWriter:
    """Takes exchanges from the event loop and writes them in groups. `on_written` gets them with the names that they are kept
    by; it and `on_gone` are called in its thread."""

    def __init__(
        self,
        path: Path,
        secrets: Callable[[], Iterable[str]],
        *,
        max_bytes: int,
        max_age_days: float,
        on_written: Callable[[list[tuple[str, Parted]]], None] = lambda written: None,
        on_gone: Callable[[list[str]], None] = lambda names: None,
        on_dropped: Callable[[int], None] = lambda count: None,
        lock_s: float = 5.0,
    ) -> None:
        self.path = path
        self._secrets = secrets
        self._max_bytes = max_bytes
        self._max_age_days = max_age_days
        self._on_written = on_written
        self._on_gone = on_gone
        self._on_dropped = on_dropped
        self._lock_s = lock_s
        self._queue: deque[RecordingTap] = deque()
        self._waiting = 0
        self._lock = threading.Lock()
        self._something = threading.Event()
        self._closing = threading.Event()
        self._memo: SettingsMemo = {}
        self._bodies = SearchedBodies()
        self._thread: threading.Thread | None = None
        self._said_at = 0.0
        self._not_before = 0.0
        self.written = threading.Condition()
        """Notified after every group."""

    def put(self, exchange: RecordingTap) -> None:
        """Hand over an exchange. It is dropped where too many wait."""
        with self._lock:
            if self._waiting >= _WAITING:
                full = True
            else:
                full = False
                self._waiting += 1
        if full:
            exchange.drop()
            self._on_dropped(1)
            return
        if self._thread is None:
            self._closing.clear()
            self._thread = threading.Thread(target=self._run, name="athena-recordings", daemon=True)
            self._thread.start()
        self._queue.append(exchange)
        if not self._something.is_set():
            self._something.set()

    @property
    def waiting(self) -> int:
        """How many are not written yet."""
        return self._waiting

    def close(self, wait_s: float = 10.0) -> None:
        """Write what waits, and end."""
        if self._thread is not None:
            self._closing.set()
            self._something.set()
            self._thread.join(wait_s)
            self._thread = None

    # -- the thread ----------------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        archive: Archive | None = None
        trimmed_at = 0.0
        while self._queue or not self._closing.is_set():
            self._something.wait()
            # To be woken for each exchange would cost more than to write it: what comes in the next moment goes with it.
            self._closing.wait(_GATHER_S)
            self._something.clear()
            while group := self._group():
                archive = self._write(archive, group)
            now = time.monotonic()
            if archive is not None and now - trimmed_at > _TRIM_EVERY_S:
                trimmed_at = now
                archive = self._trim(archive)
        if archive is not None:
            archive.close()

    def _group(self) -> list[RecordingTap]:
        """What waits, up to a number."""
        return [self._queue.popleft() for _ in range(min(len(self._queue), _BATCH))]

    def _write(self, archive: Archive | None, group: list[RecordingTap]) -> Archive | None:
        unwritten = len(group)
        try:
            made = self._made(group)
            recordings = [member for each in made for member in each.members]
            unwritten = len(recordings)
            if archive is not None and not archive.is_in_place:
                archive.close()
                archive = None
            if archive is None:
                if time.monotonic() < self._not_before:
                    self._on_dropped(unwritten)
                    return None
                archive = Archive(self.path, timeout_s=self._lock_s)
            if recordings:
                names = archive.put_groups(made)
                unwritten = 0
                self._on_written(list(zip(names, recordings, strict=True)))
        except Exception as error:
            # Whatever it is: this thread is the only one that writes.
            self._complain("recordings cannot be written to %s and are dropped: %s", error, unwritten)
            self._not_before = time.monotonic() + _TRY_AGAIN_S
            if archive is not None:
                archive.close()
            archive = None
        finally:
            for tap in group:
                tap.release()
            with self._lock:
                self._waiting -= len(group)
            with self.written:
                self.written.notify_all()
        return archive

    def _made(self, group: list[RecordingTap]) -> list[Group]:
        exchanges: list[PackedExchange] = []
        for tap in group:
            try:
                exchanges.append(tap.packed())
            except Exception:
                self._failed(tap.record.request_id)
        return Grouping(self._secrets(), self._memo, self._bodies, self._failed).groups(exchanges)

    def _failed(self, name: str) -> None:
        # A fault of ours in one recording must not take the others with it.
        LOG.exception("request %s could not be recorded", name)
        self._on_dropped(1)

    def _trim(self, archive: Archive) -> Archive | None:
        try:
            gone = archive.trim(max_bytes=self._max_bytes, max_age_days=self._max_age_days, now=time.time())
        except Exception as error:
            self._complain("recordings cannot be deleted from %s: %s", error, 0)
            archive.close()
            return None
        if gone:
            self._on_gone(gone)
        return archive

    def _complain(self, message: str, error: Exception, dropped: int) -> None:
        now = time.monotonic()
        # Said before it is counted: whoever sees the count finds the reason in the log.
        if not self._said_at or now - self._said_at > _SAY_AGAIN_S:
            self._said_at = now
            LOG.warning(message, self.path, error, exc_info=not isinstance(error, sqlite3.Error | OSError | AthenaError))
        if dropped:
            self._on_dropped(dropped)
