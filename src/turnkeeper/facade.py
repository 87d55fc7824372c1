"""Turnkeeper as a library: send a message, watch its run, be told how it ended.

Decides how input is checked and what a session's name may be. It must not know how a run ends.
Invariant: what a caller gave wrong is refused with the name of its field before anything is stored;
iterating a run gives each of its events once, in order, to its `run.ended`; how a run ended can
still be asked when all is closed; whoever asks for more then is told where it is.
"""

from __future__ import annotations

import asyncio
import os
import re
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypedDict, Unpack, get_args, overload

from turnkeeper import compose
from turnkeeper.core import given
from turnkeeper.core.commands import Accepted, Create, RunView, StopAnswer
from turnkeeper.core.errors import SESSION_EXISTS, SHUTTING_DOWN, InvalidValue, TurnkeeperError
from turnkeeper.core.events import Event, Priority, RunEnded, SessionCreated, WhenBusy
from turnkeeper.core.fold import fold
from turnkeeper.core.limits import Moment, check_patch
from turnkeeper.core.outcome import Outcome
from turnkeeper.core.state import Session
from turnkeeper.core.step import Live
from turnkeeper.core.view import view, view_of_record
from turnkeeper.place import Place
from turnkeeper.ports import Agent
from turnkeeper.runtime.fanout import CutOff

PAGE_EVENTS = 512
_SESSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")


class LimitArguments(TypedDict, total=False):
    """Every limit, as a keyword: seconds, 0 for off. What is left out is as the operator says."""

    startup_s: float
    write_s: float
    first_output_s: float
    idle_s: float
    tool_s: float
    approval_s: float
    deadline_s: float
    queue_s: float
    ceiling_s: float
    drain_s: float
    term_s: float
    orphan_s: float


class Run:
    """One turn: iterate it for its events, `wait` for its outcome, `stop` it."""

    def __init__(self, system: compose.System, session: str, accepted: Accepted) -> None:
        self.id = accepted.run
        self.session = session
        self.message = accepted.message
        self.position = accepted.position
        """How many runs went first when the message was accepted."""
        self.duplicate = accepted.duplicate
        """The idempotency key was known: this is the run of the message that had it first."""
        self.outcome: Outcome | None = None
        """How it ended, once `wait`, `look` or iterating has told it."""
        self._known = system
        self._from = accepted.seq - 1
        self._last: RunView | None = None
        """How it stood when all was closed."""

    @property
    def _system(self) -> compose.System:
        _check_loop(self._known)
        return self._known

    def __repr__(self) -> str:
        return f"<Run {self.id} of session {self.session}>"

    async def __aiter__(self) -> AsyncIterator[Event]:
        """The events of this run from its message on, to `run.ended` and no further."""
        async with aclosing(_events(self._system, self.session, self._from)) as events:
            async for event in events:
                if event.run != self.id:
                    continue
                if isinstance(event.data, RunEnded):
                    self.outcome = event.data.outcome
                yield event
                if isinstance(event.data, RunEnded):
                    return
        raise self._unended()

    @overload
    async def wait(self, timeout_s: None = None) -> Outcome: ...

    @overload
    async def wait(self, timeout_s: float) -> Outcome | None: ...

    async def wait(self, timeout_s: float | None = None) -> Outcome | None:
        """How it ended; none if it is still running when the time is up."""
        timeout_s = given.time("timeout_s", timeout_s)
        if self.outcome is None and self._system.is_gone:
            self.outcome = (await self.look()).outcome
        if self.outcome is None:
            until = None if timeout_s is None else asyncio.get_running_loop().time() + timeout_s
            try:
                self.outcome = await self._system.dispatcher.wait(self.id, timeout_s)
            except TurnkeeperError as refused:
                _only_closing(refused)
                await self._read_to_end(until)
        return self.outcome

    async def stop(self, by: str = "") -> StopAnswer:
        """Stop this run, and no other. Once it is over, nothing changes."""
        if self._system.is_gone:
            await self.look()
            return StopAnswer(self.id, "ended", changed=False)
        try:
            return await self._system.dispatcher.stop(self.id, given.text("by", by))
        except TurnkeeperError as refused:
            _only_closing(refused)
        ended = (await self._look_in_log()).outcome is not None
        return StopAnswer(self.id, "ended" if ended else "stopping", changed=False)

    async def look(self) -> RunView:
        """How it is doing: its state, its phase, the clocks that run, its outcome."""
        if self._system.is_gone:
            if self._last is None or self._last.outcome is None:
                raise self._unended()
            return self._last
        try:
            seen = await self._system.dispatcher.look(self.id)
        except TurnkeeperError as refused:
            _only_closing(refused)
            seen = await self._look_in_log()
        self.outcome = self.outcome or seen.outcome
        return seen

    async def successor(self) -> Run | None:
        """The run that its message was given back to, if it was preempted or lost unseen."""
        again = (await self.look()).successor
        if again is None:
            return None
        accepted = Accepted(self.message, again, self._from + 1, 0)
        return Run(self._system, self.session, accepted)

    # When all is closing: whoever runs it takes no more questions, but the log has the answers ----

    async def _read_to_end(self, until: float | None) -> None:
        try:
            async with asyncio.timeout_at(until):
                async for _ in self:
                    pass
        except TimeoutError:
            pass

    async def _look_in_log(self) -> RunView:
        store, state = self._system.store, Session(self.session)
        while events := await store.read(self.session, state.seq, PAGE_EVENTS):
            fold(events, state)
        seen = view(state, Live(), self.id, Moment(0.0, 0.0))
        if seen.outcome is None and self._system.closed:
            raise self._unended()
        return seen

    async def look_back(self) -> None:
        """All is closing, and this is the last time that the log can be read."""
        record = await self._known.store.run(self.id)
        if record is not None:
            self._last = view_of_record(record)

    def _unended(self) -> TurnkeeperError:
        told = f"this Turnkeeper was closed before the end of run {self.id} was stored"
        if self._known.is_gone and self._last is not None and self._last.outcome is None:
            told += "; it goes on in the next one on the same data"
        return TurnkeeperError(SHUTTING_DOWN, told, run=self.id)


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
    where the logs are, if not in that directory.
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
        logs = None if database is None else Path(database)
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
        async with aclosing(_events(self._system, name, given.cursor(after))) as events:
            async for event in events:
                yield event

    @property
    def _system(self) -> compose.System:
        if self._running is None:
            raise RuntimeError("use it as: async with Turnkeeper() as tk: …")
        _check_loop(self._running)
        if self._running.is_gone:
            raise _gone()
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


async def _events(system: compose.System, session: str, after: int) -> AsyncGenerator[Event, None]:
    """The log after a cursor, and on. Who reads too slowly to be kept waiting for goes on by
    cursor: the log has it all. When everything closes, it is read to its end."""
    cursor = after
    while not system.closed:
        watcher = await system.dispatcher.watch(session, cursor)
        try:
            while events := await watcher.next():
                for event in events:
                    cursor = event.seq
                    yield event
        except CutOff:
            continue
        finally:
            watcher.close()
        return
    if system.is_gone:
        raise _gone()
    while events := await system.store.read(session, cursor, PAGE_EVENTS):
        for event in events:
            cursor = event.seq
            yield event


def _gone() -> TurnkeeperError:
    told = "this Turnkeeper is closed, and its log with it; another one on the same data has it"
    return TurnkeeperError(SHUTTING_DOWN, told)


def _check_loop(system: compose.System) -> None:
    if asyncio.get_running_loop() is not system.loop:
        told = "it was entered in another event loop; use it there, or a server and its clients"
        raise RuntimeError(f"this Turnkeeper cannot be used here: {told}")


def _only_closing(refused: TurnkeeperError) -> None:
    if refused.entry is not SHUTTING_DOWN:
        raise refused
