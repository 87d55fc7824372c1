"""What a socket's subscriptions tell a peer that takes its time: no more than it has room for."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Callable, Sequence
from typing import cast

from tests.helpers.loops import in_loop
from turnkeeper.core.errors import TurnkeeperError
from turnkeeper.gateway.feed import Feed, Subscription
from turnkeeper.gateway.reader import PART_BYTES, Reader

LINE = b"x" * 8000


class Log:
    """One session's log, as a reader has it: a page that is at hand, and no more."""

    session = "s"
    has_more = False

    def __init__(self, lines: Sequence[bytes]) -> None:
        self._lines = lines

    def on_more(self, told: Callable[[], None]) -> None:
        pass

    def close(self) -> None:
        pass

    def lines_at_hand(self) -> Sequence[bytes]:
        lines, self._lines = self._lines, ()
        return lines

    async def next_lines(self) -> Sequence[bytes]:
        return ()


class Peer:
    """Has room so often; then when it is let have some."""

    def __init__(self, rooms: int = 0) -> None:
        self.said: list[bytes] = []
        self.asked, self.may, self.spoken_to = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._rooms = rooms

    async def room(self) -> None:
        self._rooms -= 1
        if self._rooms < 0:
            self.asked.set()
            await self.may.wait()

    async def say_all(self, texts: Sequence[bytes]) -> None:
        self.said += texts
        if texts:
            self.spoken_to.set()

    async def lose(self, subscription: Subscription, refused: TurnkeeperError) -> None:
        raise refused


def subscribed(feed: Feed, lines: Sequence[bytes], head: bytes = b"") -> Subscription:
    subscription = Subscription(feed, cast("Reader", Log(lines)), None, head)
    subscription.begin()
    return subscription


@in_loop
async def test_what_was_dropped_while_there_was_no_room_is_not_told() -> None:
    peer = Peer()
    feed = Feed(peer)
    dropped, kept = (subscribed(feed, [b"1"], head) for head in (b"dropped ", b"kept "))
    await peer.asked.wait()
    dropped.end()
    peer.may.set()
    await peer.spoken_to.wait()
    assert peer.said == [kept.message([b"1"])]
    feed.cancel()


@in_loop
async def test_a_long_page_ends_where_its_subscription_was_dropped() -> None:
    peer = Peer(rooms=3)
    feed = Feed(peer)
    dropped = subscribed(feed, [LINE] * 100)
    await peer.asked.wait()
    said = len(peer.said)
    dropped.end()
    peer.spoken_to.clear()
    peer.may.set()
    kept = subscribed(feed, [b"1"], b"kept ")
    await peer.spoken_to.wait()
    assert peer.said[said:] == [kept.message([b"1"])]
    assert 0 < said < len(LINE) * 100 / PART_BYTES
    feed.cancel()


@in_loop
async def test_peers_that_do_not_read_hold_nothing_of_their_own() -> None:
    lines = [LINE] * 512
    peers = [Peer(rooms=2) for _ in range(20)]
    feeds = [Feed(peer) for peer in peers]
    tracemalloc.start()
    try:
        for feed in feeds:
            subscribed(feed, lines)
        for peer in peers:
            await peer.asked.wait()
            peer.said.clear()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 20 * 70_000, "a part each at most, of a page of 4 MB"
    for feed in feeds:
        feed.cancel()
