"""Opening a store by its address: a file is SQLite's, a URL is PostgreSQL's.

Decides which store it is, and imports no other. It must not know what it is opened for. Invariant:
what is opened is closed by whoever asked for it; what is not installed is named.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from turnkeeper.core.errors import MISSING_PART, TurnkeeperError

if TYPE_CHECKING:
    from turnkeeper.store.postgres import PostgresStore
    from turnkeeper.store.sqlite import SqliteStore


def store_at(database: str | os.PathLike[str]) -> Path | str:
    """A file, or a URL of PostgreSQL."""
    if isinstance(database, str) and database.startswith(("postgresql://", "postgres://")):
        return database
    return Path(database)


async def open_store(at: Path | str) -> SqliteStore | PostgresStore:
    """The store there, made if there is none; raises what the store says."""
    if isinstance(at, Path):
        from turnkeeper.store.sqlite import SqliteStore

        return await SqliteStore.open(at)
    return await open_postgres(at)


async def open_postgres(url: str) -> PostgresStore:
    try:
        from turnkeeper.store.postgres import PostgresStore
    except ModuleNotFoundError as missing:
        told = f"{missing.name} is not installed: pip install 'turnkeeper[postgres]'"
        raise TurnkeeperError(MISSING_PART, told) from None
    return await PostgresStore.open(url)


async def store_trouble(url: str) -> str | None:
    """Why that database cannot be used; none if it can."""
    try:
        await (await open_postgres(url)).close()
    except TurnkeeperError as trouble:
        return trouble.what
    return None
