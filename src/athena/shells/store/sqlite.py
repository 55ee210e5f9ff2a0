"""A database file of SQLite: one thread writes, another one reads.

Transactions that come while one is being written are written together with the next: one commit for all of them. Single
statements are acknowledged when they stand in a journal, and follow a moment later (`journal`). Either has left the process
when it is acknowledged, so a killed process loses none; the file is synced at checkpoints, so a machine that loses its power
may lose the last moments, never the file.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import re
import sqlite3
import threading
from collections.abc import Callable, Sequence
from enum import Enum
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from athena.errors import AthenaError
from athena.shells.migrations import migrate_sqlite, scripts
from athena.shells.own_files import check_directory, check_own, open_own, own_directory
from athena.shells.store.database import Query, SqlRow, SqlSteps, Value
from athena.shells.store.journal import Journal, JournalFull, RunQueries, remove, take_over_others
from athena.state.errors import StoreDown

_GROUP = 64
"""Transactions that one commit holds."""
_GATHER_S = 1.0
"""How long statements gather in the journal before the database gets them, unless they are many: a commit costs ten times what
one more row in it does. Whoever looks for one of them before that has it written at once."""
_MOST_ROWS = 32
"""Rows that one statement puts."""
_MUCH = 1024 * 1024
"""Bytes of a value that shall not stay in memory once it is written."""
_PAGE = 16 * 1024
"""Bytes of a page of a new file: most responses are larger than SQLite's own 4 KiB, and each page is written by a call of its
own, twice."""
_CHECKPOINT = 16 * 1024 * 1024
"""Bytes after which what was committed is synced and copied into the file. SQLite's own 4 MiB cost a third of what large rows
cost: it syncs three times for each, and copies pages that change again."""
_PLACES = re.compile(r"\$(\d+)")
_ROW = re.compile(r"VALUES (\((?:\?, ){0,100}\?\))(?= ON CONFLICT)")

_Result = TypeVar("_Result")


class _Connection(sqlite3.Connection):
    """Knows whether it holds a large value: Python keeps prepared statements, each with the last values it was run with."""

    holds_much = False

    def execute(self, sql: str, values: Sequence[Value] = (), /) -> sqlite3.Cursor:  # type: ignore[override]
        """The same, for values by their places only."""
        if not self.holds_much:
            self.holds_much = any(isinstance(value, bytes | str) and len(value) > _MUCH for value in values)
        return super().execute(sql, values)


class _WorkKind(Enum):
    """How work is kept or undone beside other work of the same commit."""

    STATEMENT = "statement"
    """One statement: it undoes itself where it fails."""
    TRANSACTION = "transaction"
    """Several statements that are kept or undone together."""
    OUTSIDE = "outside"
    """It ends and begins transactions itself."""
    GATHERED = "gathered"
    """Nothing of its own: what the journal holds is to be taken over, in a moment."""


class _Work(NamedTuple):
    """What one of the threads does."""

    run: Callable[[sqlite3.Connection], Any]
    kind: _WorkKind


class _Job(NamedTuple):
    """Work, and where its result goes.

    What does the work sees nothing of the future: an exception holds the frames that it passed, the future holds the exception,
    and the three would wait for the garbage collector.
    """

    work: _Work
    loop: asyncio.AbstractEventLoop | None = None
    future: asyncio.Future[Any] | None = None
    """None: nobody waits."""


class SqliteDatabase:
    """One file. It is opened on first use, and made where it is missing."""

    def __init__(self, path: Path, *, lock_s: float = 5.0) -> None:
        """`lock_s`: how long to wait for another process that writes."""
        self.name = f"SQLite, {path}"
        self.path = path
        self._lock_s = lock_s
        self._statements: dict[str, tuple[str, list[int] | None]] = {}
        self._making = threading.Lock()
        self._journal = Journal(path)
        self._writer = _Writer("athena-store-writer", self._open_to_write, self._journal, self._execute_all)
        self._reader = _Worker("athena-store-reader", self._open_to_read)
        self._glances: _Connection | None = None
        """For the event loop's own thread."""

    async def write(self, steps: Callable[[], SqlSteps[_Result]]) -> _Result:
        return await self._ask(self._writer, lambda connection: self._run(connection, steps()))

    async def put(self, query: Query) -> None:
        try:
            if self._append(query):
                return
        except OSError as error:
            raise StoreDown(f"the store cannot be used ({self.name}): {error}") from None

        def run(connection: sqlite3.Connection) -> None:
            self._execute(connection, query)

        await self._ask(self._writer, run, _WorkKind.STATEMENT)

    def put_at_once(self, query: Query) -> bool:
        try:
            return self._append(query)
        except OSError:
            return False

    def _append(self, query: Query) -> bool:
        """Put the statement into the journal; False: that is no place for it. Raises OSError where it cannot be kept there."""
        try:
            if self._journal.append(query):
                self._writer.put(_GATHERED)
        except JournalFull:
            return False
        return True

    async def read(self, steps: Callable[[], SqlSteps[_Result]]) -> _Result:
        return await self._ask(self._reader, lambda connection: self._run(connection, steps()))

    def glance(self, steps: Callable[[], SqlSteps[_Result | None]]) -> _Result | None:
        return self._glanced(lambda connection: self._run(connection, steps()))

    def waiting(self, name: str) -> Query | None:
        if not self._journal.holds(name):
            return None
        return self._glanced(lambda connection: self._journal.waiting(connection, name))

    def _glanced(self, look: Callable[[sqlite3.Connection], _Result | None]) -> _Result | None:
        if not self._reader.is_open and not self._writer.is_open:
            return None  # whoever uses the file for the first time makes it
        try:
            if self._glances is None:
                self._glances = self._connect(0.0)
                self._glances.execute("PRAGMA query_only = ON")
            return look(self._glances)
        except sqlite3.Error:
            self._end_glances()  # the file is busy or in trouble, which the reader waits for or reports
            return None

    def _end_glances(self) -> None:
        connection, self._glances = self._glances, None
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()

    async def settle(self) -> None:
        try:
            others = self._journal.others()
        except OSError as error:
            raise StoreDown(f"the store cannot be used ({self.name}): {error}") from None
        if others or not self._journal.is_empty:
            await self._ask(self._writer, _outside(lambda connection: self._take_over(connection, others)), _WorkKind.OUTSIDE)

    def is_put_off(self, name: str) -> bool:
        return self._journal.holds(name)

    def _take_over(self, connection: sqlite3.Connection, paths: list[Path]) -> None:
        """What other processes have acknowledged, and this file does not have yet."""
        if not paths:
            return
        connection.execute("BEGIN IMMEDIATE")
        dead = take_over_others(connection, paths, self._execute_all)
        connection.execute("COMMIT")
        remove(connection, dead)

    async def exists(self) -> bool:
        return self.path.exists()

    async def _ask(
        self,
        worker: _Worker,
        work: Callable[[sqlite3.Connection], _Result],
        kind: _WorkKind = _WorkKind.TRANSACTION,
    ) -> _Result:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[_Result] = loop.create_future()
        worker.put(_Job(_Work(work, kind), loop, future))
        try:
            return await future
        except (sqlite3.Error, OSError) as error:
            raise StoreDown(f"the store cannot be used ({self.name}): {error}") from None
        finally:
            del future  # it holds the exception, which holds this frame

    def _run(self, connection: sqlite3.Connection, steps: SqlSteps[_Result]) -> _Result:
        rows: list[SqlRow] = []
        try:
            query = next(steps)
            while True:
                rows = self._execute(connection, query).fetchall()
                query = steps.send(rows)
        except StopIteration as end:
            result: _Result = end.value
            return result
        finally:
            steps.close()

    def _execute(self, connection: sqlite3.Connection, query: Query) -> sqlite3.Cursor:
        """The statement with SQLite's own places for values; always the same text, by which its prepared form is found."""
        sql, order = self._spelling(query.sql)
        return connection.execute(sql, query.values if order is None else [query.values[place] for place in order])

    def _execute_all(self, connection: sqlite3.Connection, queries: list[Query]) -> None:
        """Statements in their order. Rows for the same table go as one statement: after each the thread lets others run, and is
        woken again, which costs more than the row."""
        at = 0
        while at < len(queries):
            first = queries[at]
            same = 1
            while same < _MOST_ROWS and at + same < len(queries) and queries[at + same].sql == first.sql:
                same += 1
            rows = 1 << (same.bit_length() - 1)  # few statements, which all stay prepared
            many = self._many_rows(first.sql, rows) if rows > 1 else None
            if many is None:
                self._execute(connection, first)
                at += 1
            else:
                # None of these values is so large that the connection would have to know of it.
                values = list(chain.from_iterable([query.values for query in queries[at : at + rows]]))
                sqlite3.Connection.execute(connection, many, values)
                at += rows

    def _many_rows(self, sql: str, rows: int) -> str | None:
        """The statement for so many rows; None for one that puts no row."""
        sql, order = self._spelling(sql)
        row = _ROW.search(sql)
        if order is not None or row is None:
            return None
        return f"{sql[: row.start(1)]}{', '.join([row[1]] * rows)}{sql[row.end(1) :]}"

    def _spelling(self, sql: str) -> tuple[str, list[int] | None]:
        spelled = self._statements.get(sql)
        if spelled is None:
            spelled = self._statements[sql] = _spelled(sql)
        return spelled

    # -- connections, each in the thread that uses it -------------------------------------------------------------------------

    def _open(self) -> _Connection:
        own_directory(self.path.parent)
        check_directory(self.path.parent)
        self._make()
        connection = self._connect()
        try:
            connection.execute(f"PRAGMA page_size = {_PAGE}")
            connection.execute("PRAGMA journal_mode = WAL")
            (page,) = connection.execute("PRAGMA page_size").fetchone()
            connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT // page}")
            connection.execute("PRAGMA synchronous = NORMAL")
            _migrate(connection, self.path)
            self._take_over(connection, self._journal.others(empty_too=True))
        except BaseException:
            connection.close()
            raise
        return connection

    def _open_to_write(self) -> _Connection:
        connection = self._open()
        try:
            self._journal.open()
        except BaseException:
            connection.close()
            raise
        return connection

    def _make(self) -> None:
        """Make the file where it is missing. Never while it is open: closing any descriptor of a file ends the locks that this
        process has on it, and another process would then take the file for unused and drop what is being written."""
        with self._making:
            if not os.path.lexists(self.path):
                os.close(open_own(self.path, os.O_RDWR | os.O_CREAT))
            else:
                check_own(self.path)

    def _open_to_read(self) -> _Connection:
        # The writer's way in makes the file and its form, once.
        self._open().close()
        connection = self._connect()
        connection.execute("PRAGMA query_only = ON")
        return connection

    def _connect(self, lock_s: float | None = None) -> _Connection:
        return sqlite3.connect(
            self.path,
            timeout=self._lock_s if lock_s is None else lock_s,
            isolation_level=None,
            cached_statements=256,
            factory=_Connection,
            check_same_thread=False,  # each is used by one, and whoever ends the store closes that of the event loop
        )

    # -- the operator's commands ----------------------------------------------------------------------------------------------

    async def migrate(self) -> tuple[int, int]:
        try:
            before = await asyncio.to_thread(_version_of, self.path)
        except (sqlite3.Error, OSError) as error:
            raise StoreDown(f"the store cannot be used ({self.name}): {error}") from None
        await self._ask(self._writer, lambda connection: None)
        return before, len(scripts(__package__))

    async def check(self) -> list[str]:
        def problems(connection: sqlite3.Connection) -> list[str]:
            found = [str(row[0]) for row in connection.execute("PRAGMA integrity_check(20)")]
            return [] if found == ["ok"] else found

        return await self._ask(self._reader, problems)

    async def vacuum(self) -> None:
        def vacuum(connection: sqlite3.Connection) -> None:
            connection.execute("PRAGMA auto_vacuum = NONE")  # earlier versions had it: every write pays for it
            connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

        await self._ask(self._writer, _outside(vacuum), _WorkKind.OUTSIDE)

    async def close(self) -> None:
        await asyncio.to_thread(self.close_now)

    def close_now(self) -> None:
        """The same for whoever has no event loop."""
        self._end_glances()
        self._writer.close()
        self._reader.close()


def _spelled(sql: str) -> tuple[str, list[int] | None]:
    """With a question mark for each place, and the value that goes to each, unless they go there one by one. Numbered question
    marks would say the same, but CPython 3.12.0 to 3.12.3 take them for names and warn of them."""
    order = [int(number) - 1 for number in _PLACES.findall(sql)]
    return _PLACES.sub("?", sql), None if order == list(range(len(order))) else order


def _outside(work: Callable[[sqlite3.Connection], _Result]) -> Callable[[sqlite3.Connection], _Result]:
    """The work outside of any transaction, though it is asked of the thread that groups them."""

    def alone(connection: sqlite3.Connection) -> _Result:
        connection.execute("COMMIT")
        try:
            return work(connection)
        finally:
            connection.execute("BEGIN IMMEDIATE")

    return alone


def _version_of(path: Path) -> int:
    if not path.exists():
        return 0
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    steps = scripts(__package__)
    if migrate_sqlite(connection, steps) > len(steps):
        raise StoreDown(f"{path} was made by a newer version of Athena; use that one, or move the file away")


class _Worker:
    """A thread with a connection of its own, which does one thing after the other."""

    def __init__(self, name: str, connect: Callable[[], _Connection]) -> None:
        self._name = name
        self._connect = connect
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._connection: _Connection | None = None

    @property
    def is_open(self) -> bool:
        """Is there a connection that has not failed?"""
        return self._connection is not None

    def put(self, job: _Job) -> None:
        if self._thread is None:
            with self._lock:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                    self._thread.start()
        self._jobs.put(job)

    def close(self) -> None:
        thread = self._thread
        if thread is not None:
            self._jobs.put(None)
            thread.join()
            self._thread = None

    # -- in the thread ---------------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        ended = False
        while not ended:
            group, ended = self._group()
            if group:
                self._answer(group, self._done([job.work for job in group]))
            del group  # nothing of it stays while the thread waits for more
        self._end()

    def _end(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _group(self) -> tuple[list[_Job], bool]:
        """What is done together, and whether nothing follows."""
        job = self._jobs.get()
        return ([], True) if job is None else ([job], False)

    def _done(self, group: list[_Work]) -> list[tuple[Any, BaseException | None]]:
        """What came of each, all or none of the changes of each kept. A connection that fails is opened anew the next time."""
        try:
            if self._connection is None:
                self._connection = self._connect()
            done = self._worked(self._connection, group)
        except (sqlite3.Error, OSError, AthenaError) as error:
            self._drop()
            return [(None, error)] * len(group)
        if self._connection.holds_much:
            self._drop()
            with contextlib.suppress(sqlite3.Error, OSError, AthenaError):  # whoever comes next tries it again, and is told
                self._connection = self._connect()
        return done

    def _worked(self, connection: sqlite3.Connection, group: list[_Work]) -> list[tuple[Any, BaseException | None]]:
        return [self._alone(connection, work) for work in group]

    def _alone(self, connection: sqlite3.Connection, work: _Work) -> tuple[Any, BaseException | None]:
        try:
            return work.run(connection), None
        except sqlite3.IntegrityError as error:
            return None, error  # SQLite has undone the statement, and nothing else
        except sqlite3.DatabaseError:
            raise
        except BaseException as error:
            return None, error

    def _drop(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None

    @staticmethod
    def _answer(group: list[_Job], done: list[tuple[Any, BaseException | None]]) -> None:
        settled: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], Any, BaseException | None]]] = {}
        for job, (result, error) in zip(group, done, strict=True):
            if job.loop is not None and job.future is not None:
                settled.setdefault(job.loop, []).append((job.future, result, error))
        done.clear()  # an exception in it holds the frame that made it, and that frame holds the list
        for loop, results in settled.items():
            # The loop may have ended meanwhile: then nobody waits.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(_settle, results)


class _Writer(_Worker):
    """The thread that writes: one commit for everything that waits, what stands in the journal first."""

    def __init__(self, name: str, connect: Callable[[], _Connection], journal: Journal, run: RunQueries) -> None:
        super().__init__(name, connect)
        self._journal = journal
        self._run_query = run

    def _group(self) -> tuple[list[_Job], bool]:
        first = self._jobs.get()
        group: list[_Job] = []
        if first is _GATHERED:
            group.append(first)
            try:
                first = self._jobs.get(timeout=_GATHER_S)
            except queue.Empty:
                return group, False
        if first is None:
            return group, True
        group.append(first)
        while len(group) < _GROUP:
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                break
            if job is None:
                return group, True
            group.append(job)
        return group, False

    def _done(self, group: list[_Work]) -> list[tuple[Any, BaseException | None]]:
        done = super()._done(group)
        self._journal.is_trusted = self._connection is not None
        return done

    def _worked(self, connection: sqlite3.Connection, group: list[_Work]) -> list[tuple[Any, BaseException | None]]:
        journal = self._journal
        if len(group) == 1 and journal.is_empty:
            if group[0].kind is _WorkKind.STATEMENT:
                return [self._alone(connection, group[0])]  # SQLite makes a transaction of it by itself
            if group[0].kind is _WorkKind.TRANSACTION:
                connection.execute("BEGIN IMMEDIATE")
                done = [self._alone(connection, group[0])]
                connection.execute("COMMIT" if done[0][1] is None else "ROLLBACK")
                journal.taken_over(0, forget=True)
                return done
        connection.execute("BEGIN IMMEDIATE")
        last = journal.take_over(connection, self._run_query)
        done = [
            self._saved(connection, work) if work.kind is _WorkKind.TRANSACTION else self._alone(connection, work)
            for work in group
        ]
        connection.execute("COMMIT")
        journal.taken_over(last, forget=any(work.kind is _WorkKind.TRANSACTION for work in group))
        return done

    def _saved(self, connection: sqlite3.Connection, work: _Work) -> tuple[Any, BaseException | None]:
        """One transaction among others of the same commit: where it fails, only its own changes go."""
        connection.execute("SAVEPOINT one")
        try:
            result = work.run(connection)
        except sqlite3.OperationalError:
            raise
        except BaseException as error:
            connection.execute("ROLLBACK TO one")
            connection.execute("RELEASE one")
            return None, error
        connection.execute("RELEASE one")
        return result, None

    def _end(self) -> None:
        if not self._journal.is_empty:
            self._done([_GATHERED.work])
        self._journal.close(self._connection)
        super()._end()


def _nothing(connection: sqlite3.Connection) -> None:
    pass


_GATHERED = _Job(_Work(_nothing, _WorkKind.GATHERED))


def _settle(results: list[tuple[asyncio.Future[Any], Any, BaseException | None]]) -> None:
    for future, result, error in results:
        if future.done():
            continue
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)
