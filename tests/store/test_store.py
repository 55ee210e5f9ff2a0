"""The store on each database: what is kept, whose it is, what goes and when, and that a broken place is said to be one."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from athena.errors import ClientError
from athena.shells.migrations import scripts
from athena.shells.store import Database, Query, SqlSteps, Store
from athena.shells.store.queries import count, get_size, put_response
from athena.shells.store.sqlite import SqliteDatabase
from athena.shells.store.store import StoreLimits
from athena.state.errors import StoreDown, StoreUnreadable
from athena.state.values import Conversation, StoredEvent, StoredItem, StoredResponse
from support.leftovers import without_collector
from support.patience import FOR_EVER

LIMITS = StoreLimits(max_age_s=1000, max_bytes=1_000_000)


class Clock:
    now = 5000.0

    def __call__(self) -> float:
        return self.now


def run(database: Database, work: Callable[[Store], Awaitable[None]], **options: object) -> None:
    async def main() -> None:
        store = Store(database, LIMITS, clock=Clock(), **options)  # type: ignore[arg-type]
        try:
            await work(store)
        finally:
            await store.close()

    asyncio.run(main())


def response(name: str, owner: str = "ann", **fields: object) -> StoredResponse:
    base = StoredResponse(
        id=name, owner=owner, created=5000.0, body=b'{"id":"%b"}' % name.encode(), input=b'["in %b"]' % name.encode(),
        output=b'["out %b"]' % name.encode(),
    )  # fmt: skip
    return msgspec.structs.replace(base, **fields)


def test_responses_and_their_chains(database: Database) -> None:
    async def work(store: Store) -> None:
        await store.put_response(response("a"))
        await store.put_response(response("b", parent="a"))
        await store.put_response(response("c", parent="b"))
        await store.put_response(response("d", parent="b"))
        assert await store.response("ann", "b") == response("b", parent="a")
        assert await store.chain("ann", "c") == [
            b'["in a"]',
            b'["out a"]',
            b'["in b"]',
            b'["out b"]',
            b'["in c"]',
            b'["out c"]',
        ]
        # Another owner sees nothing, by any method.
        assert await store.response("bob", "b") is None
        assert await store.chain("bob", "c") is None
        assert not await store.delete_response("bob", "b")
        # The same once more changes nothing: a repeated transaction counts no use twice.
        await store.put_response(response("b", parent="a", body=b'{"other":1}'))
        assert await store.response("ann", "b") == response("b", parent="a")
        # Deleted, it cannot be read or continued; those built on it can.
        assert await store.delete_response("ann", "b")
        assert not await store.delete_response("ann", "b")
        assert await store.response("ann", "b") is None
        assert await store.chain("ann", "b") is None
        assert len(await store.chain("ann", "c") or []) == 6
        assert await store.delete_response("ann", "c")
        assert (await store.read(count))["responses"] == 3
        assert await store.delete_response("ann", "d")
        assert (await store.read(count))["responses"] == 1, "b goes with the last one that is built on it"
        assert await store.delete_response("ann", "a")
        assert (await store.read(count))["responses"] == 0

    run(database, work)


def test_what_is_known_is_looked_up_all_the_same(database: Database) -> None:
    """By a look at the table where all is known, and with the contents of what is not."""

    async def work(store: Store) -> None:
        known = {"a": "A", "b": "B"}
        for name, parent in (("a", None), ("b", "a"), ("c", "b")):
            await store.put_response(response(name, parent=parent))
        for _ in range(2):
            assert await store.chain_beside("ann", "b", known.get) == [("a", "A"), ("b", "B")]
            assert await store.chain_beside("ann", "c", known.get) == [
                ("a", "A"), ("b", "B"), ("c", (b'["in c"]', b'["out c"]')),
            ]  # fmt: skip
            assert await store.chain_beside("bob", "b", known.get) is None
        assert await store.delete_response("ann", "b")
        assert await store.chain_beside("ann", "b", known.get) is None
        await store.write(partial(_without, "a"))
        with pytest.raises(ClientError, match="not found"):
            await store.chain_beside("ann", "c", {**known, "c": "C"}.get)

    run(database, work)


def test_a_chain_goes_back_to_its_last_compaction(database: Database) -> None:
    """Also where everything was put a moment ago, and where what was before the compaction is gone."""

    async def work(store: Store) -> None:
        def known(name: str) -> str | None:
            return "B" if name == "b" else None

        later = [b'["in b"]', b'["out b"]', b'["in c"]', b'["out c"]']
        beside = [("b", "B"), ("c", (b'["in c"]', b'["out c"]'))]
        for name, parent in (("a", None), ("b", "a"), ("c", "b")):
            await store.put_response(response(name, parent=parent, compacts=name == "b"))
        assert await store.chain_beside("ann", "c", known) == beside
        assert await store.chain("ann", "c") == later
        assert await store.chain_beside("ann", "c", known) == beside
        assert await store.response("ann", "b") == response("b", parent="a", compacts=True)
        assert [name for name, _, _ in await store.turns("ann", "c") or []] == ["a", "b", "c"], "who looks sees everything"
        await store.write(partial(_without, "a"))
        assert await store.chain("ann", "c") == later
        assert await store.chain_beside("ann", "c", known) == beside
        # The same of one that is made in the background.
        await store.put_response(response("d", parent="c", status="queued", background=True, output=b"[]"), lease=6000)
        assert await store.finish_response(response("d", parent="c", background=True, compacts=True))
        assert await store.chain("ann", "d") == [b'["in d"]', b'["out d"]']

    run(database, work)


def test_who_continues_a_response_hears_that_it_was_deleted(database: Database) -> None:
    async def work(store: Store) -> None:
        await store.put_response(response("a"))
        await store.put_response(response("b"))
        of_ann, of_bob, other = store.continued("ann", "a"), store.continued("bob", "a"), store.continued("ann", "b")
        assert await store.delete_response("ann", "a")
        assert (of_ann.is_gone, of_bob.is_gone, other.is_gone) == (True, False, False)

    run(database, work)


def test_items_from_the_last_compaction_on(database: Database) -> None:
    async def work(store: Store) -> None:
        for first in (0, 3, 702, 703, 1202):
            kinds = {first: "compaction", first - 1: "compaction"}
            items = [
                StoredItem(f"i{number}", b'{"type":"%b","number":%d}' % (kinds.get(number, "message").encode(), number))
                for number in range(1203)
            ]
            name = f"conv{first}"
            await store.put_conversation(Conversation(id=name, owner="ann", created=5000.0), items)
            assert await store.items_since_compaction(name) == (items[first:], 1203)
        await store.put_conversation(Conversation(id="none", owner="ann", created=5000.0), items[:1200])
        assert await store.items_since_compaction("none") == (items[:1200], 1200)
        await store.put_conversation(Conversation(id="empty", owner="ann", created=5000.0), [])
        assert await store.items_since_compaction("empty") == ([], 0)

    run(database, work)


@pytest.mark.parametrize("key", [None, "a key of these tests"])
def test_no_more_items_are_read_than_a_request_may_have(database: Database, key: str | None) -> None:
    async def work(store: Store) -> None:
        items = [StoredItem(f"i{number}", b'"%d %b"' % (number, b"x" * 10_000)) for number in range(50)]
        await store.put_conversation(Conversation(id="conv", owner="ann", created=5000.0), items)
        await store.put_response(response("a", conversation="conv", position=40))
        size = len(items[0].body) + 1
        found, behind = await store.items_since_compaction("conv", 10 * size)
        assert (found, behind) == (items[-11:], 50), "they are more than that, and not all"
        assert await store.items_since_compaction("conv", 50 * size) == (items, 50)
        (_, before, *_) = await store.chain("ann", "a", 10 * size) or [b""] * 2
        assert before == b"[%b]" % b",".join(item.body for item in items[29:40])
        ((_, (_, before)), *_) = await store.chain_beside("ann", "a", lambda name: None, 10 * size) or []
        assert before == b"[%b]" % b",".join(item.body for item in items[29:40])

    run(database, work, key=key)


def _without(name: str) -> SqlSteps[None]:
    yield Query("DELETE FROM responses WHERE id = $1", (name,))


def test_background_responses(database: Database) -> None:
    async def work(store: Store) -> None:
        await store.put_response(response("a", status="queued", background=True, output=b"[]"), lease=6000)
        assert await store.chain("ann", "a") is None, "what is not finished cannot be continued"
        assert await store.begin_response("ann", "a", 6000)
        assert not await store.begin_response("ann", "a", 6000)
        found = await store.response("ann", "a")
        assert found is not None
        assert found.status == "in_progress"
        assert await store.renew_lease("ann", "a", 4000)
        found = await store.response("ann", "a")
        assert found is not None
        assert found.status == "failed", "its maker has not been heard of"
        await store.add_events("a", [StoredEvent(0, b"{}"), StoredEvent(1, b'{"n":1}')])
        await store.add_events("a", [StoredEvent(1, b"{}"), StoredEvent(2, b'{"n":2}')])
        assert await store.events("a", 0) == [StoredEvent(1, b'{"n":1}'), StoredEvent(2, b'{"n":2}')]
        assert await store.renew_lease("ann", "a", 6000)
        await store.cancel_response("bob", "a")
        assert await store.renew_lease("ann", "a", 6000)
        await store.cancel_response("ann", "a")
        assert not await store.renew_lease("ann", "a", 6000)
        assert await store.finish_response(response("a", status="cancelled"))
        assert not await store.finish_response(response("a", status="completed")), "it is over"
        found = await store.response("ann", "a")
        assert found is not None
        assert found.status == "cancelled"
        assert await store.delete_response("ann", "a")
        assert await store.events("a", -1) == []

    run(database, work)


def test_conversations(database: Database) -> None:
    async def work(store: Store) -> None:
        item = [StoredItem(f"i{number}", b'{"n":%d}' % number) for number in range(8)]
        await store.put_conversation(Conversation(id="c", owner="ann", created=5000.0, metadata=b'{"a":"b"}'), item[:2])
        found = await store.conversation("ann", "c")
        assert found is not None
        assert found.metadata == b'{"a":"b"}'
        assert await store.conversation("bob", "c") is None
        assert not await store.add_items("bob", "c", item[2:3])
        assert await store.add_items("ann", "c", item[1:4]), "an item that is there already is not added again"
        assert await store.add_new_items("ann", "c", item[1:4]), "the same once more changes nothing"
        assert await store.add_new_items("ann", "c", [item[4], StoredItem("i3", b"{}")]) == "i3", "another one is there"
        assert not await store.add_new_items("bob", "c", item[4:5])
        await store.put_response(response("r", conversation="c"), items=item[4:6])
        every = await store.items("c", after=None, limit=10, newest_first=False)
        assert [each.id for each in every] == ["i0", "i1", "i2", "i3", "i4", "i5"]
        place = await store.item("ann", "i3", "c")
        assert place is not None
        assert place[0] == item[3]
        assert await store.item("bob", "i3", "c") is None
        assert await store.item("bob", "i3") is None
        assert (await store.item("ann", "i3")) == place
        later = await store.items("c", after=place[1], limit=1, newest_first=False)
        assert [each.id for each in later] == ["i4"]
        earlier = await store.items("c", after=place[1], limit=2, newest_first=True)
        assert [each.id for each in earlier] == ["i2", "i1"]
        assert not await store.delete_item("bob", "c", "i3")
        assert await store.delete_item("ann", "c", "i3")
        assert await store.item("ann", "i3", "c") is None
        assert await store.set_metadata("ann", "c", b"{}")
        assert not await store.set_metadata("bob", "c", b"{}")
        assert await store.lock_conversation("ann", "c", "r1", 60) is True
        assert await store.lock_conversation("ann", "c", "r2", 60) is False
        assert await store.lock_conversation("bob", "c", "r2", 60) is None
        await store.unlock_conversation("c", "r2")
        assert await store.lock_conversation("ann", "c", "r2", 60) is False, "only its holder opens a lock"
        assert not await store.renew_lock("c", "r2", 60)
        assert await store.renew_lock("c", "r1", -1)
        assert await store.lock_conversation("ann", "c", "r2", 60) is True, "a lock that is not renewed ends by itself"
        await store.put_response(response("r2", conversation="c"), items=item[6:7])
        assert not await store.renew_lock("c", "r2", 60), "a lock ends with what is written"
        assert await store.lock_conversation("ann", "c", "r3", 60) is True
        assert await store.add_items("ann", "c", item[7:8], holder="r3")
        assert await store.lock_conversation("ann", "c", "r4", 60) is True
        await store.unlock_conversation("c", "r4")
        assert await store.lock_conversation("ann", "c", "r5", 60) is True
        assert not await store.delete_conversation("bob", "c")
        assert await store.delete_conversation("ann", "c")
        left = {"responses": 2, "conversations": 0, "items": 0, "events": 0, "batches": 0, "files": 0}
        assert (await store.read(count)) == left

    run(database, work)


def test_limits_of_age_and_size(database: Database) -> None:
    async def work(store: Store) -> None:
        for number in range(6):
            parent = f"r{number - 1}" if number else None
            large = response(f"r{number}", created=3000.0 + number * 400, parent=parent, output=b'["%b"]' % (b"x" * 400_000))
            await store.put_response(large)
        await store.put_conversation(Conversation(id="old", owner="ann", created=3999.0), [])
        await store.put_conversation(Conversation(id="new", owner="ann", created=4300.0), [])
        assert await store.trim() > 0
        assert await store.conversation("ann", "old") is None
        assert await store.conversation("ann", "new") is not None
        there = [number for number in range(6) if await store.response("ann", f"r{number}") is not None]
        assert there == [4, 5], "two of them fit, the newest"
        with pytest.raises(ClientError, match="not found") as lost:
            await store.chain("ann", "r5")
        assert lost.value.code == "previous_response_not_found", "its beginning is gone"

    run(database, work)


def test_what_was_used_longest_ago_goes_first_whatever_it_is(database: Database) -> None:
    async def work(store: Store) -> None:
        large = b'"%b"' % (b"x" * 400_000)
        for number in range(3):
            item = StoredItem(f"item{number}", large)
            await store.put_conversation(Conversation(id=f"c{number}", owner="ann", created=4100.0 + number * 100), [item])
            await store.put_response(response(f"r{number}", created=4150.0 + number * 100))
        await store.trim()
        assert [name for name in ("c0", "c1", "c2") if await store.conversation("ann", name)] == ["c1", "c2"]
        assert [name for name in ("r0", "r1", "r2") if await store.response("ann", name)] == ["r0", "r1", "r2"]

    run(database, work)


def test_metadata_takes_room(database: Database) -> None:
    async def work(store: Store) -> None:
        metadata = b'{"a":"%b"}' % (b"x" * 300_000)
        for number in range(4):
            made = Conversation(id=f"c{number}", owner="ann", created=4100.0 + number, metadata=metadata)
            await store.put_conversation(made, [])
        await store.trim()
        assert [name for name in ("c0", "c1", "c2", "c3") if await store.conversation("ann", name)] == ["c1", "c2", "c3"]

    run(database, work)


def test_streams_take_room(database: Database) -> None:
    async def work(store: Store) -> None:
        large = b'{"type":"x","text":"%b"}' % (b"x" * 150_000)
        for number in range(4):
            made = response(f"r{number}", created=4100.0 + number, status="in_progress", background=True)
            await store.put_response(made, events=[StoredEvent(0, large)], lease=9000.0)
            await store.add_events(made.id, [StoredEvent(1, large)])
            await store.finish_response(msgspec.structs.replace(made, status="completed"))
        await store.trim()
        assert [name for name in ("r0", "r1", "r2", "r3") if await store.response("ann", name)] == ["r1", "r2", "r3"]
        assert await store.read(get_size) > 900_000
        await store.delete_response("ann", "r1")
        assert 600_000 < await store.read(get_size) < 700_000

    run(database, work)


def test_encryption(database: Database) -> None:
    async def write(store: Store) -> None:
        await store.put_response(response("plain"))
        locked = Store(database, LIMITS, key="one", clock=Clock())
        await locked.put_response(response("a"))
        await locked.put_response(response("b"))
        await locked.put_conversation(
            Conversation(id="c", owner="ann", created=5000.0, metadata=b'{"secret":"x"}'), [StoredItem("i", b'{"text":"word"}')]
        )
        assert await locked.response("ann", "a") == response("a")
        assert await locked.response("ann", "plain") == response("plain"), "what was there before the key stays readable"
        assert await locked.item("ann", "i") == (StoredItem("i", b'{"text":"word"}'), 0)

        def raw() -> SqlSteps[bytes]:
            rows = yield Query("SELECT body, input, output FROM responses WHERE id = 'a'")
            items = yield Query("SELECT body FROM items")
            talks = yield Query("SELECT metadata FROM conversations")
            return b"".join([*rows[0], *items[0], *talks[0]])

        stored = await store.read(raw)
        assert not any(word in stored for word in (b"out a", b"in a", b"word", b"secret"))
        with pytest.raises(StoreUnreadable):
            await Store(database, LIMITS, key="two", clock=Clock()).response("ann", "a")
        with pytest.raises(StoreUnreadable):
            await store.response("ann", "a")

        def swapped() -> SqlSteps[None]:
            yield Query("UPDATE responses SET output = (SELECT output FROM responses WHERE id = 'b') WHERE id = 'a'")

        await store.write(swapped)
        with pytest.raises(StoreUnreadable):
            await locked.response("ann", "a")

    run(database, write)


def test_a_transaction_that_fails_takes_no_other_with_it(database: Database) -> None:
    def broken() -> SqlSteps[None]:
        yield Query("UPDATE responses SET owner = $1", ("mallory",))
        raise ValueError("on purpose")

    async def work(store: Store) -> None:
        results = await asyncio.gather(
            *(store.put_response(response(f"r{number}")) for number in range(20)),
            store.write(broken),
            *(store.put_response(response(f"s{number}")) for number in range(20)),
            return_exceptions=True,
        )
        assert [result for result in results if result is not None and not isinstance(result, ValueError)] == []
        assert sum(isinstance(result, ValueError) for result in results) == 1
        for number in range(20):
            assert await store.response("ann", f"r{number}") is not None
            assert await store.response("ann", f"s{number}") is not None

    run(database, work)


def test_a_statement_that_fails_takes_no_other_with_it(database: Database) -> None:
    """Responses that are written at the same time go to the database together; one of them it refuses."""
    good = [response(f"r{number}") for number in range(100)]
    nobodys = put_response(response("nobody's"), 0.0)
    refused = Query(nobodys.sql, tuple(None if value == "ann" else value for value in nobodys.values))

    async def work(store: Store) -> None:
        results = await asyncio.gather(
            *map(store.put_response, good[:50]), store.put(refused), *map(store.put_response, good[50:]), return_exceptions=True
        )
        assert [type(result) for result in results if result is not None] == [StoreDown]
        for each in good:
            assert await store.response("ann", each.id) is not None, each.id
        await store.put_response(response("later"))
        assert await store.response("ann", "later") is not None

    run(database, work)


def test_whoever_waits_for_a_statement_may_leave(database: Database) -> None:
    async def work(store: Store) -> None:
        writing = [asyncio.create_task(store.put_response(response(f"r{number}"))) for number in range(30)]
        await asyncio.sleep(0)
        for number in (0, 7, 29):
            writing[number].cancel()
        await asyncio.wait(writing)
        assert [number for number, task in enumerate(writing) if task.cancelled()] == [0, 7, 29]
        for number in set(range(30)) - {0, 7, 29}:
            assert await store.response("ann", f"r{number}") is not None, "another one left, and this one is kept"

    run(database, work)


def test_a_second_gateway_reads_what_the_first_one_wrote(database: Database, tmp_path: Path) -> None:
    def again() -> Database:
        if isinstance(database, SqliteDatabase):
            return SqliteDatabase(database.path)
        from athena.shells.store.postgres import PostgresDatabase

        assert isinstance(database, PostgresDatabase)
        return PostgresDatabase(database._url)

    async def work(store: Store) -> None:
        other = Store(again(), LIMITS, clock=Clock())
        try:
            await asyncio.gather(
                *(each.put_response(response(f"{name}{n}")) for n in range(20) for name, each in (("x", store), ("y", other)))
            )
            for number in range(20):
                assert await store.response("ann", f"y{number}") is not None
                assert await other.response("ann", f"x{number}") is not None
        finally:
            await other.close()

    run(database, work)


def test_migrations_and_checks(database: Database) -> None:
    async def work(store: Store) -> None:
        before, after = await store.database.migrate()
        assert before == 0
        assert after >= 1
        assert await store.database.migrate() == (after, after)
        assert await store.database.check() == []
        await store.put_response(response("a"))
        await store.database.vacuum()
        assert await store.response("ann", "a") is not None

    run(database, work)


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_a_place_that_cannot_be_used(database: Database, tmp_path: Path) -> None:
    failures: list[int] = []

    async def work(store: Store) -> None:
        (tmp_path / "state").mkdir(mode=0o700)
        (tmp_path / "state" / "store.sqlite3").write_bytes(b"this is no database" * 100)
        for attempt in (store.put_response(response("a")), store.response("ann", "a")):
            with pytest.raises(StoreDown):
                await attempt
        assert len(failures) == 2
        (tmp_path / "state" / "store.sqlite3").unlink()
        await store.put_response(response("a"))
        assert await store.response("ann", "a") is not None, "it is opened anew when the place is well again"

    run(database, work, on_failure=lambda: failures.append(1))


def test_a_file_of_an_earlier_version_keeps_what_is_in_it(tmp_path: Path) -> None:
    """Version 2 counted who continues a response; a response that others continue still leaves its items to them."""
    path = tmp_path / "state" / "store.sqlite3"
    path.parent.mkdir(mode=0o700)
    path.touch(mode=0o600)
    with contextlib.closing(sqlite3.connect(path)) as file:
        for script in scripts("athena.shells.store")[:2]:
            file.executescript(script)
        sql = (
            "INSERT INTO responses (id, owner, parent, created, status, background, upstream, uses, size, body, input, output) "
            "VALUES (?, 'ann', ?, 1, 'completed', 0, '', ?, 2, x'7b7d', ?, x'5b5d')"
        )
        file.execute(sql, ("a", None, 1, b'["one"]'))
        file.execute(sql, ("b", "a", 0, b'["two"]'))
        file.execute("PRAGMA user_version = 2")
        file.commit()

    async def work(store: Store) -> None:
        assert await store.delete_response("ann", "a")
        assert await store.chain("ann", "b") == [b'["one"]', b"[]", b'["two"]', b"[]"]
        assert await store.delete_response("ann", "b")
        assert (await store.read(count))["responses"] == 0, "nothing is built on either any more"

    run(SqliteDatabase(path), work)


def test_a_newer_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "state" / "store.sqlite3"
    path.parent.mkdir(mode=0o700)
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 9999")
    connection.close()
    path.chmod(0o600)

    async def work(store: Store) -> None:
        with pytest.raises(StoreDown) as caught:
            await store.put_response(response("a"))
        assert "newer version" in str(caught.value.__cause__)

    run(SqliteDatabase(path), work)


def test_a_restarted_server_is_found_again(postgres: object, tmp_path: Path) -> None:
    from athena.shells.store.postgres import PostgresDatabase
    from support.postgres import PostgresServer

    assert isinstance(postgres, PostgresServer)

    async def work(store: Store) -> None:
        await store.put_response(response("before"))
        postgres.stop(at_once=True)
        with pytest.raises(StoreDown):
            await store.put_response(response("while away"))
        postgres.start()
        await store.put_response(response("after"))
        assert await store.response("ann", "before") is not None, "what was acknowledged is there"
        assert await store.response("ann", "after") is not None
        postgres.stop()
        postgres.start()
        assert await store.response("ann", "after") is not None, "a dead connection is replaced without an error"
        await store.put_response(response("last"))
        assert await store.response("ann", "last") is not None, "that of what is put as well"
        await store.write(partial(_forgotten))

    run(PostgresDatabase(postgres.url), work)


def test_a_put_that_takes_too_long_is_not_waited_for(postgres: object) -> None:
    """Puts share one timer instead of having one each."""
    from athena.shells.store.postgres import PostgresDatabase, PutConnection
    from support.postgres import PostgresServer

    assert isinstance(postgres, PostgresServer)

    async def work(store: Store) -> None:
        await store.put_response(response("before"))
        import asyncpg  # type: ignore[import-untyped]

        other, late = await asyncpg.connect(postgres.url), PutConnection(await asyncpg.connect(postgres.url), 0.01)
        async with other.transaction():
            await other.execute("LOCK TABLE responses IN ACCESS EXCLUSIVE MODE")
            with pytest.raises(TimeoutError):
                await late.run([put_response(response("late"), 0.0)])
        await other.close()
        with pytest.raises(asyncpg.InterfaceError):
            await late.run([put_response(response("later"), 0.0)])
        late.end()
        assert await store.response("ann", "late") is None
        await store.write(partial(_forgotten))

    run(PostgresDatabase(postgres.url), work)


def _stuck(*_: object) -> None:
    """What asyncpg says of a connection on which the server's last words have come, and its end has not."""
    import asyncpg

    raise asyncpg.InternalClientError("cannot switch to state 12; another operation (2) is in progress")


def test_a_connection_in_its_last_moment_is_replaced(postgres: object, monkeypatch: pytest.MonkeyPatch) -> None:
    from athena.shells.store import postgres as postgres_module
    from support.postgres import PostgresServer

    assert isinstance(postgres, PostgresServer)
    run_steps = postgres_module._run_steps
    stuck: list[Any] = []

    async def once(connection: Any, steps: SqlSteps[Any]) -> Any:
        if not stuck:
            stuck.append(connection._con)
            _stuck()
        return await run_steps(connection, steps)

    async def always(connection: Any, steps: SqlSteps[Any]) -> Any:
        _stuck()

    async def work(store: Store) -> None:
        await store.put_response(response("before"))
        database: Any = store.database
        alone = SimpleNamespace(
            _protocol=SimpleNamespace(bind_execute=_stuck, bind_execute_many=_stuck), terminate=lambda: None
        )
        for names in (["alone"], ["one", "two", "three"]):
            database._put_connection._connection.terminate()
            database._put_connection._connection = alone
            await asyncio.gather(*(store.put_response(response(name)) for name in names))
            for name in names:
                assert await store.response("ann", name) is not None
        with monkeypatch.context() as patched:
            patched.setattr(postgres_module, "_run_steps", once)
            assert await store.response("ann", "before") is not None
            assert stuck[0].is_closed(), "it is not used again"
            patched.setattr(postgres_module, "_run_steps", always)
            with pytest.raises(StoreDown) as caught:
                await store.begin_response("ann", "before", 6000)
            assert "state 12" in str(caught.value.__cause__)
        await store.write(partial(_forgotten))

    run(postgres_module.PostgresDatabase(postgres.url), work)


def test_a_put_that_is_abandoned_ends_its_connection(postgres: object) -> None:
    """The server may still be at work on its statement, so no other put may use it."""
    from athena.shells.store.postgres import PostgresDatabase
    from support.postgres import PostgresServer

    assert isinstance(postgres, PostgresServer)

    async def work(store: Store) -> None:
        import asyncpg

        await store.put_response(response("before"))
        database: Any = store.database
        used = database._put_connection._connection
        other = await asyncpg.connect(postgres.url)
        async with other.transaction():
            await other.execute("LOCK TABLE responses IN ACCESS EXCLUSIVE MODE")
            database._came = -FOR_EVER  # no put came for long: the next one does not wait for others
            putting = asyncio.create_task(store.put_response(response("abandoned")))
            waiting = "SELECT count(*) FROM pg_stat_activity WHERE pid = $1 AND wait_event_type = 'Lock'"
            while not await other.fetchval(waiting, used.get_server_pid()):
                await asyncio.sleep(0.01)
            putting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await putting
            assert used.is_closed()
        await other.close()
        await store.put_response(response("next"))
        assert await store.response("ann", "next") is not None
        await store.write(partial(_forgotten))

    run(PostgresDatabase(postgres.url), work)


@pytest.mark.parametrize("inner", [object(), SimpleNamespace(bind_execute=len, bind_execute_many=len)])
def test_another_version_of_the_driver_puts_by_its_public_methods(postgres: object, inner: object) -> None:
    from athena.shells.store.postgres import PostgresDatabase, PutConnection
    from support.postgres import PostgresServer

    assert isinstance(postgres, PostgresServer)

    async def work(store: Store) -> None:
        await store.put_response(response("before"))
        import asyncpg

        connection = await asyncpg.connect(postgres.url)
        puts = PutConnection(
            SimpleNamespace(prepare=connection.prepare, close=connection.close, terminate=connection.terminate, _protocol=inner)
        )
        await puts.run([put_response(response("one"), 0.0)])
        await puts.run([put_response(response(name), 0.0) for name in ("two", "three")])
        await puts.close()
        for name in ("one", "two", "three"):
            assert await store.response("ann", name) is not None
        await store.write(partial(_forgotten))

    run(PostgresDatabase(postgres.url), work)


def test_puts_that_come_often_go_together(postgres: object, monkeypatch: pytest.MonkeyPatch) -> None:
    from athena.shells.store import postgres as postgres_module
    from support.postgres import PostgresServer

    assert isinstance(postgres, PostgresServer)
    monkeypatch.setattr(postgres_module, "_OFTEN_S", FOR_EVER)
    sizes: list[int] = []
    put = postgres_module.PutConnection.run

    async def counted(connection: Any, queries: Sequence[Query]) -> None:
        sizes.append(len(queries))
        await put(connection, queries)

    monkeypatch.setattr(postgres_module.PutConnection, "run", counted)

    async def work(store: Store) -> None:
        await store.put_response(response("alone"))
        names = ("one", "two", "three")
        await asyncio.gather(*(store.put_response(response(name)) for name in names))
        assert sum(sizes) == 1 + len(names)
        assert sizes[-1] == len(names)
        for name in ("alone", *names):
            assert await store.response("ann", name) is not None
        await store.write(partial(_forgotten))

    run(postgres_module.PostgresDatabase(postgres.url), work)


def test_statements_that_the_server_forgot_are_prepared_anew(postgres: object) -> None:
    from athena.shells.store.postgres import PostgresDatabase
    from support.postgres import PostgresServer

    assert isinstance(postgres, PostgresServer)

    async def work(store: Store) -> None:
        await store.put_response(response("known"))
        await store.put(Query("DEALLOCATE ALL"))
        await store.put_response(response("known again"))
        assert await store.response("ann", "known again") is not None
        await store.write(partial(_forgotten))

    run(PostgresDatabase(postgres.url), work)


def _forgotten() -> SqlSteps[None]:
    yield Query("DELETE FROM responses")


def test_what_fails_leaves_nothing_to_the_garbage_collector(tmp_path: Path) -> None:
    def broken() -> SqlSteps[None]:
        yield Query("SELECT 1")
        raise ValueError("on purpose")

    async def work(store: Store) -> None:
        with without_collector() as left:
            for attempt in (store.write, store.read):
                with pytest.raises(ValueError, match="on purpose"):
                    await attempt(broken)
            asking: list[asyncio.Task[Any]] = [asyncio.create_task(store.write(broken)) for _ in range(3)]
            asking.append(asyncio.create_task(store.read(count)))
            await asyncio.sleep(0)
            asking[-1].cancel()
            await asyncio.wait(asking)
            assert [task.cancelled() or type(task.exception()) for task in asking] == [ValueError] * 3 + [True]
            del asking
            await store.read(count)
            await store.close()
            (tmp_path / "state" / "store.sqlite3").write_bytes(b"this is no database" * 100)
            for attempt in (store.write, store.read):
                with pytest.raises(StoreDown):
                    await attempt(count)
        assert left == []

    run(SqliteDatabase(tmp_path / "state" / "store.sqlite3"), work)
