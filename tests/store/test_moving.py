"""Logs that are moved from one store to another, both ways."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.conformance.store.kit import accepted, asked, batch, created, ended, put, started
from tests.helpers.postgres import shared_server
from tests.helpers.shell import event
from turnkeeper.core import records as r
from turnkeeper.core.errors import InvalidValue
from turnkeeper.ports import EventStore
from turnkeeper.store.moving import move
from turnkeeper.store.opening import open_store


async def fill(store: EventStore) -> None:
    await put(store, created(title="eins\x00"), accepted(2, "r_1"), started(3, "r_1"))
    await put(store, created(session="s_2"), accepted(2, "r_2", "s_2"), ended(3, "r_2", "s_2"),
              asked(4, "a_2.1", "r_2", "s_2"), unfinished=False)  # fmt: skip
    epoch = await put(store, created(session="s_3"), unfinished=False)
    many = [event(n, session="s_3") for n in range(2, 3000)]
    await store.append(batch(*many, epoch=epoch, unfinished=False))


async def everything(store: EventStore) -> list[object]:
    sessions = (await store.sessions(r.SessionQuery())).items
    return [
        sessions, (await store.runs(r.RunQuery())).items, await store.unfinished(),
        (await store.approvals(r.ApprovalQuery())).items,
        [await store.read(one.id, 0, 10_000) for one in sessions],
    ]  # fmt: skip


def test_what_is_moved_there_and_back_is_the_same(tmp_path: Path) -> None:
    async def main() -> None:
        first = await open_store(tmp_path / "first.db")
        there = await open_store(shared_server().url_for(tmp_path))
        back = await open_store(tmp_path / "back.db")
        try:
            await fill(first)
            told: list[str] = []
            moved = await move(first, there, lambda session, _: told.append(session))
            assert told == ["s_1", "s_2", "s_3"]
            assert (moved.sessions, moved.events, moved.new_events) == (3, 3006, 3006)
            again = await move(there, back, lambda *_: None)
            assert again == moved
            assert await everything(first) == await everything(there) == await everything(back)
        finally:
            for store in (first, there, back):
                await store.close()

    asyncio.run(main())


def test_a_move_that_was_broken_off_goes_on_where_it_was(tmp_path: Path) -> None:
    class Broken(Exception):
        pass

    def give_up(session: str, _head: int) -> None:
        if session == "s_2":
            raise Broken

    async def main() -> None:
        first = await open_store(tmp_path / "first.db")
        there = await open_store(shared_server().url_for(tmp_path))
        try:
            await fill(first)
            epoch = await put(there, created(session="s_3"), unfinished=False)
            await there.append(batch(*[event(n, session="s_3") for n in range(2, 50)], epoch=epoch))
            with pytest.raises(Broken):
                await move(first, there, give_up)
            moved = await move(first, there, lambda *_: None)
            assert (moved.events, moved.new_events) == (3006, 3006 - 49 - 7)
            assert (await everything(there))[4] == [
                await first.read(name, 0, 10_000) for name in ("s_2", "s_1", "s_3")
            ]
        finally:
            await first.close()
            await there.close()

    asyncio.run(main())


@pytest.mark.parametrize("events", [1, 3000], ids=["another beginning", "more of it"])
def test_a_session_that_is_another_there_is_left_alone(tmp_path: Path, events: int) -> None:
    async def main() -> None:
        first = await open_store(tmp_path / "first.db")
        there = await open_store(shared_server().url_for(tmp_path))
        try:
            await fill(first)
            title = "" if events > 1 else "another"
            own = [event(n, session="s_3") for n in range(2, events + 1)]
            await put(there, created(session="s_3", title=title), *own)
            with pytest.raises(InvalidValue, match="s_3"):
                await move(first, there, lambda *_: None)
            assert await there.head("s_3") == events
        finally:
            await first.close()
            await there.close()

    asyncio.run(main())
