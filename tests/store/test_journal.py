"""The journal before SQLite: what was acknowledged is there once, whoever dies or reads; what was deleted stays away."""

from __future__ import annotations

import _sqlite3
import asyncio
import contextlib
import ctypes
import os
import shutil
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from athena.errors import ClientError
from athena.shells.store import Store
from athena.shells.store import sqlite as sqlite_module
from athena.shells.store.database import Query
from athena.shells.store.journal import Journal
from athena.shells.store.queries import count
from athena.shells.store.sqlite import SqliteDatabase
from athena.shells.store.store import StoreLimits
from athena.state.errors import StoreDown
from athena.state.values import StoredResponse
from support.patience import FOR_EVER

LIMITS = StoreLimits(max_age_s=1e12, max_bytes=1 << 40)


def response(name: str, parent: str | None = None, text: str = "x") -> StoredResponse:
    return StoredResponse(id=name, owner="ann", created=1.0, parent=parent, input=f'["{text}"]'.encode())


@pytest.fixture(autouse=True)
def _nothing_follows_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """The database gets nothing before somebody asks for it."""
    monkeypatch.setattr(sqlite_module, "_GATHER_S", FOR_EVER)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "store.sqlite3"


def journals(path: Path) -> list[Path]:
    return sorted(path.parent.glob("*-journal-of-*"))


def in_tables(path: Path) -> set[str]:
    with contextlib.closing(sqlite3.connect(path)) as file:
        return {row[0] for row in file.execute("SELECT id FROM responses")}


def with_stores(path: Path, work: Callable[[Store, Store], Awaitable[None]]) -> None:
    """Two gateways on one file. The first one has opened it: only then is anything kept in its journal."""

    async def main() -> None:
        stores = [Store(SqliteDatabase(path), LIMITS) for _ in range(2)]
        try:
            await stores[0].put_response(response("first"))
            await work(*stores)
        finally:
            for store in stores:
                await store.close()

    asyncio.run(main())


def test_who_reads_sees_what_the_tables_do_not_have_yet(path: Path) -> None:
    async def work(one: Store, other: Store) -> None:
        await one.put_response(response("a"))
        await one.put_response(response("b", "a"))
        assert in_tables(path) == {"first"}
        assert await other.chain("ann", "b") == [b'["x"]', b"[]", b'["x"]', b"[]"], "another process takes the journal over"
        assert in_tables(path) == {"first", "a", "b"}
        await one.put_response(response("c", "b"))
        assert await one.response("ann", "c") is not None
        assert await other.response("bob", "c") is None
        await one.put_response(response("d"))
        assert (await other.read(count))["responses"] == 5

    with_stores(path, work)
    assert journals(path) == []


def test_what_another_process_deleted_does_not_come_back(path: Path) -> None:
    async def work(one: Store, other: Store) -> None:
        await one.put_response(response("a"))
        await one.put_response(response("b"))
        assert await other.delete_response("ann", "a")
        await one.put_response(response("c"))
        assert await one.response("ann", "a") is None
        assert await one.response("ann", "c") is not None

    with_stores(path, work)
    assert in_tables(path) == {"first", "b", "c"}


def test_what_a_kept_response_is_built_on_stays(path: Path) -> None:
    async def work(one: Store, other: Store) -> None:
        await one.put_response(response("a"))
        await one.put_response(response("b", "a"))
        assert await other.delete_response("ann", "a")
        assert await one.chain("ann", "b") == [b'["x"]', b"[]", b'["x"]', b"[]"]

    with_stores(path, work)


def test_what_is_deleted_does_not_stay_in_the_journal(path: Path) -> None:
    async def work(one: Store, other: Store) -> None:
        await one.put_response(response("a", text="a secret"))
        assert b"a secret" in journals(path)[0].read_bytes()
        assert await one.delete_response("ann", "a")
        assert journals(path)[0].read_bytes() == b""

    with_stores(path, work)


def test_a_killed_process_leaves_its_journal_to_the_next(path: Path, tmp_path: Path) -> None:
    """The files as they are at the kill, the last entry cut anywhere: whole entries are there, and nothing else."""
    dead = tmp_path / "dead"

    async def work(one: Store, other: Store) -> None:
        for name in "abc":
            await one.put_response(response(name))
        shutil.copytree(path.parent, dead)

    with_stores(path, work)
    (journal,) = journals(dead / path.name)
    whole = journal.read_bytes()
    size = len(whole) // 3

    async def opened() -> int:
        store = Store(SqliteDatabase(dead / path.name), LIMITS)
        try:
            if await store.response("ann", "a") is not None:
                await store.delete_response("ann", "a")
            return (await store.read(count))["responses"]
        finally:
            await store.close()

    database = {file.name: file.read_bytes() for file in dead.iterdir() if file != journal}
    for cut in (0, 5, size - 1, size, size + 7, size + 8, 2 * size, 3 * size - 1, 3 * size):
        shutil.rmtree(dead)
        dead.mkdir(mode=0o700)
        for name, content in (*database.items(), (journal.name, whole[:cut])):
            (dead / name).write_bytes(content)
            (dead / name).chmod(0o600)
        kept = cut // size
        assert asyncio.run(opened()) == 1 + kept - (kept > 0), cut
        assert journals(dead / path.name) == [], "nobody needs it any more"


def test_files_are_written_from_their_beginning_again(path: Path, tmp_path: Path) -> None:
    """What stood in a file before stands behind what is new, of which the last entry may be cut anywhere: whole entries are
    there once, and what was taken over and deleted does not come back."""
    dead = tmp_path / "dead"

    async def work(one: Store, other: Store) -> None:
        for name in ("a", "b", "c", "d"):  # in turn to the one file and to the other
            await one.put_response(response(name, text="before " * 200))
            await one.put_response(response(f"{name}2", text="before " * 200))
            assert await one.response("ann", name) is not None
        assert len(journals(path)) == 2
        sizes = [journal.stat().st_size for journal in journals(path)]
        await one.put_response(response("e", text="now"))
        await one.put_response(response("f", text="now"))
        assert [journal.stat().st_size for journal in journals(path)] == sizes, "no file grows"
        shutil.copytree(path.parent, dead)
        with contextlib.closing(sqlite3.connect(dead / path.name)) as file, file:
            file.execute("DELETE FROM responses WHERE id LIKE 'a%' OR id LIKE 'b%'")

    with_stores(path, work)
    written = next(journal for journal in journals(dead / path.name) if b"now" in journal.read_bytes())
    whole = written.read_bytes()
    length = int.from_bytes(whole[:4], "big")
    assert int.from_bytes(whole[8 + length : 12 + length], "big") == length, "both entries are as long"
    files = {file.name: file.read_bytes() for file in dead.iterdir()}

    async def opened() -> set[str]:
        store = Store(SqliteDatabase(dead / path.name), LIMITS)
        try:
            await store.read(count)
            return in_tables(dead / path.name)
        finally:
            await store.close()

    for cut in (0, 3, 8 + length - 1, 8 + length, 8 + length + 5, 2 * (8 + length) - 1, 2 * (8 + length)):
        for name, content in files.items():
            if name == written.name:  # only the beginning was written over what stood there
                content = content[:cut] + b"\xff" * (2 * (8 + length) - cut) + content[2 * (8 + length) :]
            (dead / name).write_bytes(content)
            (dead / name).chmod(0o600)
        kept = {"e", "f"} if cut == 2 * (8 + length) else {"e"} if cut >= 8 + length else set()
        assert asyncio.run(opened()) == {"first", "c", "c2", "d", "d2"} | kept, cut
        assert journals(dead / path.name) == []


def test_what_is_deleted_goes_from_a_file_that_is_in_use(path: Path) -> None:
    """A file that holds what was deleted, and what the tables do not have yet, is emptied as soon as they have it."""
    path.parent.mkdir(mode=0o700)
    journal = Journal(path)
    journal.open()
    journal.is_trusted = True
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE journals (name TEXT PRIMARY KEY, applied BIGINT NOT NULL)")

        def settled(*, forget: bool) -> None:
            journal.taken_over(journal.take_over(connection, lambda _, queries: None), forget=forget)

        journal.append(Query("", ("a", "a secret")))
        settled(forget=False)
        settled(forget=False)
        journal.append(Query("", ("b",)))
        settled(forget=False)
        journal.append(Query("", ("c",)))
        assert any(b"a secret" in file.read_bytes() for file in journals(path))
        journal.taken_over(0, forget=True)
        assert any(file.read_bytes() for file in journals(path)), "what is pending stays"
        settled(forget=False)
        assert not any(file.read_bytes() for file in journals(path))
        journal.close(connection)


def test_a_journal_that_is_taken_over_twice(path: Path, tmp_path: Path) -> None:
    """A process that dies after its journal was taken over, and before it was emptied, does not bring back what was deleted."""
    dead = tmp_path / "dead"

    async def work(one: Store, other: Store) -> None:
        await one.put_response(response("a"))
        await one.put_response(response("b"))
        assert await other.delete_response("ann", "a")
        shutil.copytree(path.parent, dead)

    with_stores(path, work)
    assert any(journal.stat().st_size for journal in journals(dead / path.name))

    async def again() -> None:
        store = Store(SqliteDatabase(dead / path.name), LIMITS)
        try:
            assert await store.response("ann", "a") is None
            assert await store.response("ann", "b") is not None
        finally:
            await store.close()

    asyncio.run(again())
    assert journals(dead / path.name) == []


def test_a_full_disk(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(one: Store, other: Store) -> None:
        await one.put_response(response("a"))
        real = os.pwrite
        with monkeypatch.context() as patched:
            patched.setattr(os, "pwrite", lambda file, data, at: real(file, data[: len(data) // 2], at))
            with pytest.raises(StoreDown) as caught:
                await one.put_response(response("b"))
        assert "disk full" in str(caught.value.__cause__)
        await one.put_response(response("c"))
        assert await other.response("ann", "c") is not None, "half an entry does not stand before it"
        assert await other.response("ann", "b") is None

    with_stores(path, work)


def test_large_ones_go_to_the_tables_at_once(path: Path) -> None:
    async def work(one: Store, other: Store) -> None:
        await one.put_response(response("a", text="x" * 300_000))
        assert in_tables(path) == {"first", "a"}
        for number in range(60):
            await one.put_response(response(f"b{number}", text="x" * 100_000))
        assert "b0" in in_tables(path), "not all of them wait"

    with_stores(path, work)
    assert len(in_tables(path)) == 62


def test_a_large_one_does_not_stay_in_memory(path: Path) -> None:
    """A prepared statement holds the values that it was last run with, and Python keeps prepared statements."""
    sqlite = ctypes.CDLL(_sqlite3.__file__)
    sqlite.sqlite3_memory_used.restype = ctypes.c_int64

    async def work(one: Store, other: Store) -> None:
        await one.put_response(response("a"))
        before = sqlite.sqlite3_memory_used()
        for name in ("b", "c"):
            await one.put_response(response(name, text="x" * 8_000_000))
        await one.database.settle()
        await other.response("ann", "c")
        assert sqlite.sqlite3_memory_used() < before + 4_000_000, "SQLite's own page cache is smaller than that"
        await one.put_response(response("d"))
        assert journals(path), "the journal goes on"

    with_stores(path, work)
    assert in_tables(path) == {"first", "a", "b", "c", "d"}


def test_many_at_once_and_one_of_them_twice(path: Path) -> None:
    async def work(one: Store, other: Store) -> None:
        for number in range(37):
            await one.put_response(response(f"a{number % 30}", text=f"the first {number < 30}"))
        for number in range(30):
            found = await other.response("ann", f"a{number}")
            assert found is not None
            assert found.input == b'["the first True"]', "one that is there stays as it is"

    with_stores(path, work)
    assert in_tables(path) == {"first", *(f"a{number}" for number in range(30))}


def test_the_writer_is_told_of_the_first_and_of_many(path: Path) -> None:
    path.parent.mkdir(mode=0o700)
    journal = Journal(path)
    journal.open()
    journal.is_trusted = True
    try:
        assert [journal.append(Query("", (str(number), "x" * 200_000))) for number in range(8)] == [
            True, *[False] * 4, True, *[False] * 2,
        ]  # fmt: skip
    finally:
        journal.close(None)


def test_what_is_put_off_is_known(path: Path) -> None:
    async def work(one: Store, other: Store) -> None:
        await one.put_response(response("a"))
        assert one.database.is_put_off("a")
        assert not one.database.is_put_off("first")
        assert not other.database.is_put_off("a")
        assert await one.response("bob", "a") is None, "it was written, and is not his"
        assert not one.database.is_put_off("a")

    with_stores(path, work)


def test_what_was_put_a_moment_ago_is_continued_from_the_journal(path: Path) -> None:
    """Without waiting for the tables; what nobody else may continue, and what another process has deleted, is not there."""

    async def parts(store: Store, owner: str, name: str) -> list[object] | None:
        found = await store.chain_beside(owner, name, lambda each: "known" if each == "known" else None)
        return None if found is None else [each if type(part) is tuple else part for each, part in found]

    async def work(one: Store, other: Store) -> None:
        await one.put_response(response("known", "first"))
        await one.database.settle()
        await one.put_response(response("a", "known"))
        await one.put_response(response("b", "a"))
        assert await parts(one, "ann", "b") == ["first", "known", "a", "b"]
        assert in_tables(path) == {"first", "known"}, "nothing was written for that"
        assert await parts(one, "bob", "b") is None
        await one.put_response(response("c", "b"))
        await one.put_response(StoredResponse(id="open", owner="ann", created=1.0, status="queued"))
        assert await parts(one, "ann", "open") is None
        assert await other.delete_response("ann", "b")
        assert await parts(one, "ann", "b") is None, "another process has deleted it"
        assert await parts(one, "ann", "c") == ["first", "known", "a", "b", "c"]
        await one.put_response(response("d", "gone"))
        with pytest.raises(ClientError, match="not found"):
            await parts(one, "ann", "d")

    with_stores(path, work)


def test_large_responses_are_not_read_by_the_event_loop(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(one: Store, other: Store) -> None:
        read = 0
        real = one.database.read

        async def counted(steps: object) -> object:
            nonlocal read
            read += 1
            return await real(steps)  # type: ignore[arg-type]  # as it came

        monkeypatch.setattr(one.database, "read", counted)
        for name, text in (("small", "x" * 1000), ("large", "x" * 100_000)):
            await one.put_response(response(name, text=text))
            await one.database.settle()
            assert await one.chain_beside("ann", name, lambda each: None) is not None
        assert read == 1, "only the large one by another thread"

    with_stores(path, work)
