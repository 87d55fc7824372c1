"""What can be looked up, in the same words whether a server is asked or the logs are read.

Decides how each is asked. It must not know how the answers are shown. Invariant: both give the
shapes of the API; what only a living server knows (phase, clocks) is left out where none is.
"""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any, Protocol

from turnkeeper import __version__, api
from turnkeeper.cli.params import Where
from turnkeeper.cli.reach import Found, Server, find, logs_of
from turnkeeper.client import AnyEvent, Client
from turnkeeper.compose import System
from turnkeeper.core import records as r
from turnkeeper.core.errors import (
    NO_SUCH_PLACE,
    NOT_TURNKEEPER,
    OTHER_VERSION,
    UNKNOWN_RUN,
    UNKNOWN_SESSION,
    TurnkeeperError,
)  # fmt: skip

PAGE_EVENTS = 512
POLL_S = 0.3
"""So often a log is read again that nobody tells us of."""
LOOKS_AT_ONCE = 16


class Books(Protocol):
    """Sessions, runs, questions and events."""

    async def sessions(self, query: r.SessionQuery) -> list[api.SessionOut]: ...

    async def runs(self, query: r.RunQuery) -> list[api.RunOut]: ...

    async def run(self, run: str) -> api.RunOut: ...

    async def approvals(self, query: r.ApprovalQuery) -> list[api.ApprovalOut]: ...

    def events(self, session: str, after: int, *, follow: bool) -> AsyncIterator[AnyEvent]: ...


class OnServer:
    """Asked of a server."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def sessions(self, query: r.SessionQuery) -> list[api.SessionOut]:
        pages = self._client.sessions(
            agent=query.agent, state=query.state, search=query.search, limit=query.limit
        )
        return (await pages.page()).items

    async def runs(self, query: r.RunQuery) -> list[api.RunOut]:
        """What has not ended is looked at one by one, for its phase and its clocks."""
        pages = self._client.runs(
            session=query.session, state=query.state, parent=query.parent, limit=query.limit
        )
        found = (await pages.page()).items
        looking = asyncio.Semaphore(LOOKS_AT_ONCE)

        async def look(run: api.RunOut) -> api.RunOut:
            if run.outcome is not None or run.clocks:
                return run
            async with looking:
                return await self.run(run.id)

        return list(await asyncio.gather(*(look(run) for run in found)))

    async def run(self, run: str) -> api.RunOut:
        return await (await self._client.run(run)).look()

    async def approvals(self, query: r.ApprovalQuery) -> list[api.ApprovalOut]:
        pages = self._client.approvals(run=query.run, state=query.state, limit=query.limit)
        return (await pages.page()).items

    async def events(self, session: str, after: int, *, follow: bool) -> AsyncIterator[AnyEvent]:
        last = (await self._client.session(session)).seq
        if after >= last and not follow:
            return
        async with aclosing(aiter(self._client.events(session, after))) as events:  # type: ignore[type-var]
            async for event in events:
                yield event
                if event.seq >= last and not follow:
                    return


class InLogs:
    """Read from the logs of a data directory, where no server is."""

    def __init__(self, system: System | None) -> None:
        self._system = system
        """None: there are no logs yet."""

    async def sessions(self, query: r.SessionQuery) -> list[api.SessionOut]:
        if self._system is None:
            return []
        page = await self._system.store.sessions(query)
        return [api.session_out(record) for record in page.items]

    async def runs(self, query: r.RunQuery) -> list[api.RunOut]:
        if self._system is None:
            return []
        return [api.run_out(record) for record in (await self._system.store.runs(query)).items]

    async def run(self, run: str) -> api.RunOut:
        record = None if self._system is None else await self._system.store.run(run)
        if record is None:
            raise TurnkeeperError(UNKNOWN_RUN, f"there is no run {run}")
        return api.run_out(record)

    async def approvals(self, query: r.ApprovalQuery) -> list[api.ApprovalOut]:
        if self._system is None:
            return []
        page = await self._system.store.approvals(query)
        return [api.approval_out(record) for record in page.items]

    async def events(self, session: str, after: int, *, follow: bool) -> AsyncIterator[AnyEvent]:
        store = None if self._system is None else self._system.store
        if store is None or not await store.head(session):
            raise TurnkeeperError(UNKNOWN_SESSION, f"there is no session {session}")
        while True:
            while events := await store.read(session, after, PAGE_EVENTS):
                for event in events:
                    after = event.seq
                    yield event
            if not follow:
                return
            await asyncio.sleep(POLL_S)


@asynccontextmanager
async def books_for(where: Where, what: str) -> AsyncIterator[Books]:
    """Wherever it can be looked up."""
    found = find(where)
    if found.there is not None:
        async with found.there.client() as client, explaining(found.there):
            yield OnServer(client)
    elif found.database_exists:
        async with logs_of(found, what) as logs:
            yield InLogs(logs)
    else:
        yield InLogs(None)


@asynccontextmanager
async def server_for(where: Where) -> AsyncIterator[tuple[Client, Found, Server]]:
    """The server, for what only a server can do."""
    found = find(where)
    there = found.server()
    async with there.client() as client, explaining(there):
        yield client, found, there


@asynccontextmanager
async def explaining(there: Server) -> AsyncIterator[None]:
    """Whoever is not understood by a server of another version is told that."""
    try:
        yield
    except TurnkeeperError as refused:
        if refused.entry not in (NO_SUCH_PLACE, NOT_TURNKEEPER):
            raise
        theirs = await asyncio.to_thread(version_of, there)
        if theirs in (None, __version__):
            raise
        told = f"{there.url} is Turnkeeper {theirs}, and this is {__version__}: {refused.what}"
        raise TurnkeeperError(OTHER_VERSION, told) from None


def version_of(there: Server) -> str | None:
    """What the server says of itself; none if it does not."""
    headers = {} if there.token is None else {"Authorization": f"Bearer {there.token}"}
    base = there.url.partition("?")[0].rstrip("/")
    asked = urllib.request.Request(f"{base}/openapi.json", headers=headers)
    try:
        with urllib.request.urlopen(asked, timeout=3) as answer:
            said: Any = json.loads(answer.read(4 << 20))
        return str(said["info"]["version"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
