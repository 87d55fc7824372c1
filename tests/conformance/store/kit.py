"""The stores under test, and the events that the tests write to them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.helpers.postgres import shared_server
from tests.helpers.shell import event
from turnkeeper.core import events as e
from turnkeeper.core.limits import Limits
from turnkeeper.core.outcome import Kind, Outcome, Seen
from turnkeeper.ports import Batch, EventStore
from turnkeeper.store.memory import MemoryStore
from turnkeeper.store.postgres import PostgresStore
from turnkeeper.store.sqlite import SqliteStore


@dataclass(frozen=True)
class Kit:
    """How to have a store in a directory. A `durable` one has the same again when opened anew, and
    can be opened twice at the same time."""

    name: str
    open: Callable[[Path], Awaitable[EventStore]]
    close: Callable[[Any], Awaitable[None]]
    durable: bool


async def _memory(_place: Path) -> EventStore:
    return MemoryStore()


async def _forget(_store: MemoryStore) -> None:
    pass


async def _sqlite(place: Path) -> EventStore:
    return await SqliteStore.open(place / "turnkeeper.db")


async def _postgres(place: Path) -> EventStore:
    return await PostgresStore.open(shared_server().url_for(place))


KITS = (
    Kit("memory", _memory, _forget, durable=False),
    Kit("sqlite", _sqlite, SqliteStore.close, durable=True),
    Kit("postgres", _postgres, PostgresStore.close, durable=True),
)

Test = Callable[[EventStore], Coroutine[Any, Any, None]]


@dataclass(frozen=True)
class Bench:
    """One kit in one directory."""

    kit: Kit
    place: Path

    def run(self, *tests: Test) -> None:
        """Each on the store, closed and opened again in between (if it is durable)."""

        async def one(test: Test) -> None:
            store = await self.kit.open(self.place)
            try:
                await test(store)
            finally:
                await self.kit.close(store)

        for test in tests:
            asyncio.run(one(test))

    def run_two(self, test: Callable[[EventStore, EventStore], Coroutine[Any, Any, None]]) -> None:
        """Two stores on the same data, as two programs have them."""

        async def main() -> None:
            first, second = await self.kit.open(self.place), await self.kit.open(self.place)
            try:
                await test(first, second)
            finally:
                await self.kit.close(first)
                await self.kit.close(second)

        asyncio.run(main())


# Events --------------------------------------------------------------------------------------


def created(seq: int = 1, session: str = "s_1", **data: Any) -> e.Event:
    data = {"agent": "demo", **data}
    return event(seq, e.SessionCreated(**data), session=session, run=None)


def accepted(seq: int, run: str, session: str = "s_1", **data: Any) -> e.Event:
    message = "m" + run.removeprefix("r")
    data = {"text": "hello", **data}
    return event(seq, e.MessageAccepted(message, run, **data), session=session, run=run)


def started(seq: int, run: str, session: str = "s_1") -> e.Event:
    return event(seq, e.RunStarted("m" + run.removeprefix("r"), Limits()), session=session, run=run)


def ended(
    seq: int,
    run: str,
    session: str = "s_1",
    kind: Kind = Kind.COMPLETED,
    reason: str = "end_turn",
) -> e.Event:
    outcome = Outcome(kind, reason, "", Seen(), 0.0)
    return event(seq, e.RunEnded(outcome), session=session, run=run)


def asked(seq: int, approval: str, run: str = "r_1", session: str = "s_1") -> e.Event:
    fact = e.ApprovalRequested(approval, "ref", "Bash", {"command": "ls"}, 99.5)
    return event(seq, fact, session=session, run=run)


def settled(
    seq: int, approval: str, decision: e.Settlement = "allowed", session: str = "s_1"
) -> e.Event:
    fact = e.ApprovalSettled(approval, decision, "anna", "go on")
    return event(seq, fact, session=session, run="r_1")


def batch(*events: e.Event, epoch: int = 1, unfinished: bool = True) -> Batch:
    lines = e.encode_all(events)
    return Batch(events[0].session, epoch, events, unfinished, lines)


async def put(store: EventStore, *events: e.Event, unfinished: bool = True) -> int:
    """Claim the session and append to it; the epoch."""
    epoch = await store.claim(events[0].session)
    await store.append(batch(*events, epoch=epoch, unfinished=unfinished))
    return epoch


async def seqs(store: EventStore, session: str = "s_1", after: int = 0) -> list[int]:
    return [found.seq for found in await store.read(session, after, 100_000)]
