"""Opening a store by its address: a file is SQLite's, a URL is PostgreSQL's.

Decides which store it is, and imports no other. It must not know what it is opened for. Invariant:
what is opened is closed by whoever asked for it; what is not installed is named.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from turnkeeper.core.errors import MISSING_PART, TurnkeeperError
from turnkeeper.ports import EventStore, NodeRecord, Transcripts

if TYPE_CHECKING:
    from turnkeeper.store.postgres import PostgresStore
    from turnkeeper.store.postgres_nodes import PostgresNodes
    from turnkeeper.store.postgres_others import PostgresOthers
    from turnkeeper.store.sqlite import SqliteStore

Along = Callable[[str], Awaitable[bool]]


def store_at(database: str | os.PathLike[str]) -> Path | str:
    """A file, or a URL of PostgreSQL."""
    if isinstance(database, str) and database.startswith(("postgresql://", "postgres://")):
        return database
    return Path(database)


async def open_store(at: Path | str, node: str | None = None) -> SqliteStore | PostgresStore:
    """The store there, made if there is none, for a node of that name if there can be several;
    raises what the store says."""
    if isinstance(at, Path):
        from turnkeeper.store.sqlite import SqliteStore

        return await SqliteStore.open(at)
    return await open_postgres(at, node)


def transcripts_of(store: EventStore) -> Transcripts | None:
    """Where agents' conversations are kept for other nodes, if there can be any."""
    node = getattr(store, "node", None)
    if node is None:
        return None
    from turnkeeper.store.postgres import PostgresStore
    from turnkeeper.store.postgres_transcripts import PostgresTranscripts

    assert isinstance(store, PostgresStore)
    return PostgresTranscripts(store.address, node)


@asynccontextmanager
async def transcripts_between(source: EventStore, target: EventStore) -> AsyncIterator[Along]:
    """Moves what agents keep of a session's conversation, if both stores have a place for it, and
    says whether there was something."""
    ours, theirs = (getattr(store, "address", None) for store in (source, target))
    if ours is None or theirs is None:
        yield _nothing_along
        return
    from turnkeeper.store.postgres_transcripts import PostgresTranscripts

    first, second = PostgresTranscripts(ours, ""), PostgresTranscripts(theirs, "")

    async def along(session: str) -> bool:
        found = await first.find(session)
        if found is not None:
            await second.copy(session, found)
        return found is not None

    try:
        yield along
    finally:
        await first.close()
        await second.close()


async def _nothing_along(session: str) -> bool:
    return False


def nodes_of(store: EventStore) -> tuple[PostgresNodes, PostgresOthers] | None:
    """The node's part among others on the same store, and the way to them, if there can be any."""
    node = getattr(store, "node", None)
    if node is None:
        return None
    from turnkeeper.store.postgres import PostgresStore
    from turnkeeper.store.postgres_nodes import PostgresNodes
    from turnkeeper.store.postgres_others import PostgresOthers

    assert isinstance(store, PostgresStore)
    others = PostgresOthers(store.address, store.seat)
    store.grown = others.grown
    return PostgresNodes(store.address, store.seat), others


async def open_postgres(url: str, node: str | None = None) -> PostgresStore:
    try:
        from turnkeeper.store.postgres import PostgresStore
    except ModuleNotFoundError as missing:
        told = f"{missing.name} is not installed: pip install 'turnkeeper[postgres]'"
        raise TurnkeeperError(MISSING_PART, told) from None
    return await PostgresStore.open(url, node)


async def listed_nodes(url: str) -> list[NodeRecord]:
    """Who uses that database."""
    store = await open_postgres(url)
    try:
        from turnkeeper.store.postgres_nodes import PostgresNodes

        nodes = PostgresNodes(store.address, store.seat)
        try:
            return await nodes.nodes()
        finally:
            await nodes.close()
    finally:
        await store.close()


async def store_trouble(url: str) -> str | None:
    """Why that database cannot be used; none if it can."""
    try:
        await (await open_postgres(url)).close()
    except TurnkeeperError as trouble:
        return trouble.what
    return None
