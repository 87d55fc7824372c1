"""Small appends of many logs, stored with a few statements.

Decides which appends may go together. It must not know transactions, nor threads. Invariant: what
goes together is what would have gone one by one: each log moves only from where it was known to be,
under its own epoch; if one of them does not, `Moved` is raised, and nothing of it may be kept. Each
statement hands the interpreter over twice: a thread that shares it with a busy loop waits for each,
so there are as few as can be, filled up with rows that say nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple
from zlib import crc32

import apsw

from turnkeeper.core.records import CHANGING
from turnkeeper.ports import Batch
from turnkeeper.store.chunks import CHUNK_BYTES, CHUNK_EVENTS

ROWS = (2, 4, 8, 16, 32, 64)
"""A statement has so many rows; for each there is one text, which is compiled once."""

_NO_MOVE, _NO_CHUNK = (None,) * 5, (None,) * 4


class Moved(Exception):
    """A log is not where it was known to be."""


@dataclass(slots=True)
class Log:
    """What the writer last knew of a log. The database has the last word."""

    n: int
    epoch: int
    head: int
    unfinished: bool


class Append(NamedTuple):
    """A batch that changes nothing but its log, whose whereabouts are known."""

    at: int
    """Its place in the group."""
    log: Log
    batch: Batch


def plain_appends(group: Sequence[object], known: dict[str, Log]) -> list[Append]:
    """Those of a group that may go together: small, and alone with their session."""
    if len(group) < ROWS[0]:
        return []
    sessions = Counter(getattr(work, "session", None) for work in group)
    found: list[Append] = []
    for at, work in enumerate(group):
        if type(work) is Batch and sessions[work.session] == 1:
            log = known.get(work.session)
            if log is not None and _is_plain(work, log):
                found.append(Append(at, log, work))
    return found if len(found) >= ROWS[0] else []


def _is_plain(batch: Batch, log: Log) -> bool:
    events, head = batch.events, log.head
    if not events or batch.epoch != log.epoch or batch.unfinished != log.unfinished:
        return False
    if len(events) > CHUNK_EVENTS or len(batch.lines) != len(events):
        return False
    if sum(map(len, batch.lines)) > CHUNK_BYTES:
        return False
    for seq, event in enumerate(events, head + 1):
        if event.seq != seq or type(event.data) in CHANGING:
            return False
    return True


def put_together(connection: apsw.Connection, appends: Sequence[Append]) -> None:
    """Store all of them."""
    most = ROWS[-1]
    for start in range(0, len(appends), most):
        _put(connection, appends[start : start + most])


def _put(connection: apsw.Connection, appends: Sequence[Append]) -> None:
    moves: list[Any] = []
    chunks: list[Any] = []
    for _, log, batch in appends:
        events = batch.events
        body = b"\n".join(batch.lines)
        moves += (log.n, log.epoch, log.head, log.head + len(events), events[-1].at)
        chunks += (log.n, events[0].seq, crc32(body), body)
    rows = ROWS[bisect_left(ROWS, len(appends))]
    moves += _NO_MOVE * (rows - len(appends))
    chunks += _NO_CHUNK * (rows - len(appends))
    connection.execute(_move(rows), moves)
    if connection.changes() != len(appends):
        raise Moved
    connection.execute(_insert(rows), chunks)


@cache
def _move(rows: int) -> str:
    values = ",".join(["(?,?,?,?,?)"] * rows)
    return (
        "UPDATE logs SET head = column4, updated_at = column5"
        f" FROM (VALUES {values}) WHERE n = column1 AND epoch = column2 AND head = column3"
    )


@cache
def _insert(rows: int) -> str:
    values = ",".join(["(?,?,?,?)"] * rows)
    return (
        "INSERT INTO chunks (log, first, crc, body)"
        f" SELECT * FROM (VALUES {values}) WHERE column1 IS NOT NULL"
    )
