"""A program that writes to the store, and says what was acknowledged, until it is killed.

Each line of its output is a session and the last event of it that was acknowledged. Sessions of a
former life are taken up where their logs end.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from pathlib import Path

from turnkeeper.core import events as e
from turnkeeper.core.limits import Limits
from turnkeeper.core.outcome import Kind, Outcome, Seen
from turnkeeper.ports import Batch, Snapshot
from turnkeeper.store.sqlite import SqliteStore

SESSIONS = 20


async def write(store: SqliteStore, session: str, chance: random.Random) -> None:
    """Runs, one after the other, each in two batches and some talk in between."""
    epoch, head = await store.claim(session), await store.head(session)

    def event(fact: e.Fact, run: str | None) -> e.Event:
        nonlocal head
        head += 1
        return e.Event(head, session, run, 0.0, fact)

    async def append(*events: e.Event, unfinished: bool = True) -> None:
        await store.append(Batch(session, epoch, events, unfinished))
        os.write(1, f"{session} {events[-1].seq}\n".encode())

    if head == 0:
        await append(event(e.SessionCreated("demo"), None), unfinished=False)
    while True:
        name = f"{session}x{head}"
        run = f"r_{name}"
        accepted = e.MessageAccepted(f"m_{name}", run, "go", key=name, fingerprint="f")
        await append(event(accepted, run), event(e.RunStarted(f"m_{name}", Limits()), run))
        for _ in range(chance.randrange(4)):
            talk = [event(e.OutputText("x" * chance.randrange(2000)), run) for _ in range(30)]
            await append(*talk)
        outcome = Outcome(Kind.COMPLETED, "end_turn", "", Seen(), 0.0)
        await append(event(e.RunEnded(outcome), run), unfinished=False)
        if chance.random() < 0.2:
            await store.save(session, epoch, Snapshot(head, str(head).encode()))


async def main() -> None:
    store = await SqliteStore.open(Path(sys.argv[1]))
    chance = random.Random(sys.argv[2])
    await asyncio.gather(*(write(store, f"s_{n}", chance) for n in range(SESSIONS)))


if __name__ == "__main__":
    asyncio.run(main())
