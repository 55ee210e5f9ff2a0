"""Recordings in one SQLite database: rows, groups of what was written together, and blobs that are kept once whatever number
of exchanges holds them.

To pack an exchange by itself takes longer than to collect it: those that are written in one go are packed in one go, and what
a list shows of one is read from its group.

Every method blocks, so it is called in a thread of its own; a connection belongs to the thread that made it. Changes of the
database's form are numbered files under `migrations`; `PRAGMA user_version` says which of them it has.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
import sys
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from itertools import count, islice
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias

import msgspec

from athena.errors import AthenaError
from athena.recording.deltas import delta, restored
from athena.recording.filters import Filter, Placed, Position, page_of
from athena.recording.grouped import Group, parts_of
from athena.recording.lines import Recording
from athena.recording.parted import Parted, Streams, joined, opened
from athena.recording.show import row_of
from athena.recording.view import ExchangeRow
from athena.shells.migrations import migrate_sqlite, scripts
from athena.shells.own_files import check_directory, check_own, open_own, own_directory
from athena.shells.recorder.packing import (
    GroupHeads,
    heads_of,
    older,
    opened_at,
    pack,
    pack_group,
    pack_streams,
    unpack,
    unpack_streams,
    without_heads,
)

_CACHED = 64
_CACHED_BYTES = 48 * 1024 * 1024
"""Bodies that are remembered so that the next request of their session is told by them."""
_DAY = 86400.0
_TRIMMED = 64
_LONGEST_CHAIN = 20_000
_LOG_PAGES = 4096
"""Pages of the log after which they are copied into the file. With SQLite's own 1000 it syncs four times as often, and copies
pages of indexes that change again at once."""
_GROUPS_READ = 16
"""Groups that are remembered while a list is made."""
_ROUNDED = 0.000001
"""By how much a time may differ from what a row tells: earlier versions kept more digits."""
_LAST_LETTER = chr(sys.maxunicode)
"""What begins as a text does stands before this text with it."""
_ALL = Filter()
_ROW = "name, row, size, grouped, place"
"""The columns of which a row of a list is made."""
Groups: TypeAlias = dict[int, GroupHeads]
_INSERT = "INSERT OR IGNORE INTO exchanges (name, at, session, weight, parts, size, grouped, place, row, lines) VALUES "
_VALUES = "(?, ?, ?, ?, ?, ?, ?, ?, x'', x'')"


class Archive:
    """The database of recordings of one state directory."""

    def __init__(self, path: Path, *, timeout_s: float = 5.0) -> None:
        """Opens it, making it if it is missing. Raises OSError for a place that is not ours, sqlite3.Error for a bad file."""
        self.path = path
        own_directory(path.parent)
        check_directory(path.parent)
        if os.path.lexists(path):
            check_own(path)  # without opening it: closing it again would end the locks of those who use it in this process
        else:
            os.close(open_own(path, os.O_RDWR | os.O_CREAT))
        self._file = _file_at(path)
        self._database = sqlite3.connect(path, timeout=timeout_s, isolation_level=None)
        self._bodies: OrderedDict[tuple[str, ...], list[tuple[int, int, bytes]]] = OrderedDict()
        """By session and side: number, length of its chain, and the body."""
        self._cached = 0
        self._settings: dict[bytes, int] = {}
        """Settings by their content: most exchanges have the same."""
        self._used: dict[int, int] = {}
        """How many more hold a blob than its row says, until the transaction ends."""
        self._version = 0
        """Changes whenever another connection has written; 0: it is not known what others did."""
        self._deletions = 0
        """How often blobs were deleted, by whomever."""
        try:
            self._database.execute("PRAGMA auto_vacuum = INCREMENTAL")
            self._database.execute("PRAGMA journal_mode = WAL")
            self._database.execute("PRAGMA synchronous = NORMAL")
            self._database.execute(f"PRAGMA wal_autocheckpoint = {_LOG_PAGES}")
            self._migrate()
        except sqlite3.Error:
            self._database.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    @property
    def is_in_place(self) -> bool:
        """False: the file was moved away, deleted or replaced. What is written now would be found by nobody."""
        return self._file == _file_at(self.path)

    def _migrate(self) -> None:
        steps = scripts(__package__)
        if migrate_sqlite(self._database, steps) > len(steps):
            raise AthenaError(
                f"{self.path} was made by a newer version of Athena; move it away, or use that version", code="recordings"
            )

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._database.execute("BEGIN IMMEDIATE")
        try:
            version = self._database.execute("PRAGMA data_version").fetchone()[0]
            if version != self._version:
                self._version = version
                deletions = self._database.execute("SELECT count FROM deletions").fetchone()[0]
                if deletions != self._deletions:
                    # Another process deleted: what is remembered of bodies may name rows that are not there now.
                    self._deletions = deletions
                    self._forget_bodies()
            yield
            self._count_uses()
        except BaseException:
            self._version = 0
            self._forget_bodies()
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            raise
        self._database.execute("COMMIT")

    # -- writing -------------------------------------------------------------------------------------------------------------

    def add(self, recordings: Iterable[Recording]) -> list[ExchangeRow]:
        """Keep them, all or none. Returns their rows, in which names are unique."""
        return self.add_parted([Parted.of(recording) for recording in recordings])

    def add_parted(self, recordings: Sequence[Parted]) -> list[ExchangeRow]:
        """The same for recordings in parts."""
        return [named_row(name, recording) for name, recording in zip(self.put(recordings), recordings, strict=True)]

    def put(self, recordings: Sequence[Parted]) -> list[str]:
        """The same, without their rows: returns their names alone."""
        return self.put_groups([Group.of(group) for group in parts_of(recordings, lambda each: len(each.streams.data))])

    def put_groups(self, groups: Iterable[Group]) -> list[str]:
        """The same for recordings that are encoded in groups."""
        with self._transaction():
            return [name for group in groups if group.members for name in self._add(group)]

    def _add(self, group: Group) -> list[str]:
        members = group.members
        number = self._database.execute(
            "INSERT INTO groups (uses, heads, streams) VALUES (?, ?, ?)",
            (len(members), pack(group.heads), pack_group(group.begin, group.plain, [each.streams for each in members])),
        ).lastrowid
        assert number is not None
        rows = [self._member(recording, number, place) for place, recording in enumerate(members)]
        names: list[str] = [row[0] for row in rows]
        # In one statement: each lets the event loop's thread go on and has to wait for its turn again.
        insert = _INSERT + ", ".join([_VALUES] * len(rows))
        if self._database.execute(insert, [value for row in rows for value in row]).rowcount != len(rows):
            self._rename(rows, number, names)
        return names

    def _member(self, recording: Parted, group: int, place: int) -> tuple[Any, ...]:
        """The row of an exchange, whose bodies and settings are kept."""
        about = recording.about
        whose = about.whose
        of = whose.session or whose.program, whose.agent, about.key, about.dialect
        client, *attempts = recording.bodies
        blobs = [self._settings_blob(recording.settings), self._blob(("client", *of), client)]
        blobs += [self._blob(("upstream", *of, about.upstream, about.model), body) for body in attempts]
        parts = msgspec.json.encode(blobs).decode()
        # Whoever is turned away, or polls, must not push out what others went through.
        weight = 1 if about.is_special else 0 if about.kind == "served" else -1
        return about.name, about.at, whose.session, weight, parts, recording.size, group, place

    def _rename(self, rows: list[tuple[Any, ...]], group: int, names: list[str]) -> None:
        """Give another name to those of a group that are missing: clients may give two requests one id."""
        query = "SELECT place FROM exchanges WHERE grouped = ? ORDER BY place"
        there = {place for (place,) in self._database.execute(query, (group,))}
        for place, (name, *values) in enumerate(rows):
            if place not in there:
                first = self._database.execute("SELECT coalesce(max(number), 0) + 1 FROM exchanges").fetchone()[0]
                # A client may have chosen such a name as well.
                tried = (f"{name}.{number}" for number in count(first))
                names[place] = next(each for each in tried if self._is_new((each, *values)))

    def _is_new(self, row: tuple[Any, ...]) -> bool:
        """Keep the row unless there is one of its name."""
        return self._database.execute(_INSERT + _VALUES, row).rowcount == 1

    def _settings_blob(self, settings: bytes) -> int:
        number = self._settings.get(settings)
        if number is None:
            number = self._kept(None, settings, settings)
            if len(self._settings) >= _CACHED:
                self._settings.clear()
            self._settings[settings] = number
        self._use(number)
        return number

    def _blob(self, place: tuple[str, ...], body: bytes) -> int:
        number = self._same(place, body)
        if number is None:
            base, length, told = self._shortest(place, body)
            number = self._kept(base, told, body)
            self._remember(place, number, length, body)
        self._use(number)
        return number

    def _same(self, place: tuple[str, ...], body: bytes) -> int | None:
        """The blob of an equal body that is remembered: a client asked twice."""
        for number, _, earlier in self._bodies.get(place, ()):
            if earlier == body:
                return number
        return None

    def _kept(self, base: int | None, told: bytes, body: bytes) -> int:
        """The blob that tells the body so, a new one unless there is one. What follows from a blob is named by that and by the
        difference: the long body is not hashed anew with every turn."""
        hasher = hashlib.sha256(b"" if base is None else b"%d:" % base)
        hasher.update(told if base is not None else body)
        digest = hasher.digest()[:16]
        known = self._database.execute("SELECT number FROM blobs WHERE digest = ?", (digest,)).fetchone()
        if known is not None:
            return int(known[0])
        number = self._database.execute(
            "INSERT INTO blobs (digest, base, uses, data) VALUES (?, ?, 0, ?)", (digest, base, pack(told))
        ).lastrowid
        assert number is not None
        if base is not None:
            self._use(base)
        return number

    def _use(self, number: int) -> None:
        self._used[number] = self._used.get(number, 0) + 1

    def _count_uses(self) -> None:
        if self._used:
            counts = [(count, number) for number, count in self._used.items()]
            self._database.executemany("UPDATE blobs SET uses = uses + ? WHERE number = ?", counts)
            self._used.clear()

    def _shortest(self, place: tuple[str, ...], body: bytes) -> tuple[int | None, int, bytes]:
        """The blob to tell it by, how many follow from each other then, and what is to be stored."""
        best: tuple[int | None, int, bytes] | None = None
        for number, length, earlier in reversed(self._bodies.get(place, [])):
            told = delta(earlier, body) if length < _LONGEST_CHAIN else None
            if told is not None and (best is None or len(told) < len(best[2])):
                best = number, length + 1, told
                if len(told) < len(body) // 20:
                    break
        return best if best is not None else (None, 0, body)

    def _forget_bodies(self) -> None:
        self._bodies.clear()
        self._settings.clear()
        self._used.clear()
        self._cached = 0

    def _remember(self, place: tuple[str, ...], number: int, length: int, body: bytes) -> None:
        kept = self._bodies.setdefault(place, [])
        kept.append((number, length, body))
        self._cached += len(body)
        self._bodies.move_to_end(place)
        # The one before the last is kept as well: a client may ask twice, or step back.
        while len(kept) > 2:
            self._cached -= len(kept.pop(0)[2])
        while self._bodies and (len(self._bodies) > _CACHED or self._cached > _CACHED_BYTES):
            _, oldest = self._bodies.popitem(last=False)
            self._cached -= sum(len(each) for _, _, each in oldest)

    def delete(self, names: Sequence[str]) -> int:
        """Forget these exchanges, and whatever no other one holds. Returns how many there were."""
        with self._transaction():
            left: dict[int, set[int]] = {}
            count = sum(self._delete(name, left) for name in names)
            for group, places in left.items():
                self._leave_out(group, places)
            if count:
                self._forget_bodies()
                self._deletions += 1
                self._database.execute("UPDATE deletions SET count = ?", (self._deletions,))
            return count

    def _delete(self, name: str, left: dict[int, set[int]]) -> int:
        """Forget one, and note in `left` its place in its group."""
        query = "SELECT number, parts, grouped, place FROM exchanges WHERE name = ?"
        found = self._database.execute(query, (name,)).fetchone()
        if found is None:
            return 0
        number, parts, group, place = found
        self._database.execute("DELETE FROM exchanges WHERE number = ?", (number,))
        if group is not None:
            left.setdefault(group, set()).add(place)
        for blob in _numbers(parts):
            self._let_go(blob)
        return 1

    def _leave_out(self, group: int, places: set[int]) -> None:
        """Write a group anew without those at these places; the others stay at theirs."""
        query = "SELECT uses, heads, streams FROM groups WHERE number = ?"
        uses, heads, streams = self._database.execute(query, (group,)).fetchone()
        if uses == len(places):
            self._database.execute("DELETE FROM groups WHERE number = ?", (group,))
            return
        others = [None if place in places else each for place, each in enumerate(unpack_streams(streams))]
        self._database.execute(
            "UPDATE groups SET uses = ?, heads = ?, streams = ? WHERE number = ?",
            (uses - len(places), without_heads(heads, places), pack_streams(others), group),
        )

    def _let_go(self, blob: int | None) -> None:
        while blob is not None:
            uses, base = self._database.execute("SELECT uses, base FROM blobs WHERE number = ?", (blob,)).fetchone()
            if uses > 1:
                self._database.execute("UPDATE blobs SET uses = uses - 1 WHERE number = ?", (blob,))
                return
            self._database.execute("DELETE FROM blobs WHERE number = ?", (blob,))
            blob = base

    def trim(self, *, max_bytes: int, max_age_days: float, now: float) -> list[str]:
        """Forget what is too old or too much. What went well goes after half of the time, and before errors and repairs where
        there is too much; what was refused or passed through goes before that. Returns the names of what went."""
        old = self._database.execute(
            "SELECT name FROM exchanges WHERE at < ? OR (weight <= 0 AND at < ?) LIMIT 10000",
            (now - max_age_days * _DAY, now - max_age_days * _DAY / 2),
        ).fetchall()
        gone = [name for (name,) in old]
        if gone:
            self.delete(gone)
        while self.bytes_used > max_bytes:
            rows = self._database.execute("SELECT name FROM exchanges ORDER BY weight, at LIMIT ?", (_TRIMMED,)).fetchall()
            if not rows:
                break
            names = [name for (name,) in rows]
            self.delete(names)
            gone += names
        if gone:
            self._database.execute("PRAGMA incremental_vacuum").fetchall()
        return gone

    @property
    def bytes_used(self) -> int:
        """Bytes of the database that hold something."""
        one = self._database.execute
        pages, free = one("PRAGMA page_count").fetchone()[0], one("PRAGMA freelist_count").fetchone()[0]
        return int((pages - free) * one("PRAGMA page_size").fetchone()[0])

    # -- reading -------------------------------------------------------------------------------------------------------------

    def rows(
        self, wanted: Filter, limit: int = 100, after: Position | None = None
    ) -> tuple[list[ExchangeRow], Position | None]:
        """The newest that are meant, and the position after which the next page begins, if there is one."""
        return page_of(self.placed(wanted, limit + 1, after), limit)

    def placed(self, wanted: Filter, limit: int, after: Position | None = None) -> list[Placed]:
        """The newest that are meant, each with its position, of those that stand behind `after`."""
        return list(islice(self._found(wanted, after), limit))

    def _found(self, wanted: Filter, after: Position | None = None) -> Iterator[Placed]:
        """All that are meant, the newest first."""
        conditions, values = ["1"], []  # type: list[str], list[object]
        if wanted.name:
            conditions.append("name = ?")
            values.append(wanted.name)
        if wanted.session:
            conditions.append("session <> '' AND session >= ? AND session < ?")
            values += wanted.session, wanted.session + _LAST_LETTER
        if wanted.since:
            conditions.append("at >= ?")
            values.append(wanted.since - _ROUNDED)
        if wanted.until:
            conditions.append("at <= ?")
            values.append(wanted.until + _ROUNDED)
        if after is not None:
            conditions.append("(at, number) < (?, ?)")
            values += after
        groups: Groups = {}
        query = f"SELECT at, number, {_ROW} FROM exchanges WHERE {' AND '.join(conditions)} ORDER BY at DESC, number DESC"
        for at, number, *told in self._database.execute(query, values):
            row = self._row(tuple(told), groups)
            if wanted.holds(row):
                yield Position(at, number), row

    def _row(self, told: tuple[Any, ...], groups: Groups) -> ExchangeRow:
        """What a list shows of an exchange, by the columns `_ROW`; `groups` remembers those that were read just now."""
        name, row, size, group, place = told
        if group is None:
            return _read_row(unpack(row))
        heads = groups.get(group)
        if heads is None:
            (packed,) = self._database.execute("SELECT heads FROM groups WHERE number = ?", (group,)).fetchone()
            if len(groups) >= _GROUPS_READ:
                groups.clear()
            heads = groups[group] = heads_of(packed)
        bare, _ = opened_at(heads, place, _NO_STREAMS)
        return msgspec.structs.replace(row_of(bare, size=size), id=name)

    def load(self, name: str) -> Recording | None:
        """The exchange of that name."""
        with self._snapshot():
            query = "SELECT lines, streams, parts, grouped, place FROM exchanges WHERE name = ?"
            found = self._database.execute(query, (name,)).fetchone()
            if found is None:
                return None
            packed, packed_streams, parts, group, place = found
            settings, *bodies = map(self._body, _numbers(parts))
            if group is None:
                bare, streams = older(packed, packed_streams)
            else:
                query = "SELECT heads, streams FROM groups WHERE number = ?"
                heads, packed_streams = self._database.execute(query, (group,)).fetchone()
                kept = unpack_streams(packed_streams)[place]
                assert kept is not None
                bare, streams = opened_at(heads_of(heads), place, kept)
        return joined(bare, settings, bodies, streams)

    @contextlib.contextmanager
    def _snapshot(self) -> Iterator[None]:
        """All that is read within is of one moment, whatever others delete meanwhile."""
        self._database.execute("BEGIN")
        try:
            yield
        finally:
            self._database.execute("ROLLBACK")

    def before(self, row: ExchangeRow) -> tuple[str, bytes] | None:
        """The request before this one in its session, by the same agent."""
        if not row.session:
            return None
        # By the row's own columns: earlier versions kept times with more digits than a row tells.
        query = (
            f"SELECT parts, {_ROW} FROM exchanges WHERE session = ? AND session <> '' AND (at, number) < "
            "(SELECT at, number FROM exchanges WHERE name = ?) ORDER BY at DESC, number DESC LIMIT 20"
        )
        with self._snapshot():
            groups: Groups = {}
            for parts, *told in self._database.execute(query, (row.session, row.id)).fetchall():
                earlier = self._row(tuple(told), groups)
                if (earlier.agent, earlier.dialect) == (row.agent, row.dialect):
                    return earlier.id, self._body(_numbers(parts)[1])
        return None

    def count(self, wanted: Filter = _ALL) -> int:
        """How many exchanges are kept, of those that are meant."""
        if wanted != _ALL:
            return sum(1 for _ in self._found(wanted))
        return int(self._database.execute("SELECT count(*) FROM exchanges").fetchone()[0])

    def _body(self, blob: int) -> bytes:
        told: list[bytes] = []
        at: int | None = blob
        while at is not None:
            at, data = self._database.execute("SELECT base, data FROM blobs WHERE number = ?", (at,)).fetchone()
            told.append(unpack(data))
        body = told.pop()
        while told:
            body = restored(body, told.pop())
        return body


def _file_at(path: Path) -> tuple[int, int] | None:
    """Which file is there now."""
    try:
        found = os.stat(path, follow_symlinks=False)
    except OSError:
        return None
    return found.st_dev, found.st_ino


_read_row = msgspec.json.Decoder(ExchangeRow).decode
_NO_STREAMS = Streams(0.0)


def named_row(name: str, recording: Parted) -> ExchangeRow:
    """An exchange in a list, under the name that it is kept by."""
    bare, _ = opened(recording.head, recording.about.whose, _NO_STREAMS)
    return msgspec.structs.replace(row_of(bare, size=recording.size), id=name)


def _numbers(parts: str) -> list[int]:
    return msgspec.json.decode(parts, type=list[int])
