"""Which Turnkeeper a command speaks to: a server that is named, the one that holds the data
directory, or none, so that it looks and works for itself.

Decides that, and which token is shown to whom. It must not know what is asked. Invariant: the token
of a data directory goes to the server that holds that directory now, and to nobody else.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

from turnkeeper.cli.params import Where
from turnkeeper.cli.sides import DEFAULT_AGENT, Here, Keeper, Message, There
from turnkeeper.client import Client, Options
from turnkeeper.compose import Durable, System, agents_with, built_in_agents, durable
from turnkeeper.config import Config, load
from turnkeeper.core.errors import DATA_IN_USE, NO_SERVER, TurnkeeperError
from turnkeeper.facade import Turnkeeper
from turnkeeper.place import Place

URL, TOKEN = "TURNKEEPER_URL", "TURNKEEPER_TOKEN"
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
STARTING_S = 3.0
"""So long a server that has the data directory may take until it can be reached."""

ASKING = Options(connect_s=5.0, request_s=3.0, retry_longest_s=2.0)
"""A command does not wait long for a server that is not there."""


@dataclass(frozen=True)
class Server:
    """A server, and how we know of it."""

    url: str
    token: str | None
    how: str
    near: bool = False
    """It is on this machine, and has our data directory."""

    def client(self) -> Client:
        return Client(self.url, token=self.token, options=ASKING, environ=_without_token())


def _without_token() -> dict[str, str]:
    """Which token goes where is decided here."""
    return {name: value for name, value in os.environ.items() if name not in (URL, TOKEN)}


@dataclass(frozen=True)
class Found:
    """What was meant: a server, or (none) the data directory itself."""

    config: Config
    place: Place
    there: Server | None

    @property
    def database_exists(self) -> bool:
        return (self.config.store.database or self.place.database).exists()

    def server(self) -> Server:
        """The server, for what only a server can do."""
        if self.there is not None:
            return self.there
        told = f"no server holds the data directory {self.place.path}, and none was named"
        raise TurnkeeperError(NO_SERVER, told)


def find(where: Where, environ: Mapping[str, str] | None = None) -> Found:
    """Whom to ask."""
    environ = os.environ if environ is None else environ
    given = {} if where.data is None else {"data": (where.data, "--data")}
    config = load(where.config, environ, given)
    place = Place(config.data)
    named = where.server or (environ.get(URL) if where.data is None else None)
    if not named:
        return Found(config, place, holder(place))
    how = "--server" if where.server else URL
    near = _is_same(named, place.server())
    token = environ.get(TOKEN) or (place.read_token() if near else None)
    return Found(config, place, Server(named, token, how, near))


def holder(place: Place) -> Server | None:
    """The server that holds the data directory now."""
    url = place.server()
    if url is None:
        return None
    return Server(url, place.read_token(), f"it holds {place.path}", near=True)


def _is_same(one: str, other: str | None) -> bool:
    if other is None:
        return False
    try:
        a, b = urlsplit(one), urlsplit(other)
        same_host = a.hostname == b.hostname or {a.hostname, b.hostname} <= LOOPBACK
        return a.scheme == b.scheme and a.port == b.port and same_host
    except ValueError:
        return False


# The data directory itself -------------------------------------------------------------------


@asynccontextmanager
async def logs_of(found: Found, what: str) -> AsyncIterator[System]:
    """The logs, to be read: nothing is taken up, and nothing runs."""
    how = Durable(shared=True, what=what, database=found.config.store.database)
    system = await durable({}, {}, found.place, how)
    try:
        yield system
    finally:
        await system.close()


# Someone to run a turn -----------------------------------------------------------------------


@dataclass(frozen=True)
class Running:
    """Who runs it, what to ask for there, and what a person should know."""

    keeper: Keeper
    message: Message
    told: str = ""


@asynccontextmanager
async def keeper_for(where: Where, message: Message) -> AsyncIterator[Running]:
    """Whoever runs a turn: the server, or a Turnkeeper in this process on the data directory."""
    found = find(where)
    async with AsyncExitStack() as stack:
        there = found.there
        if there is None:
            try:
                running = await _in_process(found, message, stack)
            except TurnkeeperError as refused:
                if refused.entry is not DATA_IN_USE:
                    raise
                there = await _wait_holder(found.place, refused)
            else:
                yield running
                return
        client = await stack.enter_async_context(there.client())
        told = f"through the server {there.url} ({there.how})"
        yield Running(There(client), placed(message, found, there), told)


def placed(message: Message, found: Found, there: Server) -> Message:
    """A new session works in the folder where we are, if the server is on this machine and the
    operator did not say another."""
    table = found.config.agents.get(message.agent or "", {})
    if not there.near or "cwd" in table:
        return message
    return dataclasses.replace(message, cwd=os.getcwd())


async def _wait_holder(place: Place, refused: TurnkeeperError) -> Server:
    """The server that has just come, once it can be reached."""
    until = asyncio.get_running_loop().time() + STARTING_S
    while (there := holder(place)) is None:
        if asyncio.get_running_loop().time() >= until:
            raise refused
        await asyncio.sleep(0.05)
    return there


async def _in_process(found: Found, message: Message, stack: AsyncExitStack) -> Running:
    """A Turnkeeper here, on the data directory; others like it may use that at the same time."""
    config = found.config
    name = message.agent or await _agent_of(found, message.session)
    if name is None:
        name = next(iter(config.agents)) if len(config.agents) == 1 else DEFAULT_AGENT
    known = built_in_agents() if name in config.agents else agents_with(name)
    turnkeeper = await stack.enter_async_context(
        Turnkeeper(
            agents={**known, **config.agents},
            limits={**config.limits, **message.limits},
            data=config.data,
            shared=True,
        )
    )
    return Running(Here(turnkeeper), dataclasses.replace(message, agent=name))


async def _agent_of(found: Found, session: str | None) -> str | None:
    """Whom a session is with, that is there already."""
    if session is None or not found.database_exists:
        return None
    async with logs_of(found, "turnkeeper run") as logs:
        record = await logs.store.session(session)
    return None if record is None else record.agent
