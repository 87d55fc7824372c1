"""Moving logs from one store to another, whichever they are.

Decides in which order, and when a log counts as moved. It must not know any database. Invariant: a
log in the target is the beginning of the one in the source, or it is not touched; a move that was
broken off goes on where it was; what is reported as moved was read again and compared.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable

import msgspec

from turnkeeper.core import records as r
from turnkeeper.core.errors import InvalidValue
from turnkeeper.core.events import decode
from turnkeeper.ports import Batch, EventStore

PAGE_EVENTS = 1000


class Moved(msgspec.Struct):
    """What is the same in both now; `new_events` of them were not there before. `sha256` is of all
    lines, in the order of the sessions. `conversations` are those that agents had files of."""

    sessions: int = 0
    events: int = 0
    new_events: int = 0
    sha256: str = ""
    conversations: int = 0


async def _nothing(session: str) -> bool:
    return False


async def move(
    source: EventStore,
    target: EventStore,
    tell: Callable[[str, int], None],
    along: Callable[[str], Awaitable[bool]] = _nothing,
) -> Moved:
    """Everything, the oldest session first. Nobody else may write to either meanwhile. `tell` is
    called with each session and its last event's number, `along` moves what else there is of it."""
    moved, whole = Moved(), hashlib.sha256()
    unfinished = set(await source.unfinished())
    for session in await _sessions(source):
        head = await source.head(session)
        before = await target.head(session)
        await _compare(source, target, session, min(head, before))
        if before > head:
            told = f"its session {session} has {before} events, and the one to be moved {head}"
            raise InvalidValue("target", session, told)
        if before < head:
            await _append(source, target, session, unfinished=session in unfinished)
        whole.update(await _compare(source, target, session, head))
        moved.conversations += await along(session)
        moved.sessions += 1
        moved.events += head
        moved.new_events += head - before
        tell(session, head)
    moved.sha256 = whole.hexdigest()
    return moved


async def _sessions(source: EventStore) -> list[str]:
    """All of them, the oldest first."""
    found: list[str] = []
    page = await source.sessions(r.SessionQuery(limit=r.PAGE_MAX))
    found += [record.id for record in page.items]
    while page.next is not None:
        page = await source.sessions(r.SessionQuery(limit=r.PAGE_MAX, before=page.next))
        found += [record.id for record in page.items]
    return found[::-1]


async def _append(
    source: EventStore, target: EventStore, session: str, *, unfinished: bool
) -> None:
    epoch = await target.claim(session)
    after, head = await target.head(session), await source.head(session)
    while after < head:
        lines = await source.read_lines(session, after, PAGE_EVENTS)
        events = [decode(line) for line in lines]
        after += len(events)
        # Who would take it up half-way would take up another session than it is.
        batch = Batch(session, epoch, events, unfinished and after == head, lines)
        await target.append(batch)


async def _compare(source: EventStore, target: EventStore, session: str, head: int) -> bytes:
    """The digest of the first events, which have to be the same."""
    digests = [await _digest(store, session, head) for store in (source, target)]
    if digests[0] != digests[1]:
        told = f"its session {session} is another than the one to be moved; use an empty one"
        raise InvalidValue("target", session, told)
    return digests[0]


async def _digest(store: EventStore, session: str, head: int) -> bytes:
    after, digest = 0, hashlib.sha256()
    while after < head:
        lines = await store.read_lines(session, after, min(PAGE_EVENTS, head - after))
        if not lines:
            break
        after += len(lines)
        for line in lines:
            digest.update(line + b"\n")
    return digest.digest()
