"""Changes of a database's form: plain numbered SQL files in the directory `migrations` of a package."""

from __future__ import annotations

import sqlite3
from importlib import resources


def scripts(package: str) -> tuple[str, ...]:
    """The SQL of all steps of a package, in order: the first leads from an empty database to version 1, and so on."""
    directory = resources.files(package).joinpath("migrations")
    found = sorted((entry.name, entry) for entry in directory.iterdir() if entry.name.endswith(".sql"))
    return tuple(entry.read_text(encoding="utf-8") for _, entry in found)


def migrate_sqlite(connection: sqlite3.Connection, steps: tuple[str, ...]) -> int:
    """Bring a database to the newest form, whoever else tries the same at this moment. Returns the version that it then has,
    which is more than the number of steps where a newer Athena made it."""
    if (version := _version(connection)) >= len(steps):
        return version
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = _version(connection)  # another connection may have been first
        for number, script in enumerate(steps[version:], version + 1):
            for statement in script.split(";\n"):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {number}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return max(version, len(steps))


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])
