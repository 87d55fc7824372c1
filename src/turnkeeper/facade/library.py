"""Turnkeeper as a library: send a message, answer, watch.

Decides how input is checked and what a session's name may be. It must not know how a run ends.
Invariant: what a caller gave wrong is refused with the name of its field before anything is stored.
"""

from __future__ import annotations

import os
import re
import weakref
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from types import TracebackType
from typing import Any, Self, Unpack, get_args

from turnkeeper import compose
from turnkeeper.core import given
from turnkeeper.core.commands import Create
from turnkeeper.core.errors import SESSION_EXISTS, InvalidValue, TurnkeeperError
from turnkeeper.core.events import Event, Priority, SessionCreated, WhenBusy
from turnkeeper.core.limits import check_patch
from turnkeeper.facade.run import LimitArguments, Run, check_loop, events_after, gone
from turnkeeper.place import Place
from turnkeeper.ports import Agent

_SESSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")


class Turnkeeper:
    """A Turnkeeper inside this process.

    `agents` are the agents by name, each a driver or a table of settings, as in
    `{"claude": {"driver": "claude", "cwd": "~/work"}}` (the demo agent alone, if none are given);
    `limits` are the operator's limits for every run, on top of the defaults.

    With `data`, a directory, everything is durable there, and the next Turnkeeper on it goes on
    where this one was; without, the logs are in memory and go with it. On leaving, what runs is
    stopped and what waits is kept for the next time; `leave_running` lets agents in custody go on
    for `orphan_s`, until the next one takes them up. A directory belongs to one Turnkeeper at a
    time; those that are `shared` may use it together, each with sessions of its own. `database` is
    where the logs are, if not in that directory: a file, or `postgresql://…`.
    """

    def __init__(
        self,
        *,
        agents: Mapping[str, Agent | Mapping[str, Any]] | None = None,
        limits: Mapping[str, float] | None = None,
        data: str | os.PathLike[str] | None = None,
        shared: bool = False,
        leave_running: bool = False,
        database: str | os.PathLike[str] | None = None,
    ) -> None:
        known = compose.built_in_agents() if agents is None else agents
        self._agents = compose.check_agents(known)
        self._limits = {} if limits is None else given.patch(limits)
        self._data = None if data is None else compose.check_data(data)
        logs = None if database is None else compose.store_at(database)
        leaving: compose.Leaving = "leave" if leave_running else "stop"
        self._how = compose.Durable(leaving, shared, database=logs)
        self._running: compose.System | None = None
        self._runs: weakref.WeakSet[Run] = weakref.WeakSet()

    async def __aenter__(self) -> Self:
        if self._running is not None:
            raise RuntimeError("a Turnkeeper is entered once; make another one")
        if self._data is None:
            self._running = compose.in_memory(self._agents, self._limits)
        else:
            place = Place(self._data)
            self._running = await compose.durable(self._agents, self._limits, place, self._how)
        self._running.last_words.append(self._look_back)
        try:
            await self._running.start()
        except BaseException:
            await self._running.close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._running is not None:
            await self._running.close()

    async def _look_back(self) -> None:
        for run in list(self._runs):
            await run.look_back()

    @property
    def agents(self) -> Mapping[str, Agent | Mapping[str, Any]]:
        return dict(self._agents)

    async def send(
        self,
        session: str | None,
        text: str,
        *,
        agent: str | None = None,
        priority: Priority = "person",
        when_busy: WhenBusy = "queue",
        key: str | None = None,
        sender: str = "",
        cwd: str = "",
        **limits: Unpack[LimitArguments],
    ) -> Run:
        """A message for a session: an existing one, a new one of that name, or (none) a new one.

        `agent` says whom a new session is with, and `cwd` where it works. `key` makes sending again
        harmless: the same key with the same message is the same run. Limits are for this run alone.
        """
        options: dict[str, Any] = {
            "priority": given.one_of("priority", priority, get_args(Priority)),
            "when_busy": given.one_of("when_busy", when_busy, get_args(WhenBusy)),
            "key": None if key is None else given.text("key", key),
            "sender": given.text("sender", sender),
            "limits": check_patch(dict(limits)),
        }
        if not given.text("text", text).strip():
            raise InvalidValue("text", text, "say something")
        name = await self._session(session, agent, given.text("cwd", cwd))
        system = self._system
        run = Run(system, name, await system.dispatcher.send(name, text, **options))
        self._runs.add(run)
        return run

    async def answer(self, approval: str, *, allow: bool, by: str = "", note: str = "") -> None:
        """Answer a question of an agent. The first answer wins; a later one is refused."""
        if not isinstance(allow, bool):
            raise InvalidValue("allow", allow, "give true or false")
        dispatcher, name = self._system.dispatcher, given.text("approval", approval)
        await dispatcher.answer(
            name, allow=allow, by=given.text("by", by), note=given.text("note", note)
        )

    async def watch(self, session: str, after: int = 0) -> AsyncIterator[Event]:
        """Everything that happens in a session after the event numbered `after`, until closed."""
        name = given.text("session", session)
        async with aclosing(events_after(self._system, name, given.cursor(after))) as events:
            async for event in events:
                yield event

    @property
    def _system(self) -> compose.System:
        if self._running is None:
            raise RuntimeError("use it as: async with Turnkeeper() as tk: …")
        check_loop(self._running)
        if self._running.is_gone:
            raise gone()
        return self._running

    async def _session(self, session: str | None, agent: str | None, cwd: str) -> str:
        """The session to send to, made if there is none of that name."""
        system = self._system
        if agent is not None:
            given.text("agent", agent)
        if session is not None and not _SESSION.fullmatch(given.text("session", session)):
            told = "give 1 to 128 letters, digits and . _ : -, a letter or digit first; or none"
            raise InvalidValue("session", session, told)
        if session is None or not await system.store.head(session):
            create = Create(agent=self._agent_for_new(agent), cwd=cwd)
            try:
                return await system.dispatcher.create(create, session)
            except TurnkeeperError as refused:
                if refused.entry is not SESSION_EXISTS or session is None:
                    raise
        await self._check_agent(session, agent)
        return session

    def _agent_for_new(self, agent: str | None) -> str:
        if agent is not None:
            return agent
        if len(self._agents) == 1:
            return next(iter(self._agents))
        told = f"a new session needs its agent; there are: {', '.join(sorted(self._agents))}"
        raise InvalidValue("agent", agent, told)

    async def _check_agent(self, session: str, agent: str | None) -> None:
        first = await self._system.store.read(session, 0, 1)
        for event in first:
            if agent is None or not isinstance(event.data, SessionCreated):
                return
            if event.data.agent != agent:
                told = f"session {session} is with {event.data.agent}; use another session"
                raise InvalidValue("agent", agent, told)
