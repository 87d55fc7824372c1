"""Nodes on PostgreSQL: who is there, and which sessions nobody has.

Decides by the database's clock alone who lives. It must not know what a node does. Invariant: one
that let its time pass learns of it before it renews; two of one name are never both in force.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import asyncpg

from turnkeeper.ports import NodeOver, NodeRecord
from turnkeeper.store.postgres_faults import Address, Seat, fault_of
from turnkeeper.store.postgres_line import Line
from turnkeeper.store.postgres_text import kept, kept_all, told, told_all

COUNT_S, SLACK = 1.0, 4
"""So often it is counted what nodes have to do; who has so much more than another gives away."""

TOLD_S = 86_400.0
"""So long a node that is gone and has nothing left to do is still told of. (What is known of its
name stays: whoever comes by that name again must not be taken for the one that was.)"""

_JOIN = """
INSERT INTO nodes (id, incarnation, url, agents, until)
VALUES ($1, 1, $2, $3, clock_timestamp() + make_interval(secs => $4))
ON CONFLICT (id) DO UPDATE SET incarnation = nodes.incarnation + 1, url = excluded.url,
    agents = excluded.agents, until = excluded.until, since = clock_timestamp(), draining = false
WHERE $5::bigint IN (0, nodes.incarnation) OR nodes.until < clock_timestamp()
RETURNING incarnation
"""
_RENEW = """
UPDATE nodes SET until = clock_timestamp() + make_interval(secs => $3), draining = $4
WHERE id = $1 AND incarnation = $2 AND until > clock_timestamp() RETURNING id
"""
_RELEASE = """
UPDATE logs SET owner = NULL WHERE id = $1 AND owner = $2
AND EXISTS (SELECT FROM nodes WHERE nodes.id = $2 AND incarnation = $3)
"""
_LEAVE = """
UPDATE logs SET owner = NULL WHERE owner = $1 AND NOT unfinished
AND EXISTS (SELECT FROM nodes WHERE nodes.id = $1 AND incarnation = $2)
"""
_ASSIGN = """
INSERT INTO logs (id, epoch, owner)
SELECT $1, value, $2 FROM meta WHERE name = 'epoch_floor'
ON CONFLICT (id) DO UPDATE SET owner = excluded.owner
WHERE NOT logs.unfinished AND (logs.owner IS NULL OR NOT EXISTS (
    SELECT FROM nodes WHERE nodes.id = logs.owner AND until > clock_timestamp()
))
"""
_ORPHANS = """
SELECT l.id FROM logs l JOIN sessions s ON s.log = l.n
WHERE l.unfinished AND s.agent = ANY($2) AND (l.owner IS NULL OR l.owner = ANY(ARRAY(
    SELECT id FROM nodes WHERE until <= clock_timestamp() AND id <> $1
))) ORDER BY l.n
"""
_NODES = """
SELECT nodes.id, url, agents, extract(epoch FROM since)::float8,
    extract(epoch FROM until - clock_timestamp())::float8, draining,
    count(l.n), count(l.n) FILTER (WHERE l.unfinished)
FROM nodes LEFT JOIN logs l ON l.owner = nodes.id GROUP BY nodes.id
HAVING until > clock_timestamp() - make_interval(secs => $1) OR bool_or(l.unfinished)
ORDER BY since, nodes.id
"""


class PostgresNodes:
    """`Membership`. Renewals have a connection of their own: nothing else delays them."""

    def __init__(self, address: Address, seat: Seat) -> None:
        self._beats, self._rest = _Calls(address), _Calls(address)
        self._seat = seat
        self._node = seat.node or ""
        self._agents: list[str] = []
        self._counted_at = -COUNT_S
        self._load: dict[str, tuple[int, tuple[str, ...]]] = {}

    @property
    def node(self) -> str:
        return self._node

    async def join(self, url: str, agents: Sequence[str], lease_s: float) -> None:
        self._agents = kept_all(agents)
        given = (self._node, url, self._agents, lease_s, self._seat.incarnation)
        rows = await self._beats.fetch(_JOIN, *given)
        if not rows:
            raise NodeOver(self._node)
        self._seat.incarnation = rows[0][0]

    async def renew(self, lease_s: float, *, draining: bool = False) -> None:
        given = (self._node, self._seat.incarnation, lease_s, draining)
        if not await self._beats.fetch(_RENEW, *given):
            raise NodeOver(self._node)

    async def release(self, session: str) -> None:
        await self._rest.fetch(_RELEASE, kept(session), self._node, self._seat.incarnation)

    async def leave(self) -> None:
        await self._rest.fetch(_LEAVE, self._node, self._seat.incarnation)

    async def place(self, agent: str) -> str | None:
        now = asyncio.get_running_loop().time()
        if now - self._counted_at > COUNT_S:
            self._counted_at = now
            self._load = {
                one.id: (one.unfinished, one.agents)
                for one in await self.nodes()
                if one.left_s > 0 and not one.draining
            }
        able = {node: load for node, (load, agents) in self._load.items() if agent in agents}
        if not able:
            return None
        node = min(able, key=lambda name: able[name])
        if self._node in able and able[self._node] <= able[node] + SLACK:
            node = self._node
        load, agents = self._load[node]
        self._load[node] = (load + 1, agents)  # until they are counted again
        return node

    async def assign(self, session: str, node: str) -> None:
        await self._rest.fetch(_ASSIGN, kept(session), node)

    async def orphans(self) -> list[str]:
        rows = await self._rest.fetch(_ORPHANS, self._node, self._agents)
        return [told(row[0]) for row in rows]

    async def nodes(self) -> list[NodeRecord]:
        return [
            NodeRecord(
                id=row[0], url=row[1], agents=tuple(told_all(row[2])), since=row[3],
                left_s=row[4], draining=row[5], sessions=row[6], unfinished=row[7],
            )
            for row in await self._rest.fetch(_NODES, TOLD_S)
        ]  # fmt: skip

    async def close(self) -> None:
        await self._beats.close()
        await self._rest.close()


class _Calls:
    """A connection that is used for one thing after another."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._line = Line(address)
        self._turn = asyncio.Lock()

    async def close(self) -> None:
        await self._line.close()

    async def fetch(self, sql: str, *given: Any) -> list[Any]:
        try:
            async with self._turn, self._line.use() as connection:
                rows: list[Any] = await connection.fetch(sql, *given)
                return rows
        except asyncpg.PostgresError as error:
            raise fault_of(error, self._address) from error
