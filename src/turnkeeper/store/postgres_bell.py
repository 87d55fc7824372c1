"""The doorbell: nodes tell each other that there is something to look at, and no more than that.

Decides how often it rings. It must not know what is looked at. Invariant: nothing depends on it but
time, for everybody looks every now and then anyway; it is never rung in a transaction that writes
(that would put all commits in a row); for logs that grew it rings at most every `PAUSE_S`, however
much happens, and for commands and their answers one ring waits for the one before.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import asyncpg
import msgspec

from turnkeeper.core.errors import StoreDown
from turnkeeper.store.postgres_faults import LOST, Address
from turnkeeper.store.postgres_line import Line

PAUSE_S, AGAIN_S = 0.01, 0.5
HEADS_MAX = 100
"""What one ring can say: PostgreSQL takes 8,000 bytes."""


class Ring(msgspec.Struct, frozen=True):
    """Which logs have grown to where; whether there are new commands, or answers to some."""

    node: str
    heads: dict[str, int] = {}
    commands: bool = False
    replies: bool = False


class Bell:
    """One connection, on which it listens and rings."""

    def __init__(self, address: Address, node: str, heard: Callable[[Ring], None]) -> None:
        self._line = Line(address, loose=True)
        self._channel = f"turnkeeper_{address.schema}"
        self._node = node
        self._heard = heard
        self._heads: dict[str, int] = {}
        self._commands = self._replies = False
        self._wanted, self._urgent = asyncio.Event(), asyncio.Event()
        self.is_alone = True
        """Nobody would hear of logs that grew."""

    def grown(self, session: str, head: int) -> None:
        if not self.is_alone:
            self._heads[session] = head
            self._wanted.set()

    def ring(self, *, commands: bool = False, replies: bool = False) -> None:
        self._commands |= commands
        self._replies |= replies
        self._wanted.set()
        self._urgent.set()

    async def run(self) -> None:
        """Until it is cancelled."""
        try:
            while True:
                with contextlib.suppress(StoreDown, asyncpg.PostgresError, *LOST):
                    async with self._line.use() as connection:
                        await connection.add_listener(self._channel, self._on_ring)
                        await self._ring_on(connection)
                self._line.drop()
                await asyncio.sleep(AGAIN_S)
        finally:
            await self._line.close()

    async def _ring_on(self, connection: Any) -> None:
        while not connection.is_closed():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(AGAIN_S):
                    await self._wanted.wait()
            if self._wanted.is_set():
                await connection.execute("SELECT pg_notify($1, $2)", self._channel, self._said())
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(PAUSE_S):
                        await self._urgent.wait()

    def _said(self) -> str:
        names = list(self._heads)[:HEADS_MAX]
        heads = {name: self._heads.pop(name) for name in names if len(name) <= 48}
        ring = Ring(self._node, heads, self._commands, self._replies)
        self._commands = self._replies = False
        self._urgent.clear()
        if not self._heads:
            self._wanted.clear()
        return msgspec.json.encode(ring).decode()

    def _on_ring(self, _connection: Any, _pid: int, _channel: str, payload: str) -> None:
        with contextlib.suppress(msgspec.MsgspecError):
            ring = msgspec.json.decode(payload, type=Ring)
            if ring.node != self._node:
                self._heard(ring)
