"""Writing to PostgreSQL: the appends of many sessions in one statement, which is one transaction.

Decides what is wrong with what was refused. It must not know who waits, nor which works go
together. Invariant: an append, its fence and its records are one statement; what is answered with
success is committed; what is wrong with one piece of work is its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import asyncpg

from turnkeeper.core import records as r
from turnkeeper.core.errors import Fenced, StoreDown, TurnkeeperError
from turnkeeper.ports import Batch, Elsewhere, OutOfOrder
from turnkeeper.store.chunks import chunked
from turnkeeper.store.postgres_faults import OWN, Address, Seat, fault_of
from turnkeeper.store.postgres_line import Line
from turnkeeper.store.postgres_records import KNOWN, WRITE, Changes
from turnkeeper.store.postgres_text import kept, told
from turnkeeper.store.work import Claim, Save

_APPEND = """
WITH moved AS (
    UPDATE logs l SET head = l.head + g.count, updated_at = coalesce(g.at, l.updated_at),
        unfinished = g.unfinished
    FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::float8[], $6::bool[])
        AS g (id, epoch, head, count, at, unfinished)
    WHERE l.id = g.id AND l.epoch = g.epoch AND (l.head = g.head OR g.count = 0)
    RETURNING l.n, l.id
), put AS (
    INSERT INTO chunks (log, first, last, crc, body)
    SELECT m.n, c.first, c.last, c.crc, c.body
    FROM unnest($7::text[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bytea[])
        AS c (id, first, last, crc, body) JOIN moved m ON m.id = c.id
)
"""
_STORED = "SELECT id FROM moved"

_CLAIM = """
INSERT INTO logs (id, epoch, owner)
SELECT id, 1 + (SELECT value FROM meta WHERE name = 'epoch_floor'), $2::text
FROM unnest($1::text[]) AS g (id)
WHERE $2::text IS NULL OR EXISTS (
    SELECT FROM nodes
    WHERE nodes.id = $2::text AND incarnation = $3 AND until > clock_timestamp()
)
ORDER BY id
ON CONFLICT (id) DO UPDATE SET epoch = logs.epoch + 1, owner = excluded.owner
WHERE logs.owner IS NULL OR logs.owner = excluded.owner OR NOT EXISTS (
    SELECT FROM nodes WHERE nodes.id = logs.owner AND until > clock_timestamp()
)
RETURNING id, epoch
"""

_OWNERS = """
SELECT l.id, l.owner FROM logs l JOIN nodes ON nodes.id = l.owner AND until > clock_timestamp()
WHERE l.id = ANY($1) AND l.owner IS DISTINCT FROM $2::text
"""

_SAVE = """
INSERT INTO snapshots (log, seq, state)
SELECT l.n, g.seq, g.state
FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bytea[]) AS g (id, epoch, seq, state)
JOIN logs l ON l.id = g.id AND l.epoch = g.epoch
ORDER BY l.id FOR SHARE OF l
ON CONFLICT (log) DO UPDATE SET seq = excluded.seq, state = excluded.state
RETURNING (SELECT id FROM logs WHERE n = log)
"""


CLAIMS = 2
"""So often it is tried: the time of whoever had a session may end between two looks."""


Work: TypeAlias = Batch | Claim | Save


class Writer:
    """Writes groups on one line. Each group is of one kind, and has each session once."""

    def __init__(self, line: Line, address: Address, seat: Seat) -> None:
        self._seat = seat
        self._line = line
        self._address = address

    async def close(self) -> None:
        await self._line.close()

    async def run(self, group: Sequence[Work]) -> list[Any]:
        """The answer to each, in order; an exception is one too."""
        answers = await self._all(group)
        if len(group) > 1 and isinstance(answers, OWN):
            return [await self._alone(work) for work in group]  # it may have been another's fault
        if isinstance(answers, Exception):
            return [self._told(answers, work) for work in group]
        return answers

    async def _alone(self, work: Work) -> Any:
        answers = await self._all([work])
        return answers[0] if isinstance(answers, list) else self._told(answers, work)

    async def _all(self, group: Sequence[Work]) -> list[Any] | Exception:
        """What each is answered, or why none is."""
        try:
            return await self._try(group)
        except (TurnkeeperError, asyncpg.PostgresError, *OWN) as error:
            return error

    async def _try(self, group: Sequence[Work]) -> list[Any]:
        async with self._line.use() as connection:
            match group[0]:
                case Claim():
                    return await self._claim(connection, group)
                case Save():
                    return await self._save(connection, [x for x in group if isinstance(x, Save)])
                case Batch():
                    batches = [x for x in group if isinstance(x, Batch)]
                    return await self._append(connection, batches)

    def _told(self, error: Exception, work: Work) -> Exception:
        if isinstance(error, asyncpg.UniqueViolationError) and error.table_name == "endings":
            return OutOfOrder(f"a run of {work.session} would end twice: {error.detail}")
        if isinstance(error, asyncpg.PostgresError):
            return fault_of(error, self._address)
        return error

    # Appends ---------------------------------------------------------------------------------

    async def _append(self, connection: Any, batches: Sequence[Batch]) -> list[Any]:
        sound = [batch for batch in batches if _is_in_order(batch)]
        stored: set[str] = set()
        if sound:
            given, changes = _given(sound), {x.session: r.changes(x.events) for x in sound}
            said = _APPEND
            if any(changes.values()):
                record = Changes({name: found for name, found in changes.items() if found})
                needs = [[kept(name) for name in names] for names in record.needs()]
                record.learn(await connection.fetch(KNOWN, *needs))
                given += record.written()
                said += WRITE
            stored = {row[0] for row in await connection.fetch(said + _STORED, *given)}
        if len(stored) == len(batches):
            return [None] * len(batches)
        names = [kept(batch.session) for batch in batches]
        rows = await connection.fetch("SELECT id, epoch, head FROM logs WHERE id = ANY($1)", names)
        logs = {row[0]: (row[1], row[2]) for row in rows}
        return [
            None if name in stored else _why_not(batch, logs.get(name))
            for name, batch in zip(names, batches, strict=True)
        ]

    # Owners ----------------------------------------------------------------------------------

    async def _claim(self, connection: Any, group: Sequence[Work]) -> list[Any]:
        names, seat = _names(group), self._seat
        epochs: dict[str, int] = {}
        owners: dict[str, str] = {}
        for _ in range(CLAIMS):
            left = [name for name in names if name not in epochs and name not in owners]
            if not left:
                break
            epochs |= dict(await connection.fetch(_CLAIM, left, seat.node, seat.incarnation))
            if len(epochs) + len(owners) < len(names):
                owners |= dict(await connection.fetch(_OWNERS, left, seat.node))
        over = StoreDown(
            "this node could not renew its time, or another has its name: it has nothing now"
        )
        return [
            epochs.get(name) or (Elsewhere(told(name), owners[name]) if name in owners else over)
            for name in names
        ]

    async def _save(self, connection: Any, saves: Sequence[Save]) -> list[Any]:
        names = [kept(save.session) for save in saves]
        rows = await connection.fetch(
            _SAVE, names, [save.epoch for save in saves],
            [save.snapshot.seq for save in saves], [save.snapshot.state for save in saves],
        )  # fmt: skip
        done = {row[0] for row in rows}
        return [
            None if name in done else Fenced(save.session, save.epoch)
            for name, save in zip(names, saves, strict=True)
        ]


def _names(group: Sequence[Work]) -> list[str]:
    return [kept(work.session) for work in group]


def _is_in_order(batch: Batch) -> bool:
    events = batch.events
    return not events or [x.seq for x in events] == list(
        range(events[0].seq, events[0].seq + len(events))
    )


def _given(batches: Sequence[Batch]) -> list[Any]:
    """What `_APPEND` takes."""
    moves: list[tuple[Any, ...]] = []
    chunks: list[tuple[Any, ...]] = []
    for batch in batches:
        name, events = kept(batch.session), batch.events
        if not events:
            moves.append((name, batch.epoch, 0, 0, None, batch.unfinished))
            continue
        first, count = events[0].seq, len(events)
        moves.append((name, batch.epoch, first - 1, count, events[-1].at, batch.unfinished))
        for chunk in chunked(first, batch.encoded()):
            last = chunk.first + chunk.body.count(b"\n")
            chunks.append((name, chunk.first, last, chunk.crc, chunk.body))
    moves.sort()  # whoever locks several logs locks them in the same order
    return [*(list(column) for column in zip(*moves, strict=True)), *_columns(chunks, 5)]


def _columns(rows: Sequence[tuple[Any, ...]], count: int) -> list[list[Any]]:
    return [[row[at] for row in rows] for at in range(count)]


def _why_not(batch: Batch, log: tuple[int, int] | None) -> Exception:
    if log is None or log[0] != batch.epoch:
        return Fenced(batch.session, batch.epoch)
    if not _is_in_order(batch):
        return OutOfOrder(f"the events of a batch after {log[1]} are not in order")
    first = batch.events[0].seq if batch.events else 0
    return OutOfOrder(f"event {first} does not follow {log[1]}")
