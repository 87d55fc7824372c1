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
from turnkeeper.ports import EventStore, KeptTranscript, Transcript
from turnkeeper.store.moving import move
from turnkeeper.store.opening import open_store, transcripts_between
from turnkeeper.store.postgres_faults import Address
from turnkeeper.store.postgres_transcripts import PostgresTranscripts

pytestmark = pytest.mark.postgres


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


def test_what_agents_keep_of_their_conversations_goes_along_between_two_postgresqls(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        urls = [shared_server().url_for(tmp_path / name) for name in ("first", "second")]
        first, second = [await open_store(url) for url in urls]
        shelves = [PostgresTranscripts(Address.of(url), "n_test") for url in urls]
        try:
            await fill(first)
            await shelves[0].keep("s_1", 3, "c_1", Transcript("c_1", "a/b", b"words\n"))
            await shelves[0].keep("s_2", 3, "c_2", None)
            for _ in range(2):
                async with transcripts_between(first, second) as along:
                    moved = await move(first, second, lambda *_: None, along)
                assert moved.conversations == 2
            for session in ("s_1", "s_2", "s_3"):
                assert await shelves[1].find(session) == await shelves[0].find(session)
            assert (await shelves[1].find("s_2")) == KeptTranscript("c_2", 3, "n_test", None)
        finally:
            for opened in (*shelves, first, second):
                await opened.close()

    asyncio.run(main())


def test_a_file_has_no_place_for_what_agents_keep(tmp_path: Path) -> None:
    async def main() -> None:
        first = await open_store(shared_server().url_for(tmp_path))
        second = await open_store(tmp_path / "second.db")
        try:
            await fill(first)
            async with transcripts_between(first, second) as along:
                assert (await move(first, second, lambda *_: None, along)).conversations == 0
        finally:
            await first.close()
            await second.close()

    asyncio.run(main())
