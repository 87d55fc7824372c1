"""An event store in memory: for a turn here and now, and for tests. Nothing of it is durable.

Decides order, fences and uniqueness like every store. It must not know what events mean, beyond
which run they begin or end. Invariant: a batch is all there or not at all; a log has no gap; a
run ends once; an epoch that is over cannot write.
"""

from __future__ import annotations

from turnkeeper.core.errors import Fenced
from turnkeeper.core.events import Event, MessageAccepted, RunEnded, RunRequeued
from turnkeeper.ports import Batch, OutOfOrder

_BEGINNINGS = frozenset({MessageAccepted, RunRequeued})


class MemoryStore:
    """`EventStore` in memory."""

    def __init__(self) -> None:
        self._logs: dict[str, list[Event]] = {}
        self._epochs: dict[str, int] = {}
        self._unfinished: dict[str, None] = {}
        self._runs: dict[str, str] = {}
        self._ended: set[str] = set()

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
        head, begun, ended = len(log), {}, set()
        for event in batch.events:
            head += 1
            if event.seq != head:
                raise OutOfOrder(f"event {event.seq} does not follow {head - 1}")
            kind, run = type(event.data), event.run or ""
            if kind is RunEnded:
                if run in ended or run in self._ended:
                    raise OutOfOrder(f"{run} would end twice")
                ended.add(run)
            elif kind in _BEGINNINGS:
                begun[run] = session
        log.extend(batch.events)
        self._runs.update(begun)
        self._ended.update(ended)
        if batch.unfinished:
            self._unfinished[session] = None
        else:
            self._unfinished.pop(session, None)

    async def read(self, session: str, after: int, limit: int) -> list[Event]:
        return self._logs.get(session, [])[after : after + limit]

    async def head(self, session: str) -> int:
        return len(self._logs.get(session, ()))

    async def unfinished(self) -> list[str]:
        return list(self._unfinished)

    async def session_of(self, run: str) -> str | None:
        return self._runs.get(run)
