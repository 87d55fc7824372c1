"""An event store in memory: for a turn here and now, and for tests. Nothing of it is durable.

Decides order, fences and uniqueness like every store. It must not know what events mean, beyond
which run they end. Invariant: a batch is all there or not at all; a log has no gap; a
run ends once; an epoch that is over cannot write.
"""

from __future__ import annotations

from turnkeeper.core import records as r
from turnkeeper.core.errors import Fenced
from turnkeeper.core.events import Event, RunEnded, encode
from turnkeeper.ports import Batch, OutOfOrder, Snapshot
from turnkeeper.store.shelf import Shelf, copied, cut, fits_approval, fits_run, fits_session, page


class MemoryStore:
    """`EventStore` in memory."""

    def __init__(self) -> None:
        self._logs: dict[str, list[Event]] = {}
        self._epochs: dict[str, int] = {}
        self._unfinished: dict[str, None] = {}
        self._ended: set[str] = set()
        self._snapshots: dict[str, Snapshot] = {}
        self._shelf = Shelf()

    async def claim(self, session: str) -> int:
        self._epochs[session] = self._epochs.get(session, 0) + 1
        return self._epochs[session]

    async def append(self, batch: Batch) -> None:
        self.put(batch)

    def put(self, batch: Batch) -> None:
        """The append itself, at once."""
        session = batch.session
        if batch.epoch != self._epochs.get(session):
            raise Fenced(session, batch.epoch)
        log = self._logs.setdefault(session, [])
        head, ended = len(log), set()
        for event in batch.events:
            head += 1
            if event.seq != head:
                raise OutOfOrder(f"event {event.seq} does not follow {head - 1}")
            if type(event.data) is RunEnded:
                run = event.run or ""
                if run in ended or run in self._ended:
                    raise OutOfOrder(f"{run} would end twice")
                ended.add(run)
        log.extend(batch.events)
        self._ended.update(ended)
        self._shelf.put(r.changes(batch.events))
        if batch.events:
            self._shelf.touched(session, head, batch.events[-1].at)
        if batch.unfinished:
            self._unfinished[session] = None
        else:
            self._unfinished.pop(session, None)

    async def read(self, session: str, after: int, limit: int) -> list[Event]:
        return self._logs.get(session, [])[after : after + limit]

    async def read_lines(self, session: str, after: int, limit: int) -> list[bytes]:
        return [encode(event) for event in await self.read(session, after, limit)]

    async def head(self, session: str) -> int:
        return len(self._logs.get(session, ()))

    async def unfinished(self) -> list[str]:
        return list(self._unfinished)

    async def session_of(self, run: str) -> str | None:
        found = self._shelf.runs.get(run)
        return None if found is None else found.session

    async def save(self, session: str, epoch: int, snapshot: Snapshot) -> None:
        if epoch != self._epochs.get(session):
            raise Fenced(session, epoch)
        self._snapshots[session] = snapshot

    async def load(self, session: str) -> Snapshot | None:
        return self._snapshots.get(session)

    async def sessions(self, query: r.SessionQuery) -> r.SessionPage:
        return r.SessionPage(*page(self._shelf.sessions, query, fits_session(query)))

    async def runs(self, query: r.RunQuery) -> r.RunPage:
        return r.RunPage(*page(self._shelf.runs, query, fits_run(query)))

    async def approvals(self, query: r.ApprovalQuery) -> r.ApprovalPage:
        found, more = page(self._shelf.approvals, query, fits_approval(query))
        return r.ApprovalPage([cut(record) for record in found], more)

    async def session(self, session: str) -> r.SessionRecord | None:
        return copied(self._shelf.sessions.get(session))

    async def run(self, run: str) -> r.RunRecord | None:
        return copied(self._shelf.runs.get(run))

    async def approval(self, approval: str) -> r.ApprovalRecord | None:
        return copied(self._shelf.approvals.get(approval))
