"""The watcher that records: which requests, where to, and who is told of them while they happen."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

import athena
from athena.errors import AthenaError
from athena.model.request import Request
from athena.recording.filters import Filter, Placed, Position, page_of
from athena.recording.lines import ExchangeKind, Recording
from athena.recording.parted import Parted
from athena.recording.room import Room
from athena.recording.tap import RecordingTap
from athena.recording.view import ExchangeRow
from athena.serving.record import RequestRecord
from athena.serving.tap import Tap
from athena.shells.config import Config, RecordSettings, is_loopback
from athena.shells.recorder.archive import Archive, named_row
from athena.shells.recorder.frames import Frames, FrameWriter
from athena.shells.recorder.ring import Ring, live_row
from athena.shells.recorder.writer import RecordingWriter

Mode = Literal["off", "memory", "disk"]
Listener = Callable[[str, Any], None]
"""Gets `row` with an ExchangeRow, or `gone` with names; on the event loop."""
LOG = logging.getLogger("athena")
DATABASE = "recordings.sqlite3"
_IN_FLIGHT = 1 << 62
"""Requests in flight stand before finished ones of the same moment: no database numbers its rows so high."""
T = TypeVar("T")


class Recorder:
    """Watches all requests of one gateway."""

    def __init__(
        self,
        settings: RecordSettings,
        mode: Mode,
        state_dir: Path,
        secrets: Callable[[], Iterable[str]],
        on_kept: Callable[[], None] = lambda: None,
        on_dropped: Callable[[], None] = lambda: None,
    ) -> None:
        """One of the last two is called for each exchange."""
        self.mode = mode
        self.settings = settings
        self.began = time.time()
        self.dropped = 0
        self.sse_dir = ""
        """Where the frames of streams go, besides; empty: nowhere."""
        self._frames = FrameWriter(settings.in_flight_mb * 1024 * 1024)
        self._on_kept = on_kept
        self._on_dropped = on_dropped
        self._secrets = secrets
        self._room = Room(settings.in_flight_mb * 1024 * 1024 + (settings.memory_mb * 1024 * 1024 if mode == "memory" else 0))
        self._records_all = mode != "off" and "*" in settings.keys and "*" in settings.models
        self._live: dict[RecordingTap, int] = {}
        """With a number that grows from one to the next."""
        self._begun = count(_IN_FLIGHT)
        self._listeners: set[Listener] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ring = Ring(most=settings.memory_exchanges, most_bytes=settings.memory_mb * 1024 * 1024, secrets=secrets)
        self._writer: RecordingWriter | None = None
        if mode == "disk":
            self._writer = RecordingWriter(
                state_dir / DATABASE,
                secrets,
                max_bytes=settings.max_mb * 1024 * 1024,
                max_age_days=settings.max_age_days,
                on_written=self._written,
                on_gone=self._gone,
                on_dropped=self._dropped_by_writer,
            )

    # -- a watcher -----------------------------------------------------------------------------------------------------------

    def wants_bodies(self) -> bool:
        """Whenever anything is recorded."""
        return self.mode != "off"

    def watch(self, record: RequestRecord, request: Request, key: str | None) -> Tap | None:
        """A tap for each request that is to be recorded, or whose frames are to be written."""
        is_kept = self._records_all or (self.mode != "off" and self._is_wanted(record))
        has_frames = self.sse_dir and request.stream
        if not is_kept and not has_frames:
            return None
        on_over = partial(self._over_with_frames, self.sse_dir, is_kept) if has_frames else self._over
        tap = RecordingTap(record, key, self._room, on_over, version=athena.__version__)
        if not is_kept:
            return tap
        self._live[tap] = next(self._begun)
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        if self._listeners:
            # Where it came in is known in a moment.
            self._loop.call_soon(self._tell_live, tap)
        return tap

    def watch_unserved(self, record: RequestRecord, key: str | None, kind: ExchangeKind) -> RecordingTap | None:
        """A tap for a request that no `Serving` serves; the caller tells it what happens, as a `Serving` would."""
        if self.mode == "off" or not self._is_wanted(record):
            return None
        tap = RecordingTap(record, key, self._room, self._over, version=athena.__version__)
        tap.kind = kind
        self._loop = asyncio.get_running_loop()
        return tap

    @property
    def has_inspector(self) -> bool:
        """Is the inspector served? Where nothing is recorded it would have nothing to show."""
        settings = self.settings
        return self.mode != "off" and settings.inspector

    def _is_wanted(self, record: RequestRecord) -> bool:
        return _matches(record.key, self.settings.keys) and _matches(record.model, self.settings.models)

    def _over(self, tap: RecordingTap) -> None:
        self._live.pop(tap, None)
        if not tap.is_whole or tap.asked_as is None:
            self._drop(1)
            tap.drop()
            return
        if self._writer is not None:
            self._writer.put(tap)
            return
        name, gone = self._ring.add(tap)
        self._on_kept()
        if self._listeners:
            if name not in gone:
                self._tell("row", self._ring.row(name))
            self._tell_gone(gone)

    def _over_with_frames(self, directory: str, is_kept: bool, tap: RecordingTap) -> None:
        if tap.is_whole:
            self._frames.put(Frames(directory, tap, self._secrets()))
        else:
            LOG.warning(
                "the stream of request %s is not in log.sse_dir: record.in_flight_mb has no room for it", tap.record.request_id
            )
        if is_kept:
            self._over(tap)
        else:
            tap.drop()

    def _drop(self, count: int) -> None:
        self.dropped += count
        for _ in range(count):
            self._on_dropped()

    def _dropped_by_writer(self, count: int) -> None:
        self._from_thread(self._drop, count)

    # -- who is told ---------------------------------------------------------------------------------------------------------

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Tell it of every exchange from now on. Returns what ends that."""
        self._loop = asyncio.get_running_loop()
        self._listeners.add(listener)
        return lambda: self._listeners.discard(listener)

    def _tell(self, kind: str, value: Any) -> None:
        for listener in tuple(self._listeners):
            listener(kind, value)

    def _tell_live(self, tap: RecordingTap) -> None:
        if tap in self._live:
            self._tell("row", self._live_row(tap))

    def _written(self, written: list[tuple[str, Parted]]) -> None:
        # Rows are made here, and only for those who listen.
        rows = [named_row(name, recording) for name, recording in written] if self._listeners else []
        self._from_thread(self._tell_written, (len(written), rows))

    def _tell_written(self, written: tuple[int, list[ExchangeRow]]) -> None:
        count, rows = written
        for _ in range(count):
            self._on_kept()
        for row in rows:
            self._tell("row", row)

    def _gone(self, names: list[str]) -> None:
        self._from_thread(self._tell_gone, names)

    def _tell_gone(self, names: Iterable[str]) -> None:
        for name in names:
            self._tell("gone", {"id": name})

    def _from_thread(self, work: Callable[[Any], None], value: Any) -> None:
        """Numbers and listeners belong to the event loop."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # it is closed: nobody counts or listens any more
                self._loop.call_soon_threadsafe(work, value)

    # -- reading -------------------------------------------------------------------------------------------------------------

    def live_rows(self) -> list[ExchangeRow]:
        """Requests in flight, the newest first."""
        return sorted((row for row, _ in self._live_numbered()), key=lambda row: row.at, reverse=True)

    def _live_row(self, tap: RecordingTap) -> ExchangeRow:
        """Its row, with what is known so far."""
        row, asked = live_row(tap, self._secrets()), tap.asked_as
        if asked is None:
            return row
        so_far = asyncio.get_running_loop().time() - asked.now
        return msgspec.structs.replace(row, chunks=tap.reads, duration_ms=round(so_far * 1000, 2))

    def _live_numbered(self) -> list[tuple[ExchangeRow, int]]:
        return [(self._live_row(tap), number) for tap, number in self._live.items()]

    async def rows(self, wanted: Filter, limit: int) -> list[ExchangeRow]:
        """The newest finished exchanges that are meant."""
        return [row for _, row in await self._placed(wanted, limit)]

    async def page(
        self, wanted: Filter, limit: int, after: Position | None = None
    ) -> tuple[list[ExchangeRow], Position | None]:
        """The newest exchanges that are meant, finished or in flight, and the position after which the next page begins, if
        there is one."""
        live = [(Position(row.at, number), row) for row, number in self._live_numbered() if wanted.holds(row)]
        placed = await self._placed(wanted, limit + 1, after)
        finished = {(row.id, row.at) for _, row in placed}
        # One that ended meanwhile is not listed twice.
        placed += [each for each in live if (after is None or each[0] < after) and (each[1].id, each[1].at) not in finished]
        return page_of(sorted(placed, key=lambda each: each[0], reverse=True), limit)

    async def count(self, wanted: Filter) -> int:
        """How many exchanges are meant, finished or in flight."""
        live = sum(map(wanted.holds, self.live_rows()))
        if self._writer is None:
            return live + self._ring.count(wanted)
        return live + await self._archived(lambda archive: archive.count(wanted))

    async def _placed(self, wanted: Filter, limit: int, after: Position | None = None) -> list[Placed]:
        if self._writer is None:
            return self._ring.placed(wanted, limit, after)
        return await self._archived(lambda archive: archive.placed(wanted, limit, after))

    async def load(self, name: str) -> Recording | None:
        """The finished exchange of that name."""
        if self._writer is None:
            # The ring belongs to the event loop; what is taken from it does not change any more.
            tap = self._ring.get(name)
            return await asyncio.to_thread(tap.made, self._secrets()) if tap is not None else None
        return await self._archived(lambda archive: archive.load(name))

    async def before(self, row: ExchangeRow) -> tuple[str, bytes] | None:
        """The request before this one in its session, by the same agent: its name and its body."""
        if self._writer is None:
            return self._ring.before(row)
        return await self._archived(lambda archive: archive.before(row))

    async def remove(self, name: str) -> bool:
        """Forget an exchange; was it there?"""
        removed = (
            self._ring.delete(name) if self._writer is None else await self._archived(lambda archive: archive.delete([name]))
        )
        if removed:
            self._tell("gone", {"id": name})
        return bool(removed)

    async def kept(self) -> int:
        """How many finished exchanges there are."""
        return len(self._ring) if self._writer is None else await self._archived(lambda archive: archive.count())

    async def _archived(self, work: Callable[[Archive], T]) -> T:
        """Reading never waits for the writer: the database has room for both."""
        assert self._writer is not None
        return await asyncio.to_thread(_with_archive, self._writer.path, work)

    async def load_live(self, name: str) -> Recording | None:
        """The request of that id as far as it came, if it is in flight."""
        for tap in self._live:
            if tap.record.request_id == name and tap.is_whole and tap.asked_as is not None:
                # It goes on meanwhile: this is what there is now.
                return await asyncio.to_thread(tap.packed().made, self._secrets())
        return None

    def is_live(self, name: str) -> bool:
        """Is a request of that id in flight?"""
        return any(tap.record.request_id == name for tap in self._live)

    def close(self) -> None:
        """Write what waits, and end."""
        self._frames.close()
        if self._writer is not None:
            self._writer.close()
        self._live.clear()
        self._listeners.clear()


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return "*" in patterns or any(fnmatchcase(name, pattern) for pattern in patterns)


@contextlib.contextmanager
def open_archive(path: Path) -> Iterator[Archive]:
    """The archive while the block runs. Raises AthenaError, which names the file, where the database cannot be used."""
    try:
        with Archive(path) as archive:
            yield archive
    except sqlite3.Error as error:
        raise AthenaError(f"{path} cannot be used: {error}", code="recordings") from None


def _with_archive(path: Path, work: Callable[[Archive], T]) -> T:
    with open_archive(path) as archive:
        return work(archive)


def record_mode(config: Config, bound: tuple[str, ...] | None) -> tuple[RecordSettings, Mode]:
    """The settings of recordings, and where they go. `bound` are the addresses that our own server listens on."""
    record = config.record
    if isinstance(record, bool):
        return RecordSettings(mode="disk" if record else "off"), "disk" if record else "off"
    if record.mode != "auto":
        return record, record.mode
    is_private = bound is not None and all(map(is_loopback, bound)) and not config.keys
    return record, "memory" if is_private else "off"
