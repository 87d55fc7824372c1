"""Retention on PostgreSQL: what is old goes whole, and what is in use stays."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.conformance.store.kit import batch, created, put
from tests.helpers.postgres import shared_server
from tests.helpers.shell import event
from turnkeeper.core import records as r
from turnkeeper.core.errors import Fenced, InvalidValue
from turnkeeper.store.postgres import PostgresStore
from turnkeeper.store.postgres_upkeep import gc_postgres

pytestmark = pytest.mark.postgres

DAY_S = 86400.0


def test_what_is_old_goes_whole_and_what_has_still_to_happen_stays(tmp_path: Path) -> None:
    async def main() -> None:
        url = shared_server().url_for(tmp_path)
        store = await PostgresStore.open(url)
        for session in ("s_1", "s_2"):
            events = created(session=session), event(2, session=session)
            await put(store, *events, unfinished=False)
        await put(store, created(session="s_3"), unfinished=True)
        would = await gc_postgres(url, older_than_s=0, max_bytes=None, dry_run=True)
        assert (would.sessions, would.events) == (["s_1", "s_2"], 4)
        assert await store.head("s_1") == 2
        gone = await gc_postgres(url, older_than_s=0, max_bytes=None)
        assert (gone.sessions, gone.events) == (["s_1", "s_2"], 4)
        assert gone.used_bytes > 0
        assert [await store.head(session) for session in ("s_1", "s_2", "s_3")] == [0, 0, 1]
        assert await store.read("s_1", 0, 10) == []
        assert [one.id for one in (await store.sessions(r.SessionQuery())).items] == ["s_3"]
        await store.close()

    asyncio.run(main())


def test_who_had_a_session_that_went_is_fenced_and_a_new_one_of_its_name_has_a_later_epoch(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        url = shared_server().url_for(tmp_path)
        store = await PostgresStore.open(url)
        epoch = await put(store, created(), unfinished=False)
        await gc_postgres(url, older_than_s=0, max_bytes=None)
        with pytest.raises(Fenced):
            await store.append(batch(event(2), epoch=epoch))
        assert await store.claim("s_1") > epoch
        await store.close()

    asyncio.run(main())


def test_by_size_nothing_goes(tmp_path: Path) -> None:
    url = shared_server().url_for(tmp_path)
    with pytest.raises(InvalidValue, match="--older"):
        asyncio.run(gc_postgres(url, older_than_s=DAY_S, max_bytes=1))
