"""What must outlive a process: responses, conversations, and what other rooms keep beside them.

`Store` is the interface; `queries` says in SQL what each of its methods does, once for all databases; `SqliteDatabase` and
`PostgresDatabase` run it. A database's form is given by the numbered files in `migrations`, which are the same for both.
"""

from __future__ import annotations

from athena.shells.store.database import Database, Query, SqlRow, SqlSteps
from athena.shells.store.opening import open_database, open_store, store_settings
from athena.shells.store.store import Continued, Store

__all__ = ["Continued", "Database", "Query", "SqlRow", "SqlSteps", "Store", "open_database", "open_store", "store_settings"]
