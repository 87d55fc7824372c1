"""What goes wrong with a database, in words.

Decides which fault of SQLite means what to a person. It must not know who asked. Invariant: every
fault becomes `StoreDown`, so that whoever knows that a store can be down knows what to do; one that
is damage says so, and is not got over by waiting.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

import apsw

from turnkeeper.core.errors import (
    STORE_DAMAGED,
    STORE_NEWER,
    StoreDown,
    TurnkeeperError,
)  # fmt: skip

BUSY_S = 5.0
"""So long another program's transaction is waited for."""

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


class StoreDamaged(StoreDown):
    """The database is not what was written. Nothing more is written to it."""

    def __init__(self, what: str) -> None:
        TurnkeeperError.__init__(self, STORE_DAMAGED, what)


def damaged(path: Path, found: str) -> StoreDamaged:
    return StoreDamaged(f"the database {path} is damaged: {found}")


def newer(path: Path, version: int, known: int) -> TurnkeeperError:
    told = f"the database {path} has schema version {version}, and this program knows {known}"
    return TurnkeeperError(STORE_NEWER, told, version=version, known=known)


def is_full(error: Exception, system_errno: int) -> bool:
    """The disk is full: less may fit where this did not."""
    return isinstance(error, apsw.FullError) or (
        isinstance(error, apsw.IOError) and system_errno in _FULL
    )


def fault_of(error: apsw.Error, path: Path, system_errno: int = 0) -> StoreDown:
    """The same, as callers of a store know it."""
    if isinstance(error, apsw.CorruptError | apsw.NotADBError | apsw.SchemaChangeError):
        return damaged(path, str(error))
    if isinstance(error, apsw.IOError) and not system_errno and _has_no_room(path):
        system_errno = errno.ENOSPC
    return StoreDown(f"the database {path} cannot be used: {_words(error, system_errno)}")


def _has_no_room(path: Path) -> bool:
    """Whether its disk is full: where files are made to be mapped, no errno says so."""
    try:
        return os.statvfs(path.parent).f_bavail == 0
    except OSError:
        return False


def _words(error: apsw.Error, system_errno: int) -> str:
    if is_full(error, system_errno):
        return "its disk is full"
    if isinstance(error, apsw.BusyError | apsw.LockedError):
        return f"another program has had it locked for {BUSY_S:g} s"
    if isinstance(error, apsw.ReadOnlyError | apsw.PermissionsError):
        return "it is read-only"
    reason = f" ({os.strerror(system_errno)})" if system_errno else ""
    if isinstance(error, apsw.IOError):
        return f"its disk fails{reason}"
    if isinstance(error, apsw.CantOpenError):
        return f"it cannot be opened{reason}"
    return f"{error}{reason}"
