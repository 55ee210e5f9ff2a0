"""Statements that are kept before the database has them: two files for each process that writes to a database file.

A commit of SQLite and the way into its thread and back cost several times what one write to a file costs. So a single statement
is acknowledged when it stands in the journal, from which a killed process loses nothing either, and the database gets the
statements of some moments together, in their order.

Each entry has a number. The transaction that takes entries over into the tables also writes the number of the last one to the
table `journals`, so each is taken over once, whoever does it and whoever dies meanwhile. Any process may take over the journal
of any other; that of a dead one, whose lock is free, is removed then.

While the entries of one file are taken over, new ones go to the other. Once the database has all of a file, it is written from
its beginning again: that costs a third of what a file costs that grows. What it held before stands behind the new entries, and
is told from them by its numbers and its checksums; the database has all of it.

    length and checksum, 4 bytes each; (number, SQL, values) as MessagePack
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import sqlite3
import struct
import threading
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from athena.shells.own_files import open_own
from athena.shells.store.database import Query, Value

_HEAD = 8
_LARGEST = 256 * 1024
"""Bytes of an entry; what is larger goes to the database at once, so that no other request waits for its copy."""
_MUCH_PENDING = 1024 * 1024
_MOST_PENDING = 4 * 1024 * 1024
"""Bytes that the database gets at once, and bytes that may wait for it."""
_MARK = "-journal-of-"

_Entry = tuple[int, str, tuple[Any, ...]]
_pack = struct.Struct(">II").pack
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Entry).decode

RunQueries = Callable[[sqlite3.Connection, list[Query]], None]
"""Runs statements on a connection, in their order."""


class JournalFull(Exception):
    """A statement that has to go to the database itself."""


class _File:
    """One of the two files."""

    __slots__ = ("at", "descriptor", "end", "forgets", "name", "path", "waiting")

    def __init__(self, name: str, path: Path, descriptor: int) -> None:
        self.name = name
        self.path = path
        self.descriptor = descriptor
        self.at = 0
        """Where the next entry goes."""
        self.end = 0
        """Its bytes."""
        self.waiting = 0
        """Entries that the database does not have yet."""
        self.forgets = False
        """Does it hold what was deleted, so that it is to be emptied?"""

    def free(self) -> None:
        """The database has everything in it."""
        self.at = 0
        if self.forgets:
            self.forgets = False
            if self.end:
                os.ftruncate(self.descriptor, 0)
                self.end = 0


class _Pending(NamedTuple):
    """A statement that the database does not have yet."""

    number: int
    query: Query
    size: int
    file: _File


class Journal:
    """The journal of this process. `append` is called in the event loop, everything else in the thread that writes."""

    def __init__(self, database: Path) -> None:
        self.is_trusted = False
        """Could the database be written the last time? Otherwise it is asked first, so that clients hear of its trouble."""
        self._database = database
        self._file: _File | None = None
        """Where entries go."""
        self._spare: _File | None = None
        """The other one; made when it is needed."""
        self._lock = threading.Lock()
        self._pending: deque[_Pending] = deque()
        self._names: dict[Value, _Pending] = {}
        """By the first values of what is pending, the last statement that has each."""
        self._waiting = 0
        """Bytes of what is pending."""
        self._number = 0
        self._is_announced = False

    @property
    def is_empty(self) -> bool:
        """True when the database holds everything that the journal does."""
        return not self._pending

    def holds(self, name: str) -> bool:
        """Does the database not have a statement yet whose first value this is, the name of its row?"""
        return name in self._names

    # -- in the event loop ---------------------------------------------------------------------------------------------------

    def waiting(self, connection: sqlite3.Connection, name: str) -> Query | None:
        """The statement whose first value this is, where no process has taken it over into the database yet."""
        pending = self._names.get(name)
        if pending is None or _applied(connection, pending.file.name) >= pending.number:
            return None
        return pending.query

    def append(self, query: Query) -> bool:
        """Keep a statement. Returns whether the writing thread has to be told: of the first statement, upon which it waits for
        more, and once there are many. Raises JournalFull where this is no place for the statement, OSError where it cannot be
        kept."""
        number = self._number + 1
        entry = _encode((number, query.sql, query.values))
        size = _HEAD + len(entry)
        if size > _LARGEST or self._waiting + size > _MOST_PENDING:
            raise JournalFull
        data = _pack(len(entry), zlib.crc32(entry)) + entry
        with self._lock:
            file = self._file
            if file is None or not self.is_trusted:
                raise JournalFull
            written = os.pwrite(file.descriptor, data, file.at)
            if written < size:  # the next entry is written over it
                raise OSError(f"{file.path}: only {written} of {size} bytes were written; is the disk full?")
            self._number = number
            file.at += size
            if file.at > file.end:
                file.end = file.at
            file.waiting += 1
            were_few = self._waiting < _MUCH_PENDING
            self._waiting += size
            pending = _Pending(number, query, size, file)
            self._pending.append(pending)
            if query.values:
                self._names[query.values[0]] = pending
            announced, self._is_announced = self._is_announced, True
            return not announced or (were_few and self._waiting >= _MUCH_PENDING)

    # -- in the thread that writes -------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Make the first file, unless it is open."""
        if self._file is None:
            file = self._made()
            with self._lock:
                self._file = file

    def _made(self) -> _File:
        """A new file. Nobody else sees it before its lock is held."""
        name = secrets.token_hex(8)
        path = self._database.with_name(f"{self._database.name}{_MARK}{name}")
        new = path.with_name(f"{path.name}.new")
        descriptor = open_own(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.rename(new, path)
        except BaseException:
            os.close(descriptor)
            with contextlib.suppress(OSError):
                new.unlink()
            raise
        return _File(name, path, descriptor)

    def take_over(self, connection: sqlite3.Connection, run: RunQueries) -> int:
        """Inside of a transaction: run what is pending. Returns the number of the last statement, for `taken_over`."""
        if self._spare is None and self._pending:
            with contextlib.suppress(OSError):  # entries go on in the one that there is
                self._spare = self._made()
        with self._lock:
            self._is_announced = False
            pending = list(self._pending)
            if pending and self._spare is not None and not self._spare.waiting:
                self._file, self._spare = self._spare, self._file
        if not pending:
            return 0
        last = {one.file: one.number for one in pending}
        applied = {file: _applied(connection, file.name) for file in last}
        run(connection, [one.query for one in pending if one.number > applied[one.file]])
        for file, number in last.items():
            _note_applied(connection, file.name, max(number, applied[file]))
        return pending[-1].number

    def taken_over(self, last: int, *, forget: bool) -> None:
        """The transaction is committed. `forget`: something may have been deleted, which shall not stay in a file."""
        with self._lock:
            pending = self._pending
            while pending and pending[0].number <= last:
                done = pending.popleft()
                self._waiting -= done.size
                done.file.waiting -= 1
                values = done.query.values
                if values and self._names.get(values[0]) is done:
                    del self._names[values[0]]
            for each in (self._file, self._spare):
                if each is not None:
                    each.forgets = each.forgets or forget
                    if not each.waiting:
                        each.free()

    def close(self, connection: sqlite3.Connection | None) -> None:
        """Remove the files where the database has everything; else whoever opens the database next takes them over."""
        with self._lock:
            files = [file for file in (self._file, self._spare) if file is not None]
            self._file = self._spare = None
            self.is_trusted = False
            self._pending.clear()
            self._names.clear()
            self._waiting = 0
            self._is_announced = False
        for file in files:
            if not file.waiting and connection is not None:
                with contextlib.suppress(OSError, sqlite3.Error):
                    remove(connection, [file.path])
            os.close(file.descriptor)

    # -- the journals of others ----------------------------------------------------------------------------------------------

    def others(self, *, empty_too: bool = False) -> list[Path]:
        """The journals of other processes, alive or dead, that are not empty."""
        found = []
        start = f"{self._database.name}{_MARK}"
        own = {file.path.name for file in (self._file, self._spare) if file is not None}
        with contextlib.suppress(FileNotFoundError), os.scandir(self._database.parent) as entries:
            for entry in entries:
                if entry.name.startswith(start) and not entry.name.endswith(".new") and entry.name not in own:
                    with contextlib.suppress(FileNotFoundError):
                        if empty_too or entry.stat(follow_symlinks=False).st_size:
                            found.append(Path(entry.path))
        return found


def take_over_others(connection: sqlite3.Connection, paths: list[Path], run: RunQueries) -> list[Path]:
    """Inside of a transaction: run what the database does not have of these journals. Returns those whose processes are dead:
    they are to be removed with `remove` once the transaction is committed."""
    dead = []
    for path in paths:
        try:
            file = open_own(path, os.O_RDONLY)
        except FileNotFoundError:
            continue  # its process has just removed it, so the database has everything
        try:
            # A dead process writes nothing more: whether it is dead is asked first.
            is_dead = _is_free(file)
            name = path.name.rpartition(_MARK)[2]
            applied = _applied(connection, name)
            new = [(number, query) for number, query in _entries(file) if number > applied]
            if new:
                run(connection, [query for _, query in new])
                _note_applied(connection, name, new[-1][0])
            if is_dead:
                dead.append(path)
        finally:
            os.close(file)
    return dead


def remove(connection: sqlite3.Connection, dead: list[Path]) -> None:
    """Outside of a transaction: journals of which the database has everything. The file goes first: without its row it would
    be taken over again, and what was deleted since would come back."""
    for path in dead:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        connection.execute("DELETE FROM journals WHERE name = ?", (path.name.rpartition(_MARK)[2],))


def _is_free(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _entries(file: int) -> Iterator[tuple[int, Query]]:
    """The whole entries of a file, as far as their numbers follow one another: a process that was killed leaves the beginning
    of one, one that is alive may be writing its file from the beginning, and what the file held before stands behind them."""
    expected = 0
    with open(os.dup(file), "rb") as opened:
        while len(head := opened.read(_HEAD)) == _HEAD:
            length, checksum = int.from_bytes(head[:4], "big"), int.from_bytes(head[4:], "big")
            entry = opened.read(length) if length <= _LARGEST else b""
            if len(entry) < length or zlib.crc32(entry) != checksum:
                return
            try:
                number, sql, values = _decode(entry)
            except msgspec.DecodeError:
                return
            if expected and number != expected:
                return
            yield number, Query(sql, values)
            expected = number + 1


def _applied(connection: sqlite3.Connection, name: str) -> int:
    row = connection.execute("SELECT applied FROM journals WHERE name = ?", (name,)).fetchone()
    return int(row[0]) if row else 0


def _note_applied(connection: sqlite3.Connection, name: str, number: int) -> None:
    connection.execute("INSERT OR REPLACE INTO journals (name, applied) VALUES (?, ?)", (name, number))
