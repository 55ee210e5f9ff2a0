"""The databases that the store is judged on: an SQLite file, and a real PostgreSQL server."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from athena.shells.store.sqlite import SqliteDatabase
from support.postgres import PostgresServer, binaries

if TYPE_CHECKING:
    from athena.shells.store import Database


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    if binaries() is None:
        reason = "PostgreSQL is not installed (`apt-get install postgresql`; ./dev test does that where it may)"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    server = PostgresServer()
    yield server
    server.close()


async def emptied(url: str) -> None:
    """Delete everything that the database at this address holds."""
    import asyncpg  # type: ignore[import-untyped]

    connection = await asyncpg.connect(url)
    await connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    await connection.close()


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    """An empty database of each kind. Whoever uses it closes it."""
    if request.param == "sqlite":
        return SqliteDatabase(tmp_path / "state" / "store.sqlite3")
    from athena.shells.store.postgres import PostgresDatabase

    server: PostgresServer = request.getfixturevalue("postgres")
    asyncio.run(emptied(server.url))
    return PostgresDatabase(server.url)
