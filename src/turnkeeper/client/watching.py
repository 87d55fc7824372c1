"""Watching a session: the shared link, and a link of one's own for who is far behind the others.

Decides over which link a reader gets its events. It must not know what the events are. Invariant:
who reads an old part of a session, or reads slowly, delays nobody else who watches it here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

from turnkeeper.client.feed import Reader
from turnkeeper.client.link import Link
from turnkeeper.client.shapes import AnyEvent
from turnkeeper.client.trouble import ClientClosed


class Links:
    """The link that is shared, and those that are not."""

    def __init__(self, make: Callable[[], Link]) -> None:
        self._make = make
        self.shared = make()
        self._own: set[Link] = set()
        self._leaving: set[asyncio.Task[None]] = set()

    def open_own(self) -> Link:
        link = self._make()
        self._own.add(link)
        return link

    def close_own(self, link: Link) -> None:
        self._own.discard(link)
        link.close()
        task = asyncio.get_running_loop().create_task(link.wait_closed())
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def aclose(self) -> None:
        links = [self.shared, *self._own]
        self._own.clear()
        for link in links:
            link.close()
        for link in links:
            await link.wait_closed()
        if self._leaving:
            await asyncio.wait(self._leaving)


class Watching:
    """One who watches a session, from a cursor on. `close` it when done."""

    def __init__(self, links: Links, session: str, after: int) -> None:
        self._links = links
        self._own: Link | None = None
        self._news = asyncio.Event()
        self._reader = Reader(session, after, self._news.set)

    async def next(self) -> Sequence[AnyEvent]:
        """What came next, waiting for it if need be; nothing once the client is closed."""
        reader = self._reader
        while True:
            self._news.clear()
            events = reader.take()
            if events:
                self._come_back()
                return events
            if isinstance(reader.fault, ClientClosed):
                return ()
            if reader.fault is not None:
                raise reader.fault
            if reader.behind:
                self._join()
            await self._news.wait()

    def close(self) -> None:
        self._leave()
        self._links.shared.leave(self._reader)

    def _join(self) -> None:
        if self._links.shared.join(self._reader):
            self._leave()
            return
        if self._own is None:
            self._own = self._links.open_own()
        self._own.join(self._reader)

    def _come_back(self) -> None:
        """Over to the shared link, if there is one of its own and it is near enough now."""
        own, shared = self._own, self._links.shared
        if own is not None and not self._reader.behind and shared.could_join(self._reader):
            own.leave(self._reader)
            self._join()

    def _leave(self) -> None:
        own, self._own = self._own, None
        if own is not None:
            own.leave(self._reader)
            self._links.close_own(own)


class Events:
    """The events of a session after a cursor, and on. Can be iterated again, and by several."""

    def __init__(self, links: Links, session: str, after: int) -> None:
        self._links = links
        self._session = session
        self._after = after

    async def __aiter__(self) -> AsyncIterator[AnyEvent]:
        watching = self.watch()
        try:
            while events := await watching.next():
                for event in events:
                    yield event
        finally:
            watching.close()

    def watch(self) -> Watching:
        """The same, as the events come together; to be closed when done."""
        return Watching(self._links, self._session, self._after)
