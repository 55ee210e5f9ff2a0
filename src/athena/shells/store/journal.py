"""Statements that are kept before the database has them: a file of one's own for each process that writes to a database file.

A commit of SQLite and the way into its thread and back cost several times what one write to the end of a file costs. So a
single statement is acknowledged when it stands in the journal, from which a killed process loses nothing either, and the
database gets the statements of some moments together, in their order.

Each entry has a number. The transaction that takes entries over into the tables also writes the number of the last one to the
table `journals`, so each is taken over once, whoever does it and whoever dies meanwhile. Any process may take over the journal
of any other; that of a dead one, whose lock is free, is removed then.

    length and checksum, 4 bytes each; (number, SQL, values) as MessagePack
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import sqlite3
import threading
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from athena.shells.own_files import open_own
from athena.shells.store.database import Query, Value

_HEAD = 8
_LARGEST = 256 * 1024
"""Bytes of an entry; what is larger goes to the database at once, so that no other request waits for its copy."""
_MUCH_PENDING = 1024 * 1024
_MOST_PENDING = 4 * 1024 * 1024
"""Bytes that the database gets at once, and bytes that may wait for it."""
_LONG = 1024 * 1024
"""Bytes of a file that is emptied once the database has everything in it."""
_MARK = "-journal-of-"

_Entry = tuple[int, str, tuple[Any, ...]]
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Entry).decode

RunQueries = Callable[[sqlite3.Connection, list[Query]], None]
"""Runs statements on a connection, in their order."""


class JournalFull(Exception):
    """A statement that has to go to the database itself."""


class Journal:
    """The journal of this process. `append` is called in the event loop, everything else in the thread that writes."""

    def __init__(self, database: Path) -> None:
        self.name = ""
        self.is_trusted = False
        """Could the database be written the last time? Otherwise it is asked first, so that clients hear of its trouble."""
        self._database = database
        self._path = database
        self._file: int | None = None
        self._lock = threading.Lock()
        self._pending: deque[tuple[int, Query, int]] = deque()
        self._names: dict[Value, int] = {}
        """The first values of what is pending, with the number of the last statement that has each."""
        self._waiting = 0
        """Bytes of what is pending."""
        self._size = 0
        """Bytes of the file."""
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

    def append(self, query: Query) -> bool:
        """Keep a statement. Returns whether the writing thread has to be told: of the first statement, upon which it waits for
        more, and once there are many. Raises JournalFull where this is no place for the statement, OSError where it cannot be
        kept."""
        number = self._number + 1
        entry = _encode((number, query.sql, query.values))
        size = _HEAD + len(entry)
        if size > _LARGEST or self._waiting + size > _MOST_PENDING:
            raise JournalFull
        data = len(entry).to_bytes(4, "big") + zlib.crc32(entry).to_bytes(4, "big") + entry
        with self._lock:
            if self._file is None or not self.is_trusted:
                raise JournalFull
            written = 0
            try:
                written = os.write(self._file, data)
            finally:
                if written < size:  # half an entry would hide those after it
                    os.ftruncate(self._file, self._size)
            if written < size:
                raise OSError(f"{self._path}: only {written} of {size} bytes were written; is the disk full?")
            self._number = number
            self._size += size
            were_few = self._waiting < _MUCH_PENDING
            self._waiting += size
            self._pending.append((number, query, size))
            if query.values:
                self._names[query.values[0]] = number
            announced, self._is_announced = self._is_announced, True
            return not announced or (were_few and self._waiting >= _MUCH_PENDING)

    # -- in the thread that writes -------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Make the file, unless it is open. Nobody else sees it before its lock is held."""
        if self._file is not None:
            return
        name = secrets.token_hex(8)
        path = self._database.with_name(f"{self._database.name}{_MARK}{name}")
        new = path.with_name(f"{path.name}.new")
        file = open_own(new, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.rename(new, path)
        except BaseException:
            os.close(file)
            with contextlib.suppress(OSError):
                new.unlink()
            raise
        with self._lock:
            self.name, self._path, self._file = name, path, file
            self._number = self._size = 0

    def take_over(self, connection: sqlite3.Connection, run: RunQueries) -> int:
        """Inside of a transaction: run what is pending. Returns the number of the last statement, for `taken_over`."""
        with self._lock:
            self._is_announced = False
            pending = list(self._pending)
        if not pending:
            return 0
        applied = _applied(connection, self.name)
        run(connection, [query for number, query, _ in pending if number > applied])
        last = pending[-1][0]
        _note_applied(connection, self.name, max(last, applied))
        return last

    def taken_over(self, last: int, *, forget: bool) -> None:
        """The transaction is committed. `forget`: something may have been deleted, which shall not stay in the file."""
        with self._lock:
            pending = self._pending
            while pending and pending[0][0] <= last:
                number, query, size = pending.popleft()
                self._waiting -= size
                if query.values and self._names.get(query.values[0]) == number:
                    del self._names[query.values[0]]
            if not pending and self._file is not None and self._size > (0 if forget else _LONG):
                os.ftruncate(self._file, 0)
                self._size = 0

    def close(self, connection: sqlite3.Connection | None) -> None:
        """Remove the file where the database has everything; else whoever opens the database next takes it over."""
        with self._lock:
            file, self._file, self.is_trusted = self._file, None, False
            is_empty = not self._pending
            self._pending.clear()
            self._names.clear()
            self._waiting = 0
            self._is_announced = False
        if file is None:
            return
        if is_empty and connection is not None:
            with contextlib.suppress(OSError, sqlite3.Error):
                remove(connection, [self._path])
        os.close(file)

    # -- the journals of others ----------------------------------------------------------------------------------------------

    def others(self, *, empty_too: bool = False) -> list[Path]:
        """The journals of other processes, alive or dead, that are not empty."""
        found = []
        start = f"{self._database.name}{_MARK}"
        with contextlib.suppress(FileNotFoundError), os.scandir(self._database.parent) as entries:
            for entry in entries:
                if entry.name.startswith(start) and not entry.name.endswith(".new") and entry.name != self._path.name:
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
    of one, and one that is alive may be emptying its file."""
    with open(os.dup(file), "rb") as opened:
        data = opened.read()
    at, expected = 0, 0
    while at + _HEAD <= len(data):
        length, checksum = int.from_bytes(data[at : at + 4], "big"), int.from_bytes(data[at + 4 : at + _HEAD], "big")
        entry = data[at + _HEAD : at + _HEAD + length]
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
        at += _HEAD + length


def _applied(connection: sqlite3.Connection, name: str) -> int:
    row = connection.execute("SELECT applied FROM journals WHERE name = ?", (name,)).fetchone()
    return int(row[0]) if row else 0


def _note_applied(connection: sqlite3.Connection, name: str, number: int) -> None:
    connection.execute("INSERT OR REPLACE INTO journals (name, applied) VALUES (?, ?)", (name, number))
