"""What the gateway needs of the rest of the program, and whether it is open.

Decides how many may be here at once. It must not know HTTP. Invariant: once it is closing, it never
opens again; whoever stays long (a stream, a socket, somebody who waits) is known here and can be
told to end.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from turnkeeper.core.errors import (
    BUSY,
    SHUTTING_DOWN,
    STORE_DOWN,
    InvalidValue,
    TurnkeeperError,
)
from turnkeeper.observe.diagnosis import Probe
from turnkeeper.ports import Agent
from turnkeeper.runtime.bound import Bound
from turnkeeper.runtime.dispatcher import Dispatcher

if TYPE_CHECKING:
    from turnkeeper.gateway.a2a_pushes import Pushes

Scope = Literal["child", "read", "operate", "admin"]
"""`child`: for what an agent's own run has started, and for nothing else."""

MIB = 1 << 20


class Guest(Protocol):
    """Somebody who stays until they are told to end."""

    def end(self) -> None:
        """The server goes: say so where that can be said, and be done soon. Returns at once."""


class KnownAgent(Protocol):
    """A known agent, as somebody has found it on this machine."""

    @property
    def name(self) -> str: ...
    @property
    def driver(self) -> str: ...
    @property
    def state(self) -> Literal["ready", "not installed", "needs login", "does not answer"]: ...
    @property
    def version(self) -> str: ...
    @property
    def todo(self) -> str: ...


def _no_trouble() -> str | None:
    return None


@dataclass
class Gate:
    """The dispatcher, who may come in, and how much is let in at once."""

    dispatcher: Dispatcher
    agents: Mapping[str, Agent]
    drivers: Mapping[str, str] = field(default_factory=dict)
    """What drives each agent, for people to read."""
    tokens: Mapping[str, Scope] = field(default_factory=dict, repr=False)
    """Token -> scope. Without any, everyone who reaches this (loopback) address may do all."""
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    """What ids are signed with that are handed out and not kept, agents' tokens among them."""
    hosts: Collection[str] = ()
    """Names that this server goes by, beside the loopback ones; `*` for any."""
    any_address: bool = False
    """Any numeric address is one of its names, too: no page can pretend to be one."""
    origins: Collection[str] = ()
    """Origins of web pages, beside its own, that may use it: `https://example.com`; `*` for any."""
    trouble: Callable[[], str | None] = _no_trouble
    """Why nothing can be stored now, if so."""
    metrics: Callable[[], bytes] | None = None
    probe: Probe | None = None
    """Looks at an agent's processes, for who asks what a run is doing."""
    known: Callable[[], Awaitable[Sequence[KnownAgent]]] | None = None
    """Looks for the agents that people may have on this machine."""
    page: Path | None = None
    """Where the page's files are, if not in this package."""
    opening: str | None = None
    """What is still to be done before it is ready; none once it is."""
    max_body_bytes: int = 4 * MIB
    max_message_bytes: int = 4 * MIB
    """The largest WebSocket message that is taken."""
    max_connections: int = 5000
    max_requests: int = 500
    """Requests that are being answered; not those who watch or wait."""
    max_sockets: int = 2000
    max_watchers: int = 20_000
    """Streams, subscriptions, and those who wait for a run."""
    max_subscriptions: int = 5_000
    """Subscriptions of one WebSocket."""
    body_s: float = 30.0
    """So long a request's body may take to come."""
    keep_alive_s: float = 15.0
    """A stream in which nothing happens says so this often."""
    ping_s: float = 20.0
    """A WebSocket is pinged this often; one that does not answer for as long again is dead."""

    def __post_init__(self) -> None:
        if not all(map(str.strip, self.tokens)):
            raise InvalidValue("tokens", "", "a token is not empty")
        self.closing = False
        """No new work is taken; what is there can be watched, answered and stopped."""
        self.closed = False
        """Nothing is taken at all."""
        self.requests = 0
        self.sockets = 0
        self.watchers = 0
        self.pushes: Pushes | None = None
        """Who is told of tasks over A2A; without it nobody is."""
        self.process_of = Bound(self.secret).process
        """Token of an agent's process -> that process; none for any other token."""
        self.kept: dict[str, Any] = {}
        """What surfaces keep while the server lives, by their names."""
        self._guests: set[Guest] = set()
        self._alone = asyncio.Event()

    # Whether it is open ----------------------------------------------------------------------

    def refuse(self) -> None:
        """From now on no new work is taken: what runs may come to its end."""
        self.closing = True

    def close(self) -> None:
        """From now on nothing is taken; who is here may stay until they are told."""
        self.closing = self.closed = True

    def check_work(self) -> None:
        """Whether something new may be begun."""
        if self.closing:
            raise TurnkeeperError(SHUTTING_DOWN, "this server is shutting down")

    def check_open(self) -> None:
        """Whether anything may be asked."""
        if self.closed:
            raise TurnkeeperError(SHUTTING_DOWN, "this server is shutting down")

    def check_ready(self) -> None:
        """Raises why it is not ready for work, if it is not."""
        self.check_work()
        if self.opening is not None:
            raise TurnkeeperError(BUSY, f"this server is starting: {self.opening}")
        trouble = self.trouble()
        if trouble is not None:
            raise TurnkeeperError(STORE_DOWN, trouble)

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
    def socket(self) -> Iterator[None]:
        """One WebSocket, while it is open."""
        if self.sockets >= self.max_sockets:
            raise TurnkeeperError(BUSY, f"{self.sockets} sockets are open")
        self.sockets += 1
        try:
            yield
        finally:
            self.sockets -= 1

    @contextmanager
    def watcher(self) -> Iterator[None]:
        """One who watches or waits, while they do."""
        self.enter_watcher()
        try:
            yield
        finally:
            self.leave_watcher()

    def enter_watcher(self) -> None:
        if self.watchers >= self.max_watchers:
            raise TurnkeeperError(BUSY, f"{self.watchers} are watching or waiting")
        self.watchers += 1

    def leave_watcher(self) -> None:
        self.watchers -= 1

    # Who stays -------------------------------------------------------------------------------

    @contextmanager
    def guest(self, guest: Guest) -> Iterator[None]:
        """Somebody, while they stay."""
        self.check_open()
        self._guests.add(guest)
        try:
            yield
        finally:
            self._guests.discard(guest)
            if not self._guests:
                self._alone.set()

    async def end_all(self, within_s: float) -> None:
        """Tell everyone who stays to end, and wait for them so long. It must be closed."""
        for guest in list(self._guests):
            guest.end()
        self._alone.clear()
        if self._guests:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._alone.wait(), within_s)
