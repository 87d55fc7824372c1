"""Which Turnkeeper a command speaks to: a server that is named, the one that holds the data
directory, or none, so that it looks and works for itself.

Decides that, and which token is shown to whom. It must not know what is asked. Invariant: the token
of a data directory goes to the server that holds that directory now, and to nobody else.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import parse_qs, urlsplit

from turnkeeper.cli.params import Where
from turnkeeper.cli.sides import Books, Keeper, Message
from turnkeeper.config import Config, load
from turnkeeper.core.errors import DATA_IN_USE, NO_SERVER, TurnkeeperError
from turnkeeper.place import Place

T = TypeVar("T")

URL, TOKEN = "TURNKEEPER_URL", "TURNKEEPER_TOKEN"
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
STARTING_S = 3.0
"""So long a server that has the data directory may take until it can be reached."""


@dataclass(frozen=True)
class Server:
    """A server, and how we know of it."""

    url: str
    token: str | None
    how: str
    near: bool = False
    """It is on this machine, and has our data directory."""

    @property
    def base(self) -> str:
        """The address without the token that it may carry: for people to see."""
        return self.url.partition("?")[0].rstrip("/")


@dataclass(frozen=True)
class Found:
    """What was meant: a server, or (none) the data directory itself."""

    config: Config
    place: Place
    there: Server | None

    @property
    def database_exists(self) -> bool:
        store = self.config.store
        return store.is_postgres or store.file(self.place.database).exists()

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
    token = _token_in(named) or environ.get(TOKEN) or (place.read_token() if near else None)
    return Found(config, place, Server(named, token, how, near))


def holder(place: Place) -> Server | None:
    """The server that holds the data directory now."""
    url = place.server()
    if url is None:
        return None
    return Server(url, place.read_token(), f"it holds {place.path}", near=True)


def _token_in(address: str) -> str | None:
    """The token that an address carries: whoever wrote it there means it for that server."""
    try:
        return parse_qs(urlsplit(address).query).get("token", [None])[0]
    except ValueError:
        return None


def _is_same(one: str, other: str | None) -> bool:
    if other is None:
        return False
    try:
        a, b = urlsplit(one), urlsplit(other)
        same_host = a.hostname == b.hostname or {a.hostname, b.hostname} <= LOOPBACK
        return a.scheme == b.scheme and a.port == b.port and same_host
    except ValueError:
        return False


# Someone to ask ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Running:
    """Who runs a turn, what to ask for there, and what a person should know."""

    keeper: Keeper
    message: Message
    told: str = ""


@asynccontextmanager
async def keeper_for(where: Where, message: Message) -> AsyncIterator[Running]:
    """Whoever runs a turn: the server, or a Turnkeeper in this process on the data directory."""
    found = find(where)
    async with AsyncExitStack() as stack:
        there = await server_or_here(found, lambda: _in_process(found, message, stack))
        if isinstance(there, Running):
            yield there
            return
        from turnkeeper.cli.there import STAYING, There, check_there, client_of

        await check_there(there)
        client = await stack.enter_async_context(client_of(there, STAYING))
        told = f"through the server {there.base} ({there.how})"
        wanted = placed(message, found.config) if there.near else message
        yield Running(There(client), wanted, told)


async def _in_process(found: Found, message: Message, stack: AsyncExitStack) -> Running:
    from turnkeeper.cli.here import Here, turnkeeper_for

    turnkeeper, message = await turnkeeper_for(found, message)
    return Running(Here(await stack.enter_async_context(turnkeeper)), message)


def placed(message: Message, config: Config) -> Message:
    """A new session works in the folder where we are, if the operator did not say another."""
    if "cwd" in config.agents.get(message.agent or "", {}):
        return message
    return dataclasses.replace(message, cwd=os.getcwd())


async def server_or_here(found: Found, open_here: Callable[[], Awaitable[T]]) -> Server | T:
    """The server; or what is opened on the data directory, unless a server has just taken it."""
    if found.there is not None:
        return found.there
    try:
        return await open_here()
    except TurnkeeperError as refused:
        if refused.entry is not DATA_IN_USE:
            raise
        return await _wait_holder(found.place, refused)


async def _wait_holder(place: Place, refused: TurnkeeperError) -> Server:
    """The server that has just come, once it can be reached."""
    until = asyncio.get_running_loop().time() + STARTING_S
    while (there := holder(place)) is None:
        if asyncio.get_running_loop().time() >= until:
            raise refused
        await asyncio.sleep(0.05)
    return there


@asynccontextmanager
async def books_for(where: Where, what: str) -> AsyncIterator[Books]:
    """Wherever things can be looked up: the server, or the logs."""
    found = find(where)
    if found.there is not None:
        from turnkeeper.cli.there import OnServer, client_of

        async with client_of(found.there) as client:
            yield OnServer(client)
        return
    from turnkeeper.cli.here import InLogs, logs_of

    if found.database_exists:
        async with logs_of(found, what) as logs:
            yield InLogs(logs)
    else:
        yield InLogs(None)
