"""What agents keep of their conversations, on PostgreSQL: the last of each session."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.store.kit import created, put
from tests.helpers.postgres import shared_server
from turnkeeper.ports import KeptTranscript, Transcript
from turnkeeper.store.postgres import PostgresStore
from turnkeeper.store.postgres_faults import Address
from turnkeeper.store.postgres_line import connect
from turnkeeper.store.postgres_schema import STEPS, migrate
from turnkeeper.store.postgres_transcripts import PostgresTranscripts
from turnkeeper.store.postgres_upkeep import gc_postgres

pytestmark = pytest.mark.postgres

BODY = bytes(range(256)) * 4096


def transcript(body: bytes = BODY) -> Transcript:
    return Transcript("c_1", "2026/a\0b", body)


async def on_a_session(url: str, test: Any) -> None:
    store = await PostgresStore.open(url, "n_a")
    kept = [PostgresTranscripts(store.address, name) for name in ("n_a", "n_b")]
    nobodys = await PostgresStore.open(url)
    try:
        await put(nobodys, created(), unfinished=False)
        await test(*kept)
    finally:
        for one in kept:
            await one.close()
        await nobodys.close()
        await store.close()


def play(place: Path, test: Any) -> None:
    ran: Coroutine[Any, Any, None] = on_a_session(shared_server().url_for(place), test)
    asyncio.run(ran)


def test_what_was_kept_is_found_by_every_node_until_there_is_a_later_one(tmp_path: Path) -> None:
    async def test(a: PostgresTranscripts, b: PostgresTranscripts) -> None:
        assert await b.find("s_1") is None
        await a.keep("s_1", 5, "c_1", transcript())
        assert await b.find("s_1") == KeptTranscript("c_1", 5, "n_a", transcript())
        await b.keep("s_1", 9, "c_1", transcript(b"later\n"))
        await a.keep("s_1", 7, "c_1", transcript(b"late\n"))
        assert await a.find("s_1") == KeptTranscript("c_1", 9, "n_b", transcript(b"later\n"))

    play(tmp_path, test)


def test_that_there_is_nothing_to_keep_is_kept_too(tmp_path: Path) -> None:
    async def test(a: PostgresTranscripts, b: PostgresTranscripts) -> None:
        await a.keep("s_1", 5, "c_1", transcript())
        await a.keep("s_1", 6, "c_1", None)
        assert await b.find("s_1") == KeptTranscript("c_1", 6, "n_a", None)
        await a.keep("s_2", 1, "c_2", transcript())
        assert await a.find("s_2") is None

    play(tmp_path, test)


def test_a_damaged_one_is_as_none(tmp_path: Path) -> None:
    async def test(a: PostgresTranscripts, b: PostgresTranscripts) -> None:
        await a.keep("s_1", 5, "c_1", transcript())
        connection = await connect(Address.of(shared_server().url_for(tmp_path)))
        try:
            await connection.execute("UPDATE transcripts SET body = substr(body, 1, 100)")
        finally:
            await connection.close()
        assert await b.find("s_1") == KeptTranscript("c_1", 5, "n_a", None)

    play(tmp_path, test)


def test_it_goes_with_its_session(tmp_path: Path) -> None:
    async def test(a: PostgresTranscripts, b: PostgresTranscripts) -> None:
        await a.keep("s_1", 1, "c_1", transcript())
        url = shared_server().url_for(tmp_path)
        gone = await gc_postgres(url, older_than_s=0, max_bytes=None)
        assert gone.sessions == ["s_1"]
        connection = await connect(Address.of(url))
        try:
            assert await connection.fetchval("SELECT count(*) FROM transcripts") == 0
        finally:
            await connection.close()

    play(tmp_path, test)


def test_a_database_of_the_version_before_is_brought_up_to_date(tmp_path: Path) -> None:
    async def main() -> None:
        url = shared_server().url_for(tmp_path)
        address = Address.of(url)
        connection = await connect(address)
        try:
            await migrate(connection, address, STEPS[:1])
        finally:
            await connection.close()

        async def test(a: PostgresTranscripts, b: PostgresTranscripts) -> None:
            await a.keep("s_1", 5, "c_1", transcript())
            assert await b.find("s_1") is not None

        await on_a_session(url, test)

    asyncio.run(main())
