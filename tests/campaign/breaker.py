"""The breaker: kills nodes, stops them, cuts them off, and takes their database away, by a seed.

Decides when, and for how long: shorter than a lease or longer. It must not know what is going on.
Invariant: one node is sound at any time; what was broken is whole again when it is done.
"""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import time
from collections.abc import Awaitable, Callable

from tests.campaign.cluster import LEASE_S, Cluster
from tests.campaign.records import Break, Record
from tests.campaign.server import Fell

SHORT, LONG = (0.02, 0.5), (1.2, 1.8)
"""In leases."""
PAUSE_S = 1.0
READY_S = 60.0
AFTER_S = 2.0
"""So long after it is whole a node may still find out what it missed."""


class Breaker:
    def __init__(self, cluster: Cluster, record: Record, chance: random.Random) -> None:
        self._cluster = cluster
        self._record = record
        self._chance = chance
        self._broken: set[int] = set()
        self._faults: list[str] = []

    def hint(self, word: str) -> None:
        """It takes no aim."""

    async def run(self, times: int) -> None:
        tasks: set[asyncio.Task[None]] = set()
        for _ in range(times):
            await asyncio.sleep(self._chance.uniform(0.0, PAUSE_S))
            while len(self._broken) > len(self._cluster.nodes) - 2:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                tasks = {task for task in tasks if not task.done()}
            if self._chance.random() < 0.1:
                await self._take_database()
                continue
            sound = [n for n in range(len(self._cluster.nodes)) if n not in self._broken]
            node = self._chance.choice(sound)
            self._broken.add(node)
            tasks.add(asyncio.create_task(self._break(node)))
        if tasks:
            await asyncio.wait(tasks)
        if self._faults:
            raise Fell("; ".join(self._faults))
        await self._cluster.wait_ready()

    def _for_s(self) -> float:
        low, high = SHORT if self._chance.random() < 0.5 else LONG
        return self._chance.uniform(low, high) * LEASE_S

    async def _break(self, node: int) -> None:
        ways: list[tuple[str, Callable[[int], Awaitable[None]]]] = [
            ("killed", self._kill), ("stopped", self._stop), ("asked to go", self._end),
        ]  # fmt: skip
        weights = [40, 30, 6]
        if self._cluster.network.can_cut:
            ways.append(("cut off", self._cut))
            weights.append(24)
        what, how = self._chance.choices(ways, weights)[0]
        name, at = self._cluster.ids[node], time.time()
        self._cluster.any.broken.add(node)
        try:
            await how(node)
            await self._wait_ready(node)
        except (Fell, OSError, subprocess.SubprocessError) as fell:
            self._faults.append(f"{what}: {fell}")
        finally:
            self._record.breaks.append(Break(at, time.time() + AFTER_S, what, name))
            self._cluster.any.broken.discard(node)
            self._broken.discard(node)

    async def _wait_ready(self, node: int) -> None:
        """A node that finds no database when it starts says so and goes; whoever runs it starts it
        again."""
        server, until = self._cluster.nodes[node], time.monotonic() + READY_S
        while True:
            try:
                return await server.wait_ready()
            except Fell as fell:
                if "cannot be used" not in str(fell) or time.monotonic() > until:
                    raise
            server.forget()
            server.start()

    async def _kill(self, node: int) -> None:
        server = self._cluster.nodes[node]
        server.kill("random")
        await asyncio.sleep(self._for_s())
        server.start()

    async def _stop(self, node: int) -> None:
        server = self._cluster.nodes[node]
        server.signal(signal.SIGSTOP)
        try:
            await asyncio.sleep(self._for_s())
        finally:
            server.signal(signal.SIGCONT)

    async def _end(self, node: int) -> None:
        server = self._cluster.nodes[node]
        await server.stop()
        await asyncio.sleep(self._for_s())
        server.start()

    async def _cut(self, node: int) -> None:
        self._cluster.network.cut(node)
        try:
            await asyncio.sleep(self._for_s())
        finally:
            self._cluster.network.heal(node)

    async def _take_database(self) -> None:
        """It is restarted as an operator does it, or at once, or killed."""
        at = time.time()
        what = self._chance.choice((signal.SIGINT, signal.SIGQUIT, signal.SIGKILL))
        self._cluster.database.stop(what)
        await asyncio.sleep(self._chance.uniform(0.0, 0.3 * LEASE_S))
        await asyncio.to_thread(self._cluster.start_database)
        self._record.breaks.append(Break(at, time.time() + AFTER_S, "database gone"))
