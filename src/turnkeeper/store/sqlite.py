"""An event store on SQLite: the logs of one data directory, in one file.

Decides who does what: one thread writes, one reads, one brings in the write-ahead log. It must not
know SQL. Invariant: what was acknowledged is on disk; a long read delays no append; while it cannot
be written, `trouble` says why, and it is tried again until it can.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apsw

from turnkeeper.core import records as r
from turnkeeper.core.errors import StoreDown
from turnkeeper.core.events import Event, Fact, OutputText, OutputThinking, ToolProgressFact
from turnkeeper.ports import Batch, Snapshot
from turnkeeper.store.sqlite_faults import StoreDamaged, fault_of
from turnkeeper.store.sqlite_lane import Lane
from turnkeeper.store.sqlite_reader import Ask, Reader
from turnkeeper.store.sqlite_schema import connect, open_database
from turnkeeper.store.sqlite_writer import Probe, Settle, Work, Writer
from turnkeeper.store.work import Claim, Save

PROBE_S = 1.0
"""So often a store that cannot be written is tried, if nobody else does."""

_WORDS = frozenset({OutputText, OutputThinking, ToolProgressFact})
"""What an agent says on its way may wait for more of it. All else has somebody waiting for it."""

WAL_PAGES = 8000
"""With so many pages in it, the write-ahead log is brought in beside the writing."""


class Sweeper:
    """Copies the write-ahead log into the database while others write on."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    def run(self, group: Sequence[None]) -> list[Any]:
        # A fault here is no news: whoever writes will meet it.
        with contextlib.suppress(apsw.Error):
            self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        return [None] * len(group)

    def close(self) -> None:
        self._connection.close()


class SqliteStore:
    """`EventStore` on a file. `await SqliteStore.open(path)`; then `close` it."""

    def __init__(self, path: Path) -> None:
        """Use `open`."""
        self.path = path
        self.trouble: str | None = None
        """Why it cannot be written now."""
        self._damage: str | None = None
        self._writer: Writer | None = None
        self._sweeping: asyncio.Task[None] | None = None
        self._sweep_at = WAL_PAGES
        self._probe: asyncio.TimerHandle | None = None
        self._probing: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._writes = Lane[Work]("writer", self._make_writer)
        self._reads = Lane[Ask]("reader", lambda: Reader(_connected(path), path))
        self._sweeps = Lane[None]("sweeper", lambda: Sweeper(_connected(path)))

    @classmethod
    async def open(cls, path: Path) -> SqliteStore:
        """The store in that file, made if there is none. Raises `StoreDown` if it cannot be used,
        and what says so if it is damaged or a newer program's."""
        store = cls(Path(path))
        await store._writes.open()
        try:
            await store._reads.open()
            await store._sweeps.open()
        except StoreDown:
            await store.close()
            raise
        return store

    async def close(self) -> None:
        """What was asked for is still done."""
        if self._probe is not None:
            self._probe.cancel()
        pending = [task for task in (self._sweeping, self._probing) if task is not None]
        if pending:
            await asyncio.wait(pending)
        for lane in (self._sweeps, self._reads, self._writes):
            await lane.close()

    # Writing ---------------------------------------------------------------------------------

    async def claim(self, session: str) -> int:
        epoch: int = await self._write(Claim(session), urgent=True)
        return epoch

    async def append(self, batch: Batch) -> None:
        await self._write(batch, urgent=not _WORDS.issuperset(map(_fact, batch.events)))

    async def save(self, session: str, epoch: int, snapshot: Snapshot) -> None:
        await self._write(Save(session, epoch, snapshot))

    # Reading ---------------------------------------------------------------------------------

    async def read(self, session: str, after: int, limit: int) -> list[Event]:
        found: list[Event] = await self._read(lambda reader: reader.read(session, after, limit))
        return found

    async def read_lines(self, session: str, after: int, limit: int) -> list[bytes]:
        found: list[bytes] = await self._read(
            lambda reader: reader.read_lines(session, after, limit)
        )
        return found

    async def head(self, session: str) -> int:
        found: int = await self._read(lambda reader: reader.head(session))
        return found

    async def unfinished(self) -> list[str]:
        found: list[str] = await self._read(lambda reader: reader.unfinished())
        return found

    async def session_of(self, run: str) -> str | None:
        found: str | None = await self._read(lambda reader: reader.session_of(run))
        return found

    async def load(self, session: str) -> Snapshot | None:
        found: Snapshot | None = await self._read(lambda reader: reader.load(session))
        return found

    async def sessions(self, query: r.SessionQuery) -> r.SessionPage:
        found: r.SessionPage = await self._read(lambda reader: reader.sessions(query))
        return found

    async def runs(self, query: r.RunQuery) -> r.RunPage:
        found: r.RunPage = await self._read(lambda reader: reader.runs(query))
        return found

    async def approvals(self, query: r.ApprovalQuery) -> r.ApprovalPage:
        found: r.ApprovalPage = await self._read(lambda reader: reader.approvals(query))
        return found

    async def session(self, session: str) -> r.SessionRecord | None:
        found: r.SessionRecord | None = await self._read(lambda reader: reader.session(session))
        return found

    async def run(self, run: str) -> r.RunRecord | None:
        found: r.RunRecord | None = await self._read(lambda reader: reader.run_named(run))
        return found

    async def approval(self, approval: str) -> r.ApprovalRecord | None:
        found: r.ApprovalRecord | None = await self._read(lambda reader: reader.approval(approval))
        return found

    # How it is done --------------------------------------------------------------------------

    def _make_writer(self) -> Writer:
        self._writer = Writer(open_database(self.path), self.path)
        return self._writer

    async def _write(self, work: Work, *, urgent: bool = False) -> Any:
        if self._damage is not None:
            raise StoreDamaged(self._damage)
        try:
            answer = await self._writes.put(work, urgent=urgent)
        except StoreDown as fault:
            self._fails(fault)
            raise
        if self.trouble is not None:
            self.trouble = None
        self._consider_sweep()
        return answer

    async def _read(self, ask: Ask) -> Any:
        try:
            return await self._reads.put(ask)
        except StoreDamaged as fault:
            self._fails(fault)
            raise

    def _fails(self, fault: StoreDown) -> None:
        self.trouble = fault.what
        if isinstance(fault, StoreDamaged):
            self._damage = fault.what
        elif self._probe is None and not self._writes.is_closed:
            self._probe = self._loop.call_later(PROBE_S, self._try_again)

    def _try_again(self) -> None:
        self._probe = None
        if self.trouble is not None and self._damage is None:
            self._probing = self._loop.create_task(self._try())

    async def _try(self) -> None:
        with contextlib.suppress(StoreDown):
            await self._write(Probe())

    def _consider_sweep(self) -> None:
        pages = self._writer.wal_pages if self._writer is not None else 0
        if pages < WAL_PAGES:
            self._sweep_at = WAL_PAGES
        elif pages >= self._sweep_at and (self._sweeping is None or self._sweeping.done()):
            self._sweep_at = pages + WAL_PAGES // 4
            self._sweeping = self._loop.create_task(self._sweep())

    async def _sweep(self) -> None:
        """Most of it beside the writing, and the rest, which is little, in between: only then does
        the write-ahead log begin anew."""
        with contextlib.suppress(StoreDown):
            await self._sweeps.put(None)
            await self._writes.put(Settle())


def _fact(event: Event) -> type[Fact]:
    return type(event.data)


def _connected(path: Path) -> apsw.Connection:
    try:
        return connect(path)
    except apsw.Error as error:
        raise fault_of(error, path) from error
