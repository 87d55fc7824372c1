"""An event store on PostgreSQL: the logs of many machines, in one database.

Decides who does what: a few connections write, a few read. It must not know SQL beyond reading.
Invariant: what was acknowledged is committed; a long read delays no append; while it cannot be
written, `trouble` says why, and it is tried again until it can.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
from collections.abc import Callable, Sequence
from typing import Any

import asyncpg
import msgspec

from turnkeeper.core import records as r
from turnkeeper.core.errors import InvalidValue, StoreDown
from turnkeeper.core.events import Event, decode
from turnkeeper.ports import Batch, Snapshot
from turnkeeper.store import lists
from turnkeeper.store.chunks import READ_BYTES, Damaged, picked
from turnkeeper.store.postgres_faults import Address, Seat
from turnkeeper.store.postgres_lanes import Lanes
from turnkeeper.store.postgres_line import Line, Lines
from turnkeeper.store.postgres_schema import migrate
from turnkeeper.store.postgres_text import kept, kept_all, told, told_all
from turnkeeper.store.postgres_writer import Work, Writer
from turnkeeper.store.work import Claim, Save

WRITERS, READERS = 2, 3
"""So many groups of appends are on their way at once: one is made while another is committed."""

PROBE_S = 1.0
"""So often a store that cannot be written is tried, if nobody else does."""

_LINES = """
SELECT first, crc, body FROM (
    SELECT first, last, crc, body,
        sum(octet_length(body)) OVER (ORDER BY last) - octet_length(body) AS before
    FROM chunks WHERE log = (SELECT n FROM logs WHERE id = $1) AND last > $2 AND first <= $3
) AS found WHERE before < $4 ORDER BY last
"""

_UNFINISHED = """
SELECT id FROM logs WHERE unfinished AND (owner IS NULL OR owner = $1::text OR (
    $1::text IS NULL AND NOT EXISTS (
        SELECT FROM nodes WHERE nodes.id = owner AND until > clock_timestamp()
    )
)) ORDER BY n
"""


class PostgresStore:
    """`EventStore` in a database. `await PostgresStore.open(url)`; then `close` it."""

    def __init__(self, address: Address, node: str | None = None) -> None:
        """Use `open`."""
        self.address = address
        self.node = node
        self.trouble: str | None = None
        """Why it cannot be written now."""
        self.grown: Callable[[str, int], None] | None = None
        """Is told of every log that grew, and to where."""
        self._reads = Lines(address, READERS)
        self.seat = Seat(node)
        self._lanes = Lanes([Writer(Line(address), address, self.seat) for _ in range(WRITERS)])
        self._probing: asyncio.Task[None] | None = None
        self._closed = False

    @classmethod
    async def open(cls, url: str, node: str | None = None) -> PostgresStore:
        """The store at that address, made if there is none, for a node of that name. Raises
        `StoreDown` if it cannot be used, and what says so if it is a newer program's."""
        address = Address.of(url)
        line = Line(address)
        try:
            async with line.use() as connection:
                await migrate(connection, address)
        finally:
            await line.close()
        return cls(address, node)

    async def close(self) -> None:
        """What was asked for is still done."""
        self._closed = True
        if self._probing is not None:
            self._probing.cancel()
            await asyncio.wait([self._probing])
        await self._lanes.close()
        await self._reads.close()

    # Writing ---------------------------------------------------------------------------------

    async def claim(self, session: str) -> int:
        epoch: int = await self._write(Claim(session))
        return epoch

    async def append(self, batch: Batch) -> None:
        await self._write(batch)
        if self.grown is not None and batch.events:
            self.grown(batch.session, batch.events[-1].seq)

    async def save(self, session: str, epoch: int, snapshot: Snapshot) -> None:
        await self._write(Save(session, epoch, snapshot))

    async def _write(self, work: Work) -> Any:
        try:
            answer = await self._lanes.put(work)
        except StoreDown as fault:
            self._fails(fault)
            raise
        self.trouble = None
        return answer

    def _fails(self, fault: StoreDown) -> None:
        self.trouble = fault.what
        if self._probing is None and not self._closed:
            self._probing = asyncio.get_running_loop().create_task(self._probe())

    async def _probe(self) -> None:
        """Until it can be written again."""
        while self.trouble is not None:
            await asyncio.sleep(PROBE_S)
            with contextlib.suppress(StoreDown):
                await self._reads.fetch("UPDATE meta SET value = value + 1 WHERE name = 'probes'")
                self.trouble = None
        self._probing = None

    # Logs ------------------------------------------------------------------------------------

    async def read_lines(self, session: str, after: int, limit: int) -> list[bytes]:
        if limit <= 0:
            return []
        rows = await self._reads.fetch(_LINES, kept(session), after, after + limit, READ_BYTES)
        try:
            return picked(rows, after, limit)
        except Damaged as found:
            raise self._damaged(f"the events from {found.first} on of session {session}") from found

    async def read(self, session: str, after: int, limit: int) -> list[Event]:
        try:
            return [decode(line) for line in await self.read_lines(session, after, limit)]
        except msgspec.DecodeError as error:
            raise self._damaged(f"an event of session {session}: {error}") from error

    async def head(self, session: str) -> int:
        return int(await self._value("SELECT head FROM logs WHERE id = $1", session) or 0)

    async def unfinished(self) -> list[str]:
        rows = await self._reads.fetch(_UNFINISHED, self.node)
        return [told(row[0]) for row in rows]

    async def session_of(self, run: str) -> str | None:
        found = await self._value("SELECT session FROM runs WHERE id = $1", run)
        return None if found is None else told(found)

    async def load(self, session: str) -> Snapshot | None:
        rows = await self._reads.fetch(
            "SELECT seq, state FROM snapshots JOIN logs ON n = log WHERE id = $1", kept(session)
        )
        return Snapshot(rows[0][0], rows[0][1]) if rows else None

    # Lists -----------------------------------------------------------------------------------

    async def sessions(self, query: r.SessionQuery) -> r.SessionPage:
        rows = await self._list(lists.sessions(query, lists.POSTGRES))
        return r.SessionPage(*lists.page(rows, query, lists.session_of))

    async def runs(self, query: r.RunQuery) -> r.RunPage:
        rows = await self._list(lists.runs(query, lists.POSTGRES))
        return r.RunPage(*lists.page(rows, query, lists.run_of))

    async def approvals(self, query: r.ApprovalQuery) -> r.ApprovalPage:
        rows = await self._list(lists.approvals(query))
        return r.ApprovalPage(*lists.page(rows, query, lists.listed_approval))

    async def session(self, session: str) -> r.SessionRecord | None:
        rows = await self._list(lists.one_session(session))
        return lists.session_of(rows[0]) if rows else None

    async def run(self, run: str) -> r.RunRecord | None:
        rows = await self._list(lists.one_run(run))
        return lists.run_of(rows[0]) if rows else None

    async def approval(self, approval: str) -> r.ApprovalRecord | None:
        rows = await self._list(lists.one_approval(approval))
        return lists.approval_of(rows[0]) if rows else None

    # How it is done --------------------------------------------------------------------------

    async def _list(self, asked: lists.Asked) -> Sequence[lists.Row]:
        said, given = asked
        try:
            rows = await self._reads.fetch(_numbered(said), *kept_all(given))
        except asyncpg.DataError as error:
            raise InvalidValue("query", "…", str(error)) from error
        return [told_all(row) for row in rows]

    async def _value(self, sql: str, name: str) -> Any:
        rows = await self._reads.fetch(sql, kept(name))
        return rows[0][0] if rows else None

    def _damaged(self, what: str) -> StoreDown:
        return StoreDown(f"the database {self.address.shown} is damaged: {what}")


def _numbered(sql: str) -> str:
    """The places of what is given, as PostgreSQL writes them."""
    numbers = itertools.count(1)
    return re.sub(r"\?", lambda _: f"${next(numbers)}", sql)
