"""What a socket's subscriptions have to tell: a page of each, in turn, by one task.

Decides in which order subscriptions go out, and what of them goes out together. It must not know
what events mean, nor how they are sent. Invariant: each subscription gets every event after its
cursor once and in order; they take turns; however many wait, a peer that does not read is given one
piece and no more.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

from turnkeeper.core.errors import TurnkeeperError
from turnkeeper.gateway.answers import mistake
from turnkeeper.gateway.asked import Gone
from turnkeeper.gateway.reader import PART_BYTES, Reader, parts

log = logging.getLogger("turnkeeper.gateway")

AT_ONCE = 500
"""After so many pages, others get their turn. A busy loop turns slowly: where it has few turns, all
who wait must get into each."""


Part = Sequence[bytes]
"""Lines that go out in one message."""


class Peer(Protocol):
    """Who is told."""

    async def room(self) -> None:
        """Until there is room for more."""

    async def say_all(self, texts: Sequence[bytes]) -> None:
        """If there is room, at once."""

    async def lose(self, subscription: Subscription, refused: TurnkeeperError) -> None: ...


class Subscription:
    """One session, watched over a socket. `head` is how a message of its events begins."""

    __slots__ = ("_feed", "_head", "_over", "_reader", "id", "is_due")

    def __init__(self, feed: Feed, reader: Reader, id: str | None, head: bytes) -> None:
        self.id = id
        self.is_due = False
        self._over = False
        self._feed = feed
        self._reader = reader
        self._head = head

    @property
    def session(self) -> str:
        return self._reader.session

    def begin(self) -> None:
        self._reader.on_more(self.wake)
        self.wake()

    def wake(self) -> None:
        """There may be more of it. Returns at once."""
        if not self.is_due and not self.is_over():
            self.is_due = True
            self._feed.put(self)

    def is_over(self) -> bool:
        return self._over

    def end(self) -> None:
        """Nothing of it goes out any more."""
        self._over = True
        self._reader.close()

    def at_hand(self) -> Sequence[Part]:
        """A page of it, if nothing has to be waited for; or nothing."""
        return () if self.is_over() else self._parts(self._reader.lines_at_hand())

    async def next(self) -> Sequence[Part]:
        """A page of it, if there is one."""
        reader = self._reader
        if self.is_over() or not reader.has_more:
            return ()
        lines = await reader.next_lines()
        if not lines:
            self.end()
        return self._parts(lines)

    def message(self, part: Part) -> bytes:
        return self._head + b",".join(part) + b"]}"

    def _parts(self, lines: Sequence[bytes]) -> Sequence[Part]:
        if not lines:
            return ()
        if self._reader.has_more:
            self.wake()
        return parts(lines)


class Feed:
    """The subscriptions of one socket that have something to tell."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._due: deque[Subscription] = deque()
        self._more = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def put(self, subscription: Subscription) -> None:
        self._due.append(subscription)
        self._more.set()
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def cancel(self) -> list[asyncio.Task[None]]:
        """It is over; what is left of it, to be waited for."""
        if self._task is None:
            return []
        self._task.cancel()
        return [self._task]

    async def _run(self) -> None:
        told = 0
        with suppress(Gone):
            while True:
                self._more.clear()
                while self._due:
                    told += await self._tell_some()
                    if told >= AT_ONCE:
                        told = 0
                        await asyncio.sleep(0)
                await self._more.wait()

    async def _tell_some(self) -> int:
        """A page each of so many as go out in one piece; how many that were. Whoever has more than
        that, or has to be waited for, goes out alone. Nothing is waited for between taking a page
        and sending it: who drops a subscription meanwhile hears no more of it."""
        await self._peer.room()
        texts, size, number = list[bytes](), 0, 0
        apart: tuple[Subscription, Sequence[Part]] | None = None
        while self._due and size < PART_BYTES and number < AT_ONCE and apart is None:
            number += 1
            subscription = self._due.popleft()
            subscription.is_due = False
            found = subscription.at_hand()
            if len(found) == 1:
                texts.append(subscription.message(found[0]))
                size += len(texts[-1])
            else:
                apart = subscription, found
        await self._peer.say_all(texts)
        if apart is not None:
            await self._tell(*apart)
        return number

    async def _tell(self, subscription: Subscription, found: Sequence[Part]) -> None:
        try:
            for part in found or await subscription.next():
                await self._peer.room()
                if subscription.is_over():
                    return
                await self._peer.say_all([subscription.message(part)])
        except Gone:
            raise
        except TurnkeeperError as refused:
            await self._lose(subscription, refused)
        except Exception as fault:
            log.exception("a subscription to session %s failed", subscription.session)
            await self._lose(subscription, mistake(fault))

    async def _lose(self, subscription: Subscription, refused: TurnkeeperError) -> None:
        subscription.end()
        await self._peer.lose(subscription, refused)
