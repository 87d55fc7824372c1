"""Upkeep of a database, while others use it or not: retention, backup, export.

Decides what may be removed and in what order. It must not know who asked, nor the server that may
be running. Invariant: sessions are removed whole, the one that has been still for longest first,
and never one in which something has still to happen or happens meanwhile; a backup has its name
only when it is whole and on disk; nobody is kept from writing for more than a moment.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, cast

import apsw

from turnkeeper.core.errors import (
    STORE_OLDER,
    UNKNOWN_SESSION,
    InvalidValue,
    TurnkeeperError,
)  # fmt: skip
from turnkeeper.store.sqlite_faults import damaged, fault_of, newer
from turnkeeper.store.sqlite_reader import Reader
from turnkeeper.store.sqlite_schema import STEPS, connect, version_of

PORTION_CHUNKS, PORTION_PAGES = 256, 1024
"""So much is removed in one transaction; then others have their turn."""

PAGE_EVENTS = 1000
YEARS_S = 1e10


@dataclass
class Removal:
    """What was removed, or would be."""

    sessions: list[str] = field(default_factory=list)
    events: int = 0
    used_bytes: int = 0
    """What is in use afterwards."""
    freed_bytes: int = 0
    """What the file became smaller by."""

    def note(self, still: _Still) -> None:
        if still.head:
            self.sessions.append(still.session)
            self.events += still.head


# Retention -----------------------------------------------------------------------------------


def gc(
    path: Path,
    *,
    older_than_s: float | None = None,
    max_bytes: int | None = None,
    dry_run: bool = False,
    now: float | None = None,
) -> Removal:
    """Remove the sessions in which nothing has happened for so long; and then, as long as more is
    in use than `max_bytes`, those that have been still for longest. What was removed before and had
    still to be cleared away is. Idempotency keys go with their session."""
    if older_than_s is not None and not 0 <= older_than_s <= YEARS_S:
        raise InvalidValue("older_than_s", older_than_s, "give a number of seconds")
    if max_bytes is not None and max_bytes < 0:
        raise InvalidValue("max_bytes", max_bytes, "give a number of bytes")
    moment = time.time() if now is None else now
    before = None if older_than_s is None else moment - older_than_s
    with _database(path) as database:
        if dry_run:
            return _would_remove(database, before, max_bytes)
        return _Remover(database).run(before, max_bytes)


class _Still(NamedTuple):
    """A session in which nothing has to happen any more. One without events was only claimed."""

    log: int
    session: str
    head: int
    at: float


def _still(database: apsw.Connection) -> list[_Still]:
    """The one that has been still for longest first."""
    rows = database.execute(
        "SELECT n, id, head, updated_at FROM logs WHERE unfinished = 0 ORDER BY updated_at, n"
    )
    return [_Still(*cast(tuple[int, str, int, float], row)) for row in rows]


def _would_remove(
    database: apsw.Connection, before: float | None, max_bytes: int | None
) -> Removal:
    done = Removal(used_bytes=_used(database))
    for still in _still(database):
        is_old = before is not None and still.at < before
        if not is_old and (max_bytes is None or done.used_bytes <= max_bytes):
            break
        done.note(still)
        bodies = "SELECT ifnull(sum(length(body)), 0) FROM chunks WHERE log = ?"
        done.used_bytes -= min(_int(database.execute(bodies, (still.log,)).get), done.used_bytes)
    return done


class _Remover:
    """One round of retention on one connection."""

    def __init__(self, database: apsw.Connection) -> None:
        self._database = database
        self._done = Removal()

    def run(self, before: float | None, max_bytes: int | None) -> Removal:
        database, done = self._database, self._done
        size = _size(database)
        self._clear_doomed()
        for still in _still(database):
            is_old = before is not None and still.at < before
            if not is_old and (max_bytes is None or _used(database) <= max_bytes):
                break
            if self._doom(still):
                done.note(still)
                self._clear_doomed()
        self._give_back()
        done.used_bytes, done.freed_bytes = _used(database), max(0, size - _size(database))
        return done

    def _doom(self, still: _Still) -> bool:
        """The session is gone for everybody, unless it was used meanwhile. Its events are cleared
        away afterwards, by this round or by the next."""
        run, (log, session, head, _) = self._database.execute, still
        with self._turn():
            # An epoch is never given again, not even to a new session of the same name.
            run(
                "UPDATE meta SET value = max(value, (SELECT max(epoch) FROM logs))"
                " WHERE name = 'epoch_floor'"
            )
            run("DELETE FROM logs WHERE n = ? AND head = ? AND unfinished = 0", (log, head))
            if not self._database.changes():
                return False
            run("INSERT INTO doomed VALUES (?)", (log,))
            run("DELETE FROM snapshots WHERE log = ?", (log,))
            run(
                "DELETE FROM endings WHERE run IN (SELECT id FROM runs WHERE session = ?)",
                (session,),
            )
            for table in ("runs", "approvals", "labels"):
                run(f"DELETE FROM {table} WHERE session = ?", (session,))
            run("DELETE FROM sessions WHERE id = ?", (session,))
        return True

    def _clear_doomed(self) -> None:
        run = self._database.execute
        for (log,) in run("SELECT log FROM doomed").fetchall():
            left = True
            while left:
                with self._turn():
                    run(
                        "DELETE FROM chunks WHERE id IN"
                        " (SELECT id FROM chunks WHERE log = ? LIMIT ?)",
                        (log, PORTION_CHUNKS),
                    )
                    left = self._database.changes() == PORTION_CHUNKS
                    if not left:
                        run("DELETE FROM doomed WHERE log = ?", (log,))

    def _give_back(self) -> None:
        """Make the file smaller by what is free in it."""
        while _pragma(self._database, "freelist_count"):
            with self._turn():
                self._database.execute(f"PRAGMA incremental_vacuum({PORTION_PAGES})").fetchall()
        self._database.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """One transaction; then others have as long as it took."""
        started = time.monotonic()
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._database.execute("COMMIT")
        finally:
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
        time.sleep(min(0.1, time.monotonic() - started))


# Backup --------------------------------------------------------------------------------------


def backup(path: Path, target: Path) -> int:
    """A copy of all that is stored at this moment, safe while a server writes; its size."""
    if target.exists():
        raise InvalidValue("target", str(target), "there is such a file; give another name")
    scratch = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        with _database(path, any_version=True) as source:
            _copy(source, path, scratch)
        os.link(scratch, target)
        _sync(target.parent)
    except FileExistsError:
        told = "there is such a file; give another name"
        raise InvalidValue("target", str(target), told) from None
    except OSError as error:
        raise InvalidValue("target", str(target), f"{error.strerror}") from error
    finally:
        for left in (scratch, scratch.with_name(f"{scratch.name}-journal")):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(left)
    return target.stat().st_size


def _copy(source: apsw.Connection, path: Path, target: Path) -> None:
    os.close(os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    copy = apsw.Connection(str(target), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        # All in one step is one moment of the source, whoever writes to it meanwhile.
        with copy.backup("main", source, "main") as work:
            while not work.done:
                work.step()
        copy.pragma("journal_mode", "delete")
        found = [row[0] for row in copy.execute("PRAGMA integrity_check(3)")]
    except (apsw.CorruptError, apsw.NotADBError) as error:
        raise damaged(path, str(error)) from error
    except apsw.Error as error:
        raise fault_of(error, target, copy.system_errno) from error
    finally:
        copy.close()
    if found != ["ok"]:
        raise damaged(path, "; ".join(str(line) for line in found))
    _sync(target)


def _sync(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


# Health --------------------------------------------------------------------------------------


def check(path: Path) -> str | None:
    """What is wrong with the database, in words; none if it is whole."""
    with _database(path, any_version=True) as database:
        found = [str(row[0]) for row in database.execute("PRAGMA quick_check(3)")]
    return None if found == ["ok"] else "; ".join(found)


# Export --------------------------------------------------------------------------------------


def export(path: Path, session: str) -> Iterator[bytes]:
    """Every event that the session has now, a line of JSON each, without the line's end."""
    with _database(path) as database:
        reader = Reader(database, path)
        head, after = reader.head(session), 0
        if head == 0:
            raise TurnkeeperError(UNKNOWN_SESSION, f"there is no session {session}")
        while after < head:
            lines = reader.read_lines(session, after, min(PAGE_EVENTS, head - after))
            if not lines:
                raise TurnkeeperError(UNKNOWN_SESSION, f"session {session} was removed meanwhile")
            yield from lines
            after += len(lines)


# The database --------------------------------------------------------------------------------


@contextmanager
def _database(path: Path, *, any_version: bool = False) -> Iterator[apsw.Connection]:
    """One that is there. What is not of this program's version is left alone."""
    if not path.is_file():
        raise InvalidValue("data", str(path), "there is no such database")
    database = None
    try:
        database = connect(path)
        version = version_of(database, path)
        if version > len(STEPS):
            raise newer(path, version, len(STEPS))
        if version < len(STEPS) and not any_version:
            told = (
                f"the database {path} has schema version {version}, and this program {len(STEPS)}"
            )
            raise TurnkeeperError(STORE_OLDER, told, version=version)
        yield database
    except apsw.Error as error:
        raise fault_of(error, path, database.system_errno if database else 0) from error
    finally:
        if database is not None:
            database.close()


def _pragma(database: apsw.Connection, name: str) -> int:
    return _int(database.pragma(name))


def _used(database: apsw.Connection) -> int:
    pages = _pragma(database, "page_count") - _pragma(database, "freelist_count")
    return pages * _pragma(database, "page_size")


def _size(database: apsw.Connection) -> int:
    return _pragma(database, "page_count") * _pragma(database, "page_size")


def _int(value: Any) -> int:
    return int(value)
