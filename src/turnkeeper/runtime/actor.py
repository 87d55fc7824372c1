"""The session actor: the sole writer of one session's log.

Decides only when to look: it gathers what was heard and asked, lets the core judge it, appends,
and then acts and answers. It must not know drivers or stores. Invariant: nothing is done, shown or
answered before it is stored; while the store is down nothing is acknowledged, and an agent whose
doings cannot be recorded is ended.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from turnkeeper.core import commands as c
from turnkeeper.core import effects as f
from turnkeeper.core.errors import INTERNAL, SHUTTING_DOWN, Fenced, StoreDown, TurnkeeperError
from turnkeeper.core.events import Event, RunEnded, encode
from turnkeeper.core.outcome import Outcome
from turnkeeper.core.session import Machine
from turnkeeper.core.signals import Broken, Exited, Gone, Group
from turnkeeper.core.step import Step
from turnkeeper.ports import Agent, Batch, Clock, EventStore, OutOfOrder
from turnkeeper.runtime.fanout import Fanout
from turnkeeper.runtime.supervisor import Supervisor

log = logging.getLogger("turnkeeper.session")

PAUSE_AT = 2048
"""With this many signals unheard, the agent is not read any further."""

OUTAGE_S = 10.0
"""A store that fails for this long is down: agents are ended and callers refused."""

SPARE_S = 5.0
"""What a stop may take over its ladder before it is no longer waited for."""

PAUSE_S, PAUSE_MAX_S = 0.05, 1.0
"""How long to wait before the store is tried again, at first and at most."""

_DEATH = frozenset({Exited, Gone})

ChildEffect = f.StopChild | f.TellParent | f.AskChild


@dataclass(frozen=True)
class Surroundings:
    """What an actor works with."""

    store: EventStore
    clock: Clock
    agent: Agent
    fanout: Fanout
    reload: Callable[[], Awaitable[Machine]]
    post: Callable[[ChildEffect], None]
    closed: Callable[[str], None]


@dataclass(slots=True)
class _Ask:
    command: c.Command
    answer: asyncio.Future[c.Reply] | None = None


@dataclass(slots=True)
class _Inbox:
    groups: list[Group] = field(default_factory=list)
    asks: list[_Ask] = field(default_factory=list)
    signals: int = 0


class SessionActor:
    """One session, alive. `begin` it once; then `ask` it."""

    def __init__(self, machine: Machine, epoch: int, around: Surroundings) -> None:
        self.machine = machine
        self._loop = asyncio.get_running_loop()
        self._epoch = epoch
        self._around = around
        self._inbox = _Inbox()
        self._paused = False
        self._down = False
        self._unrecorded: list[str] = []
        self._closing = False
        self._storing: list[Event] = []
        self._storing_since = 0.0
        self._guard: asyncio.TimerHandle | None = None
        self._answering: Sequence[_Ask] = ()
        self._idle: asyncio.Future[None] | None = None
        self._wake: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._fired_out = False
        self._waiters: dict[str, list[asyncio.Future[Outcome]]] = {}
        limits = machine.policy.limits
        self._supervisor = Supervisor(around.agent, machine.state, limits, self.hear)
        self._task: asyncio.Task[None] | None = None

    # What others may do ----------------------------------------------------------------------

    def begin(self) -> None:
        self._task = self._loop.create_task(self._work())

    def hear(self, group: Group) -> None:
        """What a link has read. Returns at once."""
        inbox = self._inbox
        inbox.groups.append(group)
        inbox.signals += len(group.signals)
        if inbox.signals >= PAUSE_AT and not self._paused:
            self._paused = True
            self._supervisor.pause()
        self._ring()

    async def ask(self, command: c.Command) -> c.Reply:
        """The answer, once what it speaks of is stored; or the refusal, raised."""
        if self._closing or self._task is None:
            raise TurnkeeperError(SHUTTING_DOWN, f"session {self.machine.state.id} is closing")
        if self._down:
            raise StoreDown
        answer: asyncio.Future[c.Reply] = self._loop.create_future()
        self._inbox.asks.append(_Ask(command, answer))
        self._ring()
        return await answer

    async def wait_ended(self, run: str) -> Outcome:
        """The outcome of a run that this session knows."""
        ended = self.machine.state.ended.get(run)
        storing = any(x.run == run and isinstance(x.data, RunEnded) for x in self._storing)
        if ended is not None and not storing:
            return ended
        waiter: asyncio.Future[Outcome] = self._loop.create_future()
        self._waiters.setdefault(run, []).append(waiter)
        return await waiter

    @property
    def outlives_server(self) -> bool:
        return self._around.agent.outlives_server

    @property
    def ladder_s(self) -> float:
        """How long it may take at most to stop what runs, with a little to spare."""
        run = self.machine.state.active
        limits = run.limits if run is not None else self.machine.policy.limits
        return limits.drain_s + limits.term_s + SPARE_S

    async def retire(self, *, queued_too: bool) -> None:
        """Start nothing more, and end what runs, to the last process; what waits only if asked."""
        self.machine.holding = True
        if queued_too:
            for message in self.machine.state.queued():
                await self.ask(c.StopRun(run=message.run, reason="shutdown"))
        run = self.machine.state.active
        if run is not None:
            self._idle = self._loop.create_future()
            await self.ask(c.StopRun(run=run.id, reason="shutdown"))
            await self._idle

    async def close(self) -> None:
        """Let go: nothing more is written; an agent in custody goes on."""
        self._closing = True
        task, self._task = self._task, None
        self._let_go()
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    # The loop --------------------------------------------------------------------------------

    async def _work(self) -> None:
        try:
            await self._settle(self.machine.resume(self._around.clock.now()), [])
            while True:
                if not self._inbox.groups and not self._inbox.asks:
                    await self._sleep()
                await self._look()
        except Fenced as fenced:
            log.warning("%s", fenced)
            self._give_in()
        except Exception:
            log.exception("session %s cannot go on here; it is read again when asked for", self._id)
            self._give_in()

    async def _look(self) -> None:
        """One look at the world. Before a clock or a stop counts, what is readable is read."""
        if self._inbox.asks:
            self._supervisor.poll()
        inbox, self._inbox = self._inbox, _Inbox()
        commands = [ask.command for ask in inbox.asks]
        try:
            step = self.machine.step(inbox.groups, commands, self._around.clock.now())
            await self._settle(step, inbox.asks)
        except Fenced:
            raise
        except Exception as fault:
            await self._rescue(fault, inbox.asks)
            return
        if self._paused and self._inbox.signals < PAUSE_AT:
            self._paused = False
            self._supervisor.resume()

    async def _rescue(self, fault: Exception, asks: Sequence[_Ask]) -> None:
        """A mistake of ours must not cost the session: back to the log, and this run ends."""
        log.error("session %s is read again from its log", self._id, exc_info=fault)
        for ask in asks:
            _answer(ask, TurnkeeperError(INTERNAL, f"this could not be done: {fault!r}"))
        holding = self.machine.holding
        self.machine = await self._reload()
        self.machine.holding = holding
        self._supervisor.adopt(self.machine.state)
        await self._settle(self.machine.resume(self._around.clock.now()), [])
        self._fail_run(f"Turnkeeper made a mistake: {fault!r}")

    async def _reload(self) -> Machine:
        pause_s = PAUSE_S
        while True:
            try:
                return await self._around.reload()
            except StoreDown:
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, PAUSE_MAX_S)

    async def _settle(self, step: Step, asks: Sequence[_Ask]) -> None:
        """Append first; then show, act and answer."""
        self._answering = asks
        if step.events:
            self._storing = step.events
            await self._append(step.events)
            self._storing = []
            if step.effects:
                self.machine.stored(step, self._around.clock.now())
            self._around.fanout.publish(self.machine.state.id, step.events)
        for effect in step.effects:
            self._do(effect)
        for ask, reply in zip(asks, step.replies, strict=True):
            _answer(ask, reply)
        self._answering = ()
        for event in step.events:
            if type(event.data) is RunEnded:
                self._told(event, event.data)
        if self._idle is not None and self.machine.state.active is None and not self._idle.done():
            self._idle.set_result(None)
        self._arm()

    def _do(self, effect: f.Effect) -> None:
        if isinstance(effect, f.StopChild | f.TellParent | f.AskChild):
            self._around.post(effect)
        else:
            self._supervisor.do(effect)

    def _told(self, event: Event, data: RunEnded) -> None:
        outcome = data.outcome
        log.info("run %s %s/%s %s", event.run, outcome.kind, outcome.reason, outcome.detail)
        for waiter in self._waiters.pop(event.run or "", []):
            if not waiter.done():
                waiter.set_result(outcome)

    # The store -------------------------------------------------------------------------------

    async def _append(self, events: Sequence[Event]) -> None:
        """Until it is stored. A store that said no may have stored it all the same: look first."""
        store, state = self._around.store, self.machine.state
        batch = Batch(state.id, self._epoch, events, state.unfinished)
        self._storing_since = self._loop.time()
        if self._guard is None:
            self._guard = self._loop.call_later(OUTAGE_S, self._watch_store)
        pause_s = PAUSE_S
        while True:
            try:
                await store.append(batch)
                break
            except (StoreDown, OutOfOrder) as trouble:
                if await self._is_stored(batch, trouble):
                    break
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, PAUSE_MAX_S)
        if self._down:
            self._recover(self._loop.time() - self._storing_since)

    async def _is_stored(self, batch: Batch, trouble: Exception) -> bool:
        first = batch.events[0].seq
        try:
            found = await self._around.store.read(batch.session, first - 1, len(batch.events))
        except StoreDown:
            return False
        if [encode(event) for event in found] == [encode(event) for event in batch.events]:
            return True
        if isinstance(trouble, OutOfOrder):
            raise Fenced(batch.session, batch.epoch) from trouble
        return False

    def _watch_store(self) -> None:
        """An append that fails or hangs for too long is an outage; one lazy timer watches."""
        self._guard = None
        if not self._storing or self._down:
            return
        left_s = self._storing_since + OUTAGE_S - self._loop.time()
        if left_s > 0:
            self._guard = self._loop.call_later(left_s, self._watch_store)
        else:
            self._give_up()

    def _give_up(self) -> None:
        """The store is down: no agent goes on unrecorded, no caller waits for ever."""
        log.error("the store has failed for %s s; session %s is held", OUTAGE_S, self._id)
        self._down = True
        self._unrecorded = self._supervisor.kill_all()
        held, self._inbox.asks = self._inbox.asks, []
        for ask in (*self._answering, *held):
            _answer(ask, StoreDown("it has not answered for some time"))

    def _recover(self, after_s: float) -> None:
        """It works again: the run that could not be recorded ends as what it was. One that was to
        start meanwhile has lost nothing."""
        self._down = False
        process = self.machine.state.process
        if process is not None and process.name in self._unrecorded:
            self._fail_run(f"the store could not be written for {after_s:.0f} s")

    def _fail_run(self, told: str) -> None:
        run, process = self.machine.state.active, self.machine.state.process
        if run is not None and process is not None:
            self.hear(Group(process.name, run.id, (Broken("internal", told),)))
            self._inbox.groups.sort(key=lambda group: any(type(x) in _DEATH for x in group.signals))

    # Odds and ends ---------------------------------------------------------------------------

    @property
    def _id(self) -> str:
        return self.machine.state.id

    def _ring(self) -> None:
        wake = self._wake
        if wake is not None and not wake.done():
            wake.set_result(None)

    async def _sleep(self) -> None:
        self._wake = self._loop.create_future()
        await self._wake

    def _arm(self) -> None:
        """One lazy timer: it is moved only when something is due earlier than it."""
        if not self.machine.is_nearer() and not self._fired_out:
            return
        self._fired_out = False
        due = self.machine.next_at()
        if self._timer is not None:
            if due >= self._timer.when():
                return
            self._timer.cancel()
            self._timer = None
        if due < math.inf:
            self._timer = self._loop.call_at(due, self._fired)

    def _fired(self) -> None:
        self._timer = None
        self._fired_out = True
        if self.machine.next_at() > self._loop.time():
            self._arm()
            return
        self._inbox.asks.append(_Ask(c.Check()))
        self._ring()

    def _give_in(self) -> None:
        """Not ours any more, or not to be mended: nobody may wait for us."""
        self._closing = True
        self._let_go()
        self._around.closed(self._id)

    def _let_go(self) -> None:
        for timer in (self._timer, self._guard):
            if timer is not None:
                timer.cancel()
        self._supervisor.detach()
        closing = TurnkeeperError(SHUTTING_DOWN, f"session {self._id} is closing")
        asks, self._inbox = self._inbox.asks, _Inbox()
        for ask in (*self._answering, *asks):
            _answer(ask, closing)
        for waiters in self._waiters.values():
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_exception(closing)
        self._waiters.clear()


def _answer(ask: _Ask, reply: c.Reply | TurnkeeperError) -> None:
    if ask.answer is None or ask.answer.done():
        return
    if isinstance(reply, TurnkeeperError):
        ask.answer.set_exception(reply)
    else:
        ask.answer.set_result(reply)
