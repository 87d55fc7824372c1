"""Turnkeeper as a library: send a message, watch its run, be told how it ended.

Decides how input is checked and what a session's name may be. It must not know how a run ends.
Invariant: what a caller gave wrong is refused with the name of its field before anything is stored;
iterating a run gives each of its events once, in order, to its `run.ended`; what is known of a run
can still be asked when all is closed, for the log has it.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypedDict, Unpack, get_args, overload

from turnkeeper import compose
from turnkeeper.core.commands import Accepted, Create, RunView, StopAnswer
from turnkeeper.core.errors import SESSION_EXISTS, SHUTTING_DOWN, InvalidValue, TurnkeeperError
from turnkeeper.core.events import Event, Priority, RunEnded, SessionCreated, WhenBusy
from turnkeeper.core.fold import fold
from turnkeeper.core.limits import Moment, Patch, check_patch
from turnkeeper.core.outcome import Outcome
from turnkeeper.core.state import Session
from turnkeeper.core.step import Live
from turnkeeper.core.view import view
from turnkeeper.place import Place
from turnkeeper.ports import Agent
from turnkeeper.runtime.children import Children, Wanted
from turnkeeper.runtime.fanout import CutOff

PAGE_EVENTS = 512
LONGEST_WAIT_S = 1e9
"""Thirty years: a longer wait is cut to that, for no clock knows all numbers."""

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
        self._system = system
        self._from = accepted.seq - 1

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
        timeout_s = _time("timeout_s", timeout_s)
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
        try:
            return await self._system.dispatcher.stop(self.id, _text("by", by))
        except TurnkeeperError as refused:
            _only_closing(refused)
        ended = (await self._look_in_log()).outcome is not None
        return StopAnswer(self.id, "ended" if ended else "stopping", changed=False)

    async def look(self) -> RunView:
        """How it is doing: its state, its phase, the clocks that run, its outcome."""
        try:
            seen = await self._system.dispatcher.look(self.id)
        except TurnkeeperError as refused:
            _only_closing(refused)
            seen = await self._look_in_log()
        self.outcome = self.outcome or seen.outcome
        return seen

    async def start(
        self,
        text: str,
        *,
        session: str | None = None,
        agent: str | None = None,
        when_busy: WhenBusy = "queue",
        key: str | None = None,
        cwd: str = "",
        **limits: Unpack[LimitArguments],
    ) -> Run:
        """A run below this running one, in `session` or in a new one with `agent`. It ends no later
        than this one, and is stopped with it. With the same `key` it is started once."""
        options: dict[str, Any] = {
            "when_busy": _one_of("when_busy", when_busy, get_args(WhenBusy)),
            "key": None if key is None else _text("key", key),
            "limits": check_patch(dict(limits)),
        }
        wanted = Wanted(
            text=_text("text", text), session=session, agent=agent, cwd=_text("cwd", cwd),
            options=options,
        )  # fmt: skip
        started = await Children(self._system.dispatcher).start(self.id, wanted)
        return Run(self._system, started.session, started.accepted)

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

    def _unended(self) -> TurnkeeperError:
        told = f"this Turnkeeper was closed before the end of run {self.id} was stored"
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
        given = compose.built_in_agents() if agents is None else agents
        self._agents = compose.check_agents(given)
        self._limits = {} if limits is None else _patch(limits)
        self._data = None if data is None else compose.check_data(data)
        logs = None if database is None else Path(database)
        leaving: compose.Leaving = "leave" if leave_running else "stop"
        self._how = compose.Durable(leaving, shared, database=logs)
        self._running: compose.System | None = None

    async def __aenter__(self) -> Self:
        if self._running is not None:
            raise RuntimeError("a Turnkeeper is entered once; make another one")
        if self._data is None:
            self._running = compose.in_memory(self._agents, self._limits)
        else:
            place = Place(self._data)
            self._running = await compose.durable(self._agents, self._limits, place, self._how)
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
        await self._system.close()

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
            "priority": _one_of("priority", priority, get_args(Priority)),
            "when_busy": _one_of("when_busy", when_busy, get_args(WhenBusy)),
            "key": None if key is None else _text("key", key),
            "sender": _text("sender", sender),
            "limits": check_patch(dict(limits)),
        }
        if not _text("text", text).strip():
            raise InvalidValue("text", text, "say something")
        name = await self._session(session, agent, _text("cwd", cwd))
        system = self._system
        return Run(system, name, await system.dispatcher.send(name, text, **options))

    async def answer(self, approval: str, *, allow: bool, by: str = "", note: str = "") -> None:
        """Answer a question of an agent. The first answer wins; a later one is refused."""
        if not isinstance(allow, bool):
            raise InvalidValue("allow", allow, "give true or false")
        dispatcher, name = self._system.dispatcher, _text("approval", approval)
        await dispatcher.answer(name, allow=allow, by=_text("by", by), note=_text("note", note))

    async def watch(self, session: str, after: int = 0) -> AsyncIterator[Event]:
        """Everything that happens in a session after the event numbered `after`, until closed."""
        name = _text("session", session)
        async with aclosing(_events(self._system, name, _cursor(after))) as events:
            async for event in events:
                yield event

    @property
    def _system(self) -> compose.System:
        if self._running is None:
            raise RuntimeError("use it as: async with Turnkeeper() as tk: …")
        return self._running

    async def _session(self, session: str | None, agent: str | None, cwd: str) -> str:
        """The session to send to, made if there is none of that name."""
        system = self._system
        if agent is not None:
            _text("agent", agent)
        if session is not None and not _SESSION.fullmatch(_text("session", session)):
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
    while events := await system.store.read(session, cursor, PAGE_EVENTS):
        for event in events:
            cursor = event.seq
            yield event


def _only_closing(refused: TurnkeeperError) -> None:
    if refused.entry is not SHUTTING_DOWN:
        raise refused


# What callers give ---------------------------------------------------------------------------


def _text(field: str, value: object) -> str:
    if not isinstance(value, str):
        raise InvalidValue(field, value, "give text")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidValue(field, value, "this is not Unicode text (a lone surrogate)") from None
    return value


def _one_of(field: str, value: object, allowed: tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in allowed:
        raise InvalidValue(field, value, f"give one of {', '.join(allowed)}")
    return value


def _patch(limits: object) -> Patch:
    return check_patch(dict(limits) if isinstance(limits, Mapping) else limits)


def _cursor(after: object) -> int:
    if isinstance(after, bool) or not isinstance(after, int) or after < 0:
        raise InvalidValue("after", after, "give the number of the last event you have, or 0")
    return after


def _time(field: str, value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise InvalidValue(field, value, "give a number of seconds, or none to wait for the end")
    return float(min(value, LONGEST_WAIT_S))
