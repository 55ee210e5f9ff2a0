"""Numbered changes of a SQLite database, made by whoever comes first."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from athena.shells.migrations import migrate_sqlite

STEPS = ("CREATE TABLE a (x INTEGER);\nCREATE TABLE b (y INTEGER);\n", "ALTER TABLE a ADD COLUMN z INTEGER;\n")


def opened(path: Path, factory: type[sqlite3.Connection] = sqlite3.Connection) -> closing[sqlite3.Connection]:
    return closing(sqlite3.connect(path, isolation_level=None, factory=factory))


def test_two_that_find_the_database_empty_make_it_once(tmp_path: Path) -> None:
    path = tmp_path / "d.db"

    class Overtaken(sqlite3.Connection):
        """Another connection makes the database between this one's look and its first change."""

        def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
            if sql == "BEGIN IMMEDIATE":
                with opened(path) as other:
                    assert migrate_sqlite(other, STEPS) == 2
            return super().execute(sql, *values)

    with opened(path, Overtaken) as late:
        assert migrate_sqlite(late, STEPS) == 2
        assert [row[1] for row in late.execute("PRAGMA table_info(a)")] == ["x", "z"]


def test_older_and_newer_databases(tmp_path: Path) -> None:
    with opened(tmp_path / "d.db") as connection:
        assert migrate_sqlite(connection, STEPS[:1]) == 1
        assert migrate_sqlite(connection, STEPS) == 2
        assert migrate_sqlite(connection, STEPS[:1]) == 2, "a newer one is left as it is"


def test_a_step_that_fails_leaves_the_database_as_it_was(tmp_path: Path) -> None:
    with opened(tmp_path / "d.db") as connection:
        with pytest.raises(sqlite3.OperationalError):
            migrate_sqlite(connection, (*STEPS, "CREATE TABLE a (x INTEGER);\n"))
        assert connection.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)
        assert not connection.in_transaction
