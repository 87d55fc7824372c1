"""A database of any older version is brought up to date, whole or not at all."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import apsw
import pytest

from tests.conformance.store.kit import batch
from tests.helpers.shell import event
from tests.store.fixture import BUSY, FIXTURES, IDLE, SNAPSHOT
from turnkeeper.core import records as r
from turnkeeper.core.errors import Fenced, StoreDown
from turnkeeper.core.outcome import Kind
from turnkeeper.store.sqlite import SqliteStore
from turnkeeper.store.sqlite_schema import STEPS, Step, migrate, open_database, version_of

VERSIONS = range(1, len(STEPS) + 1)
ADDED = "ALTER TABLE sessions ADD COLUMN owner TEXT NOT NULL DEFAULT 'nobody'"


def fixture(version: int, place: Path) -> Path:
    return Path(shutil.copy(FIXTURES / f"v{version}.db", place / "turnkeeper.db"))


def test_there_is_a_fixture_of_every_version_and_no_other() -> None:
    found = sorted(path.name for path in FIXTURES.iterdir())
    assert found == sorted(f"v{version}.db" for version in VERSIONS)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_database_of_any_version_is_read_as_it_was_written(version: int, tmp_path: Path) -> None:
    async def test() -> None:
        store = await SqliteStore.open(fixture(version, tmp_path))
        assert await store.read("s_busy", 0, 100) == BUSY
        assert await store.read("s_idle", 0, 100) == IDLE
        assert await store.load("s_idle") == SNAPSHOT
        assert await store.unfinished() == ["s_busy"]
        assert await store.session_of("r_0-2") == "s_idle"
        labelled = await store.sessions(r.SessionQuery(labels={"team": "x"}, search="strasse"))
        assert [(x.id, x.running, x.queued) for x in labelled.items] == [("s_busy", "r_1", 1)]
        ended = await store.runs(r.RunQuery(outcome=Kind.CANCELLED))
        assert [(x.id, x.successor) for x in ended.items] == [("r_0", "r_0-2")]
        asked = await store.approvals(r.ApprovalQuery(state="open"))
        assert [x.id for x in asked.items] == ["a_1.2"]
        await store.close()

    asyncio.run(test())


@pytest.mark.parametrize("version", VERSIONS)
def test_a_database_of_any_version_can_be_written_on(version: int, tmp_path: Path) -> None:
    async def test() -> None:
        store = await SqliteStore.open(fixture(version, tmp_path))
        with pytest.raises(Fenced):
            await store.append(batch(event(8, session="s_busy"), epoch=0))
        epoch = await store.claim("s_busy")
        await store.append(batch(event(8, session="s_busy"), epoch=epoch))
        assert await store.head("s_busy") == 8
        await store.close()

    asyncio.run(test())


# The machinery itself, with steps that are none of ours --------------------------------------


def opened_with(path: Path, *further: Step) -> apsw.Connection:
    return open_database(path, (*STEPS, *further))


def test_the_steps_that_are_missing_are_taken_in_their_order(tmp_path: Path) -> None:
    path = fixture(len(STEPS), tmp_path)

    def rename(connection: apsw.Connection) -> None:
        for (name,) in connection.execute("SELECT id FROM sessions").fetchall():
            connection.execute("UPDATE sessions SET owner = ? WHERE id = ?", (f"of {name}", name))

    database = opened_with(path, ADDED, rename)
    assert version_of(database, path) == len(STEPS) + 2
    found = database.execute("SELECT owner FROM sessions ORDER BY n").fetchall()
    assert found == [("of s_idle",), ("of s_busy",)]
    migrate(database, path, (*STEPS, ADDED, rename))
    database.close()


def test_a_new_database_takes_every_step(tmp_path: Path) -> None:
    database = opened_with(tmp_path / "turnkeeper.db", ADDED)
    assert version_of(database, tmp_path) == len(STEPS) + 1
    assert database.pragma("journal_mode") == "wal"
    assert database.pragma("synchronous") == 2
    assert database.pragma("auto_vacuum") == 2
    database.close()


def test_a_step_that_fails_leaves_the_version_before_it_whole(tmp_path: Path) -> None:
    path = fixture(len(STEPS), tmp_path)
    with pytest.raises(StoreDown, match="no such table"):
        opened_with(path, ADDED, "DELETE FROM sessions; SELECT * FROM nowhere")
    database = opened_with(path, ADDED)
    assert version_of(database, path) == len(STEPS) + 1
    assert database.execute("SELECT count(*) FROM sessions").fetchall() == [(2,)]
    database.close()


def test_a_database_that_was_brought_up_to_date_is_refused_by_the_older_program(
    tmp_path: Path,
) -> None:
    path = fixture(len(STEPS), tmp_path)
    opened_with(path, ADDED).close()
    with pytest.raises(Exception, match="TK-518"):
        asyncio.run(SqliteStore.open(path))


def test_two_programs_that_make_a_database_at_once_make_one(tmp_path: Path) -> None:
    async def test() -> None:
        path = tmp_path / "turnkeeper.db"
        stores = await asyncio.gather(*(SqliteStore.open(path) for _ in range(6)))
        epochs = [await store.claim("s_1") for store in stores]
        assert epochs == [1, 2, 3, 4, 5, 6]
        for store in stores:
            await store.close()

    asyncio.run(test())
