"""The one writer of a database: a group of appends, claims and snapshots in one transaction.

Decides order, fences and uniqueness, by what the database says. It must not know threads, nor who
waits. Invariant: what is answered with success is on disk; an append and its fence are one
transaction; what is wrong with one piece of work is its own, and does not touch its neighbours.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import apsw

from turnkeeper.core import records as r
from turnkeeper.core.errors import Fenced, StoreDown
from turnkeeper.ports import Batch, OutOfOrder
from turnkeeper.store.chunks import chunked
from turnkeeper.store.sqlite_faults import StoreDamaged, fault_of, is_full
from turnkeeper.store.sqlite_records import SecondEnding, put_changes
from turnkeeper.store.sqlite_together import (
    INTAKE,
    Append,
    Log,
    Moved,
    fit_one,
    plain_appends,
    put_together,
)
from turnkeeper.store.work import Claim, Save

KNOWN_MAX = 100_000

_MISTAKES = (ValueError, TypeError, OverflowError)
"""What a batch that cannot be stored at all may raise."""

_EVERYBODYS = (
    apsw.BusyError, apsw.LockedError, apsw.IOError, apsw.ReadOnlyError, apsw.PermissionsError,
    apsw.CantOpenError, apsw.CorruptError, apsw.NotADBError, apsw.NoMemError,
)  # fmt: skip

LOOK_S = 0.05
"""So often, where only words are stored, it is looked whether the file is still the one that its
name leads to: to ask the system is to hand the interpreter over."""

WAL_MAX_PAGES = 16_000
"""With so many pages in it, the write-ahead log is brought in before anything else is done."""


class Probe:
    """Can it be written?"""


class Settle:
    """Bring in what is left in the write-ahead log."""


Work: TypeAlias = Batch | Claim | Save | Probe | Settle


class Writer:
    """Owns the connection that it is given."""

    def __init__(self, connection: apsw.Connection, path: Path) -> None:
        self.wal_pages = 0
        self._connection = connection
        self._path = path
        self._file = _identity(path)
        self._looked_at = self._counted_at = -math.inf
        self._execute = connection.cursor().execute
        self._known: dict[str, Log] = {}
        self._damage: str | None = None
        # The library would bring the log in by itself, and let whoever writes then wait for that.
        connection.wal_autocheckpoint(0)
        connection.execute(INTAKE)

    def close(self) -> None:
        self._connection.close()

    def run(self, group: Sequence[Work]) -> list[Any]:
        """The answer to each, in order; an exception is one too."""
        answers = self._try(group)
        if isinstance(answers, list):
            return answers
        if len(group) == 1 or self._concerns_all(answers):
            return [self._told(answers) for _ in group]
        return [self._alone(work) for work in group]

    def _alone(self, work: Work) -> Any:
        """It may have been another's fault; and what needs little room may have it where all
        together did not."""
        answers = self._try([work])
        return answers[0] if isinstance(answers, list) else self._told(answers)

    def _try(self, group: Sequence[Work]) -> list[Any] | Exception:
        """All of the group in one transaction, or why there was none."""
        stored = plain_appends(group, self._known)
        at_once = len(stored) == len(group) and fit_one(stored)
        if self._refused(lately=at_once) is not None:
            return [self._refused() for _ in group]
        try:
            if at_once:
                put_together(self._connection, stored)
                answers: list[Any] = [None] * len(group)
            else:
                answers = self._do_all(group, stored)
        except (apsw.Error, Moved, SecondEnding, *_MISTAKES) as error:
            self._known.clear()
            return error
        finally:
            if self._connection.in_transaction:
                with contextlib.suppress(apsw.Error):
                    self._execute("ROLLBACK")
        for one in stored:
            one.log.head += len(one.batch.events)
        # It is stored: a fault in here is met by the next who writes.
        with contextlib.suppress(apsw.Error):
            self._tend_wal(settle=any(isinstance(work, Settle) for work in group))
        return answers

    def _tend_wal(self, *, settle: bool) -> None:
        """Now and then it is asked how long the write-ahead log has become. (The library would call
        us at every commit, which is one more wait for the interpreter.)"""
        now = time.monotonic()
        if settle or self.wal_pages > WAL_MAX_PAGES:
            self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        elif now < self._counted_at + LOOK_S:
            return
        self._counted_at = now
        self.wal_pages, done = self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)
        if done == self.wal_pages:
            self.wal_pages = 0  # it begins anew with the next who writes

    def _do_all(self, group: Sequence[Work], stored: Sequence[Append]) -> list[Any]:
        self._execute("BEGIN IMMEDIATE")
        put_together(self._connection, stored)
        together = {one.at for one in stored}
        answers = [None if at in together else self._do(work) for at, work in enumerate(group)]
        self._execute("COMMIT")
        return answers

    def _do(self, work: Work) -> Any:
        try:
            match work:
                case Batch():
                    return self._append(work)
                case Claim(session):
                    return self._claim(session)
                case Save():
                    return self._save(work)
                case Probe():
                    self._execute("UPDATE meta SET value = value + 1 WHERE name = 'probes'")
                case Settle():
                    pass
        except (Fenced, OutOfOrder) as refused:
            return refused
        return None

    # Logs ------------------------------------------------------------------------------------

    def _append(self, batch: Batch) -> None:
        log = self._put(batch)
        put_changes(self._execute, log.n, r.changes(batch.events))

    def _put(self, batch: Batch) -> Log:
        """The fence, the head and the lines. What is refused is refused before it is written."""
        events, first = batch.events, batch.events[0].seq if batch.events else 0
        log = self._known.get(batch.session)
        if log is None or log.epoch != batch.epoch or (events and log.head + 1 != first):
            log = self._check(batch, first)
        head = log.head + len(events)
        if [event.seq for event in events] != list(range(log.head + 1, head + 1)):
            raise OutOfOrder(f"the events of a batch after {log.head} are not in order")
        at = events[-1].at if events else None
        if log.unfinished == batch.unfinished:
            self._execute(
                "UPDATE logs SET head = ?, updated_at = ifnull(?, updated_at)"
                " WHERE n = ? AND epoch = ? AND head = ?",
                (head, at, log.n, log.epoch, log.head),
            )
        else:
            self._execute(
                "UPDATE logs SET head = ?, updated_at = ifnull(?, updated_at), unfinished = ?"
                " WHERE n = ? AND epoch = ? AND head = ?",
                (head, at, batch.unfinished, log.n, log.epoch, log.head),
            )
        if not self._connection.changes():
            self._check(batch, first)  # somebody else wrote since we last knew
            return self._put(batch)
        if events:
            self._put_lines(log.n, first, batch.encoded())
        log.head, log.unfinished = head, batch.unfinished
        return log

    def _check(self, batch: Batch, first: int) -> Log:
        """What the database says of this log, if it lets the batch in."""
        self._known.pop(batch.session, None)
        found = self._execute(
            "SELECT n, epoch, head, unfinished FROM logs WHERE id = ?", (batch.session,)
        ).fetchall()
        log = _log_of(found[0]) if found else None
        if log is None or log.epoch != batch.epoch:
            raise Fenced(batch.session, batch.epoch)
        if batch.events and log.head + 1 != first:
            raise OutOfOrder(f"event {first} does not follow {log.head}")
        self._know(batch.session, log)
        return log

    def _put_lines(self, log: int, first: int, lines: Sequence[bytes]) -> None:
        for chunk in chunked(first, lines):
            self._execute(
                "INSERT INTO chunks (log, first, crc, body) VALUES (?, ?, ?, ?)", (log, *chunk)
            )

    def _claim(self, session: str) -> int:
        found = self._execute(
            "INSERT INTO logs (id, epoch)"
            " VALUES (?, 1 + (SELECT value FROM meta WHERE name = 'epoch_floor'))"
            " ON CONFLICT (id) DO UPDATE SET epoch = epoch + 1"
            " RETURNING n, epoch, head, unfinished",
            (session,),
        ).fetchall()
        log = _log_of(found[0])
        self._know(session, log)
        return log.epoch

    def _save(self, save: Save) -> None:
        self._execute(
            "INSERT OR REPLACE INTO snapshots (log, seq, state)"
            " SELECT n, ?, ? FROM logs WHERE id = ? AND epoch = ?",
            (save.snapshot.seq, save.snapshot.state, save.session, save.epoch),
        )
        if not self._connection.changes():
            raise Fenced(save.session, save.epoch)

    def _know(self, session: str, log: Log) -> None:
        if len(self._known) >= KNOWN_MAX:
            self._known.clear()
        self._known[session] = log

    # Faults ----------------------------------------------------------------------------------

    def _concerns_all(self, error: Exception) -> bool:
        """Nobody can write: there is no use in trying one by one."""
        full = is_full(error, self._connection.system_errno)
        return isinstance(error, _EVERYBODYS) and not full

    def _told(self, error: Exception) -> Exception:
        if isinstance(error, SecondEnding):
            return OutOfOrder(f"{error} would end twice")
        if not isinstance(error, apsw.Error):
            return error
        fault = fault_of(error, self._path, self._connection.system_errno)
        if isinstance(fault, StoreDamaged):
            self._damage = fault.what
        return fault

    def _refused(self, *, lately: bool = False) -> StoreDown | None:
        """Why nothing may be written: what would be written now would be lost. `lately`: it is
        enough to have looked a moment ago."""
        if self._damage is not None:
            return StoreDamaged(self._damage)
        if lately and time.monotonic() < self._looked_at + LOOK_S:
            return None
        if _identity(self._path) == self._file:
            self._looked_at = time.monotonic()
        else:
            told = f"the database {self._path} was removed or replaced while it was in use"
            return StoreDown(f"{told}; start the server again")
        return None


def _log_of(row: Sequence[Any]) -> Log:
    n, epoch, head, unfinished = row
    return Log(n, epoch, head, bool(unfinished))


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
