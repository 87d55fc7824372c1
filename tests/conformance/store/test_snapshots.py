"""What every event store keeps of snapshots: the last one, and only its owner's."""

from __future__ import annotations

import pytest

from tests.conformance.store.kit import Bench, put
from tests.helpers.shell import event
from turnkeeper.core.errors import Fenced
from turnkeeper.ports import EventStore, Snapshot


def test_the_last_snapshot_is_kept(bench: Bench) -> None:
    async def test(store: EventStore) -> None:
        epoch = await put(store, event(1), event(2))
        assert await store.load("s_1") is None
        await store.save("s_1", epoch, Snapshot(1, b"\x00one"))
        await store.save("s_1", epoch, Snapshot(2, b"two" * 50_000))
        assert await store.load("s_1") == Snapshot(2, b"two" * 50_000)
        assert await store.load("s_2") is None

    bench.run(test)


def test_an_owner_whose_epoch_is_over_saves_nothing(bench: Bench) -> None:
    async def test(store: EventStore) -> None:
        old = await put(store, event(1))
        new = await store.claim("s_1")
        with pytest.raises(Fenced):
            await store.save("s_1", old, Snapshot(1, b"old"))
        assert await store.load("s_1") is None
        await store.save("s_1", new, Snapshot(1, b"new"))
        assert await store.load("s_1") == Snapshot(1, b"new")

    bench.run(test)


def test_nobody_saves_for_a_session_that_was_never_claimed(bench: Bench) -> None:
    async def test(store: EventStore) -> None:
        with pytest.raises(Fenced):
            await store.save("s_1", 1, Snapshot(0, b""))

    bench.run(test)
