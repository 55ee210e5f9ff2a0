"""The store that a configuration asks for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from athena.shells.config import Config, StoreSettings
from athena.shells.store.database import Database
from athena.shells.store.sqlite import SqliteDatabase
from athena.shells.store.store import Store, StoreLimits

FILE = "responses.sqlite3"
"""The name of the SQLite file in state_dir."""


def store_settings(config: Config) -> StoreSettings | None:
    """How to store; None: not at all."""
    settings = config.store
    if isinstance(settings, bool):
        return StoreSettings() if settings else None
    return settings


def open_database(config: Config, settings: StoreSettings) -> Database:
    """The database of the store, not connected yet. Raises ConfigError where the packages for it are missing."""
    if settings.url is None:
        return SqliteDatabase(Path(config.state_dir).expanduser() / FILE)
    from athena.shells.store.postgres import PostgresDatabase  # its package is an extra

    return PostgresDatabase(settings.url.reveal())


def open_store(config: Config, on_failure: Callable[[], None] = lambda: None) -> Store | None:
    """The store; None where it is switched off."""
    settings = store_settings(config)
    if settings is None:
        return None
    limits = StoreLimits(max_age_s=settings.max_age_days * 86400, max_bytes=settings.max_mb * 1024 * 1024)
    key = settings.encryption_key.reveal() if settings.encryption_key else None
    return Store(open_database(config, settings), limits, key=key, on_failure=on_failure)
