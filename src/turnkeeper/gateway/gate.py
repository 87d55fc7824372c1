"""What the gateway needs of the rest of the program, and whether it is open.

Decides who counts as waiting for us, and how many may. It must not know HTTP. Invariant: once it is
closing, it never opens again; whoever lives long (a stream, a socket) is known here and can be
ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, Protocol

from turnkeeper.core.errors import BUSY, SHUTTING_DOWN, TurnkeeperError
from turnkeeper.ports import Agent
from turnkeeper.runtime.dispatcher import Dispatcher

Scope = Literal["read", "operate", "admin"]

MIB = 1 << 20


class Living(Protocol):
    """A stream or a socket: something that goes on until it is told to end."""

    def end(self) -> None:
        """The server goes: say so where that can be said, and be done soon."""


def _no_trouble() -> str | None:
    return None


@dataclass
class Gate:
    """The dispatcher, who may come in, and how much is let in at once."""

    dispatcher: Dispatcher
    agents: Mapping[str, Agent]
    drivers: Mapping[str, str] = field(default_factory=dict)
    """What the agents are driven by, by their names: for people to read."""
    tokens: Mapping[str, Scope] = field(default_factory=dict)
    """Token -> scope. Without any, everyone who can reach a loopback address may do everything."""
    hosts: Collection[str] = ()
    """Names that this server goes by, beside the loopback ones; `*` for any."""
    origins: Collection[str] = ()
    """Web pages of other origins that may use it, as `https://example.com`."""
    trouble: Callable[[], str | None] = _no_trouble
    """Why nothing can be stored now, if so."""
    metrics: Callable[[], bytes] | None = None
    max_body_bytes: int = 4 * MIB
    max_message_bytes: int = 4 * MIB
    """The largest WebSocket message that is taken."""
    max_requests: int = 1000
    """Requests at once: those that wait for an answer, not streams."""
    max_sockets: int = 1000
    max_watchers: int = 20_000
    """Streams and subscriptions at once."""
    max_subscriptions: int = 5_000
    """Subscriptions of one WebSocket."""
    max_wait_s: float = 300.0
    body_s: float = 30.0
    """So long the body of a request may take to come."""
    keep_alive_s: float = 15.0
    """A stream in which nothing happens says so this often."""
    ping_s: float = 20.0
    """A WebSocket is pinged this often; one that does not answer for as long again is dead."""

    def __post_init__(self) -> None:
        self.opening: str | None = None
        """What is still to be done before it is ready; none once it is."""
        self.closing = False
        self.requests = 0
        self.watchers = 0
        self._living: set[Living] = set()
        self._watching: set[Living] = set()

    # Whether it is open ----------------------------------------------------------------------

    def not_ready(self) -> str | None:
        """Why it is not ready for work, if it is not."""
        if self.closing:
            return "the server is shutting down"
        return self.opening or self.trouble()

    def refuse(self) -> None:
        """From now on nothing new is taken; who is here may stay."""
        self.closing = True

    def check_open(self) -> None:
        if self.closing:
            raise TurnkeeperError(SHUTTING_DOWN, "this server is shutting down")

    # How many are here -----------------------------------------------------------------------

    @contextmanager
    def request(self) -> Iterator[None]:
        """One request, while it is answered."""
        if self.requests >= self.max_requests:
            raise TurnkeeperError(BUSY, f"{self.requests} requests are being answered")
        self.requests += 1
        try:
            yield
        finally:
            self.requests -= 1

    @contextmanager
    def living(self, living: Living) -> Iterator[None]:
        """A stream or a socket, while it lives."""
        self.check_open()
        self._living.add(living)
        try:
            yield
        finally:
            self._living.discard(living)

    def sockets(self) -> int:
        return len(self._living)

    def take_watcher(self) -> None:
        """One more who watches a session; `leave_watcher` when it is done."""
        if self.watchers >= self.max_watchers:
            raise TurnkeeperError(BUSY, f"{self.watchers} are watching")
        self.watchers += 1

    def leave_watcher(self) -> None:
        self.watchers -= 1

    async def end_all(self, within_s: float) -> bool:
        """Tell everyone who lives long to end; whether they all did in time."""
        until = asyncio.get_running_loop().time() + within_s
        for living in list(self._living):
            living.end()
        while self._living and asyncio.get_running_loop().time() < until:
            await asyncio.sleep(0.01)
        return not self._living
