"""Small appends of many logs, stored with one statement.

Decides which appends may go together. It must not know transactions, nor threads. Invariant: what
goes together is what would have gone one by one: each log moves only from where it was known to be,
under its own epoch; if one of them does not, `Moved` is raised, and nothing of it may be kept. Each
statement hands the interpreter over twice, and a thread that shares it with a busy loop waits for
each: so there is one, filled up with rows that say nothing, which by itself is a transaction.
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

ROWS = (2, 4, 8, 16, 32, 64, 128)
"""A statement has so many rows; for each there is one text, which is compiled once."""

_COLUMNS = "log, epoch, head, upto, at, crc, body"
_NOTHING = (None,) * 7

INTAKE = f"""
CREATE TEMP VIEW intake ({_COLUMNS}) AS SELECT {", ".join(["NULL"] * 7)};
CREATE TEMP TRIGGER taken_in INSTEAD OF INSERT ON intake WHEN NEW.log IS NOT NULL BEGIN
    UPDATE logs SET head = NEW.upto, updated_at = NEW.at
        WHERE n = NEW.log AND epoch = NEW.epoch AND head = NEW.head;
    SELECT RAISE(ABORT, 'moved') WHERE changes() = 0;
    INSERT INTO chunks (log, first, crc, body) VALUES (NEW.log, NEW.head + 1, NEW.crc, NEW.body);
END;
"""
"""What a connection needs for `put_together`: a row that is put in there is an append."""


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


def fit_one(appends: Sequence[Append]) -> bool:
    """One statement is enough for them."""
    return len(appends) <= ROWS[-1]


def put_together(connection: apsw.Connection, appends: Sequence[Append]) -> None:
    """Store all of them."""
    most = ROWS[-1]
    for start in range(0, len(appends), most):
        _put(connection, appends[start : start + most])


def _put(connection: apsw.Connection, appends: Sequence[Append]) -> None:
    given: list[Any] = []
    for _, log, batch in appends:
        events, head = batch.events, log.head
        body = b"\n".join(batch.lines)
        given += (log.n, log.epoch, head, head + len(events), events[-1].at, crc32(body), body)
    rows = ROWS[bisect_left(ROWS, len(appends))]
    given += _NOTHING * (rows - len(appends))
    try:
        connection.execute(_insert(rows), given)
    except apsw.ConstraintError as error:
        raise Moved from error


@cache
def _insert(rows: int) -> str:
    return f"INSERT INTO intake VALUES {','.join(['(?,?,?,?,?,?,?)'] * rows)}"
