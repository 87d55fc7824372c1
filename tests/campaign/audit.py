"""Who wrote what: the database itself notes it, by the name under which each node logs in.

Decides what is noted, and in which order it counts: that of the commits. It must not know how nodes
are kept from writing, nor what is right.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import asyncpg

from turnkeeper.store.postgres import PostgresStore
from turnkeeper.store.postgres_faults import Address

SETTINGS = {"track_commit_timestamp": "on"}
"""What the database needs for it."""

_INSTALL = """
CREATE SCHEMA audit;
CREATE TABLE audit.written (
    what text, log bigint, upto bigint, by text DEFAULT session_user,
    tx xid8 DEFAULT pg_current_xact_id()
);
CREATE TABLE audit.owned (log bigint, owner text, tx xid8 DEFAULT pg_current_xact_id());

CREATE FUNCTION audit.note_owner() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO audit.owned (log, owner) VALUES (NEW.n, NEW.owner);
    RETURN NULL;
END $$;
CREATE TRIGGER audited AFTER INSERT OR UPDATE OF owner, epoch ON turnkeeper.logs
    FOR EACH ROW EXECUTE FUNCTION audit.note_owner();
"""

_ROWS = """
CREATE FUNCTION audit.note_{what}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO audit.written (what, log, upto) VALUES ('{what}', NEW.log, NEW.{upto});
    RETURN NULL;
END $$;
CREATE TRIGGER audited AFTER INSERT OR UPDATE ON turnkeeper.{what}s
    FOR EACH ROW EXECUTE FUNCTION audit.note_{what}();
"""
NOTED = {"chunk": "last", "snapshot": "seq"}
"""What only a session's owner may write; and how far into its log each row goes."""

_WRITTEN = """
WITH owned AS MATERIALIZED (
    SELECT log, owner, pg_xact_commit_timestamp(tx::xid) AS at FROM audit.owned
)
SELECT l.id, w.what, w.upto, w.by, (
    SELECT o.owner FROM owned o
    WHERE o.log = w.log AND o.at <= pg_xact_commit_timestamp(w.tx::xid)
    ORDER BY o.at DESC LIMIT 1
)
FROM audit.written w JOIN turnkeeper.logs l ON l.n = w.log
"""

_UNNOTED = """
SELECT l.id || ' up to ' || c.last FROM turnkeeper.chunks c JOIN turnkeeper.logs l ON l.n = c.log
WHERE NOT EXISTS (
    SELECT FROM audit.written w WHERE w.what = 'chunk' AND w.log = c.log AND w.upto = c.last
)
"""


class Written(NamedTuple):
    """A row that somebody wrote: a piece of a session's log, or what is kept of its state."""

    session: str
    what: str
    upto: int
    by: str
    """The node."""
    owner: str | None
    """Whose the session was when this was committed."""


@dataclass
class Writings:
    rows: list[Written] = field(default_factory=list)
    unnoted: list[str] = field(default_factory=list)
    """Pieces of logs that are there, and nobody is known to have written them."""


async def install(url: str, nodes: Iterable[str]) -> None:
    """From now on; each node logs in under its name."""
    await (await PostgresStore.open(url)).close()
    database = await asyncpg.connect(Address.of(url).dsn)
    try:
        for node in nodes:
            await database.execute(f'CREATE ROLE "{node}" SUPERUSER LOGIN')
        await database.execute(_INSTALL)
        for what, upto in NOTED.items():
            await database.execute(_ROWS.format(what=what, upto=upto))
    finally:
        await database.close()


async def read(url: str) -> Writings:
    database = await asyncpg.connect(Address.of(url).dsn)
    try:
        rows = [Written(*row) for row in await database.fetch(_WRITTEN)]
        return Writings(rows, [row[0] for row in await database.fetch(_UNNOTED)])
    finally:
        await database.close()
