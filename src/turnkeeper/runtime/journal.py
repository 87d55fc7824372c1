"""Writing one session's log, until it is written.

Decides when an append counts as stored. It must not know what the events mean. Invariant: a batch
is stored once or never: a store that said no may have stored it all the same, so its log is
compared before it is tried again.
"""

from __future__ import annotations

import asyncio

from turnkeeper.core.errors import Fenced, StoreDown
from turnkeeper.core.events import encode
from turnkeeper.ports import Batch, EventStore, OutOfOrder

PAUSE_S, PAUSE_MAX_S = 0.05, 1.0
"""How long to wait before the store is tried again, at first and at most."""

UNANSWERED = "the store has not answered for some time"


class Faults:
    """What the store last said against storing something."""

    def __init__(self) -> None:
        self.last = UNANSWERED


async def append(store: EventStore, batch: Batch, faults: Faults) -> None:
    """Until it is stored. Raises `Fenced` if the log goes on without us."""
    pause_s, faults.last = PAUSE_S, UNANSWERED
    while True:
        try:
            return await store.append(batch)
        except (StoreDown, OutOfOrder) as trouble:
            faults.last = trouble.what if isinstance(trouble, StoreDown) else faults.last
            if await is_stored(store, batch, trouble):
                return None
        await asyncio.sleep(pause_s)
        pause_s = min(pause_s * 2, PAUSE_MAX_S)


async def is_stored(store: EventStore, batch: Batch, trouble: Exception) -> bool:
    """Whether the log has exactly these events where they belong."""
    first, ours = batch.events[0].seq, list(batch.encoded())
    found: list[bytes] = []
    try:
        while len(found) < len(ours):
            more = await store.read(batch.session, first - 1 + len(found), len(ours) - len(found))
            found += [encode(event) for event in more]
            if not more:
                break
    except StoreDown:
        return False
    if found == ours:
        return True
    if isinstance(trouble, OutOfOrder):
        raise Fenced(batch.session, batch.epoch) from trouble
    return False
