"""The database on PostgreSQL: what is in it, and how an older one is brought up to date.

Decides tables and indices. It must not know events. Invariant: a schema has the version that its
table `versions` says, made by the steps up to it, each whole or not at all; of several programs
that start at once one makes them, and the others wait; a newer version is refused and left alone.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import asyncpg

from turnkeeper.core.errors import StoreDown
from turnkeeper.store.postgres_faults import Address, fault_of, newer

LOCK_S = 60
"""So long another program is waited for that brings the same schema up to date."""

_V1 = """
CREATE TABLE meta (name text PRIMARY KEY, value bigint NOT NULL);
INSERT INTO meta VALUES ('epoch_floor', 0), ('probes', 0);

-- One row a session, written with every append: kept small, with room for its next version.
CREATE TABLE logs (
    n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id text COLLATE "C" NOT NULL UNIQUE,
    epoch bigint NOT NULL,
    head bigint NOT NULL DEFAULT 0,
    updated_at float8 NOT NULL DEFAULT extract(epoch FROM clock_timestamp()),
    unfinished boolean NOT NULL DEFAULT false,
    owner text COLLATE "C"
) WITH (fillfactor = 50);
CREATE INDEX logs_unfinished ON logs (owner, n) WHERE unfinished;
CREATE INDEX logs_owner ON logs (owner) WHERE owner IS NOT NULL;

-- Who is there. A node lives until `until`, by the clock of this database, unless it renews that.
CREATE TABLE nodes (
    id text COLLATE "C" PRIMARY KEY,
    incarnation bigint NOT NULL,
    url text NOT NULL,
    agents text[] NOT NULL,
    since timestamptz NOT NULL DEFAULT clock_timestamp(),
    until timestamptz NOT NULL,
    draining boolean NOT NULL DEFAULT false
);

-- What was asked at one node and is for a session of another.
CREATE TABLE commands (
    n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    session text COLLATE "C" NOT NULL,
    asked_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    command text NOT NULL,
    firm boolean NOT NULL,
    taken_by text COLLATE "C",
    reply text
);
CREATE INDEX commands_waiting ON commands (session) WHERE taken_by IS NULL;

-- The events first … last of a log, one JSON object a line; crc is the body's CRC-32.
CREATE TABLE chunks (
    log bigint NOT NULL,
    last bigint NOT NULL,
    first bigint NOT NULL,
    crc bigint NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (log, last)
);

-- Every run that has ended: once.
CREATE TABLE endings (run text COLLATE "C" PRIMARY KEY);

CREATE TABLE snapshots (
    log bigint PRIMARY KEY,
    seq bigint NOT NULL,
    state bytea NOT NULL
);

CREATE TABLE sessions (
    n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    log bigint NOT NULL,
    id text COLLATE "C" NOT NULL UNIQUE,
    agent text COLLATE "C" NOT NULL,
    title text NOT NULL,
    cwd text NOT NULL,
    limits text NOT NULL,
    labels text NOT NULL,
    search text NOT NULL,
    created_at float8 NOT NULL,
    running text COLLATE "C",
    queued bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 80);
CREATE INDEX sessions_agent ON sessions (agent, n);
CREATE INDEX sessions_busy ON sessions (n) WHERE running IS NOT NULL OR queued > 0;

CREATE TABLE labels (
    name text COLLATE "C" NOT NULL,
    value text COLLATE "C" NOT NULL,
    session text COLLATE "C" NOT NULL,
    PRIMARY KEY (name, value, session)
);
CREATE INDEX labels_session ON labels (session);

CREATE TABLE runs (
    n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id text COLLATE "C" NOT NULL UNIQUE,
    session text COLLATE "C" NOT NULL,
    message text COLLATE "C" NOT NULL,
    agent text COLLATE "C" NOT NULL,
    state text COLLATE "C" NOT NULL,
    priority text COLLATE "C" NOT NULL,
    parent text COLLATE "C",
    text text NOT NULL,
    accepted_at float8 NOT NULL,
    started_at float8,
    ended_at float8,
    successor text COLLATE "C",
    kind text COLLATE "C",
    reason text COLLATE "C",
    outcome text
) WITH (fillfactor = 80);
CREATE INDEX runs_session ON runs (session, n);
CREATE INDEX runs_agent ON runs (agent, n);
CREATE INDEX runs_unfinished ON runs (n) WHERE state <> 'ended';
CREATE INDEX runs_kind ON runs (kind, n) WHERE kind IS NOT NULL;
CREATE INDEX runs_reason ON runs (reason, n) WHERE reason IS NOT NULL;
CREATE INDEX runs_parent ON runs (parent, n) WHERE parent IS NOT NULL;

CREATE TABLE approvals (
    n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id text COLLATE "C" NOT NULL UNIQUE,
    session text COLLATE "C" NOT NULL,
    run text COLLATE "C" NOT NULL,
    tool text NOT NULL,
    input text NOT NULL,
    state text COLLATE "C" NOT NULL,
    requested_at float8 NOT NULL,
    expires_at float8,
    settled_at float8,
    by_whom text NOT NULL DEFAULT '',
    note text NOT NULL DEFAULT ''
);
CREATE INDEX approvals_session ON approvals (session, n);
CREATE INDEX approvals_run ON approvals (run, n);
CREATE INDEX approvals_state ON approvals (state, n);
"""

_V2 = """
-- What a session's agent itself keeps of its conversation, as it was on `node` after the event
-- `seq`; without a body, only that. The body is compressed (zlib).
CREATE TABLE transcripts (
    log bigint PRIMARY KEY,
    seq bigint NOT NULL,
    node text COLLATE "C" NOT NULL,
    conversation text COLLATE "C" NOT NULL,
    name text NOT NULL,
    body bytea
);
ALTER TABLE transcripts ALTER COLUMN body SET STORAGE EXTERNAL;
"""

STEPS: tuple[str, ...] = (_V1, _V2)
"""Step number n makes version n of version n - 1. A step that was ever released never changes."""

_HAS_VERSIONS = """
SELECT count(*) FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace s ON s.oid = c.relnamespace
WHERE s.nspname = $1 AND c.relname = 'versions'
"""


async def migrate(connection: Any, address: Address, steps: Sequence[str] = STEPS) -> None:
    """Bring it up to date, a step at a time, each whole or not at all. Raises `StoreDown`."""
    try:
        if await _version(connection, address) == len(steps):
            return
        encoding = await connection.fetchval("SHOW server_encoding")
        if encoding != "UTF8":
            told = f"the database {address.shown} has the encoding {encoding}; make one with UTF8"
            raise StoreDown(told)
        while await _step(connection, address, steps):
            pass
    except asyncpg.PostgresError as error:
        raise fault_of(error, address) from error


async def _step(connection: Any, address: Address, steps: Sequence[str]) -> bool:
    """The next one, if there is one to be made."""
    async with connection.transaction():
        await connection.execute(f"SET LOCAL lock_timeout = '{LOCK_S}s'")
        await connection.execute("SELECT pg_advisory_xact_lock($1)", _key(address))
        version = await _version(connection, address)
        if version > len(steps):
            raise newer(address, version, len(steps))
        if version == len(steps):
            return False
        if version == 0:
            await connection.execute(f"CREATE SCHEMA IF NOT EXISTS {address.schema}")
            await connection.execute("CREATE TABLE IF NOT EXISTS versions (version int NOT NULL)")
        await connection.execute(steps[version])
        await connection.execute("DELETE FROM versions")
        await connection.execute("INSERT INTO versions VALUES ($1)", version + 1)
    return True


async def _version(connection: Any, address: Address) -> int:
    """The version of the schema; 0 where there is none yet."""
    # By a query: what a session remembers of names may be older than the lock it waited for.
    if not await connection.fetchval(_HAS_VERSIONS, address.schema):
        return 0
    return int(await connection.fetchval("SELECT max(version) FROM versions") or 0)


def _key(address: Address) -> int:
    """What programs that use the same schema of a database wait for each other by."""
    return zlib.crc32(f"turnkeeper {address.schema}".encode())
