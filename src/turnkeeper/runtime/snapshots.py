"""Snapshots of one session, so that it can be taken up without folding all of its log.

Decides when one is worth its cost. It must not know what the state means. Invariant: a snapshot
that cannot be kept costs nothing but time; nobody's answer waits for one.
"""

from __future__ import annotations

from turnkeeper.core.errors import StoreDown
from turnkeeper.core.fold import fold
from turnkeeper.core.snapshot import freeze, thaw
from turnkeeper.core.state import Session
from turnkeeper.ports import EventStore, Snapshot

SNAPSHOT_EVERY = 2048
"""So many events are folded in a few milliseconds; more of them are worth a snapshot."""

PAGE_EVENTS = 2048


class Snapshots:
    """When a session's last one was made, and when the next one is due."""

    def __init__(self, store: EventStore, every: int = SNAPSHOT_EVERY) -> None:
        self._store = store
        self._every = every
        self._seq: int | None = None

    def is_due(self, state: Session, *, leaving: bool = False) -> bool:
        """Whether enough has happened since the last: less, if nobody will look for long. A long
        history of runs is frozen less often, for that costs more."""
        if self._seq is None:
            self._seq = 0 if state.seq < self._every else state.seq
        every = max(self._every, 4 * len(state.ended))
        return state.seq - self._seq >= (every // 8 if leaving else every)

    async def keep(self, state: Session, epoch: int) -> None:
        """Keep one of this moment. Raises `Fenced`."""
        try:
            await self._store.save(state.id, epoch, Snapshot(state.seq, freeze(state)))
        except StoreDown:
            return
        self._seq = state.seq


async def read_state(store: EventStore, session: str) -> Session:
    """The state of a session, from its last snapshot and what came after it."""
    kept = await store.load(session)
    state = thaw(kept.state) if kept is not None else None
    if state is None or state.id != session:
        state = Session(session)
    while events := await store.read(session, state.seq, PAGE_EVENTS):
        fold(events, state)
    return state
