"""A real gateway over a real dispatcher, and a client of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from turnkeeper import compose
from turnkeeper.client import AnyEvent, Client, Options
from turnkeeper.core.events import Event, OutputText
from turnkeeper.drivers.demo import DemoAgent
from turnkeeper.gateway.gate import Gate, Scope
from turnkeeper.gateway.serve import Server
from turnkeeper.ports import Agent

BOUND_S = 60.0
"""Nothing here takes so long; a machine that is busy may need some of it."""

QUICK = Options(
    connect_s=20, answer_s=20, request_s=40, ping_s=20, pong_s=20,
    retry_first_s=0.01, retry_longest_s=0.1,
)  # fmt: skip
"""Tries again quickly, and is patient with a machine that is busy."""

TOKEN = "a-token-for-tests"


class Gateway:
    """A dispatcher in this process, and the server before it, which can be replaced."""

    def __init__(
        self, system: compose.System, tokens: Mapping[str, Scope], port: int, options: Any
    ) -> None:
        self.system = system
        self._tokens = tokens
        self._options = options
        self.server = self._make(port)

    @property
    def url(self) -> str:
        return self.server.url

    @property
    def port(self) -> int:
        return self.server.port

    def _make(self, port: int) -> Server:
        system = self.system
        gate = Gate(system.dispatcher, system.agents, tokens=self._tokens, **self._options)
        return Server(gate, "127.0.0.1", port)

    async def start(self) -> None:
        await self.server.start()

    async def stop(self) -> None:
        await self.server.stop(5.0)

    async def start_again(self, port: int) -> None:
        """Another server over the same dispatcher."""
        self.server = self._make(port)
        await self.server.start()


@asynccontextmanager
async def gateway(
    agents: Mapping[str, Agent] | None = None,
    tokens: Mapping[str, Scope] | None = None,
    port: int = 0,
    **options: Any,
) -> AsyncIterator[Gateway]:
    made = {"demo": DemoAgent(pace_s=0.001, ready_after_s=0.0)} if agents is None else agents
    system = compose.in_memory(dict(made), {})
    await system.dispatcher.start()
    found = Gateway(system, {TOKEN: "admin"} if tokens is None else tokens, port, options)
    await found.start()
    try:
        yield found
    finally:
        await found.stop()
        await system.close()


def client(url: str, options: Options = QUICK, token: str | None = TOKEN) -> Client:
    return Client(url, token=token, options=options, environ={})


def run(body: Callable[[], Awaitable[None]], bound_s: float = BOUND_S) -> None:
    """The scenario, within a bound, on a loop of its own."""

    async def bounded() -> None:
        async with asyncio.timeout(bound_s):
            await body()

    asyncio.run(bounded())


async def wait_until(holds: Callable[[], bool], within_s: float = BOUND_S) -> None:
    async with asyncio.timeout(within_s):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def text_of(events: list[AnyEvent]) -> str:
    return "".join(event.data.text for event in events if isinstance(event.data, OutputText))


async def collect(events: Any, into: list[AnyEvent] | None = None) -> list[AnyEvent]:
    found: list[AnyEvent] = [] if into is None else into
    async for event in events:
        found.append(event)
    return found


async def log_of(place: Gateway, session: str) -> list[Event]:
    """What really happened, from the store itself."""
    found: list[Event] = []
    while events := await place.system.store.read(session, len(found), 500):
        found.extend(events)
    return found
