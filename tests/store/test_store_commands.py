"""`athena store` on each database: what it counts, what it deletes, and what it says of a store that it cannot read."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from athena.bulk.values import BatchState, File, RequestBatch
from athena.shells.store.batches import BatchStore
from athena.shells.store.opening import FILE
from athena.shells.store.sqlite import SqliteDatabase
from athena.shells.store.store import Store, StoreLimits
from athena.state.values import Conversation, StoredItem, StoredResponse
from support.athena_process import Result, athena

if TYPE_CHECKING:
    from athena.shells.store import Database
    from support.postgres import PostgresServer

LIMITS = StoreLimits(max_age_s=30 * 86400, max_bytes=1 << 30)


class Place:
    """A store that commands are run on, and what fills it."""

    def __init__(self, home: Path, url: str | None) -> None:
        self._home = home
        self._url = url
        self.file = home / "state" / FILE

    def fill(self, work: Callable[[Store], Awaitable[None]], key: str | None = None) -> None:
        async def main() -> None:
            store = Store(self._database(), LIMITS, key=key)
            try:
                await work(store)
            finally:
                await store.close()

        asyncio.run(main())

    def _database(self) -> Database:
        if self._url is None:
            return SqliteDatabase(self.file)
        from athena.shells.store.postgres import PostgresDatabase

        return PostgresDatabase(self._url)

    def run(self, *arguments: str, key: str | None = None) -> Result:
        settings: dict[str, Any] = {"state_dir": str(self._home / "state"), "store": {}}
        if self._url is not None:
            settings["store"]["url"] = self._url
        if key is not None:
            settings["store"]["encryption_key"] = key
        (self._home / "gateway.yml").write_text(json.dumps(settings))
        return athena(self._home, "store", *arguments, "--config", "gateway.yml")


@pytest.fixture
def place(database: Database, request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if isinstance(database, SqliteDatabase):
        return Place(tmp_path, None)
    server: PostgresServer = request.getfixturevalue("postgres")
    return Place(tmp_path, server.url)


def batch(name: str, created: float) -> RequestBatch:
    return RequestBatch(
        id=name, owner="", dialect="openai_chat", endpoint="/v1/responses", created=created, expires=created + 1,
        state=BatchState.ENDED, ended=created,
    )  # fmt: skip


async def everything(store: Store) -> None:
    """Objects of every kind, 150 batches and files of them too old."""
    now = time.time()
    kept = StoredResponse(id="resp_1", owner="", created=now, status="completed", body=b"{}", input=b"[]", output=b"[]")
    await store.put_response(kept)
    await store.put_conversation(Conversation(id="conv_1", owner="", created=now), [StoredItem("item_1", b"{}")])
    batches = BatchStore(store)
    for number in range(151):
        created = now - (0 if number == 150 else 31 * 86400)
        await batches.put(batch(f"batch_{number}", created), ())
        file = File(id=f"file-{number}", owner="", created=created, name="a", purpose="batch", size=3)
        await batches.put_file(file, b"abc")


def test_old_batches_and_files_are_counted_and_deleted(place: Place) -> None:
    place.fill(everything)
    held = json.loads(place.run("check", "--json").out)
    assert (held["held"]["batches"], held["held"]["files"], held["batch_bytes"]) == (151, 151, 453)
    assert json.loads(place.run("vacuum", "--json").out) == {"deleted": 300}
    held = json.loads(place.run("check", "--json").out)
    assert (held["held"]["batches"], held["held"]["files"], held["batch_bytes"]) == (1, 1, 3)
    assert held["held"]["responses"] == held["held"]["conversations"] == 1
    assert "1 batches, 1 files" in place.run("check").out


@pytest.mark.parametrize("key", [None, "two"])
def test_a_store_that_another_key_encrypted_is_a_problem(place: Place, key: str | None) -> None:
    place.fill(everything, key="one")
    assert place.run("check", key="one").code == 0
    done = place.run("check", "--json", key=key)
    assert done.code == 1
    (problem,) = json.loads(done.out)["problems"]
    assert "1 of 1 responses, 1 of 1 conversations, 1 of 1 items, 151 of 151 batches, 151 of 151 files" in problem
    assert "store.encryption_key" in problem


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
@pytest.mark.parametrize("command", ["check", "migrate", "vacuum"])
def test_a_damaged_file_is_named_by_every_command(place: Place, command: str) -> None:
    place.file.parent.mkdir(mode=0o700)
    place.file.write_bytes(b"this is no database" * 100)
    place.file.chmod(0o600)
    done = place.run(command)
    assert done.code == 1
    assert f"the store cannot be used (SQLite, {place.file}): file is not a database" in done.err
    assert "fault in athena" not in done.err
