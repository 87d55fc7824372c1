"""A database that is not what was written is refused, by name and with what to do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from tests.conformance.store.kit import batch, created, put
from tests.helpers.shell import event
from turnkeeper.core.errors import STORE_DAMAGED, STORE_NEWER, StoreDown, TurnkeeperError
from turnkeeper.core.events import OutputText
from turnkeeper.store.sqlite import SqliteStore
from turnkeeper.store.sqlite_schema import STEPS

Harm = Callable[[bytes], bytes]


def filled(path: Path, events: int = 300) -> Path:
    async def main() -> None:
        store = await SqliteStore.open(path)
        epoch = await put(store, created())
        for n in range(2, events, 10):
            talk = [event(n + k, OutputText("x" * 500)) for k in range(10)]
            await store.append(batch(*talk, epoch=epoch))
        await store.close()

    asyncio.run(main())
    return path


async def opened(path: Path) -> None:
    await (await SqliteStore.open(path)).close()


def garbage(start: int, length: int) -> Harm:
    return lambda content: content[:start] + b"\xa5" * length + content[start + length :]


def overwrite(path: Path, harm: Harm) -> None:
    """In place, as whoever has it open sees it."""
    harmed = harm(path.read_bytes())
    with path.open("r+b") as file:
        file.write(harmed)


@pytest.mark.parametrize(
    "harm",
    [
        lambda content: b"this is no database, whatever its name says" * 100,
        garbage(0, 100),
        garbage(100, 200),
        garbage(4096, 4096),
        garbage(60_000, 40_000),
        lambda content: content[: len(content) // 2],
        lambda content: content[:5000],
    ],
    ids=["text", "header", "schema", "page two", "middle", "half", "a page and a bit"],
)
def test_a_damaged_database_is_not_opened(tmp_path: Path, harm: Harm) -> None:
    path = filled(tmp_path / "turnkeeper.db")
    path.write_bytes(harm(path.read_bytes()))
    with pytest.raises(StoreDown) as refused:
        asyncio.run(opened(path))
    assert refused.value.entry is STORE_DAMAGED
    assert str(path) in str(refused.value)
    assert "put a backup in its place" in str(refused.value)


def test_damage_that_is_found_later_stops_all_writing(tmp_path: Path) -> None:
    path = filled(tmp_path / "turnkeeper.db", 5000)

    async def test() -> None:
        store = await SqliteStore.open(path)
        epoch = await store.claim("s_2")
        overwrite(path, garbage(100_000, 1_000_000))
        with pytest.raises(StoreDown) as found:
            await store.read_lines("s_1", 0, 5000)
        assert found.value.entry is STORE_DAMAGED
        assert store.trouble is not None
        assert "is damaged" in store.trouble
        for _ in range(2):
            with pytest.raises(StoreDown) as refused:
                await store.append(batch(created(session="s_2"), epoch=epoch))
            assert refused.value.entry is STORE_DAMAGED
        await store.close()

    asyncio.run(test())


def test_an_event_of_which_one_bit_is_wrong_is_shown_to_nobody(tmp_path: Path) -> None:
    path = filled(tmp_path / "turnkeeper.db")
    place = path.read_bytes().index(b"xxxxxxxx", 50_000)
    overwrite(path, garbage(place, 1))

    async def test() -> None:
        store = await SqliteStore.open(path)
        for asking in (store.read("s_1", 0, 300), store.read_lines("s_1", 0, 300)):
            with pytest.raises(StoreDown, match=r"the events from \d+ on of session s_1"):
                await asking
        await store.close()

    asyncio.run(test())


def test_a_newer_programs_database_is_refused_and_left_as_it_was(tmp_path: Path) -> None:
    path = filled(tmp_path / "turnkeeper.db")
    database = apsw.Connection(str(path))
    database.pragma("user_version", len(STEPS) + 1)
    database.close()
    before = path.read_bytes()
    with pytest.raises(TurnkeeperError) as refused:
        asyncio.run(opened(path))
    assert refused.value.entry is STORE_NEWER
    assert f"version {len(STEPS) + 1}" in str(refused.value)
    assert path.read_bytes() == before


def test_another_programs_database_is_refused_and_left_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "turnkeeper.db"
    database = apsw.Connection(str(path))
    database.execute("CREATE TABLE songs (name)")
    database.close()
    before = path.read_bytes()
    with pytest.raises(StoreDown, match="not one of Turnkeeper's"):
        asyncio.run(opened(path))
    assert path.read_bytes() == before


@pytest.mark.parametrize("name", ["", "missing/turnkeeper.db"])
def test_a_path_that_cannot_be_a_database_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(StoreDown, match="cannot be opened"):
        asyncio.run(opened(tmp_path / name))
