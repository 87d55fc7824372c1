"""What the simulator's worlds write is the same in every store: logs and records, to the letter."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from turnkeeper.core import records as r
from turnkeeper.ports import Batch, EventStore
from turnkeeper.store.memory import MemoryStore
from turnkeeper.store.sqlite import SqliteStore
from turnkeeper.testing.planner import make_plan
from turnkeeper.testing.world import World, simulate

SEEDS = range(40)


def written(seed: int, patch: pytest.MonkeyPatch) -> list[Batch]:
    """Every batch that was stored in that world, in order."""
    batches: list[Batch] = []
    original = World.stored

    def stored(world: World, batch: Batch) -> None:
        batches.append(batch)
        original(world, batch)

    with patch.context() as patched:
        patched.setattr(World, "stored", stored)
        assert simulate(make_plan(seed)).violation is None
    return batches


async def copy(store: EventStore, batches: list[Batch]) -> None:
    epochs: dict[str, int] = {}
    for batch in batches:
        if batch.session not in epochs:
            epochs[batch.session] = await store.claim(batch.session)
        await store.append(msgspec.structs.replace(batch, epoch=epochs[batch.session]))


async def everything(store: EventStore) -> dict[str, Any]:
    sessions = (await store.sessions(r.SessionQuery(limit=500))).items
    runs = (await store.runs(r.RunQuery(limit=500))).items
    return {
        "sessions": sessions,
        "runs": runs,
        "approvals": (await store.approvals(r.ApprovalQuery(limit=500))).items,
        "busy": (await store.sessions(r.SessionQuery(state="busy"))).items,
        "unfinished": sorted(await store.unfinished()),
        "lines": {one.id: await store.read_lines(one.id, 0, 10**6) for one in sessions},
        "events": {one.id: await store.read(one.id, 0, 10**6) for one in sessions},
        "where": [await store.session_of(one.id) for one in runs],
        "by name": [await store.run(one.id) for one in runs],
    }


@pytest.mark.parametrize("seed", SEEDS)
def test_a_world_is_the_same_in_every_store(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = written(seed, monkeypatch)

    async def test() -> None:
        memory, sqlite = MemoryStore(), await SqliteStore.open(tmp_path / "turnkeeper.db")
        await copy(memory, batches)
        await copy(sqlite, batches)
        expected, found = await everything(memory), await everything(sqlite)
        await sqlite.close()
        for what, value in expected.items():
            assert found[what] == value, what

    asyncio.run(test())
