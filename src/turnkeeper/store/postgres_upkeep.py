"""Retention on PostgreSQL, while nodes use it.

Decides what may be removed and in what order, as `store.upkeep` does for a file. It must not know
who asked. Invariant: sessions are removed whole, each in a transaction of its own, the one that has
been still for longest first, and never one in which something has still to happen or happens
meanwhile; an epoch is never given again.
"""

from __future__ import annotations

import time
from typing import Any

import asyncpg

from turnkeeper.core.errors import InvalidValue
from turnkeeper.store.postgres import PostgresStore
from turnkeeper.store.postgres_faults import fault_of
from turnkeeper.store.postgres_line import Line
from turnkeeper.store.postgres_text import told
from turnkeeper.store.upkeep import YEARS_S, Removal

PAGE = 500

_STILL = """
SELECT n, id, head, updated_at FROM logs
WHERE NOT unfinished AND updated_at < $1 AND (updated_at, n) > ($2, $3)
ORDER BY updated_at, n LIMIT $4
"""
_DOOM = "DELETE FROM logs WHERE n = $1 AND head = $2 AND NOT unfinished RETURNING epoch"
_FLOOR = "UPDATE meta SET value = greatest(value, $1) WHERE name = 'epoch_floor'"
_CLEAR = (
    "DELETE FROM endings WHERE run IN (SELECT id FROM runs WHERE session = $1)",
    "DELETE FROM runs WHERE session = $1",
    "DELETE FROM approvals WHERE session = $1",
    "DELETE FROM labels WHERE session = $1",
    "DELETE FROM sessions WHERE id = $1",
)
_CLEAR_LOG = (
    "DELETE FROM snapshots WHERE log = $1",
    "DELETE FROM transcripts WHERE log = $1",
    "DELETE FROM chunks WHERE log = $1",
)
_USED = """
SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c
JOIN pg_namespace s ON s.oid = c.relnamespace WHERE s.nspname = $1 AND c.relkind = 'r'
"""


async def gc_postgres(
    url: str, *, older_than_s: float | None, max_bytes: int | None, dry_run: bool = False
) -> Removal:
    """Remove the sessions in which nothing has happened for so long. What they took is free for
    others when the database has vacuumed; it is not given back to the disk."""
    if max_bytes is not None or older_than_s is None:
        raise InvalidValue("keep", max_bytes, "with PostgreSQL sessions go by age: give --older")
    if not 0 <= older_than_s <= YEARS_S:
        raise InvalidValue("older_than_s", older_than_s, "give a number of seconds")
    store = await PostgresStore.open(url)
    line = Line(store.address)
    try:
        async with line.use() as connection:
            done = await _remove(connection, time.time() - older_than_s, dry_run=dry_run)
            done.used_bytes = await connection.fetchval(_USED, store.address.schema)
    except asyncpg.PostgresError as error:
        raise fault_of(error, store.address) from error
    finally:
        await line.close()
        await store.close()
    return done


async def _remove(connection: Any, before: float, *, dry_run: bool) -> Removal:
    done, seen = Removal(), (-1.0, 0)
    while rows := await connection.fetch(_STILL, before, *seen, PAGE):
        for log, session, head, at in rows:
            seen = (at, log)
            gone = dry_run or await _remove_one(connection, log, session, head)
            if gone and head:
                done.sessions.append(told(session))
                done.events += head
    return done


async def _remove_one(connection: Any, log: int, session: str, head: int) -> bool:
    """Whether it is gone: not if it was used meanwhile."""
    async with connection.transaction():
        epoch = await connection.fetchval(_DOOM, log, head)
        if epoch is None:
            return False
        await connection.execute(_FLOOR, epoch)
        for clear in _CLEAR:
            await connection.execute(clear, session)
        for clear in _CLEAR_LOG:
            await connection.execute(clear, log)
    return True
