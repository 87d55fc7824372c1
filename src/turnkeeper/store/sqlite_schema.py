"""The database itself: how it is opened, what is in it, and how an older one is brought up to date.

Decides tables, indices and settings of every connection. It must not know events. Invariant: a
database has the schema of the number in its `user_version`, made by the steps up to it, each whole
or not at all; a number that this program does not know is refused and nothing is changed.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

import apsw

from turnkeeper.core.errors import StoreDown
from turnkeeper.store.sqlite_faults import BUSY_S, damaged, fault_of, newer

APPLICATION_ID = 0x544B5031
"""Marks the file as one of ours."""

CHECK_S = 0.1
"""So long a database is looked through for damage when it is opened."""

CACHE_KIB = 8192
WAL_KEPT_BYTES = 64 * 2**20
"""A file that was cut and grows again makes each commit wait for the file system's own log: this is
more than it has under load."""

Step = str | Callable[[apsw.Connection], None]

_V1 = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID;
INSERT INTO meta VALUES ('epoch_floor', 0), ('probes', 0);

-- One row a session, written with every append: kept small.
CREATE TABLE logs (
    n INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    epoch INTEGER NOT NULL,
    head INTEGER NOT NULL DEFAULT 0,
    updated_at REAL NOT NULL DEFAULT (unixepoch('subsec')),
    unfinished INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX logs_unfinished ON logs (unfinished) WHERE unfinished = 1;

-- The events first, first + 1, … of a log, one JSON object a line; crc is the body's CRC-32.
CREATE TABLE chunks (
    id INTEGER PRIMARY KEY,
    log INTEGER NOT NULL,
    first INTEGER NOT NULL,
    crc INTEGER NOT NULL,
    body BLOB NOT NULL,
    UNIQUE (log, first)
) STRICT;

-- Every run that has ended: once.
CREATE TABLE endings (run TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;

CREATE TABLE snapshots (
    log INTEGER PRIMARY KEY,
    seq INTEGER NOT NULL,
    state BLOB NOT NULL
) STRICT;

-- Logs that were removed and whose chunks have still to go.
CREATE TABLE doomed (log INTEGER PRIMARY KEY) STRICT;

CREATE TABLE sessions (
    n INTEGER PRIMARY KEY,
    log INTEGER NOT NULL,
    id TEXT NOT NULL UNIQUE,
    agent TEXT NOT NULL,
    title TEXT NOT NULL,
    cwd TEXT NOT NULL,
    limits TEXT NOT NULL,
    labels TEXT NOT NULL,
    search TEXT NOT NULL,
    created_at REAL NOT NULL,
    running TEXT,
    queued INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX sessions_agent ON sessions (agent);
CREATE INDEX sessions_busy ON sessions (n) WHERE running IS NOT NULL OR queued > 0;

CREATE TABLE labels (
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    session TEXT NOT NULL,
    PRIMARY KEY (name, value, session)
) STRICT, WITHOUT ROWID;
CREATE INDEX labels_session ON labels (session);

CREATE TABLE runs (
    n INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    session TEXT NOT NULL,
    message TEXT NOT NULL,
    agent TEXT NOT NULL,
    state TEXT NOT NULL,
    priority TEXT NOT NULL,
    parent TEXT,
    text TEXT NOT NULL,
    accepted_at REAL NOT NULL,
    started_at REAL,
    ended_at REAL,
    successor TEXT,
    kind TEXT,
    reason TEXT,
    outcome TEXT
) STRICT;
CREATE INDEX runs_session ON runs (session);
CREATE INDEX runs_agent ON runs (agent);
CREATE INDEX runs_unfinished ON runs (n) WHERE state <> 'ended';
CREATE INDEX runs_kind ON runs (kind) WHERE kind IS NOT NULL;
CREATE INDEX runs_reason ON runs (reason) WHERE reason IS NOT NULL;
CREATE INDEX runs_parent ON runs (parent) WHERE parent IS NOT NULL;

CREATE TABLE approvals (
    n INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    session TEXT NOT NULL,
    run TEXT NOT NULL,
    tool TEXT NOT NULL,
    input TEXT NOT NULL,
    state TEXT NOT NULL,
    requested_at REAL NOT NULL,
    expires_at REAL,
    settled_at REAL,
    by_whom TEXT NOT NULL DEFAULT '',
    note TEXT NOT NULL DEFAULT ''
) STRICT;
CREATE INDEX approvals_session ON approvals (session);
CREATE INDEX approvals_run ON approvals (run);
CREATE INDEX approvals_state ON approvals (state);
"""

_WHOSE = """
SELECT (SELECT user_version FROM pragma_user_version),
    (SELECT application_id FROM pragma_application_id), (SELECT count(*) FROM sqlite_schema)
"""

STEPS: tuple[Step, ...] = (_V1,)
"""Step number n makes version n of version n - 1. A step that was ever released never changes."""


def connect(path: Path) -> apsw.Connection:
    """A connection to an existing file, with the settings that all of them have."""
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_NOMUTEX
    connection = apsw.Connection(str(path), flags=flags)
    connection.set_busy_timeout(int(BUSY_S * 1000))
    for setting in (
        "synchronous = FULL",
        f"cache_size = -{CACHE_KIB}",
        "temp_store = MEMORY",
        "trusted_schema = OFF",
        "cell_size_check = ON",
        f"journal_size_limit = {WAL_KEPT_BYTES}",
    ):
        connection.execute(f"PRAGMA {setting}")
    return connection


def open_database(path: Path, steps: Sequence[Step] = STEPS) -> apsw.Connection:
    """The database at that path, made if there is none: sound as far as could be seen in a moment,
    and up to date. Raises what `sqlite_faults` names."""
    with contextlib.ExitStack() as undo:
        try:
            _make_file(path)
            connection = connect(path)
        except OSError as error:
            told = f"the database {path} cannot be opened: {error.strerror}"
            raise StoreDown(told) from error
        except apsw.Error as error:
            raise fault_of(error, path) from error
        undo.callback(connection.close)
        try:
            version = version_of(connection, path)
            if version > len(steps):
                raise newer(path, version, len(steps))
            _make_wal(connection)
            look_through(connection, path)
            migrate(connection, path, steps)
        except apsw.Error as error:
            raise fault_of(error, path, connection.system_errno) from error
        undo.pop_all()
    return connection


def version_of(connection: apsw.Connection, path: Path) -> int:
    """The version of its schema; 0 for an empty file. Another program's database is refused."""
    ((version, mark, tables),) = connection.execute(_WHOSE).fetchall()
    if mark != APPLICATION_ID and (version or mark or tables):
        raise damaged(path, "it is a database, but not one of Turnkeeper's")
    return cast(int, version)


def migrate(connection: apsw.Connection, path: Path, steps: Sequence[Step] = STEPS) -> None:
    """Bring it up to date, a step at a time, each whole or not at all."""
    while True:
        connection.execute("BEGIN EXCLUSIVE")
        try:
            version = version_of(connection, path)
            if version >= len(steps):
                return
            step = steps[version]
            if callable(step):
                step(connection)
            else:
                connection.execute(step)
            connection.execute(f"PRAGMA user_version = {version + 1}")
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")


def look_through(connection: apsw.Connection, path: Path, within_s: float = CHECK_S) -> None:
    """Look for damage, as far as that goes in this time. A small database is seen whole."""
    until = time.monotonic() + within_s
    connection.set_progress_handler(lambda: time.monotonic() > until, 1000)
    try:
        found = [row[0] for row in connection.execute("PRAGMA quick_check(3)")]
    except apsw.InterruptError:
        return
    finally:
        connection.set_progress_handler(None)
    if found != ["ok"]:
        raise damaged(path, "; ".join(str(line) for line in found))


def _make_file(path: Path) -> None:
    """For this user alone; and its name is on disk before anything in it counts."""
    is_new = not path.exists()
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    if is_new:
        directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def _make_wal(connection: apsw.Connection) -> None:
    """Set up a new file. Two programs may come to do so at once, and only one can."""
    until = time.monotonic() + BUSY_S
    while True:
        try:
            if not _tables(connection):
                connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            if connection.pragma("journal_mode") != "wal":
                connection.pragma("journal_mode", "wal")
            return
        except apsw.BusyError:
            if time.monotonic() > until:
                raise
        time.sleep(0.01)


def _tables(connection: apsw.Connection) -> int:
    return int(connection.execute("SELECT count(*) FROM sqlite_schema").get)
