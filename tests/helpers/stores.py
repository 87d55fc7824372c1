"""Which store tests of servers are on: the usual one, or (`TURNKEEPER_TEST_STORE=postgres`) a real
PostgreSQL, which the tests start."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from tests.helpers.postgres import shared_server
from turnkeeper.ports import EventStore
from turnkeeper.store.memory import MemoryStore
from turnkeeper.store.postgres import PostgresStore

ON_POSTGRES = os.environ.get("TURNKEEPER_TEST_STORE") == "postgres"


async def new_store() -> EventStore:
    """An empty one."""
    if not ON_POSTGRES:
        return MemoryStore()
    return await PostgresStore.open(shared_server().url(f"t{secrets.token_hex(8)}"))


def store_of(data: Path | None) -> dict[str, str]:
    """What a command's environment has to say, so that its logs are in the store of those tests."""
    if not ON_POSTGRES or data is None:
        return {}
    return {"TURNKEEPER__STORE__URL": shared_server().url_for(data)}
