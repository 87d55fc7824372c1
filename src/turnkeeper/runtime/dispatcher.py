"""The dispatcher: finds the session a request is for, and carries words between sessions.

Decides nothing about runs. It must not know drivers or stores. Invariant: at most one actor for a
session; a child's ending is told to its parent until the parent has stored it.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from turnkeeper.core import commands as c
from turnkeeper.core import effects as f
from turnkeeper.core.errors import (
    SHUTTING_DOWN,
    UNKNOWN_AGENT,
    UNKNOWN_APPROVAL,
    UNKNOWN_RUN,
    UNKNOWN_SESSION,
    Fenced,
    InvalidValue,
    StoreDown,
    TurnkeeperError,
)  # fmt: skip
from turnkeeper.core.fold import fold
from turnkeeper.core.limits import RUNNING
from turnkeeper.core.outcome import Kind, Outcome
from turnkeeper.core.session import Machine
from turnkeeper.core.state import Session, run_name, run_of_approval
from turnkeeper.core.step import Trace
from turnkeeper.ports import Agent, Clock, EventStore, Ids
from turnkeeper.runtime.actor import ChildEffect, SessionActor, Surroundings
from turnkeeper.runtime.fanout import BEHIND_MAX, Fanout, Watcher

log = logging.getLogger("turnkeeper.dispatcher")

PAGE_EVENTS = 2048

OPTIONS = ("priority", "when_busy", "limits", "key", "sender")
"""What may be said of a message besides its text."""


@dataclass(frozen=True)
class Ports:
    """What the runtime stands on."""

    store: EventStore
    clock: Clock
    ids: Ids
    agents: Mapping[str, Agent]
    policies: Mapping[str, c.Policy]
    trace: Trace | None = None
    behind_max: int = BEHIND_MAX


class Dispatcher:
    """Everything that can be asked of a Turnkeeper, in one place."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self.fanout = Fanout(ports.store, ports.behind_max)
        self._actors: dict[str, asyncio.Task[SessionActor]] = {}
        self._errands: set[asyncio.Task[None]] = set()
        self._closing = False

    # Life ------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Take up every session in which something still has to happen."""
        for session in await self._ports.store.unfinished():
            await self._actor(session)

    async def close(self, *, queued_too: bool = False, within_s: float | None = None) -> None:
        """Refuse new work; stop what cannot outlive this server; let the rest go on in custody.

        What waits is left for the next server; `queued_too` ends it as well, where there will be
        none. Without `within_s`, each run has the time of its own stop ladder.
        """
        self._closing = True
        await self._wait_loaded()
        actors = [task.result() for task in self._actors.values() if _loaded(task)]
        doomed = [actor for actor in actors if queued_too or not actor.outlives_server]
        if doomed:
            bound_s = max(actor.ladder_s for actor in doomed) if within_s is None else within_s
            stops = [asyncio.ensure_future(actor.retire(queued_too=queued_too)) for actor in doomed]
            _, late = await asyncio.wait(stops, timeout=bound_s)
            for task in late:
                task.cancel()
        for errand in list(self._errands):
            errand.cancel()
        for actor in actors:
            await actor.close()
        self._actors.clear()
        self.fanout.close()

    async def _wait_loaded(self) -> None:
        """Nobody comes alive after the end: what is still being read is given up."""
        loading = [task for task in self._actors.values() if not task.done()]
        for task in loading:
            task.cancel()
        if loading:
            await asyncio.wait(loading)

    # What people and programs ask ------------------------------------------------------------

    async def create(self, command: c.Create, session: str | None = None) -> str:
        """A new session; its id."""
        self._agent(command.agent)
        name = session or self._ports.ids.new("s")
        actor = await self._actor(name, create=command.agent)
        try:
            await actor.ask(command)
        except TurnkeeperError:
            if not actor.machine.state.seq:
                self._forget(name)
                await actor.close()
            raise
        return name

    async def send(self, session: str, text: str, **options: Any) -> c.Accepted:
        """A message for a session. `options` are the further fields of `commands.Send`."""
        return await self._send(session, self._message(text, options))

    async def stop(self, run: str, by: str = "") -> c.StopAnswer:
        """Stop that run, and no other. Stopping an ended run changes nothing."""
        actor = await self._actor(await self._session_of(run))
        answer = await actor.ask(c.StopRun(run=run, by=by))
        assert isinstance(answer, c.StopAnswer)
        return answer

    async def answer(self, approval: str, *, allow: bool, by: str = "", note: str = "") -> None:
        """Answer a question. The first answer wins; a later one is refused."""
        session = await self._ports.store.session_of(run_of_approval(approval))
        if session is None:
            raise TurnkeeperError(UNKNOWN_APPROVAL, f"there is no approval {approval}")
        actor = await self._actor(session)
        await actor.ask(c.AnswerApproval(approval=approval, allow=allow, by=by, note=note))

    async def look(self, run: str) -> c.RunView:
        """How that run is doing."""
        actor = await self._actor(await self._session_of(run))
        view = await actor.ask(c.Look(run=run))
        assert isinstance(view, c.RunView)
        return view

    async def wait(self, run: str, timeout_s: float | None = None) -> Outcome | None:
        """The outcome, or none if it is still running when the time is up."""
        actor = await self._actor(await self._session_of(run))
        try:
            async with asyncio.timeout(timeout_s):
                return await actor.wait_ended(run)
        except TimeoutError:
            return None

    async def watch(self, session: str, after: int = 0) -> Watcher:
        """Everything that happens in a session, after the cursor."""
        if await self._ports.store.head(session) == 0:
            raise TurnkeeperError(UNKNOWN_SESSION, f"there is no session {session}")
        return await self.fanout.watch(session, after)

    async def start_child(self, parent: str, session: str, text: str, **options: Any) -> c.Accepted:
        """A run of another session, started by a run: it ends no later than its parent."""
        command = self._message(text, {"priority": "agent", **options})
        child = run_name(command.message, 1)
        actor = await self._actor(await self._session_of(parent))
        try:
            adopted = await actor.ask(c.Adopt(parent=parent, child=child, session=session))
            assert isinstance(adopted, c.Adopted)
            accepted = await self._send(
                session, msgspec.structs.replace(command, parent=adopted.parent)
            )
        except BaseException:
            self._post(f.AskChild(session, child, parent))
            raise
        if (await self.look(parent)).phase not in RUNNING:
            self._post(f.StopChild(session, child, parent))
        return accepted

    # Actors ----------------------------------------------------------------------------------

    def actor_if_loaded(self, session: str) -> SessionActor | None:
        """The living actor of that session, for whoever wants to look at its state."""
        task = self._actors.get(session)
        return task.result() if task is not None and _loaded(task) else None

    def _message(self, text: str, options: Mapping[str, Any]) -> c.Send:
        """The command for a new message, or `InvalidValue` naming the field."""
        for name, value in options.items():
            if name not in OPTIONS:
                raise InvalidValue(name, value, f"there is no such option: {', '.join(OPTIONS)}")
            try:
                msgspec.convert({"message": "m", "text": "t", name: value}, c.Send)
            except msgspec.ValidationError as wrong:
                raise InvalidValue(name, value, str(wrong)) from None
        try:
            text.encode()
        except (AttributeError, UnicodeEncodeError):
            raise InvalidValue("text", text, "give text that can be written as UTF-8") from None
        return c.Send(message=self._ports.ids.new("m"), text=text, **options)

    async def _send(self, session: str, command: c.Send) -> c.Accepted:
        said = (command.text, command.priority, command.when_busy, command.limits, command.sender)
        fingerprint = hashlib.sha256(msgspec.json.encode(said, order="sorted")).hexdigest()
        actor = await self._actor(session)
        answer = await actor.ask(msgspec.structs.replace(command, fingerprint=fingerprint))
        assert isinstance(answer, c.Accepted)
        return answer

    async def _session_of(self, run: str) -> str:
        session = await self._ports.store.session_of(run)
        if session is None:
            raise TurnkeeperError(UNKNOWN_RUN, f"there is no run {run}")
        return session

    def _agent(self, name: str) -> Agent:
        agent = self._ports.agents.get(name)
        if agent is None:
            names = ", ".join(sorted(self._ports.agents)) or "none"
            told = f"there is no agent {name!r}; there are: {names}"
            raise TurnkeeperError(UNKNOWN_AGENT, told, agent=name)
        return agent

    async def _actor(self, session: str, create: str | None = None) -> SessionActor:
        """The one actor of that session, read from its log if it is not alive."""
        if self._closing:
            raise TurnkeeperError(SHUTTING_DOWN, "this server takes no new work")
        task = self._actors.get(session)
        if task is None or (task.done() and not _loaded(task)):
            task = asyncio.ensure_future(self._load(session, create))
            self._actors[session] = task
        return await asyncio.shield(task)

    async def _load(self, session: str, create: str | None) -> SessionActor:
        try:
            head = await self._ports.store.head(session)
            if head == 0 and create is None:
                raise TurnkeeperError(UNKNOWN_SESSION, f"there is no session {session}")
            epoch = await self._ports.store.claim(session)
            machine = await self._read(session, create)
            agent = self._agent(machine.state.agent or create or "")
            around = Surroundings(
                self._ports.store, self._ports.clock, agent,
                self.fanout, lambda: self._read(session, create), self._post, self._forget,
            )  # fmt: skip
            actor = SessionActor(machine, epoch, around)
            actor.begin()
        except BaseException:
            self._actors.pop(session, None)
            raise
        return actor

    async def _read(self, session: str, create: str | None) -> Machine:
        store, state = self._ports.store, Session(session)
        while events := await store.read(session, state.seq, PAGE_EVENTS):
            fold(events, state)
        agent = state.agent or create or ""
        policy = self._ports.policies.get(agent, c.Policy())
        abilities = self._agent(agent).abilities
        policy = msgspec.structs.replace(policy, abilities=abilities)
        return Machine(state, policy, self._ports.trace)

    def _forget(self, session: str) -> None:
        self._actors.pop(session, None)

    # Words between sessions ------------------------------------------------------------------

    def _post(self, effect: ChildEffect) -> None:
        match effect:
            case f.StopChild():
                stop = c.StopRun(run=effect.run, reason="parent_ended", by=effect.parent)
                self._errand(lambda: self._tell(effect.session, stop))
            case f.TellParent():
                told = c.ReportChild(child=effect.child, outcome=effect.kind, reason=effect.reason)
                self._errand(lambda: self._tell(effect.session, told))
            case f.AskChild():
                self._errand(lambda: self._ask_child(effect))

    async def _ask_child(self, effect: f.AskChild) -> None:
        """How did it end, if it did? One that was never accepted was never started."""
        kind, reason = Kind.FAILED, "spawn_failed"
        try:
            actor = await self._actor(effect.session)
            run: str | None = effect.run
            while run is not None:
                view = await actor.ask(c.Look(run=run))
                assert isinstance(view, c.RunView)
                if view.outcome is None:
                    return
                kind, reason, run = view.outcome.kind, view.outcome.reason, view.successor
        except TurnkeeperError as unknown:
            if unknown.entry not in (UNKNOWN_RUN, UNKNOWN_SESSION):
                raise
        parent = await self._session_of(effect.parent)
        await self._tell(parent, c.ReportChild(child=effect.run, outcome=kind, reason=reason))

    async def _tell(self, session: str, command: c.Command) -> None:
        actor = await self._actor(session)
        await actor.ask(command)

    def _errand(self, errand: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Something that has to be carried to another session, however long its store is down."""
        task = asyncio.ensure_future(_persist(errand))
        self._errands.add(task)
        task.add_done_callback(self._errands.discard)


async def _persist(errand: Callable[[], Coroutine[Any, Any, None]]) -> None:
    pause_s = 0.1
    while True:
        try:
            return await errand()
        except (StoreDown, Fenced):
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, 5.0)
        except TurnkeeperError as refused:
            log.info("nothing to do there: %s", refused)
            return None


def _loaded(task: asyncio.Task[SessionActor]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is None
