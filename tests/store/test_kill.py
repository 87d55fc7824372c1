"""A writer that is killed -9 at any moment loses nothing that it acknowledged."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import time
from pathlib import Path

import apsw

from tests.store.killed_writer import SESSIONS
from turnkeeper.core import records as r
from turnkeeper.core.events import Event, MessageAccepted, RunEnded, SessionCreated
from turnkeeper.store.sqlite import SqliteStore

KILLS = 36


def live_and_die(path: Path, seed: int, chance: random.Random) -> dict[str, int]:
    """One life of the writer; the last event of each session that it acknowledged."""
    writer = subprocess.Popen(
        [sys.executable, "-m", "tests.store.killed_writer", str(path), str(seed)],
        stdout=subprocess.PIPE,
    )
    assert writer.stdout is not None
    first = b""
    if seed % 6:  # else it is killed at its start
        first = writer.stdout.readline()
    until = time.monotonic() + chance.uniform(0, 0.25)
    while time.monotonic() < until:
        time.sleep(0.001)
    writer.kill()
    rest, _ = writer.communicate()
    acknowledged: dict[str, int] = {}
    for line in (first + rest).decode().splitlines():
        session, seq = line.split()
        acknowledged[session] = int(seq)
    return acknowledged


async def check(store: SqliteStore, acknowledged: dict[str, int]) -> int:
    """All of it is there, without a gap, and the records say what the logs say."""
    total = 0
    for session in (f"s_{n}" for n in range(SESSIONS)):
        events: list[Event] = []
        while more := await store.read(session, len(events), 1_000_000):
            events += more
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        assert len(events) == await store.head(session) >= acknowledged.get(session, 0)
        total += len(events)
        begun = [x.data.run for x in events if isinstance(x.data, MessageAccepted)]
        over = [x.run for x in events if isinstance(x.data, RunEnded)]
        assert len(set(over)) == len(over)
        assert set(over) <= set(begun)
        for run in begun[-3:]:
            found = await store.run(run)
            assert found is not None
            assert (found.state == "ended") == (run in over)
        snapshot = await store.load(session)
        assert snapshot is None or int(snapshot.state) == snapshot.seq <= len(events)
        unfinished = session in await store.unfinished()
        at_rest = not events or isinstance(events[-1].data, RunEnded | SessionCreated)
        assert unfinished is not at_rest
    assert len((await store.sessions(r.SessionQuery(limit=500))).items) <= SESSIONS
    return total


def test_nothing_acknowledged_is_lost_when_the_writer_is_killed_at_any_moment(
    tmp_path: Path,
) -> None:
    path, chance = tmp_path / "turnkeeper.db", random.Random(7)
    acknowledged: dict[str, int] = {}

    async def look() -> int:
        store = await SqliteStore.open(path)
        try:
            return await check(store, acknowledged)
        finally:
            await store.close()

    for seed in range(KILLS):
        acknowledged.update(live_and_die(path, seed, chance))
        if seed % 6 == 5:
            asyncio.run(look())
    assert asyncio.run(look()) > 1000
    assert len(acknowledged) == SESSIONS
    database = apsw.Connection(str(path))
    assert database.pragma("integrity_check") == "ok"
    database.close()
