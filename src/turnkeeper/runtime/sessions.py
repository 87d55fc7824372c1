"""The living sessions of this server: at most one actor each, read from its log when it is needed.

Decides who is loaded and who is read again. It must not know what is asked of a session. Invariant:
two callers of one session meet the same actor; a session whose actor could not go on is read again
by itself, unless another server has it.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from turnkeeper.core import commands as c
from turnkeeper.core.errors import (
    FENCED,
    SHUTTING_DOWN,
    UNKNOWN_AGENT,
    UNKNOWN_RUN,
    UNKNOWN_SESSION,
    StoreDown,
    TurnkeeperError,
)  # fmt: skip
from turnkeeper.core.outcome import Outcome
from turnkeeper.core.session import Machine
from turnkeeper.core.state import Session, message_of
from turnkeeper.ports import Agent, Elsewhere
from turnkeeper.runtime.actor import SessionActor
from turnkeeper.runtime.carrying import Carrying
from turnkeeper.runtime.errands import Errand, persist
from turnkeeper.runtime.fanout import Fanout
from turnkeeper.runtime.ground import Ports as Ports
from turnkeeper.runtime.placing import Patience, agent_of, ask_there
from turnkeeper.runtime.rhythm import Rhythm
from turnkeeper.runtime.snapshots import read_state
from turnkeeper.runtime.surroundings import ChildEffect, Closed, Surroundings
from turnkeeper.runtime.waiters import wait_in_log

log = logging.getLogger("turnkeeper.sessions")

WHERE_MAX = 100_000
OVER = "this node's time is over; ask again"
AT_ONCE = 256
"""So many sessions are read at once when a server starts: the store commits them together."""

LOADING_S = 5.0
"""So long whoever goes waits for what is just being read."""


class Sessions:
    """Everybody who is alive here."""

    def __init__(self, ports: Ports, fanout: Fanout, post: Callable[[ChildEffect], None]) -> None:
        self._ports = ports
        self._fanout, self._rhythm = fanout, Rhythm()
        self._post = post
        self._carrying = Carrying(ports.store, ports.transcripts, carries=ports.carries)
        self._actors: dict[str, asyncio.Task[SessionActor]] = {}
        self._where: dict[str, str] = {}
        self._due: dict[str, float] = {}
        """When each may be let go of, at the earliest: until then nobody looks at it."""
        self._errands: set[asyncio.Task[None]] = set()
        self._draining = self._is_over = False
        self._leaving: set[str] = set()  # those that are still to be let go of here
        self.closing = False

    async def take_up(self, sessions: Sequence[str] | None = None) -> None:
        """Every session in which something still has to happen, or these. One that cannot be taken
        up does not keep the others from it."""
        self._is_over = self._is_over and sessions is not None
        waiting = iter(await self._ports.store.unfinished() if sessions is None else sessions)

        async def take_some() -> None:
            for session in waiting:
                try:
                    await self.actor(session)
                except Elsewhere:
                    continue  # another was quicker
                except StoreDown as down:
                    log.warning("session %s is taken up later: %s", session, down)
                    self._revive(session)
                except TurnkeeperError as refused:
                    if not self.closing:
                        log.error("session %s is not taken up: %s", session, refused)  # noqa: TRY400

        await asyncio.gather(*(take_some() for _ in range(AT_ONCE)))

    async def fence(self) -> None:
        """This node's time is over: nothing goes on here, until all that is its own is taken up."""
        self._is_over = True
        for task in self._actors.values():
            task.cancel()  # those that are being read
        processes, actors = self.processes(), self.living()
        self._actors.clear()
        await asyncio.gather(*(one.close() for one in actors), self._ports.end(processes))

    async def tidy(self) -> None:
        """Let go of what nobody has needed for some time: the process that an agent keeps warm,
        then the session itself, whose log has everything."""
        now = asyncio.get_running_loop().time()
        for session in [session for session, at in self._due.items() if at <= now]:
            task = self._actors.get(session)
            if task is None:
                del self._due[session]
            elif _loaded(task) and task.result().is_idle:
                try:
                    await self._let_rest(session, task, now)
                except TurnkeeperError as refused:
                    log.info("session %s is not let go: %s", session, refused)

    async def _let_rest(self, session: str, task: asyncio.Task[SessionActor], now: float) -> None:
        actor, unload_s = task.result(), self._ports.unload_s
        warm_s = actor.machine.policy.warm_s or math.inf
        has_process = actor.machine.state.process is not None
        due = actor.used_at + (warm_s if has_process else unload_s)
        # Whatever changes meanwhile begins its time anew, and is not over before this.
        self._due[session] = min(max(due, now), now + min(warm_s, unload_s))
        if due <= now:
            await actor.rest()
            if not has_process:
                await self._unload(session, task, actor)

    async def _unload(
        self, session: str, task: asyncio.Task[SessionActor], actor: SessionActor
    ) -> None:
        if actor.is_idle and self._actors.get(session) is task:
            del self._actors[session]
            await actor.close()
            if self._ports.membership is not None:
                await self._ports.membership.release(session)

    async def ask(
        self, session: str, command: c.Command, create: str | None = None, *, here: bool = False
    ) -> c.Reply:
        """The answer of that session's actor, here or (unless it has to be `here`) on the node that
        has it; of a new one, if it let go just now."""
        patience = Patience()
        while True:
            if here and self.closing:
                raise Elsewhere(session, "whoever takes it up: this one is gone")
            try:
                actor = await self.actor(session, create)
                reply = await actor.ask(command)
            except Elsewhere as there:
                if here:
                    raise
                answer = await ask_there(self._ports, there, command)
                if answer is None:
                    await patience.pause(session)
                    continue
                reply = answer
            except Closed:
                self._check_open()
                await patience.pause(session)
                continue
            except TurnkeeperError as refused:
                if refused.entry is not FENCED or await self._ports.store.head(session):
                    raise
                told = f"there is no session {session} any more"
                raise TurnkeeperError(UNKNOWN_SESSION, told) from None
            if isinstance(reply, c.Accepted):
                self._note(reply.message, session)
            return reply

    async def wait_ended(self, session: str, run: str) -> Outcome:
        """The outcome of that run, however often its session has to be read again."""
        patience = Patience()
        while True:
            try:
                actor = await self.actor(session)
                return await actor.wait_ended(run)
            except Elsewhere:
                return await wait_in_log(self._ports.store, self._fanout, session, run)
            except TurnkeeperError as refused:
                fenced = refused.entry is FENCED and self._ports.membership is not None
                if refused.entry is not SHUTTING_DOWN and not fenced:
                    raise
                self._check_open()
                await patience.pause(session)

    async def of_run(self, run: str) -> str:
        """The session of a run: of one that is alive here, or of one in the store."""
        known = self._where.get(message_of(run))
        if known is not None:
            return known
        session = await self._ports.store.session_of(run)
        if session is None:
            raise TurnkeeperError(UNKNOWN_RUN, f"there is no run {run}")
        self._note(message_of(run), session)
        return session

    def agent(self, name: str) -> Agent:
        agent = self._ports.agents.get(name)
        if agent is None:
            names = ", ".join(sorted(self._ports.agents)) or "none"
            told = f"there is no agent {name!r}; there are: {names}"
            raise TurnkeeperError(UNKNOWN_AGENT, told, agent=name)
        return agent

    async def state(self, session: str) -> Session:
        """The state of that session, for whoever wants to look at it: the living one or, if another
        node has it, what its log says."""
        try:
            return (await self.actor(session)).machine.state
        except Elsewhere:
            return await read_state(self._ports.store, session)

    async def actor(self, session: str, create: str | None = None) -> SessionActor:
        """The one actor of that session, read from its log if it is not alive."""
        self._check_open()
        task = self._actors.get(session)
        if task is None or (task.done() and not _loaded(task)):
            task = asyncio.ensure_future(self._load(session, create))
            task.add_done_callback(_retrieve)
            self._actors[session] = task
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                self._check_open()
                asker = asyncio.current_task()
                if asker is not None and not asker.cancelling():  # it was `fence`, not the asker
                    raise StoreDown(OVER) from None
            raise

    def if_loaded(self, session: str) -> SessionActor | None:
        """The living actor of that session, for whoever wants to look at its state."""
        task = self._actors.get(session)
        return task.result() if task is not None and _loaded(task) else None

    def can_answer(self, session: str) -> bool:
        """It is alive, and its store lets it say what it knows."""
        actor = self.if_loaded(session)
        return actor is not None and not actor.is_held

    async def drop_unborn(self, session: str) -> None:
        """A session that was never made leaves nothing behind."""
        actor = self.if_loaded(session)
        if actor is not None and not actor.machine.state.seq:
            self._actors.pop(session, None)
            await actor.close()

    def errand(self, errand: Errand) -> None:
        """Something that has to be carried to another session, however long its store is down."""
        task = asyncio.ensure_future(persist(errand))
        self._errands.add(task)
        task.add_done_callback(self._errands.discard)

    def living(self) -> list[SessionActor]:
        """Everybody who is alive here, for whoever counts them."""
        return [task.result() for task in self._actors.values() if _loaded(task)]

    def processes(self) -> list[str]:
        """The processes of the sessions that are alive here."""
        found = [actor.machine.state.process for actor in self.living()]
        return [process.name for process in found if process is not None]

    async def drain(self, within_s: float, *, stop: bool) -> int:
        """Start nothing more, and wait for what runs, or `stop` it, for which there is always time;
        how many runs still are on then. What nothing runs in any more is given to other nodes,
        where there are some."""
        self._draining = self._ports.membership is not None
        loading = [task for task in self._actors.values() if not task.done()]
        if loading:
            await asyncio.wait(loading, timeout=LOADING_S)
        living = self.living()
        self._leaving = {actor.machine.state.id for actor in living}
        if not living:
            return 0
        if stop:
            within_s = max(within_s, *(actor.ladder_s for actor in living))
        draining = [asyncio.ensure_future(self._drain(actor, stop=stop)) for actor in living]
        for task in draining:
            task.add_done_callback(_retrieve)
        _, late = await asyncio.wait(draining, timeout=within_s)
        for task in late:
            task.cancel()
        return len(late)

    async def _drain(self, actor: SessionActor, *, stop: bool) -> None:
        await (actor.retire(queued_too=False) if stop else actor.drain())
        session, process = actor.machine.state.id, actor.machine.state.process
        if self._ports.membership is not None:
            self._actors.pop(session, None)
            await actor.close()
            await self._carrying.finish(session)
            await self._ports.end([process.name] if process is not None else [])
            self._leaving.discard(session)
            await self._give_away(session)

    async def _give_away(self, session: str) -> None:
        """This node goes, and has nothing of that session any more, or never had."""
        if self._ports.membership is not None and session not in self._leaving:
            await self._ports.membership.release(session)

    async def close(self, *, running_too: bool, queued_too: bool, within_s: float | None) -> None:
        """Nobody comes alive after this; see `Dispatcher.close`."""
        self.closing = True
        loading = [task for task in self._actors.values() if not task.done()]
        for task in loading:
            task.cancel()
        if loading:
            await asyncio.wait(loading)
        actors = self.living()
        every = running_too or queued_too
        doomed = [actor for actor in actors if every or not actor.outlives_server]
        if doomed:
            bound_s = max(actor.ladder_s for actor in doomed) if within_s is None else within_s
            retiring = [asyncio.ensure_future(x.retire(queued_too=queued_too)) for x in doomed]
            for task_ in retiring:
                task_.add_done_callback(_retrieve)
            _, late = await asyncio.wait(retiring, timeout=bound_s)
            for task_ in late:
                task_.cancel()
        for errand in list(self._errands):
            errand.cancel()
        for actor in actors:
            await actor.close()
        self._actors.clear()
        await self._carrying.close()

    def _check_open(self) -> None:
        if self.closing:
            raise TurnkeeperError(SHUTTING_DOWN, "this Turnkeeper is closed")

    def _note(self, message: str, session: str) -> None:
        if len(self._where) >= WHERE_MAX:
            self._where.clear()
        self._where[message] = session

    async def _load(self, session: str, create: str | None) -> SessionActor:
        try:
            if self._is_over:
                raise StoreDown(OVER)
            if self._draining:
                await self._give_away(session)
                raise Elsewhere(session, "whoever takes it up: this one goes")
            head = await self._ports.store.head(session)
            if head == 0 and create is None:
                raise TurnkeeperError(UNKNOWN_SESSION, f"there is no session {session}")
            if self._ports.membership is not None:
                self.agent(await agent_of(self._ports, session, create))
            self._ports.take(session)
            epoch = await self._ports.store.claim(session)
            machine = await self._read(session, create)
            agent, carrying = self.agent(machine.policy.agent), self._carrying
            around = Surroundings(
                self._ports.store, self._ports.clock, agent, self._fanout, self._rhythm,
                lambda: self._read(session, create), self._post, self._let_go,
                lambda state, event: carrying.ended(agent, state, event),
                await carrying.bring(agent, machine.state),
                self._ports.snapshot_every, self._ports.observer,
            )  # fmt: skip
            actor = SessionActor(machine, epoch, around)
            actor.begin()
            self._due[session] = actor.used_at
        except BaseException:
            self._actors.pop(session, None)
            raise
        active = machine.state.active
        for message in [*machine.state.queued(), *([active.message] if active else [])]:
            self._note(message.id, session)
        return actor

    async def _read(self, session: str, create: str | None) -> Machine:
        state = await read_state(self._ports.store, session)
        name = state.agent or create or ""
        policy = self._ports.policies.get(name, c.Policy())
        abilities = self.agent(name).abilities
        node = self._ports.membership.node if self._ports.membership is not None else ""
        policy = msgspec.structs.replace(policy, agent=name, abilities=abilities, node=node)
        return Machine(state, policy, self._ports.trace)

    def _let_go(self, session: str, fenced: bool) -> None:
        """An actor could not go on. If the session is still ours, it is read again at once. If
        another node has it, what runs of it here has to go."""
        gone = self.if_loaded(session)
        self._actors.pop(session, None)
        if fenced and gone is not None and self._ports.membership is not None:
            process = gone.machine.state.process
            self.errand(lambda: self._ports.end([process.name] if process is not None else []))
        if not fenced and not self.closing:
            self._revive(session)

    def _revive(self, session: str) -> None:
        self.errand(lambda: self.actor(session))


def _loaded(task: asyncio.Task[SessionActor]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is None


def _retrieve(task: asyncio.Task[Any]) -> None:
    """Whoever waits for it is told; nobody waiting is no fault."""
    if not task.cancelled():
        task.exception()
