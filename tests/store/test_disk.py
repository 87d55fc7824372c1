"""The store on disks that are full or cannot be written: it says so, keeps what it acknowledged,
and goes on by itself when the disk can be written again."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from tests.conformance.store.kit import accepted, batch, created, put, seqs
from tests.helpers.shell import event
from tests.store.disks import fill, immutable, read_only, small_disk
from turnkeeper.core.errors import STORE_DOWN, InvalidValue, StoreDown
from turnkeeper.core.events import OutputText
from turnkeeper.place import Place
from turnkeeper.store.sqlite import SqliteStore

LONG_S = 30.0


async def fill_up(store: SqliteStore, epoch: int, head: int, size: int) -> tuple[int, StoreDown]:
    """Append until it is refused; the last event that was acknowledged, and the refusal."""
    while True:
        try:
            large = event(head + 1, OutputText("x" * size))
            await store.append(batch(large, epoch=epoch))
            head += 1
        except StoreDown as refused:
            return head, refused


async def wait_well(store: SqliteStore) -> None:
    async with asyncio.timeout(LONG_S):
        while store.trouble is not None:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def test_a_full_disk_is_said_and_got_over_and_loses_nothing(tmp_path: Path) -> None:
    async def test(disk: Path) -> None:
        ballast = disk / "ballast"
        ballast.write_bytes(b"\0" * 700_000)
        store = await SqliteStore.open(disk / "turnkeeper.db")
        epoch = await put(store, created())
        head, refused = await fill_up(store, epoch, 1, 3000)
        assert head > 10
        assert refused.entry is STORE_DOWN
        assert "its disk is full" in str(refused)
        assert str(disk / "turnkeeper.db") in str(refused)
        assert store.trouble is not None
        assert "its disk is full" in store.trouble
        assert await seqs(store) == list(range(1, head + 1))

        ballast.unlink()
        await wait_well(store)
        await store.append(batch(event(head + 1), epoch=epoch))
        await store.close()

        again = await SqliteStore.open(disk / "turnkeeper.db")
        assert await seqs(again) == list(range(1, head + 2))
        await again.close()

    with small_disk(tmp_path / "disk") as disk:
        asyncio.run(test(disk))


def test_what_fits_is_stored_beside_what_does_not(tmp_path: Path) -> None:
    async def test(disk: Path) -> None:
        store = await SqliteStore.open(disk / "turnkeeper.db")
        large = await put(store, created(session="s_1"))
        small = await put(store, created(session="s_2"))
        fill(disk, leave=100_000)
        answers = await asyncio.gather(
            store.append(batch(event(2, OutputText("x" * 500_000)), epoch=large)),
            store.append(batch(accepted(2, "r_2", "s_2"), epoch=small)),
            return_exceptions=True,
        )
        assert [type(answer) for answer in answers] == [StoreDown, type(None)]
        assert await store.head("s_1") == 1
        assert await store.session_of("r_2") == "s_2"
        await store.close()

    with small_disk(tmp_path / "disk") as disk:
        asyncio.run(test(disk))


def test_a_store_is_not_opened_on_a_full_disk(tmp_path: Path) -> None:
    async def test(disk: Path) -> None:
        place = Place(disk / "data")
        place.hold().release()
        ballast = fill(disk)
        with pytest.raises(StoreDown, match="its disk is full"):
            await SqliteStore.open(place.database)
        with pytest.raises(InvalidValue, match="that disk is full"):
            place.make_token()
        place.hold().release()
        ballast.unlink()
        await (await SqliteStore.open(place.database)).close()

    with small_disk(tmp_path / "disk") as disk:
        asyncio.run(test(disk))


def test_a_store_that_is_there_says_of_a_full_disk_that_it_is_full(tmp_path: Path) -> None:
    async def test(disk: Path) -> None:
        store = await SqliteStore.open(disk / "turnkeeper.db")
        await put(store, created())
        await store.close()
        fill(disk)
        with pytest.raises(StoreDown, match="its disk is full"):
            await SqliteStore.open(disk / "turnkeeper.db")

    with small_disk(tmp_path / "disk") as disk:
        asyncio.run(test(disk))


def test_a_store_is_not_opened_on_a_read_only_disk(tmp_path: Path) -> None:
    async def make(path: Path) -> None:
        store = await SqliteStore.open(path)
        await store.claim("s_1")
        await store.close()

    async def test(path: Path) -> None:
        with pytest.raises(StoreDown, match=r"[Rr]ead-only"):
            await SqliteStore.open(path)

    with small_disk(tmp_path / "disk") as disk:
        asyncio.run(make(disk / "turnkeeper.db"))
        with read_only(disk):
            asyncio.run(test(disk / "turnkeeper.db"))
            asyncio.run(test(disk / "new.db"))
            with pytest.raises(InvalidValue, match="read-only"):
                Place(disk / "data").hold()
        asyncio.run(make(disk / "turnkeeper.db"))


def test_files_that_cannot_be_written_any_more_are_said_and_got_over(tmp_path: Path) -> None:
    async def test() -> None:
        path = tmp_path / "turnkeeper.db"
        store = await SqliteStore.open(path)
        epoch = await put(store, created())
        with immutable(path, path.with_name("turnkeeper.db-wal")):
            with pytest.raises(StoreDown, match=r"its disk fails|read-only"):
                await store.append(batch(event(2), epoch=epoch))
            assert store.trouble is not None
            assert await seqs(store) == [1]
        await wait_well(store)
        await store.append(batch(event(2), epoch=epoch))
        assert await seqs(store) == [1, 2]
        await store.close()

    asyncio.run(test())


def test_a_database_that_is_taken_away_acknowledges_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        path = tmp_path / "turnkeeper.db"
        store = await SqliteStore.open(path)
        epoch = await put(store, created())
        os.rename(path, tmp_path / "elsewhere.db")
        with pytest.raises(StoreDown, match="removed or replaced while it was in use"):
            await store.append(batch(event(2), epoch=epoch))
        assert store.trouble is not None
        os.rename(tmp_path / "elsewhere.db", path)
        await store.append(batch(event(2), epoch=epoch))
        await wait_well(store)
        await store.close()

    asyncio.run(test())
