"""Connections that can be used again, by where they lead.

Decides which connection a request goes over. It must not know what is asked or answered.
Invariants: a connection is either in the hands of one request or idle here; what a request costs
does not grow with how many others are under way. (The library's own pool looks through all of its
connections whenever a request begins or ends, which with a thousand streams holds up the event loop
for milliseconds; and whoever comes when it is full waits.)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

import httpcore2

Connection: TypeAlias = httpcore2.AsyncConnectionInterface
Place: TypeAlias = tuple[bytes, bytes, int]
"""Scheme, host and port."""
Back: TypeAlias = Callable[[], Awaitable[None]]


@dataclass(slots=True)
class Pool:
    """Used from one event loop."""

    make: Callable[[httpcore2.Origin], Connection]
    keeps: bool = True
    """Without it each connection serves one request."""
    _idle: dict[Place, deque[Connection]] = field(default_factory=dict)
    """Those used last are last."""
    _closed: bool = False

    async def ask(self, request: httpcore2.Request) -> tuple[httpcore2.Response, Back]:
        """The beginning of an answer; and what gives its connection back, once it is over."""
        origin = request.url.origin
        place = (origin.scheme, origin.host, origin.port)
        while True:
            connection = await self._take(place) or self.make(origin)
            response = None
            try:
                with suppress(httpcore2.ConnectionNotAvailable):
                    response = await connection.handle_async_request(request)
            finally:
                if response is None:
                    await self._back(place, connection)
            if response is not None:
                return response, partial(self._back, place, connection)

    async def aclose(self) -> None:
        """What is in a request's hands is closed when it comes back."""
        self._closed = True
        idle, self._idle = self._idle, {}
        for connections in idle.values():
            for connection in connections:
                await connection.aclose()

    async def _take(self, place: Place) -> Connection | None:
        idle = self._idle.get(place)
        while idle:
            connection = idle.pop()
            if connection.is_available() and not connection.has_expired():
                return connection
            await connection.aclose()
        return None

    async def _back(self, place: Place, connection: Connection) -> None:
        """However the request ended, its connection is kept if it is of further use."""
        if self.keeps and not self._closed and connection.is_idle():
            self._idle.setdefault(place, deque()).append(connection)
        elif not connection.is_closed():
            await connection.aclose()
        await self._drop_old()

    async def _drop_old(self) -> None:
        """Everywhere, from the longest unused on."""
        for place, idle in list(self._idle.items()):
            while idle and (idle[0].is_closed() or idle[0].has_expired()):
                await idle.popleft().aclose()
            if not idle and self._idle.get(place) is idle:
                del self._idle[place]
