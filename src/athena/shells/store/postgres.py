"""A PostgreSQL database, shared by the gateways of several machines.

Connections are made on first use and kept. A transaction whose connection broke (the server was restarted, a proxy let go) is
run once more on a new one: every transaction of the store may be run twice. Single statements that come often, or while one of
them is on its way, gather for a moment: one way to the server and one commit for all of them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from itertools import zip_longest
from math import inf
from typing import Any, NamedTuple, Protocol, TypeVar
from urllib.parse import urlsplit

from athena.errors import ConfigError
from athena.shells.migrations import scripts
from athena.shells.store.database import Query, SqlRow, SqlSteps, Value
from athena.state.errors import StoreDown

try:
    import asyncpg  # type: ignore[import-untyped]  # it has no types
except ImportError as missing:
    raise ConfigError(
        "store.url needs the package for PostgreSQL: pip install 'athena-gateway[postgres]'", code="missing_extra"
    ) from missing

_MOST_CONNECTIONS = 8
_TABLES = ("responses", "events", "conversations", "items", "batches", "batch_requests", "files", "file_parts")
"""Those whose rows go with time."""
_CONNECT_S = 5.0
_COMMAND_S = 30.0
_MIGRATION_LOCK = 0x617468656E61
"""The number under which gateways that start together agree on who migrates."""
_TRIES = 2
_PAUSE_S = 0.05
"""Between them: where one connection broke, the others are about to be found broken, too."""
_GROUP = 64
"""Statements that go together."""
_OFTEN_S = 0.002
"""Statements that come within so long of one another are many."""
_GATHER_S = 0.004
"""How long they gather then: the way to the server and back costs three times what one more statement does, and no client minds
so short a while at the end of an answer."""

_BROKEN = (
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # between the server's last words and the end of the connection
    ConnectionError,
)
"""The connection broke, or stood and was dead already."""
_REFUSED = (asyncpg.PostgresError, OSError, TimeoutError)
"""It did not work out, and would not on another connection."""

_Result = TypeVar("_Result")


class _Connection(Protocol):
    """What is used of a connection."""

    async def fetch(self, sql: str, *values: object) -> list[Any]: ...

    async def fetchval(self, sql: str, *values: object) -> Any: ...

    async def execute(self, sql: str, *values: object) -> str: ...

    def transaction(self) -> AbstractAsyncContextManager[Any]: ...


class PutConnection:
    """A connection that only puts use, one after the other. Taking one from the pool, looking its statement up and setting a
    timer for each put cost as much as the put itself: here the statements stay prepared, and one timer watches all of them.
    Values are handed to asyncpg's protocol directly, which is what the methods of its statements do four calls later."""

    def __init__(self, connection: Any, limit_s: float = _COMMAND_S) -> None:
        self._connection = connection
        self._limit_s = limit_s
        self._loop = asyncio.get_running_loop()
        self._statements: dict[str, Any] = {}
        self._begun: float | None = None
        """When the statement began that is on its way."""
        self._timer: asyncio.TimerHandle | None = None
        self._is_late = False

    async def run(self, queries: Sequence[Query]) -> None:
        """Run one statement with the values of each, all or none."""
        self._begun = self._loop.time()
        if self._timer is None:
            self._timer = self._loop.call_at(self._begun + self._limit_s, self._look)
        try:
            sql = queries[0].sql
            statement = self._statements.get(sql)
            if statement is None:
                statement = self._statements[sql] = await self._connection.prepare(sql)
            await self._sent(statement, [query.values for query in queries])
        except asyncpg.PostgresConnectionError:
            if self._is_late:
                raise TimeoutError from None
            raise
        finally:
            self._begun = None

    def _sent(self, statement: Any, rows: Sequence[Sequence[Value]]) -> Awaitable[object]:
        sent: Awaitable[object]
        try:
            protocol, state = self._connection._protocol, statement._state
            if len(rows) == 1:
                sent = protocol.bind_execute(state, rows[0], "", 0, False, None)
            else:
                sent = protocol.bind_execute_many(state, rows, "", None, False)
        except (AttributeError, TypeError):
            # The protocol is no public part of asyncpg, and in this version it is another one.
            sent = statement.fetch(*rows[0]) if len(rows) == 1 else statement.executemany(rows)
        return sent

    def _look(self) -> None:
        """End the connection where its statement takes too long."""
        self._timer = None
        if self._begun is None:
            return
        late = self._begun + self._limit_s
        if self._loop.time() < late:
            self._timer = self._loop.call_at(late, self._look)
        else:
            self._is_late = True
            self._connection.terminate()

    def end(self) -> None:
        """Let go of it at once: it is broken."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._connection.terminate()

    async def close(self) -> None:
        with contextlib.suppress(*_BROKEN, *_REFUSED):
            await self._connection.close(timeout=_CONNECT_S)
        self.end()


class _Waiting(NamedTuple):
    """A statement, and who waits for it."""

    query: Query
    done: asyncio.Future[None]


class PostgresDatabase:
    """A database by its address. Connected on first use; the tables are made where they are missing."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.name = f"PostgreSQL, {parts.hostname or 'localhost'}{f':{parts.port}' if parts.port else ''}{parts.path}"
        self._url = url
        self._pool: Any = None
        self._opening = asyncio.Lock()
        self._puts: asyncio.Task[None] | None = None
        """Writes the statements that wait."""
        self._is_putting = False
        self._waiting: deque[_Waiting] = deque()
        self._came = -inf
        """When the last one came."""
        self._put_connection: PutConnection | None = None

    async def write(self, steps: Callable[[], SqlSteps[_Result]]) -> _Result:
        async def once(connection: _Connection) -> _Result:
            async with connection.transaction():
                return await _run_steps(connection, steps())

        return await self._tried(partial(_on_any, work=once))

    async def read(self, steps: Callable[[], SqlSteps[_Result]]) -> _Result:
        """Without a transaction: each statement would see what is there at its own time all the same."""

        async def once(connection: _Connection) -> _Result:
            return await _run_steps(connection, steps())

        return await self._tried(partial(_on_any, work=once))

    async def settle(self) -> None:
        """Nothing to wait for: reads see everything at once."""

    def is_put_off(self, name: str) -> bool:
        return False

    def waiting(self, name: str) -> Query | None:
        return None

    def glance(self, steps: Callable[[], SqlSteps[_Result | None]]) -> _Result | None:
        return None

    def put_at_once(self, query: Query) -> bool:
        return False

    async def put(self, query: Query) -> None:
        loop = asyncio.get_running_loop()
        before, self._came = self._came, loop.time()
        if self._is_putting or self._came - before < _OFTEN_S:
            done: asyncio.Future[None] = loop.create_future()
            self._waiting.append(_Waiting(query, done))
            if not self._is_putting:
                self._is_putting = True
                self._puts = loop.create_task(self._put_waiting())
            try:
                await done
            finally:
                del done  # it holds the exception, which holds this frame
            return
        self._is_putting = True
        try:
            if not await self._put_again((query,)):
                await self._tried(partial(self._put_rows, queries=(query,)))
        finally:
            if self._waiting:
                self._puts = loop.create_task(self._put_waiting())
            else:
                self._is_putting = False

    async def _put_again(self, queries: Sequence[Query]) -> bool:
        """Put on the connection that there is, all or none. False: there is none, or it broke, or it does not know its
        statements any more. Then the put is to be tried anew."""
        connection = self._put_connection
        if connection is None:
            return False
        try:
            await connection.run(queries)
        except (*_BROKEN, asyncpg.PostgresError):
            self._end_puts()
            return False
        except _REFUSED as error:
            self._end_puts()
            raise self._down(error) from None
        except BaseException:
            self._end_puts()  # its statement is still on the way: nothing else may be sent there
            raise
        return True

    async def _put_rows(self, pool: Any, queries: Sequence[Query]) -> None:
        """Run one statement with the values of each, all or none."""
        if self._put_connection is None:
            self._put_connection = PutConnection(await asyncpg.connect(self._url, timeout=_CONNECT_S))
        try:
            await self._put_connection.run(queries)
        except BaseException:
            self._end_puts()
            raise

    async def _put_all(self, pool: Any, queries: list[Query]) -> list[BaseException | None]:
        """The same. Where they cannot be written together, each is alone, and what came of it is returned."""
        try:
            await self._put_rows(pool, queries)
        except _BROKEN:
            raise
        except asyncpg.PostgresError:
            return [await self._refusal(pool, query) for query in queries]
        return [None] * len(queries)

    async def _refusal(self, pool: Any, query: Query) -> BaseException | None:
        """Put one alone; why it cannot be."""
        try:
            await self._put_rows(pool, [query])
        except _BROKEN:
            raise
        except asyncpg.PostgresError as error:
            refusal: BaseException = error
            return refusal
        return None

    def _end_puts(self) -> None:
        """The next put makes a new connection."""
        connection, self._put_connection = self._put_connection, None
        if connection is not None:
            connection.end()

    async def _put_waiting(self) -> None:
        try:
            while self._waiting:
                await asyncio.sleep(_GATHER_S)
                group = [self._waiting.popleft()]
                while self._waiting and len(group) < _GROUP and self._waiting[0].query.sql == group[0].query.sql:
                    group.append(self._waiting.popleft())
                await self._put_together(group)
        finally:
            self._is_putting = False
            self._puts = None

    async def _put_together(self, group: list[_Waiting]) -> None:
        queries = [each.query for each in group]
        try:
            failures: Sequence[BaseException | None] = ()
            if not await self._put_again(queries):
                failures = await self._tried(partial(self._put_all, queries=queries))
        except BaseException as failure:  # whoever waits hears of it, also where this task is ended
            told = failure if isinstance(failure, StoreDown) else self._down(failure)
            for each in group:
                _settle(each.done, told)
            if not isinstance(failure, StoreDown):
                raise
            return
        for each, error in zip_longest(group, failures):
            _settle(each.done, self._down(error) if error is not None else None)

    async def _tried(self, work: Callable[[Any], Awaitable[_Result]]) -> _Result:
        """Work that is given the pool; where the connection that it used was broken, it is done once more."""
        for tries in range(1, _TRIES + 1):
            try:
                return await work(await self._connected())
            except _BROKEN as error:
                if tries == _TRIES:
                    raise self._down(error) from None
                await asyncio.sleep(_PAUSE_S)
            except _REFUSED as error:
                raise self._down(error) from None
        raise AssertionError("the loop returns or raises")

    def _down(self, error: BaseException) -> StoreDown:
        said = str(error) or type(error).__name__
        return StoreDown(f"the store cannot be used ({self.name}): {said}")

    async def _connected(self) -> Any:
        if self._pool is None:
            async with self._opening:
                if self._pool is None:
                    pool = await asyncpg.create_pool(
                        self._url,
                        min_size=0,
                        max_size=_MOST_CONNECTIONS - 1,  # puts have their own
                        timeout=_CONNECT_S,
                        command_timeout=_COMMAND_S,
                        reset=_as_it_is,
                    )
                    try:
                        async with pool.acquire(timeout=_CONNECT_S) as connection:
                            await _migrate(connection, self.name)
                    except BaseException:
                        await pool.close()
                        raise
                    self._pool = pool
        return self._pool

    # -- the operator's commands ----------------------------------------------------------------------------------------------

    async def exists(self) -> bool:
        return True

    async def migrate(self) -> tuple[int, int]:
        try:
            connection = await asyncpg.connect(self._url, timeout=_CONNECT_S)
            try:
                before = await _version(connection)
                await _migrate(connection, self.name)
            finally:
                await connection.close()
        except (*_BROKEN, *_REFUSED) as error:
            raise self._down(error) from None
        return before, len(scripts(__package__))

    async def check(self) -> list[str]:
        try:
            pool = await self._connected()
            async with pool.acquire(timeout=_CONNECT_S) as connection:
                version = await _version(connection)
        except (*_BROKEN, *_REFUSED) as error:
            raise self._down(error) from None
        wanted = len(scripts(__package__))
        return [] if version == wanted else [f"the database has version {version}, this Athena needs {wanted}"]

    async def vacuum(self) -> None:
        try:
            pool = await self._connected()
            async with pool.acquire(timeout=_CONNECT_S) as connection:
                for table in _TABLES:
                    await connection.execute(f"VACUUM {table}")
        except (*_BROKEN, *_REFUSED) as error:
            raise self._down(error) from None

    async def close(self) -> None:
        if self._puts is not None:
            await asyncio.wait([self._puts])
        connection, self._put_connection = self._put_connection, None
        if connection is not None:
            await connection.close()
        if self._pool is not None:
            pool, self._pool = self._pool, None
            try:
                await asyncio.wait_for(pool.close(), _CONNECT_S)
            except (*_BROKEN, *_REFUSED):
                pool.terminate()


async def _on_any(pool: Any, work: Callable[[_Connection], Awaitable[_Result]]) -> _Result:
    async with pool.acquire(timeout=_CONNECT_S) as connection:
        try:
            return await work(connection)
        except asyncpg.InternalClientError:
            connection.terminate()  # the pool would give it to the next one
            raise


def _settle(done: asyncio.Future[None], failure: BaseException | None) -> None:
    if done.done():
        return  # nobody waits any more
    if failure is None:
        done.set_result(None)
    else:
        done.set_exception(failure)


async def _as_it_is(connection: _Connection) -> None:
    """A connection goes back to the others without a query that would undo settings and locks of its session: nothing here
    makes any that outlive their own lines, and the pool itself ends a transaction that was left open."""


def _finds_nothing(query: Query) -> bool:
    """Does a statement look for a text with a NUL? The server holds none, and refuses to look for it. What would be lost if it
    were left out, a new row, is left to the server to refuse."""
    return any(type(value) is str and "\0" in value for value in query.values) and not query.sql.startswith("INSERT")


async def _run_steps(connection: _Connection, steps: SqlSteps[_Result]) -> _Result:
    try:
        query = next(steps)
        while True:
            found = [] if _finds_nothing(query) else await connection.fetch(query.sql, *query.values)
            rows: list[SqlRow] = [tuple(record) for record in found]
            query = steps.send(rows)
    except StopIteration as end:
        result: _Result = end.value
        return result
    finally:
        steps.close()


async def _version(connection: _Connection) -> int:
    there = await connection.fetchval("SELECT to_regclass('athena_schema') IS NOT NULL")
    return int(await connection.fetchval("SELECT version FROM athena_schema") or 0) if there else 0


async def _migrate(connection: _Connection, name: str) -> None:
    steps = scripts(__package__)
    if await _version(connection) == len(steps):
        return
    await connection.execute("SELECT pg_advisory_lock($1)", _MIGRATION_LOCK)
    try:
        # A transaction that begins behind the lock sees what another gateway has done meanwhile.
        async with connection.transaction():
            await _take_steps(connection, steps, name)
    finally:
        await connection.execute("SELECT pg_advisory_unlock($1)", _MIGRATION_LOCK)


async def _take_steps(connection: _Connection, steps: tuple[str, ...], name: str) -> None:
    version = await _version(connection)
    if version > len(steps):
        raise StoreDown(f"{name} was made by a newer version of Athena; use that one, or another database")
    if version == 0:
        await connection.execute("CREATE TABLE IF NOT EXISTS athena_schema (version BIGINT NOT NULL)")
        await connection.execute("INSERT INTO athena_schema VALUES (0)")
    for script in steps[version:]:
        await connection.execute(script)
    await connection.execute(f"UPDATE athena_schema SET version = {len(steps)}")
