"""A Turnkeeper in this process, and the logs of a data directory where no server is.

Decides which agents there are here. It must not know how anything is shown. Invariant: reading the
logs takes nothing up and starts nothing; others like us may use the directory at the same time.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from turnkeeper import api
from turnkeeper.cli.reach import Found, placed
from turnkeeper.cli.sides import DEFAULT_AGENT, Message
from turnkeeper.compose import Durable, System, agents_with, built_in_agents, durable
from turnkeeper.core import records as r
from turnkeeper.core.diagnosis import Diagnosis
from turnkeeper.core.errors import UNKNOWN_RUN, UNKNOWN_SESSION, TurnkeeperError
from turnkeeper.facade import Run, Turnkeeper

if TYPE_CHECKING:
    from turnkeeper.client import AnyEvent

PAGE_EVENTS = 512
POLL_S = 0.3
"""So often a log is read again that nobody tells us of."""


class Here:
    """A Turnkeeper in this process."""

    def __init__(self, turnkeeper: Turnkeeper) -> None:
        self._turnkeeper = turnkeeper
        self.answer = turnkeeper.answer

    async def begin(self, message: Message) -> Run:
        limits: Any = message.limits
        return await self._turnkeeper.send(
            message.session, message.text, agent=message.agent, cwd=message.cwd,
            **message.options(), **limits,
        )  # fmt: skip


async def turnkeeper_for(found: Found, message: Message) -> tuple[Turnkeeper, Message]:
    """One on the data directory, to be entered, and what to ask of it."""
    config = found.config
    name = message.agent or await _agent_of(found, message.session)
    if name is None:
        name = next(iter(config.agents)) if len(config.agents) == 1 else DEFAULT_AGENT
    known = built_in_agents() if name in config.agents else agents_with(name)
    turnkeeper = Turnkeeper(
        agents={**known, **config.agents},
        limits={**config.limits, **message.limits},
        data=config.data,
        shared=True,
        database=config.store.at,
    )
    return turnkeeper, placed(dataclasses.replace(message, agent=name), config)


async def _agent_of(found: Found, session: str | None) -> str | None:
    """Whom a session is with, that is there already."""
    if session is None or not found.database_exists:
        return None
    async with logs_of(found, "turnkeeper run") as logs:
        record = await logs.store.session(session)
    return None if record is None else record.agent


# The logs ------------------------------------------------------------------------------------


@asynccontextmanager
async def logs_of(found: Found, what: str) -> AsyncIterator[System]:
    """The logs, to be read: nothing is taken up, and nothing runs."""
    how = Durable(shared=True, what=what, database=found.config.store.at)
    system = await durable({}, {}, found.place, how)
    try:
        yield system
    finally:
        await system.close()


class InLogs:
    """Looked up in the logs of a data directory, where no server is."""

    is_live = False

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

    async def diagnosis(self, run: str) -> Diagnosis | None:
        return None

    async def head(self, session: str) -> int:
        return 0 if self._system is None else await self._system.store.head(session)

    async def approvals(self, query: r.ApprovalQuery) -> list[api.ApprovalOut]:
        if self._system is None:
            return []
        page = await self._system.store.approvals(query)
        return [api.approval_out(record) for record in page.items]

    async def events(
        self, session: str, after: int, *, follow: bool
    ) -> AsyncGenerator[AnyEvent, None]:
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
