"""The killer: ends the server with SIGKILL, at moments that a seed chooses; at times politely.

Decides when. It must not know what is going on, but for words that others drop as things happen:
some of its kills are aimed at the moment just after one. Invariant: a server that is up is killed
as often as it was told, and is then up, ready and left alone.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter

from tests.campaign.server import Server

LIFE_S = 1.0
"""A server that is killed at random lives at most so long after it was ready."""
AIM_S = 1.0
"""So long the killer waits for what it aims at."""
SHORTLY_S = 0.01
POLITE = 0.08
"""How often there is also a restart as an operator does it."""
IN_A_ROW = 2
"""So many starts in a row may be cut: then work goes on for a while."""

AIMS = (
    "sending", "sent", "stopping", "answering", "subscribing",
    "message.accepted", "run.started", "attempt.started", "attempt.ready", "message.delivered",
    "output.text", "tool.started", "approval.requested", "approval.settled", "run.requeued",
    "message.steered", "run.stopping", "run.ended", "attempt.ended",
)  # fmt: skip
"""What clients do, and what watchers see."""


class Killer:
    def __init__(self, server: Server, chance: random.Random) -> None:
        self._server = server
        self._chance = chance
        self._aim = ""
        self._hit = asyncio.Event()
        self._cut_starts = 0
        self._start_s = 0.5
        self.hits: Counter[str] = Counter()

    def hint(self, word: str) -> None:
        """Something happens, just now."""
        if word == self._aim:
            self._aim = ""
            self._hit.set()

    async def run(self, kills: int) -> None:
        for _ in range(kills):
            await self._kill_once()
            self._server.start()
            if self._chance.random() < POLITE:
                await self._stop_once()
                self._server.start()
        await self._server.wait_ready()

    async def _stop_once(self) -> None:
        """As an operator restarts it: agents go on, whoever watches comes back."""
        await self._server.wait_ready()
        await asyncio.sleep(self._chance.uniform(0.0, LIFE_S))
        await self._server.stop()

    async def _kill_once(self) -> None:
        chance, server = self._chance, self._server
        if chance.random() < 0.2 and self._cut_starts < IN_A_ROW:
            self._cut_starts += 1
            await asyncio.sleep(chance.uniform(0.0, 1.5 * self._start_s))
            server.kill("start")
            return
        self._cut_starts = 0
        began = asyncio.get_running_loop().time()
        await server.wait_ready()
        self._start_s = asyncio.get_running_loop().time() - began
        if chance.random() < 0.5:
            await asyncio.sleep(chance.uniform(0.0, LIFE_S))
            server.kill("random")
            return
        aim = chance.choice(AIMS)
        server.kill(aim if await self._wait_for(aim) else "random")

    async def _wait_for(self, aim: str) -> bool:
        self._hit.clear()
        self._aim = aim
        try:
            async with asyncio.timeout(AIM_S):
                await self._hit.wait()
        except TimeoutError:
            self._aim = ""
            return False
        self.hits[aim] += 1
        await asyncio.sleep(self._chance.choice((0.0, self._chance.uniform(0.0, SHORTLY_S))))
        return True
