"""How a transaction is written down without knowing which database runs it.

A transaction is a generator: it yields queries, is sent their rows, and returns its result. It is handed over as a function
that makes a new generator, because a database whose connection broke runs it once more from the beginning. So whatever it
does must come out the same when it is done twice.

    def renamed(id: str, name: str) -> SqlSteps[bool]:
        rows = yield Query("UPDATE things SET name = $1 WHERE id = $2 RETURNING id", (name, id))
        return bool(rows)

    await database.write(partial(renamed, "a", "b"))

SQL is what PostgreSQL and SQLite both understand; places for values are `$1`, `$2` and so on.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, NamedTuple, Protocol, TypeVar

SqlRow = tuple[Any, ...]
_Result = TypeVar("_Result")
Value = str | bytes | int | float | None
ENCRYPTED = b"\x01"
"""What encrypted content begins with; JSON begins with a bracket."""


class Query(NamedTuple):
    """One statement and its values."""

    sql: str
    values: tuple[Value, ...] = ()


SqlSteps = Generator[Query, list[SqlRow], _Result]


class Database(Protocol):
    """Runs transactions. Everything raises StoreDown where the database cannot be reached, read or written."""

    name: str
    """What it is, for people; no password."""

    async def write(self, steps: Callable[[], SqlSteps[_Result]]) -> _Result:
        """Run it. When this returns, its changes are kept, whatever happens to this process."""

    async def put(self, query: Query) -> None:
        """The same for a transaction of one statement whose rows nobody wants, at a lower cost. What reads may not see it yet:
        see `settle`."""

    def put_at_once(self, query: Query) -> bool:
        """The same where nothing has to be waited for; False: `put` has to do it, and tells of trouble."""

    async def read(self, steps: Callable[[], SqlSteps[_Result]]) -> _Result:
        """Run it; it changes nothing."""

    def glance(self, steps: Callable[[], SqlSteps[_Result | None]]) -> _Result | None:
        """The same for steps that take no longer than handing them to another thread would; None where they have to be handed
        over all the same."""

    async def settle(self) -> None:
        """Let reads see whatever was put before this call, by whichever process."""

    def is_put_off(self, name: str) -> bool:
        """Is a row of that name one that this process has put, and that reads surely do not see yet?"""

    def waiting(self, name: str) -> Query | None:
        """The statement that this process has put for the row of that name, where reads do not see it yet. None where they may
        see it, and where that cannot be told at once."""

    async def exists(self) -> bool:
        """Is there something to read? Asking makes nothing."""

    async def migrate(self) -> tuple[int, int]:
        """Bring the database into the present form; its version before and after."""

    async def check(self) -> list[str]:
        """What is wrong with the database, a sentence each; nothing where it is well."""

    async def vacuum(self) -> None:
        """Give the space of deleted rows back."""

    async def close(self) -> None:
        """Finish what waits, and let go of everything."""
