"""This node among others: it says that it lives, ends itself when it cannot, and takes up what
nobody has.

Decides when this node's time is over, by its own monotonic clock: before anybody else may think so.
It must not know stores. Invariant: after its time nothing of it runs here, until it has joined anew
and read its sessions again; what a node leaves behind is taken up by those that live.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from turnkeeper.core.errors import StoreDown
from turnkeeper.ports import Desk, Membership, NodeOver, Others

log = logging.getLogger("turnkeeper.node")

LEASE_S = 20.0
"""So long a node lives after it last said so."""

BEATS = 4
"""So often in a lease it says so."""

LOOK_S = 0.5
"""So often it looks for what nobody has."""

FEW = 5
"""So many sessions are named in a line of the log."""

SPARE = 0.2
"""This part of its time is left for the ending of its agents."""


@dataclass(frozen=True)
class Doings:
    """What a member makes its server do."""

    fence: Callable[[], Awaitable[None]]
    """End everything that runs here, at once, and know nothing any more."""
    take_up: Callable[[Sequence[str] | None], Awaitable[None]]
    """Take up these sessions; without any, all that are this node's."""
    lease: Callable[[float], None]
    """What is in custody here lives for so long, unless this is said again."""
    desk: Desk
    """Answers what other nodes were asked."""


class Member:
    """One node's part. `start` it when its sessions may be taken up; `close` it last."""

    def __init__(
        self, membership: Membership, others: Others, doings: Doings, agents: Sequence[str],
        lease_s: float,
    ) -> None:  # fmt: skip
        self.url = ""
        self.draining = False
        self.trouble: str | None = None
        """Why it cannot say that it lives, if it cannot: then it is not ready for work."""
        self._membership = membership
        self._others = others
        self._doings = doings
        self._agents = agents
        self._lease_s = lease_s
        self._until = 0.0
        self._is_over = False
        self._has_all = True
        """What is this node's was taken up since it last joined."""
        self._news = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def join(self) -> None:
        """Once, before anything is taken up. Raises `StoreDown`."""
        sent = asyncio.get_running_loop().time()
        await self._membership.join(self.url, self._agents, self._lease_s)
        self._lives(sent)

    def _lives(self, since: float) -> None:
        """Here it ends before others may think so: custody has the rest for killing."""
        self.trouble = None
        self._until = since + self._lease_s
        passed_s = asyncio.get_running_loop().time() - since
        self._doings.lease((1 - SPARE) * self._lease_s - passed_s)

    def start(self) -> None:
        served = self._others.serve(self._doings.desk)
        doing = (self._beat(), self._watch_time(), self._adopt(), served)
        self._tasks = [asyncio.ensure_future(one) for one in doing]

    def drain(self) -> None:
        """It goes: nothing more is taken up, and others are told at once."""
        self.draining = True
        self._news.set()

    async def close(self) -> None:
        """What runs in custody is this node's for the rest of its time."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        with contextlib.suppress(StoreDown):
            await self._membership.leave()
        await self._membership.close()

    async def _beat(self) -> None:
        """Say that it lives, or join anew once it is over."""
        loop = asyncio.get_running_loop()
        pause_s = self._lease_s / BEATS
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._news.wait()
            self._news.clear()
            sent, was_over = loop.time(), self._is_over
            try:
                if was_over:
                    await self._membership.join(self.url, self._agents, self._lease_s)
                    self._lives(sent)
                    self._is_over = False
                    log.warning("%s is back", self._membership.node)
                else:
                    async with asyncio.timeout(self._lease_s):
                        await self._membership.renew(self._lease_s, draining=self.draining)
                    if self._is_over:
                        continue  # that came too late: it joins anew
                    self._lives(sent)
                if not self._has_all:
                    await self._take_up_all()
            except (StoreDown, TimeoutError) as trouble:
                self.trouble = _words(trouble)
                log.warning("%s cannot say that it lives: %s", self._membership.node, self.trouble)
            except NodeOver:
                await self._end("another has its name, or it was silent for too long")

    async def _take_up_all(self) -> None:
        self._has_all = True  # unless its time is over before it is done
        try:
            await self._doings.take_up(None)
        except StoreDown:
            self._has_all = False
            raise

    async def _watch_time(self) -> None:
        """End everything here before others may take it."""
        loop = asyncio.get_running_loop()
        while True:
            left_s = self._until - SPARE * self._lease_s - loop.time()
            if left_s <= 0 and not self._is_over:
                await self._end(f"its time (lease_s = {self._lease_s:g}) is nearly over")
            await asyncio.sleep(max(left_s, self._lease_s / (4 * BEATS)))

    async def _end(self, why: str) -> None:
        if self._is_over:
            return
        self._is_over, self._has_all = True, False
        self.trouble = self.trouble or why
        log.error("%s ends all that runs here: %s", self._membership.node, why)
        await self._doings.fence()

    async def _adopt(self) -> None:
        """What has nobody is taken up by whoever sees it first."""
        while True:
            await asyncio.sleep(min(LOOK_S, self._lease_s / BEATS))
            if self._is_over or self.draining:
                continue
            with contextlib.suppress(StoreDown):
                found = await self._membership.orphans()
                if found:
                    log.info(
                        "%s takes up what nobody has, if no other is quicker: %s",
                        self._membership.node,
                        _few(found),
                    )
                    await self._doings.take_up(found)


def _words(trouble: StoreDown | TimeoutError) -> str:
    return trouble.what if isinstance(trouble, StoreDown) else "the database has not answered"


def _few(names: Sequence[str]) -> str:
    """Some of them, and how many more there are."""
    more = f" and {len(names) - FEW} more" if len(names) > FEW else ""
    return ", ".join(names[:FEW]) + more
