"""Retention, backup and export, on a database that a server uses meanwhile."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

from tests.conformance.store.kit import accepted, asked, batch, created, ended, put, seqs, started
from tests.helpers.shell import event
from tests.store.fixture import FIXTURES
from turnkeeper.core import records as r
from turnkeeper.core.errors import (
    STORE_OLDER,
    UNKNOWN_SESSION,
    Fenced,
    InvalidValue,
    StoreDown,
    TurnkeeperError,
)
from turnkeeper.core.events import Event, OutputText, decode
from turnkeeper.ports import Snapshot
from turnkeeper.store.sqlite import SqliteStore
from turnkeeper.store.upkeep import backup, export, gc

NOW = 1_000_000.0
DAY_S = 86_400.0


def aged(days: float, events: Sequence[Event]) -> list[Event]:
    return [msgspec.structs.replace(one, at=NOW - days * DAY_S) for one in events]


async def fill(store: SqliteStore, name: str, days: float, *, size: int = 10) -> None:
    """A session with one ended run, last used so many days ago."""
    session, run = f"s_{name}", f"r_{name}"
    talk = [event(n, OutputText("x" * size), session=session, run=run) for n in range(4, 24)]
    events = [
        created(session=session, labels={"name": name}), accepted(2, run, session),
        started(3, run, session), *talk, asked(24, f"a_{name}.1", run, session),
        ended(25, run, session),
    ]  # fmt: skip
    epoch = await put(store, *aged(days, events), unfinished=False)
    await store.save(session, epoch, Snapshot(25, b"state"))


async def listed(store: SqliteStore) -> list[str]:
    return [x.id.removeprefix("s_") for x in (await store.sessions(r.SessionQuery())).items][::-1]


def test_sessions_that_were_not_used_for_long_are_removed_with_all_that_is_theirs(
    tmp_path: Path,
) -> None:
    path = tmp_path / "turnkeeper.db"

    async def test() -> None:
        store = await SqliteStore.open(path)
        for name, days in (("a", 40), ("b", 31), ("c", 29), ("d", 0)):
            await fill(store, name, days)
        removed = await asyncio.to_thread(gc, path, older_than_s=30 * DAY_S, now=NOW)
        assert removed.sessions == ["s_a", "s_b"]
        assert removed.events == 50
        assert await listed(store) == ["c", "d"]
        for session in ("s_a", "s_b"):
            assert await store.head(session) == 0
            assert await store.read("s_a", 0, 10) == []
            assert await store.load(session) is None
        assert await store.session_of("r_a") is None
        assert await store.approval("a_a.1") is None
        assert await seqs(store, "s_c") == list(range(1, 26))
        await store.close()
        database = apsw.Connection(str(path))
        for table in ("logs", "chunks", "snapshots", "sessions", "labels", "runs", "approvals",
                      "endings"):  # fmt: skip
            assert database.execute(f"SELECT count(*) FROM {table}").get == 2, table
        assert database.execute("SELECT count(*) FROM doomed").get == 0
        database.close()

    asyncio.run(test())


def test_a_session_in_which_something_has_to_happen_is_never_removed(tmp_path: Path) -> None:
    path = tmp_path / "turnkeeper.db"

    async def test() -> None:
        store = await SqliteStore.open(path)
        await put(store, *aged(99, [created(), accepted(2, "r_1")]), unfinished=True)
        await fill(store, "b", 50)
        assert gc(path, older_than_s=0, max_bytes=0, now=NOW).sessions == ["s_b"]
        assert await seqs(store) == [1, 2]
        await store.close()

    asyncio.run(test())


def test_until_it_fits_the_oldest_are_removed_and_the_file_becomes_smaller(tmp_path: Path) -> None:
    path = tmp_path / "turnkeeper.db"

    async def test() -> None:
        store = await SqliteStore.open(path)
        for n in (3, 1, 4, 2, 0):
            await fill(store, str(n), n, size=20_000)
        await store.close()
        before = path.stat().st_size
        assert before > 5 * 400_000
        removed = gc(path, max_bytes=1_000_000)
        assert removed.sessions == ["s_4", "s_3", "s_2"]
        assert 700_000 < removed.used_bytes <= 1_000_000
        assert removed.freed_bytes > 3 * 400_000
        assert path.stat().st_size == before - removed.freed_bytes
        assert gc(path, max_bytes=1_000_000).sessions == []
        store = await SqliteStore.open(path)
        assert await listed(store) == ["1", "0"]
        assert len(await store.read("s_1", 0, 100)) == 25
        await store.close()

    asyncio.run(test())


def test_what_would_be_removed_can_be_asked_without_removing_it(tmp_path: Path) -> None:
    path = tmp_path / "turnkeeper.db"

    async def test() -> None:
        store = await SqliteStore.open(path)
        for n in range(5):
            await fill(store, str(n), n, size=20_000)
        would = gc(path, older_than_s=3.5 * DAY_S, max_bytes=1_000_000, now=NOW, dry_run=True)
        assert would.sessions == ["s_4", "s_3", "s_2"]
        assert await listed(store) == ["0", "1", "2", "3", "4"]
        await store.close()

    asyncio.run(test())


def test_the_owner_of_a_removed_session_is_fenced_and_so_is_he_when_it_is_made_anew(
    tmp_path: Path,
) -> None:
    path = tmp_path / "turnkeeper.db"

    async def test() -> None:
        store = await SqliteStore.open(path)
        old = await put(store, *aged(9, [created()]), unfinished=False)
        assert gc(path, older_than_s=DAY_S, now=NOW).sessions == ["s_1"]
        with pytest.raises(Fenced):
            await store.append(batch(event(2), epoch=old))
        new = await put(store, created())
        assert new > old
        with pytest.raises(Fenced):
            await store.append(batch(event(2), epoch=old))
        await store.append(batch(accepted(2, "r_1"), ended(3, "r_1"), epoch=new))
        assert await seqs(store) == [1, 2, 3]
        await store.close()

    asyncio.run(test())


def test_a_claim_that_led_to_nothing_is_cleared_away_after_a_while_and_is_no_session(
    tmp_path: Path,
) -> None:
    path = tmp_path / "turnkeeper.db"

    async def test() -> None:
        store = await SqliteStore.open(path)
        epoch = await store.claim("s_1")
        assert gc(path, older_than_s=60).sessions == []
        assert gc(path, older_than_s=60, now=time.time() + 120).sessions == []
        with pytest.raises(Fenced):
            await store.append(batch(created(), epoch=epoch))
        await store.close()

    asyncio.run(test())


def test_retention_that_was_killed_is_finished_by_the_next(tmp_path: Path) -> None:
    path = tmp_path / "turnkeeper.db"

    async def test() -> None:
        store = await SqliteStore.open(path)
        await fill(store, "a", 9)
        await store.close()

    asyncio.run(test())
    database = apsw.Connection(str(path))
    with database:
        database.execute("INSERT INTO doomed SELECT n FROM logs; DELETE FROM logs")
        database.execute("DELETE FROM sessions; DELETE FROM runs; DELETE FROM endings")
    assert gc(path).sessions == []
    assert database.execute("SELECT (SELECT count(*) FROM chunks) + count(*) FROM doomed").get == 0
    database.close()


def test_a_server_writes_on_while_another_program_removes_and_backs_up(tmp_path: Path) -> None:
    path = tmp_path / "turnkeeper.db"
    program = (
        "import sys; from pathlib import Path; from turnkeeper.store.upkeep import gc, backup\n"
        "path = Path(sys.argv[1])\n"
        "print(backup(path, path.with_name('copy.db')) > 0)\n"
        f"print(len(gc(path, older_than_s={DAY_S}, now={NOW}).sessions))\n"
    )

    async def test() -> None:
        store = await SqliteStore.open(path)
        for n in range(40):
            await fill(store, f"old{n}", 9, size=5000)
        epoch, head, worst_s = await put(store, created()), 1, 0.0
        other = await asyncio.create_subprocess_exec(
            sys.executable, "-c", program, str(path), stdout=subprocess.PIPE
        )
        waiting = asyncio.ensure_future(other.communicate())
        while not waiting.done() or head < 50:
            head, began = head + 1, time.monotonic()
            await store.append(batch(event(head), epoch=epoch))
            worst_s = max(worst_s, time.monotonic() - began)
        out, _ = await waiting
        assert out == b"True\n40\n"
        assert worst_s < 4.0
        assert await seqs(store) == list(range(1, head + 1))
        assert await listed(store) == ["1"]
        await store.close()
        copy = await SqliteStore.open(tmp_path / "copy.db")
        kept = await seqs(copy)
        assert kept == list(range(1, len(kept) + 1))
        assert len((await copy.sessions(r.SessionQuery())).items) == 41
        await copy.close()

    asyncio.run(test())


def test_a_backup_is_all_that_was_stored_and_can_be_used_as_it_is(tmp_path: Path) -> None:
    path, target = tmp_path / "turnkeeper.db", tmp_path / "backups" / "monday.db"
    target.parent.mkdir()

    async def test() -> None:
        store = await SqliteStore.open(path)
        await fill(store, "a", 0)
        assert backup(path, target) == target.stat().st_size
        await fill(store, "b", 0)
        await store.close()
        assert [x.name for x in target.parent.iterdir()] == ["monday.db"]
        assert target.stat().st_mode & 0o777 == 0o600
        copy = await SqliteStore.open(target)
        assert await listed(copy) == ["a"]
        assert await seqs(copy, "s_a") == list(range(1, 26))
        await put(copy, created())
        await copy.close()

    asyncio.run(test())


def test_a_backup_never_takes_the_place_of_a_file(tmp_path: Path) -> None:
    path, target = tmp_path / "turnkeeper.db", tmp_path / "copy.db"
    asyncio.run(_make(path))
    target.write_text("precious")
    with pytest.raises(InvalidValue, match="there is such a file"):
        backup(path, target)
    with pytest.raises(InvalidValue, match="No such file or directory"):
        backup(path, tmp_path / "missing" / "copy.db")
    assert target.read_text() == "precious"
    assert sorted(x.name for x in tmp_path.iterdir() if "copy" in x.name) == ["copy.db"]


async def _make(path: Path) -> None:
    store = await SqliteStore.open(path)
    await fill(store, "a", 0)
    await store.close()


def test_a_backup_of_a_damaged_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "turnkeeper.db"
    asyncio.run(_make(path))
    content = bytearray(path.read_bytes())
    content[40_000:60_000] = b"\xa5" * 20_000
    path.write_bytes(content)
    with pytest.raises(StoreDown, match=f"{path} is damaged"):
        backup(path, tmp_path / "copy.db")
    assert not (tmp_path / "copy.db").exists()


def test_a_session_is_exported_line_by_line(tmp_path: Path) -> None:
    path = tmp_path / "turnkeeper.db"

    async def test() -> None:
        store = await SqliteStore.open(path)
        epoch = await put(store, created())
        for n in range(2, 3002, 1000):
            await store.append(batch(*[event(n + k) for k in range(1000)], epoch=epoch))
        lines = list(export(path, "s_1"))
        assert [decode(line) for line in lines] == await store.read("s_1", 0, 10_000)
        assert not any(b"\n" in line for line in lines)
        await store.close()

    asyncio.run(test())


def test_an_unknown_session_is_not_exported(tmp_path: Path) -> None:
    path = tmp_path / "turnkeeper.db"
    asyncio.run(_make(path))
    with pytest.raises(TurnkeeperError) as refused:
        list(export(path, "s_9"))
    assert refused.value.entry is UNKNOWN_SESSION


def test_an_older_database_is_backed_up_and_otherwise_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "turnkeeper.db"
    path.write_bytes((FIXTURES / "v1.db").read_bytes())
    database = apsw.Connection(str(path))
    database.pragma("user_version", 0)
    database.close()
    for refusing in (lambda: gc(path), lambda: list(export(path, "s_1"))):
        with pytest.raises(TurnkeeperError) as refused:
            refusing()
        assert refused.value.entry is STORE_OLDER
    assert backup(path, tmp_path / "copy.db") > 0


@pytest.mark.parametrize("wrong", [{"older_than_s": -1}, {"older_than_s": float("nan")},
                                   {"max_bytes": -1}], ids=str)  # fmt: skip
def test_a_bound_that_makes_no_sense_is_refused(tmp_path: Path, wrong: dict[str, Any]) -> None:
    path = tmp_path / "turnkeeper.db"
    asyncio.run(_make(path))
    with pytest.raises(InvalidValue):
        gc(path, **wrong)


def test_upkeep_makes_no_database(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match="there is no such database"):
        gc(tmp_path / "turnkeeper.db")
    assert os.listdir(tmp_path) == []
