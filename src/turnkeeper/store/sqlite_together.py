"""Small appends of many logs, stored with a few statements.

Decides which appends may go together. It must not know transactions, nor threads. Invariant: what
goes together is what would have gone one by one: each log moves only from where it was known to be,
under its own epoch; if one of them does not, `Moved` is raised, and nothing of it may be kept. Each
statement hands the interpreter over twice: a thread that shares it with a busy loop waits for each.
"""

from __future__ import annotations

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

ROWS = (64, 16, 4)
"""So many go together; for each there is one text of each statement, which is compiled once."""


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
    if len(group) < ROWS[-1]:
        return []
    sessions = Counter(getattr(work, "session", None) for work in group)
    found: list[Append] = []
    for at, work in enumerate(group):
        if type(work) is Batch and sessions[work.session] == 1:
            log = known.get(work.session)
            if log is not None and _is_plain(work, log):
                found.append(Append(at, log, work))
    return found if len(found) >= ROWS[-1] else []


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


def put_together(connection: apsw.Connection, appends: Sequence[Append]) -> Sequence[Append]:
    """Store as many of them as go into whole statements; those that are stored."""
    done = 0
    for rows in ROWS:
        while len(appends) - done >= rows:
            _put(connection, appends[done : done + rows])
            done += rows
    return appends[:done]


def _put(connection: apsw.Connection, appends: Sequence[Append]) -> None:
    moves: list[Any] = []
    chunks: list[Any] = []
    for _, log, batch in appends:
        events = batch.events
        body = b"\n".join(batch.lines)
        moves += (log.n, log.epoch, log.head, log.head + len(events), events[-1].at)
        chunks += (log.n, events[0].seq, crc32(body), body)
    connection.execute(_move(len(appends)), moves)
    if connection.changes() != len(appends):
        raise Moved
    connection.execute(_insert(len(appends)), chunks)


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
    return f"INSERT INTO chunks (log, first, crc, body) VALUES {values}"
