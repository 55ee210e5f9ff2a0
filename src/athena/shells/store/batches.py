"""Batches and files in the store: who may see them, who works on which request, and what is left when a process dies.

A request is asked by whoever took it (`take`) and says so again and again (`renew`). A process that is killed says nothing
more, and the request is taken by another one when its time is up. A result is written once, by the one who holds the request.
"""

from __future__ import annotations

import base64
import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import msgspec

from athena.bulk import openai
from athena.bulk.values import BatchResult, BatchState, File, RequestBatch, RequestState, StateCounts, Submitted
from athena.shells.store.database import Query, SqlRow, SqlSteps, Value
from athena.shells.store.store import Store
from athena.state.errors import StoreUnreadable

LOG = logging.getLogger("athena")
_PART = 512 * 1024
_OPEN = "('waiting', 'running')"
_COLUMN = {False: "output_bytes", True: "error_bytes"}
_RESULTS = {False: "('succeeded')", True: "('errored', 'expired')"}
"""What stands in the file with the results of a batch, and in the one with its errors."""
_PAGE = 100
_SEALED = "\x01"
"""What an encrypted name begins with, as other encrypted content does."""

_Kind = TypeVar("_Kind")


class Taken(msgspec.Struct, frozen=True):
    """A request that this process asks."""

    batch: RequestBatch
    position: int
    custom_id: str
    body: bytes
    attempts: int


class BatchStore:
    """What is kept of batches. Every method that takes an `owner` sees only what that owner made."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._clock = clock

    # -- batches -------------------------------------------------------------------------------------------------------------

    async def put(self, batch: RequestBatch, requests: Sequence[Submitted]) -> None:
        """Keep a batch with its requests: all of it, or nothing."""
        body = self._store.sealed(_ENCODER.encode(batch), batch.id)
        sealed = [self._store.sealed(request.body, f"{batch.id}#{place}") for place, request in enumerate(requests)]

        def steps() -> SqlSteps[None]:
            yield Query(
                "INSERT INTO batches (id, owner, dialect, created, expires, state, ended, body) "
                "VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (id) DO NOTHING",
                (batch.id, batch.owner, batch.dialect, batch.created, batch.expires, batch.state.value, batch.ended, body),
            )
            for place, (request, content) in enumerate(zip(requests, sealed, strict=True)):
                yield Query(
                    "INSERT INTO batch_requests (batch, position, custom_id, state, size, body) "
                    "VALUES ($1, $2, $3, 'waiting', $4, $5) ON CONFLICT (batch, position) DO NOTHING",
                    (batch.id, place, self._sealed_name(request.custom_id, batch.id, place), len(content), content),
                )

        await self._store.write(steps)

    async def get(self, owner: str, name: str) -> tuple[RequestBatch, StateCounts] | None:
        """The batch, and how many of its requests are in which state."""

        def steps() -> SqlSteps[tuple[SqlRow, StateCounts] | None]:
            rows = yield Query("SELECT state, cancelled, ended, body FROM batches WHERE id = $1 AND owner = $2", (name, owner))
            if not rows:
                return None
            counts = yield Query("SELECT state, count(*) FROM batch_requests WHERE batch = $1 GROUP BY state", (name,))
            return rows[0], {RequestState(state): int(count) for state, count in counts}

        found = await self._store.read(steps)
        return (self._batch(name, *found[0]), found[1]) if found is not None else None

    async def page(
        self, owner: str, dialect: str, *, after: str | None, before: str | None, limit: int
    ) -> list[tuple[RequestBatch, StateCounts]]:
        """The owner's batches, newest first: those after one, or those in front of one. What cannot be read is left out."""

        found: list[tuple[RequestBatch, StateCounts]] = []
        mark = after or before
        while missing := limit - len(found):
            names = await self._names(owner, dialect, mark, missing, is_older=before is None)
            for name in names:
                try:
                    each = await self.get(owner, name)
                except StoreUnreadable as error:
                    LOG.warning("a batch is left out of a list: %s", error.message)
                    continue
                if each is not None:
                    found.append(each)
            if len(names) < missing:
                break
            mark = names[-1]
        return found[::-1] if before else found

    async def _names(self, owner: str, dialect: str, mark: str | None, limit: int, *, is_older: bool) -> list[str]:
        """The ids of the batches that follow one, towards older or newer ones."""

        def steps() -> SqlSteps[list[SqlRow]]:
            where = ""
            values: tuple[Value, ...] = (owner, dialect, limit)
            if mark is not None:
                rows = yield Query("SELECT created FROM batches WHERE id = $1 AND owner = $2", (mark, owner))
                if not rows:
                    return []
                sign = "<" if is_older else ">"
                where, values = f"AND (created, id) {sign} ($4, $5)", (*values, rows[0][0], mark)
            order = "DESC" if is_older else "ASC"
            return (
                yield Query(
                    f"SELECT id FROM batches WHERE owner = $1 AND dialect = $2 {where} "
                    f"ORDER BY created {order}, id {order} LIMIT $3",
                    values,
                )
            )

        return [str(row[0]) for row in await self._store.read(steps)]

    async def cancel(self, owner: str, name: str) -> bool:
        """Begin no further request of it. False: there is no such batch."""
        now = self._clock()

        def steps() -> SqlSteps[bool]:
            rows = yield Query("SELECT state FROM batches WHERE id = $1 AND owner = $2", (name, owner))
            if not rows:
                return False
            yield Query(
                "UPDATE batches SET state = 'canceling', cancelled = $2 WHERE id = $1 AND state = 'running'", (name, now)
            )
            yield Query("UPDATE batch_requests SET state = 'canceled' WHERE batch = $1 AND state = 'waiting'", (name,))
            yield from _end_if_done(name, now)
            return True

        return await self._store.write(steps)

    async def delete(self, owner: str, name: str) -> None:
        """Forget it, with its requests and results."""

        def steps() -> SqlSteps[None]:
            rows = yield Query("DELETE FROM batches WHERE id = $1 AND owner = $2 RETURNING id", (name, owner))
            if rows:
                yield Query("DELETE FROM batch_requests WHERE batch = $1", (name,))

        await self._store.write(steps)

    async def results(self, batch: str, after: int, limit: int = _PAGE) -> list[BatchResult]:
        """Those after a position, in order. Whose batch it is, the caller has looked."""
        rows = await self._store.read(
            partial(
                _rows,
                "SELECT position, custom_id, state, status, request, result FROM batch_requests "
                f"WHERE batch = $1 AND position > $2 AND state NOT IN {_OPEN} ORDER BY position LIMIT $3",
                (batch, after, limit),
            )
        )
        return [
            BatchResult(
                custom_id=self._opened_name(custom_id, batch, position),
                position=position,
                state=RequestState(state),
                status=status,
                request_id=request,
                body=self._store.opened(result, f"{batch}#{position}") if result else b"",
            )
            for position, custom_id, state, status, request, result in rows
        ]

    async def size(self) -> int:
        """Bytes of all requests, results and files."""

        def steps() -> SqlSteps[int]:
            requests = yield Query("SELECT coalesce(sum(size), 0) FROM batch_requests")
            files = yield Query("SELECT coalesce(sum(size), 0) FROM files")
            return int(requests[0][0]) + int(files[0][0])

        return await self._store.read(steps)

    async def is_used(self) -> bool:
        """Is there anything? Where there never was, nothing is to be made either."""
        if not await self._store.database.exists():
            return False

        def steps() -> SqlSteps[bool]:
            batches = yield Query("SELECT 1 FROM batches LIMIT 1")
            files = yield Query("SELECT 1 FROM files LIMIT 1")
            return bool(batches or files)

        return await self._store.read(steps, puts=False)

    async def is_work(self) -> bool:
        """Is there a request to take?"""
        sql = f"SELECT 1 FROM batch_requests WHERE state IN {_OPEN} AND due <= $1 LIMIT 1"
        return bool(await self._store.read(partial(_rows, sql, (self._clock(),)), puts=False))

    # -- work ----------------------------------------------------------------------------------------------------------------

    async def take(self, holder: str, count: int, for_s: float) -> list[Taken]:
        """Up to that many requests to ask now; for `for_s` seconds nobody else takes them. What cannot be read goes back for
        as long: another process may have the key for it."""
        now = self._clock()

        def steps() -> SqlSteps[tuple[list[SqlRow], dict[str, SqlRow]]]:
            yield from _expire(now)
            rows = yield Query(
                f"UPDATE batch_requests SET state = 'running', holder = $1, due = $2, attempts = attempts + 1 "
                f"WHERE state IN {_OPEN} AND due <= $3 AND (batch, position) IN (SELECT batch, position FROM batch_requests "
                f"WHERE state IN {_OPEN} AND due <= $3 ORDER BY due, batch, position LIMIT $4) "
                "RETURNING batch, position, custom_id, body, attempts",
                (holder, now + for_s, now, count),
            )
            batches: dict[str, SqlRow] = {}
            for name in {str(row[0]) for row in rows}:
                found = yield Query("SELECT state, cancelled, ended, body FROM batches WHERE id = $1", (name,))
                if found:
                    batches[name] = found[0]
            return rows, batches

        rows, batches = await self._store.write(steps)
        taken: list[Taken] = []
        for name, position, custom_id, body, attempts in sorted(rows, key=lambda row: (row[0], row[1])):
            if name not in batches:
                continue
            try:
                batch = self._batch(name, *batches[name])
                label = self._opened_name(custom_id, name, position)
                taken.append(Taken(batch, position, label, self._store.opened(body, f"{name}#{position}"), attempts))
            except StoreUnreadable as error:
                LOG.warning("a request of a batch cannot be asked: %s", error.message)
                await self._put_off(holder, name, position, now + for_s)
        return taken

    async def renew(self, holder: str, for_s: float) -> None:
        """Whatever this process holds it still works on."""
        await self._store.write(
            partial(
                _rows,
                "UPDATE batch_requests SET due = $2 WHERE holder = $1 AND state = 'running'",
                (holder, self._clock() + for_s),
            )
        )

    async def release(self, holder: str) -> None:
        """This process ends: what it holds may be taken at once."""
        await self._store.write(
            partial(
                _rows,
                "UPDATE batch_requests SET state = 'waiting', holder = '', due = 0, attempts = attempts - 1 "
                "WHERE holder = $1 AND state = 'running'",
                (holder,),
            )
        )

    async def finish(self, holder: str, taken: Taken, result: BatchResult) -> None:
        """What came of a request. Nothing happens where another process has taken it meanwhile."""
        now, name = self._clock(), taken.batch.id
        sealed = self._store.sealed(result.body, f"{name}#{taken.position}")

        def steps() -> SqlSteps[None]:
            yield Query(
                "UPDATE batch_requests SET state = $4, status = $5, request = $6, result = $7, size = size + $8, holder = '' "
                "WHERE batch = $1 AND position = $2 AND holder = $3 AND state = 'running'",
                (name, taken.position, holder, result.state.value, result.status, result.request_id, sealed, len(sealed)),
            )
            yield from _end_if_done(name, now)

        await self._store.write(steps)

    async def postpone(self, holder: str, taken: Taken, until: float) -> None:
        """Ask it again later, at that time at the earliest."""
        await self._put_off(holder, taken.batch.id, taken.position, until)

    async def _put_off(self, holder: str, batch: str, position: int, until: float) -> None:
        await self._store.write(
            partial(
                _rows,
                "UPDATE batch_requests SET state = 'waiting', holder = '', due = $4 "
                "WHERE batch = $1 AND position = $2 AND holder = $3 AND state = 'running'",
                (batch, position, holder, until),
            )
        )

    async def sweep(self, max_age_s: float) -> int:
        """End what is done, expire what took too long, forget what is old; returns how many objects went, some hundred at most
        at a time."""
        now = self._clock()

        def steps() -> SqlSteps[int]:
            yield from _expire(now)
            # A batch that was cancelled while a process gave a request back.
            yield Query(
                "UPDATE batch_requests SET state = 'canceled' WHERE state = 'waiting' AND batch IN "
                "(SELECT id FROM batches WHERE state = 'canceling')"
            )
            rows = yield Query("SELECT id FROM batches WHERE state <> 'ended' ORDER BY created LIMIT 1000")
            for (name,) in rows:
                yield from _end_if_done(str(name), now)
            old = yield Query(
                "SELECT id FROM batches WHERE state = 'ended' AND created < $1 ORDER BY created LIMIT 100", (now - max_age_s,)
            )
            for (name,) in old:
                yield Query("DELETE FROM batches WHERE id = $1", (name,))
                yield Query("DELETE FROM batch_requests WHERE batch = $1", (name,))
            files = yield Query("SELECT id FROM files WHERE created < $1 ORDER BY created LIMIT 100", (now - max_age_s,))
            for (name,) in files:
                yield from _delete_file(str(name))
            return len(old) + len(files)

        return await self._store.write(steps)

    # -- files ---------------------------------------------------------------------------------------------------------------

    async def put_file(self, file: File, content: bytes) -> None:
        body = self._store.sealed(msgspec.json.encode(file), file.id)
        parts = [
            self._store.sealed(content[start : start + _PART], f"{file.id}#{place}")
            for place, start in enumerate(range(0, len(content), _PART))
        ]

        def steps() -> SqlSteps[None]:
            yield Query(
                "INSERT INTO files (id, owner, created, size, body) VALUES ($1, $2, $3, $4, $5) ON CONFLICT (id) DO NOTHING",
                (file.id, file.owner, file.created, file.size, body),
            )
            for place, part in enumerate(parts):
                yield Query(
                    "INSERT INTO file_parts (file, position, body) VALUES ($1, $2, $3) ON CONFLICT (file, position) DO NOTHING",
                    (file.id, place, part),
                )

        await self._store.write(steps)

    async def file(self, owner: str, name: str) -> File | None:
        """A file that was uploaded, or one with results of a batch."""
        rows = await self._store.read(partial(_rows, "SELECT body FROM files WHERE id = $1 AND owner = $2", (name, owner)))
        return self._opened_file(name, rows[0][0]) if rows else await self._made_file(owner, name)

    async def _made_file(self, owner: str, name: str) -> File | None:
        """The file with the results of a batch that has ended, or with its errors."""
        made = openai.batch_of_file(name)
        if made is None:
            return None
        batch, failed = made
        found = await self._store.read(partial(_rows, *_made(owner, batch, failed=failed)))
        if not found:
            return None
        ended, size, body = found[0]
        self._store.opened(body, batch)  # with another key there is nothing to read, though the size is known
        if size is None:
            size = await self._count_bytes(batch, failed=failed)
        return File(
            id=name,
            owner=owner,
            created=ended,
            name=f"{batch}_{'error' if failed else 'output'}.jsonl",
            purpose="batch_output",
            size=size,
            batch=batch,
            failed=failed,
        )

    async def _count_bytes(self, batch: str, *, failed: bool) -> int:
        """How long the file is. Results do not change any more, so this is done once."""
        size, after = 0, -1
        while page := await self.results(batch, after):
            size += sum(len(openai.result_line(each)) for each in page if openai.is_in(each, failed=failed))
            after = page[-1].position
        column = _COLUMN[failed]
        sql = f"UPDATE batches SET {column} = $2 WHERE id = $1 AND {column} IS NULL"
        await self._store.write(partial(_rows, sql, (batch, size)))
        return size

    def _opened_file(self, name: str, body: bytes) -> File:
        return _decoded(_FILE, self._store.opened(body, name), name)

    async def files(self, owner: str, *, after: str | None, limit: int, purpose: str | None = None) -> list[File]:
        """The owner's files, newest first, those of one purpose where one is named. What cannot be read is left out."""
        found: list[File] = []
        while missing := limit - len(found):
            rows = await self._store.read(partial(_files, owner, after, missing))
            for name, body in rows:
                try:
                    file = self._opened_file(name, body) if body is not None else await self._made_file(owner, name)
                except StoreUnreadable as error:
                    LOG.warning("a file is left out of a list: %s", error.message)
                    continue
                if file is not None and purpose in (None, file.purpose):
                    found.append(file)
            if len(rows) < missing:
                break
            after = str(rows[-1][0])
        return found

    async def part(self, name: str, position: int) -> bytes | None:
        """One part of a file's content. Whose file it is, the caller has looked."""
        rows = await self._store.read(
            partial(_rows, "SELECT body FROM file_parts WHERE file = $1 AND position = $2", (name, position))
        )
        return self._store.opened(rows[0][0], f"{name}#{position}") if rows else None

    async def delete_file(self, owner: str, name: str) -> bool:
        """Forget a file and its content. False: there is no such file."""

        def steps() -> SqlSteps[bool]:
            rows = yield Query("SELECT 1 FROM files WHERE id = $1 AND owner = $2", (name, owner))
            if rows:
                yield from _delete_file(name)
                return True
            made = openai.batch_of_file(name)
            if made is None:
                return False
            batch, failed = made
            rows = yield Query(*_made(owner, batch, failed=failed))
            if rows:
                yield Query(f"UPDATE batches SET {_COLUMN[failed]} = -1 WHERE id = $1", (batch,))
                yield Query(
                    "UPDATE batch_requests SET result = NULL, size = length(body) "
                    f"WHERE batch = $1 AND state IN {_RESULTS[failed]}",
                    (batch,),
                )
            return bool(rows)

        return await self._store.write(steps)

    # -- inside --------------------------------------------------------------------------------------------------------------

    def _sealed_name(self, name: str, batch: str, position: int) -> str:
        """A client's name for a request, as a column of texts takes it."""
        content = name.encode("utf-8", "surrogatepass")
        sealed = self._store.sealed(content, f"{batch}#{position}#custom_id")
        return name if sealed is content else _SEALED + base64.b64encode(sealed).decode()

    def _opened_name(self, name: str, batch: str, position: int) -> str:
        if not name.startswith(_SEALED):
            return name
        place = f"{batch}#{position}#custom_id"
        try:
            sealed = base64.b64decode(name.removeprefix(_SEALED), validate=True)
        except ValueError:
            return name  # a client chose it while nothing was encrypted
        return self._store.opened(sealed, place).decode("utf-8", "surrogatepass")

    def _batch(self, name: str, state: Value, cancelled: Value, ended: Value, body: Value) -> RequestBatch:
        assert isinstance(body, bytes)
        batch = _decoded(_BATCH, self._store.opened(body, name), name)
        return msgspec.structs.replace(batch, state=BatchState(state), cancelled=cancelled, ended=ended)


_ENCODER = msgspec.json.Encoder()
_FILE = msgspec.json.Decoder(File)
_BATCH = msgspec.json.Decoder(RequestBatch)


def _decoded(decoder: msgspec.json.Decoder[_Kind], body: bytes, name: str) -> _Kind:
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise StoreUnreadable(f"{name} is damaged") from None


def _rows(sql: str, values: tuple[Value, ...]) -> SqlSteps[list[SqlRow]]:
    return (yield Query(sql, values))


def _end_if_done(name: str, now: float) -> SqlSteps[None]:
    yield Query(
        "UPDATE batches SET state = 'ended', ended = $2 WHERE id = $1 AND state <> 'ended' "
        f"AND NOT EXISTS (SELECT 1 FROM batch_requests WHERE batch = $1 AND state IN {_OPEN})",
        (name, now),
    )


def _expire(now: float) -> SqlSteps[None]:
    """Give up what was not asked in time."""
    rows = yield Query(
        "UPDATE batch_requests SET state = 'expired' WHERE state = 'waiting' AND batch IN "
        "(SELECT id FROM batches WHERE state <> 'ended' AND expires <= $1) RETURNING batch",
        (now,),
    )
    for name in {str(row[0]) for row in rows}:
        yield from _end_if_done(name, now)


def _made(owner: str, batch: str, *, failed: bool) -> tuple[str, tuple[Value, ...]]:
    """The statement for when the file with those results of a batch was made, its size if that is known, and the batch."""
    sql = f"SELECT ended, {_COLUMN[failed]}, body FROM batches WHERE id = $1 AND owner = $2 AND {_has_file(failed)}"
    return sql, (batch, owner)


def _has_file(failed: bool) -> str:
    """Is there a file with those results of a batch?"""
    return (
        f"dialect = 'openai_chat' AND state = 'ended' AND coalesce({_COLUMN[failed]}, 0) >= 0 AND EXISTS "
        f"(SELECT 1 FROM batch_requests WHERE batch = batches.id AND state IN {_RESULTS[failed]})"
    )


def _made_names(failed: bool) -> str:
    """Such files of an owner, beside those that were uploaded."""
    name = f"'{openai.FILE_PREFIX}' || substr(id, {len(openai.PREFIX) + 1}) || '{'e' if failed else 'o'}'"
    return f"SELECT {name}, ended, NULL FROM batches WHERE owner = $1 AND {_has_file(failed)}"


_ALL_FILES = (
    "(SELECT id, created, body FROM files WHERE owner = $1 "
    f"UNION ALL {_made_names(failed=False)} UNION ALL {_made_names(failed=True)}) AS every"
)


def _files(owner: str, after: str | None, limit: int) -> SqlSteps[list[SqlRow]]:
    """Ids and contents of the owner's files, newest first, those after one; None for content that stands in a batch."""
    where = ""
    values: tuple[Value, ...] = (owner, limit)
    if after is not None:
        mark = yield Query(f"SELECT created FROM {_ALL_FILES} WHERE id = $2", (owner, after))
        if not mark:
            return []
        where, values = "WHERE (created, id) < ($3, $4)", (*values, mark[0][0], after)
    return (yield Query(f"SELECT id, body FROM {_ALL_FILES} {where} ORDER BY created DESC, id DESC LIMIT $2", values))


def _delete_file(name: str) -> SqlSteps[None]:
    yield Query("DELETE FROM file_parts WHERE file = $1", (name,))
    yield Query("DELETE FROM files WHERE id = $1", (name,))
