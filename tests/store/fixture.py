"""What is in the databases of tests/fixtures/store: one for every version of the schema.

    python -m tests.store.fixture      makes the one of the newest version, if there is none

A fixture is made once, by the program that had that version, and never again.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.conformance.store.kit import (
    accepted,
    asked,
    batch,
    created,
    ended,
    put,
    settled,
    started,
)
from tests.helpers.shell import event
from turnkeeper.core.events import Event, Parent, RunRequeued
from turnkeeper.core.outcome import Kind
from turnkeeper.ports import Snapshot
from turnkeeper.store.sqlite import SqliteStore
from turnkeeper.store.sqlite_schema import STEPS

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures" / "store"

BUSY: list[Event] = [
    created(1, "s_busy", agent="a", title="Straße", labels={"team": "x"}, limits={"idle_s": 5.0}),
    accepted(2, "r_1", "s_busy", key="k", fingerprint="f", parent=Parent("s_idle", "r_0", 1)),
    started(3, "r_1", "s_busy"),
    asked(4, "a_1.1", "r_1", "s_busy"),
    asked(5, "a_1.2", "r_1", "s_busy"),
    settled(6, "a_1.1", "denied", "s_busy"),
    accepted(7, "r_2", "s_busy", priority="background"),
]
IDLE: list[Event] = [
    created(1, "s_idle", agent="b"),
    accepted(2, "r_0", "s_idle"),
    ended(3, "r_0", "s_idle", Kind.CANCELLED, "preempted"),
    event(4, RunRequeued("m_0", "r_0", "preempted"), session="s_idle", run="r_0-2"),
    started(5, "r_0-2", "s_idle"),
    *[event(n, session="s_idle", run="r_0-2") for n in range(6, 40)],
    ended(40, "r_0-2", "s_idle"),
]
SNAPSHOT = Snapshot(40, b"a state")


async def write(path: Path) -> None:
    store = await SqliteStore.open(path)
    epoch = await put(store, *IDLE[:6])
    await store.append(batch(*IDLE[6:], epoch=epoch, unfinished=False))
    await store.save("s_idle", epoch, SNAPSHOT)
    await put(store, *BUSY)
    await store.close()


if __name__ == "__main__":
    newest = FIXTURES / f"v{len(STEPS)}.db"
    if newest.exists():
        raise SystemExit(f"{newest} is there, and a fixture never changes")
    asyncio.run(write(newest))
