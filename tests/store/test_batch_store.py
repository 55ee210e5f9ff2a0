"""Batches on each database: who works on which request, what is left of a process that is gone, and what expires."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from athena.bulk import openai
from athena.bulk.values import BatchResult, BatchState, File, RequestBatch, RequestState, Submitted
from athena.shells.store import Database, Store
from athena.shells.store.batches import BatchStore, Taken
from athena.shells.store.database import Query, SqlRow, SqlSteps, Value
from athena.shells.store.store import StoreLimits
from athena.state.errors import StoreUnreadable

LIMITS = StoreLimits(max_age_s=1000, max_bytes=1_000_000)


class Clock:
    def __init__(self) -> None:
        self.now = 5000.0

    def __call__(self) -> float:
        return self.now


def run(database: Database, work: Callable[[BatchStore, Clock], Awaitable[None]], key: str | None = None) -> None:
    async def main() -> None:
        clock = Clock()
        store = Store(database, LIMITS, clock=clock, key=key)
        try:
            await work(BatchStore(store, clock), clock)
        finally:
            await store.close()

    asyncio.run(main())


def batch(name: str, owner: str = "ann", created: float = 5000.0) -> RequestBatch:
    return RequestBatch(
        id=name, owner=owner, dialect="openai_chat", endpoint="/v1/responses", created=created, expires=created + 100,
        input_file="file-in", metadata={"a": "b"},
    )  # fmt: skip


def requests(count: int) -> list[Submitted]:
    return [Submitted(f"r{number}", b'{"n":%d}' % number) for number in range(count)]


def answered(taken: Taken, text: bytes = b'{"ok":1}', state: RequestState = RequestState.SUCCEEDED) -> BatchResult:
    return BatchResult(taken.custom_id, taken.position, state, 200, "req_1", text)


def test_work_is_shared_and_written_once(database: Database) -> None:
    async def work(batches: BatchStore, clock: Clock) -> None:
        await batches.put(batch("batch_a"), requests(5))
        assert await batches.is_used()
        assert await batches.is_work()
        first, second = await batches.take("one", 3, 10), await batches.take("two", 3, 10)
        assert [each.custom_id for each in first] == ["r0", "r1", "r2"]
        assert [each.custom_id for each in second] == ["r3", "r4"]
        assert first[0].body == b'{"n":0}'
        assert first[0].batch == batch("batch_a")
        assert not await batches.is_work()
        await batches.finish("two", second[0], answered(second[0]))
        await batches.finish("two", first[0], answered(first[0], b"not mine"))
        # The process `one` is gone; `two` says that it is alive.
        clock.now += 8
        await batches.renew("two", 10)
        clock.now += 5
        again = await batches.take("two", 10, 10)
        assert [(each.custom_id, each.attempts) for each in again] == [("r0", 2), ("r1", 2), ("r2", 2)]
        await batches.finish("one", first[1], answered(first[1], b"too late"))
        for each in (*again, second[1]):
            await batches.finish("two", each, answered(each))
        found = await batches.get("ann", "batch_a")
        assert found is not None
        assert (found[0].state, found[0].ended) == (BatchState.ENDED, clock.now)
        assert found[1] == {RequestState.SUCCEEDED: 5}
        results = await batches.results("batch_a", -1)
        assert [each.custom_id for each in results] == [f"r{number}" for number in range(5)]
        assert {each.body for each in results} == {b'{"ok":1}'}
        assert await batches.results("batch_a", 3) == results[4:]
        assert await batches.get("bob", "batch_a") is None

    run(database, work)


def test_what_is_given_back_and_what_is_put_off(database: Database) -> None:
    async def work(batches: BatchStore, clock: Clock) -> None:
        await batches.put(batch("batch_a"), requests(2))
        first, second = await batches.take("one", 2, 10)
        await batches.postpone("one", first, clock.now + 50)
        await batches.release("one")
        (taken,) = await batches.take("two", 5, 10)
        assert (taken.custom_id, taken.attempts) == (second.custom_id, 1)
        await batches.finish("two", taken, answered(taken))
        clock.now += 51
        (late,) = await batches.take("two", 5, 10)
        assert (late.custom_id, late.attempts) == (first.custom_id, 2)

    run(database, work)


def test_what_was_not_asked_in_time_expires(database: Database) -> None:
    async def work(batches: BatchStore, clock: Clock) -> None:
        await batches.put(batch("batch_a"), requests(3))
        (taken,) = await batches.take("one", 1, 1000)
        clock.now += 101
        assert await batches.take("one", 5, 10) == []
        found = await batches.get("ann", "batch_a")
        assert found is not None
        assert found[0].state is BatchState.RUNNING
        await batches.finish("one", taken, answered(taken))
        found = await batches.get("ann", "batch_a")
        assert found is not None
        shown = openai.batch_object(*found)
        assert (shown["status"], shown["request_counts"]) == ("expired", {"total": 3, "completed": 1, "failed": 0})
        lines = [openai.result_line(each) for each in await batches.results("batch_a", -1) if openai.is_in(each, failed=True)]
        assert all(b"batch_expired" in line for line in lines)
        assert len(lines) == 2
        clock.now += 2000
        await batches.sweep(LIMITS.max_age_s)
        assert await batches.get("ann", "batch_a") is None
        assert await batches.size() == 0

    run(database, work)


def test_cancelling_leaves_what_has_begun(database: Database) -> None:
    async def work(batches: BatchStore, clock: Clock) -> None:
        await batches.put(batch("batch_a"), requests(3))
        (taken,) = await batches.take("one", 1, 10)
        assert not await batches.cancel("bob", "batch_a")
        assert await batches.cancel("ann", "batch_a")
        found = await batches.get("ann", "batch_a")
        assert found is not None
        assert found[0].state is BatchState.CANCELING
        assert await batches.take("two", 5, 10) == []
        await batches.release("one")
        await batches.sweep(LIMITS.max_age_s)
        found = await batches.get("ann", "batch_a")
        assert found is not None
        assert found[1] == {RequestState.CANCELED: 3}
        assert found[0].state is BatchState.ENDED
        await batches.finish("one", taken, answered(taken))
        assert (await batches.results("batch_a", -1))[0].state is RequestState.CANCELED

    run(database, work)


def test_lists_and_files_of_each_owner(database: Database) -> None:
    async def work(batches: BatchStore, clock: Clock) -> None:
        for number in range(4):
            await batches.put(batch(f"batch_{number}", created=5000.0 + number), requests(1))
        await batches.put(batch("batch_other", "bob"), requests(1))

        async def names(after: str | None = None, before: str | None = None) -> list[str]:
            found = await batches.page("ann", "openai_chat", after=after, before=before, limit=2)
            return [each.id for each, _ in found]

        assert await names() == ["batch_3", "batch_2"]
        assert await names(after="batch_2") == ["batch_1", "batch_0"]
        assert await names(before="batch_1") == ["batch_3", "batch_2"]
        assert await names(after="batch_other") == []
        content = bytes(range(256)) * 5000
        file = File(id="file-a", owner="ann", created=clock.now, name="ä.jsonl", purpose="batch", size=len(content))
        await batches.put_file(file, content)
        assert await batches.file("ann", "file-a") == file
        assert await batches.file("bob", "file-a") is None
        parts = [await batches.part("file-a", number) for number in range(4)]
        assert b"".join(part for part in parts if part is not None) == content
        assert parts[-1] is None
        assert await batches.files("ann", after=None, limit=10) == [file]
        assert await batches.files("bob", after=None, limit=10) == []
        assert not await batches.delete_file("bob", "file-a")
        assert await batches.delete_file("ann", "file-a")
        assert await batches.part("file-a", 0) is None

    run(database, work, key="a secret")


def test_results_are_files_like_others(database: Database) -> None:
    async def work(batches: BatchStore, clock: Clock) -> None:
        upload = File(id="file-a", owner="ann", created=clock.now - 1, name="a", purpose="batch", size=1)
        await batches.put_file(upload, b"x")
        await batches.put(batch("batch_a"), requests(3))
        await batches.put(batch("batch_running"), requests(1))
        taken = await batches.take("one", 4, 10)
        for each, state in zip(taken, (RequestState.SUCCEEDED, RequestState.SUCCEEDED, RequestState.ERRORED), strict=False):
            await batches.finish("one", each, answered(each, state=state))

        async def names(owner: str = "ann", after: str | None = None, purpose: str | None = None, limit: int = 9) -> list[str]:
            return [file.id for file in await batches.files(owner, after=after, limit=limit, purpose=purpose)]

        assert await names() == ["file-ao", "file-ae", "file-a"]
        assert await names(limit=1, after="file-ao") == ["file-ae"]
        assert await names(limit=1, after="file-ae") == ["file-a"]
        assert await names(limit=1, purpose="batch") == ["file-a"]
        assert await names(purpose="batch_output") == ["file-ao", "file-ae"]
        assert await names("bob") == []
        lines = [openai.result_line(each) for each in (await batches.results("batch_a", -1))[:2]]
        for _ in range(2):  # counted, then remembered
            output = await batches.file("ann", "file-ao")
            assert output is not None
            assert (output.size, output.purpose, output.batch) == (sum(map(len, lines)), "batch_output", "batch_a")
        assert await batches.file("bob", "file-ao") is None
        assert await batches.file("ann", "file-runningo") is None

        other = BatchStore(Store(database, LIMITS, clock=clock, key="another"), clock)
        assert await other.files("ann", after=None, limit=9) == []
        with pytest.raises(StoreUnreadable):
            await other.file("ann", "file-ao")

        before = await batches.size()
        assert not await batches.delete_file("bob", "file-ao")
        assert not await batches.delete_file("ann", "file-runningo")
        assert await batches.delete_file("ann", "file-ao")
        assert not await batches.delete_file("ann", "file-ao")
        assert await batches.file("ann", "file-ao") is None
        assert await names() == ["file-ae", "file-a"]
        results = await batches.results("batch_a", -1)
        assert [bool(each.body) for each in results] == [False, False, True], "the content is gone"
        assert await batches.size() < before
        found = await batches.get("ann", "batch_a")
        assert found is not None
        assert found[1] == {RequestState.SUCCEEDED: 2, RequestState.ERRORED: 1}

    run(database, work, key="a secret")


def test_names_of_requests_are_encrypted(database: Database) -> None:
    names = ["invoice of Ann", "größe", "\x01", "\x01AQID"]

    async def work(batches: BatchStore, clock: Clock) -> None:
        await batches.put(batch("batch_a"), [Submitted(name, b"{}") for name in names])
        columns = await batches._store.read(lambda: _raw("SELECT custom_id FROM batch_requests"))
        assert not any(name in str(column) for name in names[:2] for (column,) in columns)
        taken = await batches.take("one", 10, 10)
        assert [each.custom_id for each in taken] == names
        for each in taken:
            await batches.finish("one", each, answered(each))
        assert [each.custom_id for each in await batches.results("batch_a", -1)] == names

    run(database, work, key="a secret")


def test_what_cannot_be_read_keeps_nothing_else_from_being_read(database: Database) -> None:
    async def work(batches: BatchStore, clock: Clock) -> None:
        other = BatchStore(Store(database, LIMITS, clock=clock, key="another"), clock)
        for number in range(6):
            store = batches if number % 3 == 0 else other
            await store.put(batch(f"batch_{number}", created=5000.0 + number), requests(1))
            file = File(id=f"file-{number}", owner="ann", created=clock.now + number, name="a", purpose="batch", size=1)
            await store.put_file(file, b"x")

        async def names(after: str | None = None, before: str | None = None) -> list[str]:
            return [each.id for each, _ in await batches.page("ann", "openai_chat", after=after, before=before, limit=2)]

        assert await names() == ["batch_3", "batch_0"]
        assert await names(after="batch_3") == ["batch_0"]
        assert await names(before="batch_0") == ["batch_3"]
        assert [file.id for file in await batches.files("ann", after=None, limit=2)] == ["file-3", "file-0"]
        assert [file.id for file in await batches.files("ann", after="file-4", limit=1)] == ["file-3"]
        with pytest.raises(StoreUnreadable):
            await batches.get("ann", "batch_1")
        with pytest.raises(StoreUnreadable):
            await batches.file("ann", "file-1")
        assert [each.batch.id for each in await batches.take("one", 10, 10)] == ["batch_0", "batch_3"]
        clock.now += 11
        taken = await other.take("two", 10, 10)
        assert {each.batch.id for each in taken} == {f"batch_{number}" for number in (1, 2, 4, 5)}, "it has the key for them"

        await batches._store.write(lambda: _raw("UPDATE files SET body = $1 WHERE id = 'file-3'", (b"[damaged",)))
        with pytest.raises(StoreUnreadable):
            await batches.file("ann", "file-3")
        assert [file.id for file in await batches.files("ann", after=None, limit=2)] == ["file-0"]

    run(database, work, key="a secret")


def _raw(sql: str, values: tuple[Value, ...] = ()) -> SqlSteps[list[SqlRow]]:
    return (yield Query(sql, values))
