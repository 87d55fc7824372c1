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
from collections.abc import Sequence

from turnkeeper.core import commands as c
from turnkeeper.core import effects as f
from turnkeeper.core.errors import INTERNAL, Fenced, StoreDown, TurnkeeperError
from turnkeeper.core.events import Event, RunEnded, RunStarted, encode_all
from turnkeeper.core.outcome import Outcome
from turnkeeper.core.session import Machine
from turnkeeper.core.signals import Broken, Exited, Gone, Group
from turnkeeper.core.step import Step
from turnkeeper.ports import Batch
from turnkeeper.runtime import journal
from turnkeeper.runtime.bell import Begun, Bell
from turnkeeper.runtime.inbox import Ask, Inbox
from turnkeeper.runtime.journal import PAUSE_MAX_S, PAUSE_S
from turnkeeper.runtime.rhythm import with_others
from turnkeeper.runtime.snapshots import Snapshots
from turnkeeper.runtime.supervisor import Supervisor
from turnkeeper.runtime.surroundings import Closed, Surroundings
from turnkeeper.runtime.told import tell_ended
from turnkeeper.runtime.waiters import Waiters

log = logging.getLogger("turnkeeper.session")

PAUSE_AT = 2048
"""With this many signals unheard, the agent is not read any further."""

OUTAGE_S = 10.0
"""A store that fails for this long is down: agents are ended and callers refused."""

RESCUES_MAX = 3
"""After this many mistakes in a row the actor gives in, and the session is read anew."""

SPARE_S = 5.0
"""What a stop may take over its ladder before it is no longer waited for."""

_DEATH = frozenset({Exited, Gone})


class SessionActor:
    """One session, alive. `begin` it once; then `ask` it."""

    def __init__(self, machine: Machine, epoch: int, around: Surroundings) -> None:
        self.machine = machine
        self._loop = asyncio.get_running_loop()
        self._epoch = epoch
        self._around = around
        self._inbox = Inbox()
        self._paused = False
        self._down = False
        self._unrecorded: str | None = None
        self._unsettled = True
        """What the machine knows is not all stored, or not yet."""
        self._rescues = 0
        self._closing = False
        self._faults = journal.Faults()
        self._storing: list[Event] = []
        self._storing_since = 0.0
        self._guard: asyncio.TimerHandle | None = None
        self._answering: Sequence[Ask] = ()
        self._idle: asyncio.Future[None] | None = None
        self._bell = Bell()
        self._timer: asyncio.TimerHandle | None = None
        self._fired_out = False
        self._ran = machine.state.active
        """What ran after the last look."""
        self._waiters = Waiters()
        self._snapshots = Snapshots(around.store, around.snapshot_every)
        self.used_at = self._loop.time()
        limits = machine.policy.limits
        self._supervisor = Supervisor(around.agent, machine.state, limits, self.hear, around.gone)
        self._task: asyncio.Task[None] | None = None

    # What others may do ----------------------------------------------------------------------

    def begin(self) -> None:
        self._task = self._loop.create_task(self._work())

    def hear(self, group: Group) -> None:
        """What a link has read. Returns at once."""
        inbox = self._inbox
        inbox.put(group)
        if inbox.signals >= PAUSE_AT and not self._paused:
            self._paused = True
            self._supervisor.pause()
        self._ring()

    async def ask(self, command: c.Command) -> c.Reply:
        """The answer, once what it speaks of is stored; or the refusal, raised."""
        if self._closing or self._task is None:
            raise Closed(self._id)
        if self._down:
            raise StoreDown(self._faults.last)
        answer: asyncio.Future[c.Reply] = self._loop.create_future()
        self._inbox.asks.append(Ask(command, answer))
        self._bell.begin(self._look)
        return await answer

    async def wait_ended(self, run: str) -> Outcome:
        """The outcome of a run that this session knows."""
        if self._closing:
            raise Closed(self._id)
        return await self._waiters.wait(run, None if self._unsettled else self.machine.state)

    @property
    def is_held(self) -> bool:
        """Its store is down: it knows more than is stored, and takes no questions."""
        return self._down

    @property
    def is_idle(self) -> bool:
        """Nothing happens here, nothing will, and nobody waits for anything."""
        busy = self.machine.state.unfinished or self._unsettled or self._waiters.runs()
        return not (busy or self._inbox.asks or self._inbox.groups or self.machine.live.dying)

    async def rest(self) -> None:
        """Nobody has needed it for some time: its process is let go, its state is kept at hand."""
        await self.ask(c.Rest())
        if self._snapshots.is_due(self.machine.state, leaving=True):
            await self._snapshots.keep(self.machine.state, self._epoch)

    @property
    def outlives_server(self) -> bool:
        return self._around.agent.outlives_server

    @property
    def ladder_s(self) -> float:
        """How long it may take at most to stop what runs, with a little to spare."""
        run = self.machine.state.active
        limits = run.limits if run is not None else self.machine.policy.limits
        return limits.drain_s + limits.term_s + SPARE_S

    async def drain(self) -> None:
        """Start nothing more; until what runs is over, to the last process of its turn."""
        self.machine.holding = True
        while self.machine.state.active is not None:
            self._idle = self._loop.create_future()
            await self._idle

    async def retire(self, *, queued_too: bool) -> None:
        """Start nothing more, and end what runs, to the last process; what waits only if asked."""
        self.machine.holding = True
        while True:
            run = self.machine.state.active
            if run is not None:
                self._idle = self._loop.create_future()
                await self.ask(c.StopRun(run=run.id, reason="shutdown"))
                await self._idle
            waiting = self.machine.state.queued() if queued_too else []
            if not waiting and self.machine.state.active is None and not self._unsettled:
                return
            for message in waiting:
                await self.ask(c.StopRun(run=message.run, reason="shutdown"))
            await self.ask(c.Check())

    async def close(self) -> None:
        """Let go: nothing more is written; an agent in custody goes on."""
        self._closing = True
        task, self._task = self._task, None
        self._let_go(Closed(self._id))
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    # The loop --------------------------------------------------------------------------------

    async def _work(self) -> None:
        try:
            await self._settle(self.machine.resume(self._around.clock.now()), [])
            self._unsettled = False
            self._waiters.settled(self.machine.state)
            while True:
                await (await self._reason() or self._look())
        except Fenced as fenced:
            log.warning("%s", fenced)
            self._give_in(fenced=True)
        except Exception:
            log.exception("session %s cannot go on; it is read again", self._id)
            self._give_in(fenced=False)

    async def _reason(self) -> Begun[None] | None:
        """Until there is one to look. Whoever asks something has begun to: they wait for it."""
        if self._inbox.asks:
            return None
        rung = self._bell.listen()
        if self._inbox.groups:
            self._ring()
            await asyncio.sleep(0)  # others have their turn, however much is heard
        return await rung

    async def _look(self) -> None:
        """One look at the world. Before a clock or a stop counts, what is readable is read; a mere
        question ends nothing, and however often it is asked, nobody is read the faster for it."""
        asked = self._inbox.asks
        if asked and any(not isinstance(ask.command, c.Look) for ask in asked):
            self._supervisor.poll()
        inbox, self._inbox = self._inbox, Inbox()
        self.used_at = self._loop.time()
        self._unsettled, self._answering = True, inbox.asks
        try:
            step = self.machine.step(inbox.groups, inbox.commands(), self._around.clock.now())
            await self._settle(step, inbox.asks)
        except Fenced:
            raise
        except Exception as fault:
            await self._rescue(fault, inbox.asks)
        else:
            self._rescues = 0
            if self._snapshots.is_due(self.machine.state):
                await self._snapshots.keep(self.machine.state, self._epoch)
        self._unsettled = False
        self._waiters.settled(self.machine.state)
        if self._paused and self._inbox.signals < PAUSE_AT:
            self._paused = False
            self._supervisor.resume()

    async def _rescue(self, fault: Exception, asks: Sequence[Ask]) -> None:
        """A mistake of ours must not cost the session: back to the log, and this run ends."""
        log.error("session %s is read again from its log", self._id, exc_info=fault)
        await asyncio.sleep(0)  # from here on in our own task, whoever began this
        self._rescues += 1
        if self._rescues > RESCUES_MAX:
            raise fault
        for ask in asks:
            ask.settle(TurnkeeperError(INTERNAL, f"this could not be done: {fault!r}"))
        holding, self._storing = self.machine.holding, []
        self.machine, self._down = await self._reload(), False
        self.machine.holding = holding
        self._supervisor.adopt(self.machine.state)
        self._around.fanout.announce(self._id, self.machine.state.seq)
        ended = self.machine.state.ended
        for run in self._waiters.runs():
            if run in ended:
                self._waiters.tell(run, ended[run])
        await self._settle(self.machine.resume(self._around.clock.now()), [])
        self._fail_run(f"Turnkeeper made a mistake: {fault!r}")

    async def _reload(self) -> Machine:
        pause_s = PAUSE_S
        while True:
            try:
                return await self._around.reload()
            except Exception:
                log.exception("the log of session %s cannot be read; again in a moment", self._id)
                self._supervisor.kill_all()
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, PAUSE_MAX_S)

    async def _settle(self, step: Step, asks: Sequence[Ask]) -> None:
        """Append first; then show, act and answer."""
        self._answering = asks
        if step.events:
            lines = encode_all(step.events)
            await self._append(step.events, lines)
            if step.effects:
                self.machine.stored(step, self._around.clock.now())
            self._around.fanout.publish(self.machine.state.id, step.events, lines)
        for effect in step.effects:
            self._do(effect)
        for ask, reply in zip(asks, step.replies, strict=True):
            ask.settle(reply)
        self._answering = ()
        for event in step.events:
            if type(event.data) is RunEnded:
                tell_ended(self.machine.state.agent, event, event.data, self._ran)
                self._waiters.tell(event.run or "", event.data.outcome)
                self._around.ended(self.machine.state, event)
        self._ran = self.machine.state.active
        if self._idle is not None and self.machine.state.active is None and not self._idle.done():
            self._idle.set_result(None)
        self._arm()

    def _do(self, effect: f.Effect) -> None:
        if isinstance(effect, f.StopChild | f.TellParent | f.AskChild):
            self._around.post(effect)
        else:
            self._supervisor.do(effect)

    # The store -------------------------------------------------------------------------------

    async def _append(self, events: list[Event], lines: list[bytes]) -> None:
        self._storing, self._storing_since = events, self._loop.time()
        if self._guard is None:
            due = with_others(self._storing_since + OUTAGE_S, self._storing_since)
            self._guard = self._loop.call_at(due, self._watch_store)
        batch = Batch(self._id, self._epoch, events, self.machine.state.unfinished, lines)
        await journal.append(self._around.store, batch, self._faults)
        self._storing = []
        took_s = self._loop.time() - self._storing_since
        if self._around.observer is not None:
            self._around.observer.stored(self.machine.state.agent, events, took_s)
        if self._down:
            self._recover(took_s)

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
        why = self._faults.last
        log.error("nothing was stored for %s s; session %s is held: %s", OUTAGE_S, self._id, why)
        self._down = True
        run = self.machine.state.active
        begun_now = [x.run for x in self._storing if isinstance(x.data, RunStarted)]
        self._unrecorded = run.id if run is not None and run.id not in begun_now else None
        self._supervisor.kill_all()
        held, self._inbox.asks = self._inbox.asks, []
        for ask in (*self._answering, *held):
            ask.settle(StoreDown(why))

    def _recover(self, after_s: float) -> None:
        """It works again: the run that could not be recorded ends as what it was. One that was to
        start meanwhile has lost nothing."""
        self._down = False
        run = self.machine.state.active
        if run is not None and run.id == self._unrecorded:
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
        """There is something to look at. Mere words can wait for those of others."""
        if self._inbox.only_words:
            self._around.rhythm.ring(self._bell.ring)
        else:
            self._bell.ring()

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
            self._timer = self._loop.call_at(with_others(due, self._loop.time()), self._fired)

    def _fired(self) -> None:
        self._timer = None
        self._fired_out = True
        if self.machine.next_at() > self._loop.time():
            self._arm()
            return
        self._inbox.asks.append(Ask(c.Check()))
        self._bell.ring()

    def _give_in(self, *, fenced: bool) -> None:
        """Not ours any more, or not to be mended here: nobody may wait for us."""
        self._closing = True
        if not fenced:
            self._supervisor.kill_all()
        self._let_go(Fenced(self._id, self._epoch) if fenced else Closed(self._id))
        self._around.closed(self._id, fenced)

    def _let_go(self, told: TurnkeeperError) -> None:
        for timer in (self._timer, self._guard):
            if timer is not None:
                timer.cancel()
        self._supervisor.detach()
        asks, self._inbox = self._inbox.asks, Inbox()
        for ask in self._answering:
            ask.settle(TurnkeeperError(told.entry, f"{told.what}; this may have been stored"))
        for ask in asks:
            ask.settle(told)
        self._waiters.fail(told)
