"""What the campaign knows of who wrote what is what a database saw, in the order of commits."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import asyncpg
import pytest

from tests.campaign import audit
from tests.campaign.audit import Written
from tests.helpers.postgres import Server, new_server
from turnkeeper.store.postgres_faults import Address

pytestmark = pytest.mark.postgres

CLAIM = """
INSERT INTO turnkeeper.logs (id, epoch, owner) VALUES ('s', 1, $1)
ON CONFLICT (id) DO UPDATE SET epoch = logs.epoch + 1, owner = excluded.owner
"""
CHUNK = "INSERT INTO turnkeeper.chunks SELECT n, $1, $1, 0, '' FROM turnkeeper.logs WHERE id = 's'"
STATE = "INSERT INTO turnkeeper.snapshots SELECT n, 1, '' FROM turnkeeper.logs WHERE id = 's'"


@pytest.fixture
def server() -> Iterator[Server]:
    server = new_server()
    try:
        server.start(**audit.SETTINGS)
        yield server
    finally:
        server.close()


async def written(server: Server) -> audit.Writings:
    await audit.install(server.url(), ["n_a", "n_b"])
    a, b = [await asyncpg.connect(Address.of(server.url(user=name)).dsn) for name in ("n_a", "n_b")]
    await a.execute(CLAIM, "n_a")
    await a.execute(CHUNK, 1)
    await b.execute(CHUNK, 2)
    overtaken = a.transaction()
    await overtaken.start()
    await a.execute(CHUNK, 3)
    await b.execute(CLAIM, "n_b")
    await overtaken.commit()
    await b.execute(CHUNK, 4)
    await a.execute(STATE)
    await b.execute("ALTER TABLE turnkeeper.chunks DISABLE TRIGGER audited")
    await b.execute(CHUNK, 5)
    for one in (a, b):
        await one.close()
    return await audit.read(server.url())


def test_each_row_is_told_with_its_writer_and_whose_the_session_was(server: Server) -> None:
    found = asyncio.run(written(server))
    assert sorted(found.rows) == [
        Written("s", "chunk", 1, "n_a", "n_a"),
        Written("s", "chunk", 2, "n_b", "n_a"),
        Written("s", "chunk", 3, "n_a", "n_b"),
        Written("s", "chunk", 4, "n_b", "n_b"),
        Written("s", "snapshot", 1, "n_a", "n_b"),
    ]
    assert found.unnoted == ["s up to 5"]
