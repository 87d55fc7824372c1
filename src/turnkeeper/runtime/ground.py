"""What the runtime stands on.

Decides nothing but what is usual. It must not know any implementation. Invariant: the runtime
reaches the world by these ports alone.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from turnkeeper.core import commands as c
from turnkeeper.core.step import Trace
from turnkeeper.ports import (
    Agent,
    Clock,
    EventStore,
    Ids,
    Membership,
    Observer,
    Others,
    Transcripts,
)
from turnkeeper.runtime.fanout import BEHIND_MAX
from turnkeeper.runtime.snapshots import SNAPSHOT_EVERY


def _nobody_else(session: str) -> None:
    """All sessions of the store are ours to have."""


async def _nothing_to_end(processes: Sequence[str]) -> None:
    """There is no other node that could have them now."""


@dataclass(frozen=True)
class Ports:
    """What the runtime stands on."""

    store: EventStore
    clock: Clock
    ids: Ids
    agents: Mapping[str, Agent]
    policies: Mapping[str, c.Policy]
    trace: Trace | None = None
    behind_max: int = BEHIND_MAX
    unload_s: float = 300.0
    """So long a session in which nothing happens is kept in memory."""
    snapshot_every: int = SNAPSHOT_EVERY
    observer: Observer | None = None
    take: Callable[[str], object] = _nobody_else
    """Keeps others out of a session before it is ours; raises if one has it."""
    membership: Membership | None = None
    others: Others | None = None
    """Where there are other nodes on the same store."""
    transcripts: Transcripts | None = None
    """Where conversations are kept for them."""
    carries: bool = True
    """They are; else nothing is stored there or taken from there."""
    end: Callable[[Sequence[str]], Coroutine[Any, Any, None]] = _nothing_to_end
    """Ends the agents' processes of these names, which are not ours to have any more."""
