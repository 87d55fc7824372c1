"""Whom an editor's sessions are kept by: a server, or a Turnkeeper in this process.

Decides in which words each is asked. It must not know the editor's protocol. Invariant: both give
the same answers, and each run's events once and in order, however often the server is away.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from turnkeeper import api
from turnkeeper.cli.params import Where
from turnkeeper.cli.reach import Found, Server, find, server_or_here
from turnkeeper.cli.sides import Turn
from turnkeeper.core import records as r
from turnkeeper.core.commands import Accepted, Create
from turnkeeper.core.errors import (
    GAP,
    UNACKNOWLEDGED,
    UNREACHABLE,
    TurnkeeperError,
)
from turnkeeper.core.events import RunEnded

if TYPE_CHECKING:
    from turnkeeper.client import AnyEvent, Client
    from turnkeeper.compose import System

WHAT = "turnkeeper acp"
PAGE_EVENTS = 512


@dataclass(frozen=True)
class Sent:
    """A message that was taken; its events come after `after`."""

    turn: Turn
    after: int


class Side(Protocol):
    """Whoever keeps the sessions. `is_here`: in this process, and no longer than that."""

    is_here: bool

    async def agents(self) -> list[str]: ...

    async def create(self, session: str, agent: str, cwd: str) -> None: ...

    async def session(self, session: str) -> api.SessionOut: ...

    async def sessions(self, before: str | None) -> tuple[list[api.SessionOut], str | None]: ...

    async def unfinished(self, session: str) -> list[Sent]:
        """The runs that have not ended, in the order of their messages."""

    async def send(self, session: str, text: str) -> Sent: ...

    def follow(self, sent: Sent) -> AsyncGenerator[Sequence[AnyEvent], None]:
        """The events of that run, as they come together, to its end."""

    def history(self, session: str, upto: int) -> AsyncGenerator[Sequence[AnyEvent], None]: ...

    async def answer(
        self, approval: str, *, allow: bool, by: str = "", note: str = ""
    ) -> object: ...


@asynccontextmanager
async def side_for(where: Where, agent: str | None, *, leave: bool) -> AsyncIterator[Side]:
    """The server, or a Turnkeeper in this process on the data directory; `leave` its runs in
    custody at the end, or stop them."""
    found = find(where)
    there = await server_or_here(found, lambda: _open(found, agent, leave))
    if not isinstance(there, Server):
        try:
            yield SideHere(there)
        finally:
            await there.close()
        return
    from turnkeeper.cli.there import STAYING, client_of

    async with client_of(there, STAYING) as client:
        yield SideThere(client)


# A server ------------------------------------------------------------------------------------


class SideThere:
    """A server."""

    is_here = False

    def __init__(self, client: Client) -> None:
        self._client = client
        self.answer = client.answer
        self.session = client.session

    async def agents(self) -> list[str]:
        return sorted(agent.name for agent in await self._client.agents())

    async def create(self, session: str, agent: str, cwd: str) -> None:
        await self._client.create_session(agent, id=session, cwd=cwd)

    async def sessions(self, before: str | None) -> tuple[list[api.SessionOut], str | None]:
        page = await self._client.sessions().page(before)
        return page.items, page.next

    async def unfinished(self, session: str) -> list[Sent]:
        found = [run async for run in self._client.runs(session=session, state="unfinished")]
        found.sort(key=lambda run: run.accepted_at)
        return [Sent(await self._client.run(run.id), 0) for run in found]

    async def send(self, session: str, text: str) -> Sent:
        from turnkeeper.cli.there import ACCEPT_S

        try:
            run = await self._client.send(session, text, sender=WHAT, wait_s=ACCEPT_S)
        except TurnkeeperError as refused:
            if refused.entry is UNACKNOWLEDGED and not refused.fields.get("maybe_taken", True):
                told = refused.what.rpartition("(the last try: ")[2].rstrip(")")
                raise TurnkeeperError(UNREACHABLE, told) from None
            raise
        return Sent(run, 0)

    async def follow(self, sent: Sent) -> AsyncGenerator[Sequence[AnyEvent], None]:
        turn: Any = sent.turn
        following = turn.follow()
        try:
            while events := await following.next():
                yield events
        finally:
            following.close()

    async def history(self, session: str, upto: int) -> AsyncGenerator[Sequence[AnyEvent], None]:
        watching = self._client.events(session).watch()
        try:
            seen = 0
            while seen < upto:
                events = await watching.next()
                if not events:
                    return
                seen = events[-1].seq
                yield [event for event in events if event.seq <= upto]
        finally:
            watching.close()


# In this process -----------------------------------------------------------------------------


async def _open(found: Found, agent: str | None, leave: bool) -> System:
    from turnkeeper.compose import (
        Durable,
        agents_with,
        built_in_agents,
        check_agents,
        durable,
        usual_agents,
    )

    config = found.config
    known: dict[str, Any] = dict(usual_agents() if agent is None else built_in_agents())
    if agent is not None and agent not in config.agents:
        known = dict(agents_with(agent))
    how = Durable("leave" if leave else "stop", True, WHAT, database=config.store.at)
    agents = check_agents({**known, **config.agents})
    system = await durable(agents, config.limits, found.place, how)
    await system.start()
    return system


class SideHere:
    """A Turnkeeper in this process."""

    is_here = True

    def __init__(self, system: System) -> None:
        self._system = system
        self.answer = system.dispatcher.answer

    async def agents(self) -> list[str]:
        return sorted(self._system.agents)

    async def create(self, session: str, agent: str, cwd: str) -> None:
        await self._system.dispatcher.create(Create(agent=agent, cwd=cwd), session)

    async def session(self, session: str) -> api.SessionOut:
        return api.session_out(await self._system.dispatcher.session(session))

    async def sessions(self, before: str | None) -> tuple[list[api.SessionOut], str | None]:
        page = await self._system.dispatcher.sessions(r.SessionQuery(before=before))
        return [api.session_out(record) for record in page.items], page.next

    async def unfinished(self, session: str) -> list[Sent]:
        query = r.RunQuery(session=session, state="unfinished", limit=r.PAGE_MAX)
        found = sorted(
            (await self._system.dispatcher.runs(query)).items, key=lambda run: run.accepted_at
        )
        return [self._sent(session, Accepted(run.message, run.id, 1, 0)) for run in found]

    async def send(self, session: str, text: str) -> Sent:
        accepted = await self._system.dispatcher.send(session, text, sender=WHAT)
        return self._sent(session, accepted)

    def _sent(self, session: str, accepted: Accepted) -> Sent:
        from turnkeeper.facade import Run

        return Sent(Run(self._system, session, accepted), accepted.seq - 1)

    async def follow(self, sent: Sent) -> AsyncGenerator[Sequence[AnyEvent], None]:
        async with aclosing(self._batches(sent.turn.session, sent.after)) as batches:
            async for events in batches:
                own = [event for event in events if event.run == sent.turn.id]
                if own:
                    yield own
                if any(isinstance(event.data, RunEnded) for event in own):
                    return

    async def history(self, session: str, upto: int) -> AsyncGenerator[Sequence[AnyEvent], None]:
        seen = 0
        while seen < upto:
            events = await self._system.store.read(session, seen, PAGE_EVENTS)
            if not events:
                return
            seen = events[-1].seq
            yield [event for event in events if event.seq <= upto]

    async def _batches(self, session: str, after: int) -> AsyncGenerator[Sequence[AnyEvent], None]:
        """The log after a cursor, and on; who reads too slowly goes on by cursor."""
        while True:
            watcher = await self._system.dispatcher.watch(session, after)
            try:
                while events := await watcher.next():
                    after = events[-1].seq
                    yield events
            except TurnkeeperError as cut_off:
                if cut_off.entry is not GAP:
                    raise
                continue
            finally:
                watcher.close()
            return
