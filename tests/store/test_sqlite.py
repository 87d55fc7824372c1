"""What only the store on SQLite has to keep: files, threads, locks of others, and speed."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path
from typing import Any

import apsw
import pytest

from tests.conformance.store.kit import batch, created, ended, put, seqs
from tests.helpers.shell import event
from turnkeeper.core import records as r
from turnkeeper.core.errors import StoreDown
from turnkeeper.core.events import OutputText
from turnkeeper.core.outcome import Kind
from turnkeeper.ports import Batch
from turnkeeper.store import lists, sqlite_schema
from turnkeeper.store.sqlite import SqliteStore
from turnkeeper.store.sqlite_schema import open_database


def test_its_files_are_for_this_user_alone(tmp_path: Path) -> None:
    async def test() -> None:
        store = await SqliteStore.open(tmp_path / "turnkeeper.db")
        await put(store, created())
        names = sorted(os.listdir(tmp_path))
        assert names == ["turnkeeper.db", "turnkeeper.db-shm", "turnkeeper.db-wal"]
        assert {os.stat(tmp_path / name).st_mode & 0o777 for name in names} == {0o600}
        await store.close()
        assert os.listdir(tmp_path) == ["turnkeeper.db"]

    asyncio.run(test())


def test_a_closed_store_refuses_and_leaves_no_thread(tmp_path: Path) -> None:
    async def test() -> None:
        store = await SqliteStore.open(tmp_path / "turnkeeper.db")
        await put(store, created())
        await store.close()
        await store.close()
        for asking in (store.claim("s_1"), store.read("s_1", 0, 1)):
            with pytest.raises(StoreDown, match="closed"):
                await asking

    asyncio.run(test())
    for thread in threading.enumerate():
        if thread.name.startswith("turnkeeper-"):
            thread.join(10)
            assert not thread.is_alive()


def test_what_was_asked_before_the_close_is_stored(tmp_path: Path) -> None:
    async def test() -> None:
        store = await SqliteStore.open(tmp_path / "turnkeeper.db")
        epoch = await store.claim("s_1")
        asked = [
            asyncio.ensure_future(store.append(batch(event(n), epoch=epoch))) for n in range(1, 9)
        ]
        await asyncio.sleep(0)
        await store.close()
        assert await asyncio.gather(*asked) == [None] * 8
        store = await SqliteStore.open(tmp_path / "turnkeeper.db")
        assert await store.head("s_1") == 8
        await store.close()

    asyncio.run(test())


def test_a_batch_that_cannot_be_encoded_fails_alone(tmp_path: Path) -> None:
    async def test() -> None:
        store = await SqliteStore.open(tmp_path / "turnkeeper.db")
        epochs = [await store.claim(f"s_{n}") for n in range(3)]
        unwritable = [created(session="s_1", title="\ud800")]
        answers = await asyncio.gather(
            store.append(batch(created(session="s_0"), epoch=epochs[0])),
            store.append(Batch("s_1", epochs[1], unwritable, unfinished=True)),
            store.append(batch(created(session="s_2"), epoch=epochs[2])),
            return_exceptions=True,
        )
        assert [type(x) for x in answers] == [type(None), UnicodeEncodeError, type(None)]
        assert [await store.head(f"s_{n}") for n in range(3)] == [1, 0, 1]
        assert store.trouble is None
        await store.close()

    asyncio.run(test())


def test_a_program_that_keeps_the_lock_is_waited_for_and_then_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_schema, "BUSY_S", 1.5)
    path = tmp_path / "turnkeeper.db"

    async def test() -> None:
        store = await SqliteStore.open(path)
        epoch = await put(store, created())
        other = apsw.Connection(str(path))
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreDown, match="another program has had it locked"):
            await store.append(batch(event(2), epoch=epoch))
        waiting = asyncio.ensure_future(store.append(batch(event(2), epoch=epoch)))
        assert await seqs(store) == [1]
        other.execute("ROLLBACK")
        await waiting
        assert await seqs(store) == [1, 2]
        other.close()
        await store.close()

    asyncio.run(test())


def test_a_long_read_keeps_nobody_from_appending(tmp_path: Path) -> None:
    async def test() -> None:
        store = await SqliteStore.open(tmp_path / "turnkeeper.db")
        epoch, may_end = await put(store, created()), threading.Event()
        reading = store._reads.put(lambda reader: may_end.wait(30) and reader.head("s_1"))
        for n in range(2, 7):
            await store.append(batch(event(n), epoch=epoch))
        assert not reading.done()
        may_end.set()
        assert await reading == 6
        await store.close()

    asyncio.run(test())


def test_the_write_ahead_log_does_not_grow_without_bound(tmp_path: Path) -> None:
    async def test() -> None:
        store = await SqliteStore.open(tmp_path / "turnkeeper.db")
        epoch = await put(store, created())
        largest, wal = 0, tmp_path / "turnkeeper.db-wal"
        for n in range(2, 402):
            await store.append(batch(event(n, OutputText("x" * 200_000)), epoch=epoch))
            largest = max(largest, wal.stat().st_size)
        assert (tmp_path / "turnkeeper.db").stat().st_size > 40_000_000
        assert largest < 70_000_000
        await store.close()

    asyncio.run(test())


def test_whoever_writes_never_brings_in_a_log_that_is_still_short(tmp_path: Path) -> None:
    async def test() -> None:
        store = await SqliteStore.open(tmp_path / "turnkeeper.db")
        epoch = await put(store, created())
        before = (tmp_path / "turnkeeper.db").stat().st_size
        for n in range(2, 102):  # some 5,000 pages
            await store.append(batch(event(n, OutputText("x" * 200_000)), epoch=epoch))
        assert (tmp_path / "turnkeeper.db").stat().st_size == before
        await store.close()
        assert (tmp_path / "turnkeeper.db").stat().st_size > 15_000_000

    asyncio.run(test())


def test_a_million_events_are_read_quickly_from_anywhere(tmp_path: Path) -> None:
    """Promised are 50 ms to the first event and 100,000 events a second; asked of a machine that
    is busy with other tests are a fifth of it."""

    async def test() -> None:
        store = await SqliteStore.open(tmp_path / "turnkeeper.db")
        epoch, size, total = await store.claim("s_1"), 20_000, 1_000_000
        tail = b',"session":"s_1","run":"r_1","kind":"output.text","at":0.0,"data":{"text":"x"}}'
        for first in range(1, total, size):
            numbers = range(first, first + size)
            events = [event(n) for n in numbers]
            lines = [b'{"seq":%d%b' % (n, tail) for n in numbers]
            await store.append(Batch("s_1", epoch, events, unfinished=False, lines=lines))
        loop = asyncio.get_running_loop()
        took_s = []
        for after in (0, 1, 255, 256, 333_333, 999_000, 999_999):
            began = loop.time()
            found = await store.read_lines("s_1", after, 512)
            took_s.append(loop.time() - began)
            assert found[0].startswith(b'{"seq":%d,' % (after + 1))
        assert sorted(took_s)[len(took_s) // 2] < 0.25
        began, after = loop.time(), 0
        while lines := await store.read_lines("s_1", after, 512):
            after += len(lines)
        assert after == total
        assert total / (loop.time() - began) > 20_000
        await store.close()

    asyncio.run(test())


SESSIONS: list[dict[str, Any]] = [
    {}, {"before": "7"}, {"agent": "a"}, {"state": "busy"}, {"labels": {"a": "b"}},
]  # fmt: skip
RUNS: list[dict[str, Any]] = [
    {}, {"before": "7"}, {"session": "s"}, {"agent": "a"}, {"state": "running"},
    {"state": "unfinished"}, {"outcome": Kind.FAILED}, {"reason": "idle"}, {"parent": "r"},
    {"outcome": Kind.FAILED, "reason": "internal"}, {"agent": "a", "outcome": Kind.FAILED},
]  # fmt: skip
APPROVALS: list[dict[str, Any]] = [{}, {"session": "s"}, {"run": "r"}, {"state": "open"}]


@pytest.mark.parametrize(
    "asked",
    [
        *[lists.sessions(r.SessionQuery(**query), lists.SQLITE) for query in SESSIONS],
        *[lists.runs(r.RunQuery(**query), lists.SQLITE) for query in RUNS],
        *[lists.approvals(r.ApprovalQuery(**query)) for query in APPROVALS],
    ],
    ids=[str(query) for query in (*SESSIONS, *RUNS, *APPROVALS)],
)
def test_a_list_is_read_by_an_index_and_in_order(tmp_path: Path, asked: lists.Asked) -> None:
    database = open_database(tmp_path / "turnkeeper.db")
    sql, given = asked
    plan = [str(row[3]) for row in database.execute(f"EXPLAIN QUERY PLAN {sql}", given)]
    database.close()
    assert not any(step.startswith("SCAN") for step in plan), plan
    if "labels" not in sql.partition("WHERE")[2]:
        assert not any("TEMP B-TREE" in step for step in plan), plan


def test_the_ending_of_a_run_is_unique_by_an_index(tmp_path: Path) -> None:
    async def test() -> None:
        store = await SqliteStore.open(tmp_path / "turnkeeper.db")
        await put(store, ended(1, "r_1"))
        await store.close()

    asyncio.run(test())
    database = apsw.Connection(str(tmp_path / "turnkeeper.db"))
    with pytest.raises(apsw.ConstraintError):
        database.execute("INSERT INTO endings VALUES ('r_1')")
    database.close()
