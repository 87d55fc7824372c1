"""A server, as commands use one: to run turns, and to look things up.

Decides in which words it is asked. It must not know how the answers are shown. Invariant: what a
server of another version does not understand is told as that.
"""

from __future__ import annotations

import asyncio
import json
import os
import urllib.request
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

from turnkeeper import __version__, api
from turnkeeper.cli import hearing as hearing  # nobody else hears the client meanwhile
from turnkeeper.cli.reach import TOKEN, URL, Server
from turnkeeper.cli.sides import DEFAULT_AGENT, Message
from turnkeeper.client import AnyEvent, Client, Options, RemoteRun
from turnkeeper.core import records as r
from turnkeeper.core.diagnosis import Diagnosis
from turnkeeper.core.errors import (
    NO_SUCH_PLACE,
    NOT_TURNKEEPER,
    OTHER_VERSION,
    SESSION_EXISTS,
    UNACKNOWLEDGED,
    UNKNOWN_SESSION,
    UNREACHABLE,
    InvalidValue,
    TurnkeeperError,
)  # fmt: skip

ACCEPT_S = 15.0
"""So long a server may take to acknowledge a message; then it is withdrawn."""

ASKING = Options(connect_s=5.0, request_s=2.0, retry_longest_s=1.0)
"""A command does not wait long for a server that is not there."""
STAYING = Options(connect_s=5.0, request_s=30.0, retry_longest_s=3.0)
"""Once a turn runs there, a server that is away for a while is waited for."""


@asynccontextmanager
async def client_of(there: Server, options: Options = ASKING) -> AsyncIterator[Client]:
    """A client of it. Which token goes where was decided when it was found."""
    environ = {name: value for name, value in os.environ.items() if name not in (URL, TOKEN)}
    client = Client(there.url, token=there.token, options=options, environ=environ)
    async with client, explaining(there):
        yield client


async def check_there(there: Server) -> None:
    """Raises what keeps us from using it."""
    async with client_of(there) as client:
        await client.agents()


class There:
    """A server."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.answer = client.answer

    async def begin(self, message: Message) -> RemoteRun:
        session = await self._session(message)
        try:
            return await self._client.send(
                session, message.text, limits=message.limits, wait_s=ACCEPT_S, **message.options()
            )
        except TurnkeeperError as refused:
            if refused.entry is UNACKNOWLEDGED and not refused.fields.get("maybe_taken", True):
                told = refused.what.rpartition("(the last try: ")[2].rstrip(")")
                raise TurnkeeperError(UNREACHABLE, told) from None
            raise

    async def _session(self, message: Message) -> str:
        """The session to send to, made if there is none of that name."""
        if message.session is not None:
            try:
                return self._checked(await self._client.session(message.session), message.agent)
            except TurnkeeperError as refused:
                if refused.entry is not UNKNOWN_SESSION:
                    raise
        agent = message.agent or await self._usual_agent(message.session)
        try:
            made = await self._client.create_session(agent, id=message.session, cwd=message.cwd)
        except TurnkeeperError as refused:
            if refused.entry is not SESSION_EXISTS or message.session is None:
                raise
            made = await self._client.session(message.session)
        return self._checked(made, message.agent)

    def _checked(self, session: Any, agent: str | None) -> str:
        if agent is not None and session.agent != agent:
            told = f"session {session.id} is with {session.agent}; use another session"
            raise InvalidValue("agent", agent, told)
        return str(session.id)

    async def _usual_agent(self, session: str | None) -> str:
        names = [agent.name for agent in await self._client.agents()]
        if len(names) == 1:
            return names[0]
        if DEFAULT_AGENT in names:
            return DEFAULT_AGENT
        what = "a new session" if session is None else f"session {session} is new: it"
        told = f"{what} needs its agent (--agent); there are: {', '.join(sorted(names))}"
        raise InvalidValue("agent", None, told)


class OnServer:
    """Looked up by asking a server."""

    is_live = True

    def __init__(self, client: Client) -> None:
        self._client = client

    async def sessions(self, query: r.SessionQuery) -> list[api.SessionOut]:
        pages = self._client.sessions(
            agent=query.agent, state=query.state, search=query.search, limit=query.limit
        )
        return (await pages.page()).items

    async def runs(self, query: r.RunQuery) -> list[api.RunOut]:
        pages = self._client.runs(
            session=query.session, state=query.state, parent=query.parent, limit=query.limit
        )
        return (await pages.page()).items

    async def run(self, run: str) -> api.RunOut:
        return await (await self._client.run(run)).look()

    async def diagnosis(self, run: str) -> Diagnosis | None:
        return await self._client.diagnosis(run)

    async def head(self, session: str) -> int:
        return (await self._client.session(session)).seq

    async def approvals(self, query: r.ApprovalQuery) -> list[api.ApprovalOut]:
        pages = self._client.approvals(run=query.run, state=query.state, limit=query.limit)
        return (await pages.page()).items

    async def events(
        self, session: str, after: int, *, follow: bool
    ) -> AsyncGenerator[AnyEvent, None]:
        last = (await self._client.session(session)).seq
        if after >= last and not follow:
            return
        async with aclosing(aiter(self._client.events(session, after))) as events:  # type: ignore[type-var]
            async for event in events:
                yield event
                if event.seq >= last and not follow:
                    return


@asynccontextmanager
async def explaining(there: Server) -> AsyncIterator[None]:
    """Whoever is not understood by a server of another version is told that; and where an address
    comes from that leads to nobody, if it was not typed."""
    try:
        yield
    except TurnkeeperError as refused:
        if refused.entry == UNREACHABLE and there.how == URL:
            told = f"{refused.what} (the address is that of {URL})"
            raise TurnkeeperError(UNREACHABLE, told, **refused.fields) from None
        if refused.entry not in (NO_SUCH_PLACE, NOT_TURNKEEPER):
            raise
        theirs = await asyncio.to_thread(version_of, there)
        if theirs in (None, __version__):
            raise
        told = f"{there.base} is Turnkeeper {theirs}, and this is {__version__}: {refused.what}"
        raise TurnkeeperError(OTHER_VERSION, told) from None


def version_of(there: Server) -> str | None:
    """What the server says of itself; none if it does not."""
    headers = {} if there.token is None else {"Authorization": f"Bearer {there.token}"}
    asked = urllib.request.Request(f"{there.base}/openapi.json", headers=headers)
    try:
        with urllib.request.urlopen(asked, timeout=3) as answer:
            said: Any = json.loads(answer.read(4 << 20))
        return str(said["info"]["version"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
