"""Connections to PostgreSQL: each opened when it is needed, and given up when it fails.

Decides when a connection is good, and how many there are. It must not know what is said on it.
Invariant: after a fault nobody is given the same connection again; whoever waits for an answer
waits for a bounded time; a primary that was restarted is found again by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from turnkeeper.core.errors import StoreDown
from turnkeeper.store.postgres_faults import Address, fault_of, is_lost

CONNECT_S, ANSWER_S, CLOSE_S = 5.0, 15.0, 2.0


async def connect(address: Address, *, loose: bool = False) -> Any:
    """A connection with the settings that all of them have. What is written on a `loose` one may be
    lost with the server: nobody waits for its disk. Raises `StoreDown`."""
    settings = {
        "search_path": address.schema,
        "application_name": "turnkeeper",
        "jit": "off",
        # Who is not there any more is found out by the server, too.
        "tcp_keepalives_idle": "10",
        "tcp_keepalives_interval": "5",
        "tcp_keepalives_count": "3",
        "idle_in_transaction_session_timeout": "30s",
    }
    if loose:
        settings["synchronous_commit"] = "off"
    try:
        return await asyncpg.connect(
            address.dsn,
            timeout=CONNECT_S,
            command_timeout=ANSWER_S,
            server_settings=settings,
            target_session_attrs="read-write",
        )
    except (asyncpg.PostgresError, ValueError, OverflowError, *_NOT_THERE) as error:
        raise fault_of(error, address) from error


_NOT_THERE = (OSError, TimeoutError, asyncpg.InterfaceError, asyncpg.InternalClientError)


class Line:
    """One connection, at any time to the primary that is there."""

    def __init__(self, address: Address, *, loose: bool = False) -> None:
        self._address = address
        self._loose = loose
        self._connection: Any = None

    @asynccontextmanager
    async def use(self) -> AsyncIterator[Any]:
        """The connection, for one user at a time. A fault of it becomes `StoreDown`; one that is
        its user's own is raised as it is."""
        if self._connection is None or self._connection.is_closed():
            self._connection = await connect(self._address, loose=self._loose)
        try:
            yield self._connection
        except (asyncpg.PostgresError, *_NOT_THERE) as error:
            if not is_lost(error):
                raise
            self.drop()
            raise fault_of(error, self._address) from error
        except asyncio.CancelledError:
            self.drop()  # it may be in the middle of an answer
            raise

    def drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(asyncpg.PostgresError, *_NOT_THERE):
                await connection.close(timeout=CLOSE_S)


class Lines:
    """A few of them, for those who read. More askers than lines wait for each other."""

    def __init__(self, address: Address, count: int, *, loose: bool = False) -> None:
        self._address = address
        self._free: asyncio.LifoQueue[Line] = asyncio.LifoQueue()
        self._all = [Line(address, loose=loose) for _ in range(count)]
        self._closed = False
        for line in reversed(self._all):
            self._free.put_nowait(line)

    async def fetch(self, sql: str, *given: Any, once: bool = False) -> list[Any]:
        """The rows. What cannot be read is `StoreDown`; a connection that was lost while nobody
        used it is not a reason, unless it may be done `once` only."""
        for is_last in (True,) if once else (False, True):
            if self._closed:
                raise StoreDown("the store is closed")
            line = await self._free.get()
            try:
                async with line.use() as connection:
                    rows: list[Any] = await connection.fetch(sql, *given)
                    return rows
            except StoreDown:
                if is_last:
                    raise
            except asyncpg.DataError:
                raise
            except asyncpg.PostgresError as error:
                raise fault_of(error, self._address) from error
            finally:
                self._free.put_nowait(line)
        raise AssertionError

    async def close(self) -> None:
        self._closed = True
        for line in self._all:
            await line.close()
