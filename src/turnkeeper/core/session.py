"""One session: from what was observed and asked, to events, effects and answers.

Decides in which order a look at the world is judged, who runs next, and what a command does. It
must not know processes, stores or watchers. Invariant: everything in one `step` was observed at the
same moment, so the agent's first word of an end, stops and clocks are judged together, whichever
came first; a run is started only when no other is being run or cleaned up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import assert_never

from turnkeeper.core import answering, submit, waiting
from turnkeeper.core import commands as c
from turnkeeper.core import effects as f
from turnkeeper.core import events as e
from turnkeeper.core import signals as s
from turnkeeper.core.ending import Condition, Ending, conclude, end_queued
from turnkeeper.core.errors import (
    CHILD_REFUSED,
    SESSION_EXISTS,
    UNKNOWN_RUN,
    UNKNOWN_SESSION,
    TurnkeeperError,
)  # fmt: skip
from turnkeeper.core.limits import REKILL_S, RUNNING, Clock, Moment, Phase, check_patch
from turnkeeper.core.outcome import Evidence, Kind, decide
from turnkeeper.core.rest import rest
from turnkeeper.core.restart import clocks_of, take_up, wind
from turnkeeper.core.run import begin, expire, note_late, perform, say_all, settle_judged
from turnkeeper.core.state import Message, Run, Session
from turnkeeper.core.step import Dying, Live, Step, Trace
from turnkeeper.core.view import view

_OF_PROCESS = (s.Ready, s.Taken, s.Heartbeat, s.Sampled, s.Broken, s.Exited, s.Swept, s.Gone)
"""What is true of the process, whichever run it was last asked about."""


class Machine:
    """The mind of one session: its durable state, its clocks, and the operator's policy."""

    def __init__(self, state: Session, policy: c.Policy, trace: Trace | None = None) -> None:
        self.state = state
        self.policy = policy
        self.live = Live()
        self.holding = False
        """Set at shutdown: what runs is ended, and what waits is left for the next server."""
        self._trace = trace

    def step(self, groups: Sequence[s.Group], commands: Sequence[c.Command], now: Moment) -> Step:
        """One look at the world: what the agent said, what was asked, and what follows."""
        step = self._new_step(now)
        endings: list[Ending] = []
        rest = self._hear(step, groups, endings)
        early: dict[str, bool] = {}
        if endings or commands:
            self._take(step, rest)
            early = self._weigh(step, commands, endings)
            self._commit(step, endings)
            while rest:
                rest = self._hear(step, rest, endings)
                self._commit(step, endings)
        if step.judged:
            settle_judged(step)
        for command in commands:
            step.replies.append(self._obey(step, command, early))
        self._schedule(step)
        return step

    def resume(self, now: Moment) -> Step:
        """After a restart: wind the clocks again, take up what was going on, and go on."""
        step = self._new_step(now)
        wind(self.state, self.live, self.policy, now)
        ending = take_up(step)
        self._commit(step, [ending] if ending is not None else [])
        state, run = self.state, self.state.active
        for child, entry in state.children.items():
            running = run is not None and run.id == entry.parent and run.phase in RUNNING
            if not running:
                step.do(f.StopChild(entry.session, child, entry.parent))
            step.do(f.AskChild(entry.session, child, entry.parent, again=running))
        self._schedule(step)
        return step

    def is_nearer(self) -> bool:
        """Whether `next_at` may have come nearer since this was last asked. O(1), and cheap."""
        clocks = self.live.clocks
        if self.live.approvals or self.live.queue or clocks is None:
            return True
        nearer, clocks.nearer = clocks.nearer, False
        return nearer

    def stored(self, step: Step, now: Moment) -> None:
        """The step's events are stored, and its effects are done now: a slow store is no excuse to
        give the agent less time."""
        if self.live.clocks is not None:
            self.live.clocks.done(step.now.mono, now.mono)

    def next_at(self) -> float:
        """When to look at the clocks again, at the earliest; infinity for never."""
        live = self.live
        nearest = live.clocks.next_at() if live.clocks is not None else math.inf
        if live.approvals:
            nearest = min(nearest, min(live.approvals.values()))
        if live.queue:
            nearest = min(nearest, min(dates[0].at for dates in live.queue.values()))
        if live.dying is not None:
            nearest = min(nearest, live.dying.killed_at + REKILL_S)
        if live.attaching_until is not None:
            nearest = min(nearest, live.attaching_until)
        return nearest

    def _new_step(self, now: Moment) -> Step:
        step = Step(self.state, self.live, self.policy, now)
        step.trace = self._trace
        return step

    # What the agent said ---------------------------------------------------------------------

    def _hear(self, step: Step, groups: Sequence[s.Group], endings: list[Ending]) -> list[s.Group]:
        """Take in what was read, up to evidence of an end; what comes after that is given back."""
        for at, group in enumerate(groups):
            step.group = group
            skip = 0
            for i, signal in enumerate(group.signals):
                if skip:
                    skip -= 1
                    continue
                run = self._addressee(group, signal)
                if run is None:
                    self._stray(step, group, signal)
                    continue
                if type(signal) is s.Text and run.phase is Phase.WORKING:
                    skip = say_all(step, run, group.signals, i) - 1
                    continue
                ending = perform(step, run, signal)
                if ending is not None:
                    endings.append(ending)
                    left = s.Group(group.process, group.run, group.signals[i + 1 :], group.pos)
                    return [left, *groups[at + 1 :]]
        step.group = None
        return []

    def _take(self, step: Step, rest: Sequence[s.Group]) -> None:
        """What was taken is told beside the stream: it counts before this look is judged, wherever
        in it that was told."""
        clocks, run = self.live.clocks, self.state.active
        for group in rest:
            for signal in group.signals:
                if isinstance(signal, s.Taken) and clocks and self._uses(group.process):
                    clocks.taken(signal.frame)
                    if run is not None and signal.frame in run.steers:
                        perform(step, run, signal)

    def _addressee(self, group: s.Group, signal: s.Signal) -> Run | None:
        run, process = self.state.active, self.state.process
        if run is None or process is None or process.name != group.process:
            return None
        return run if group.run == run.id or isinstance(signal, _OF_PROCESS) else None

    def _uses(self, process: str) -> bool:
        used = self.state.process
        return used is not None and process in ("", used.name)

    def _stray(self, step: Step, group: s.Group, signal: s.Signal) -> None:
        """Of a run that is over, or of a process that nobody is using."""
        idle = self.state.active is None and self._uses(group.process)
        live = self.live
        if idle and isinstance(signal, s.Ready | s.Exited | s.Broken | s.Gone):
            live.attaching_until = None
        if idle and isinstance(signal, s.Exited | s.Broken) and live.dying is None:
            live.dying = Dying(type(signal).__name__.lower(), step.now.mono)
            step.do(f.Kill(group.process))
        elif idle and isinstance(signal, s.Gone):
            why = live.dying.why if live.dying is not None else "gone"
            live.dying = None
            step.emit(e.ProcessEnded(group.process, why))
        elif not (idle and live.dying is not None and isinstance(signal, s.Exited)):
            note_late(step, group.run or None, signal)

    def _commit(self, step: Step, endings: list[Ending]) -> None:
        """Of all that was observed in this look, one fact decides."""
        run = self.state.active
        if not endings or run is None:
            endings.clear()
            step.group = None
            return
        fact = decide([ending.fact for ending in endings])
        of_agent = next((x for x in endings if x.condition is not Condition.BUSY), endings[0])
        retry = of_agent.retry and fact is of_agent.fact
        endings.clear()
        conclude(step, run, Ending(fact, of_agent.condition, of_agent.text, retry))
        step.group = None

    # What was asked --------------------------------------------------------------------------

    def _weigh(
        self, step: Step, commands: Sequence[c.Command], endings: list[Ending]
    ) -> dict[str, bool]:
        """What may end the running run is weighed together with what the agent said.

        Gives the runs that were asked to stop, and whether that came in time to matter.
        """
        stops: dict[str, bool] = {}
        for command in commands:
            run = self.state.active
            ending: Ending | None = None
            match command:
                case c.StopRun() if run is not None and run.id == command.run:
                    ending = perform(step, run, s.Stop(command.reason, command.by))
                    stops[run.id] = stops.get(run.id, False) or ending is not None
                case c.Check():
                    ending = self._check(step, seen=bool(endings))
                case c.Lose() if run is not None and self._uses(command.process):
                    ending = perform(step, run, s.Lost(command.reason, command.detail))
                case _:
                    pass
            if ending is not None:
                endings.append(ending)
        return stops

    def _obey(
        self, step: Step, command: c.Command, early: dict[str, bool]
    ) -> c.Reply | TurnkeeperError:
        if isinstance(command, c.StopRun) and command.run in early:
            return self._stopped(command.run, early[command.run])
        try:
            return self._do(step, command)
        except TurnkeeperError as refused:
            return refused

    def _do(self, step: Step, command: c.Command) -> c.Reply:
        if not self.state.seq and not isinstance(command, c.Create):
            raise TurnkeeperError(UNKNOWN_SESSION, f"there is no session {self.state.id}")
        match command:
            case c.Create():
                return self._create(step, command)
            case c.Send():
                answer, ending = submit.send(step, command)
                self._commit(step, [ending] if ending is not None else [])
                return answer
            case c.EditRun():
                return waiting.edit(step, command)
            case c.HandOver():
                return waiting.hand_over(step, command)
            case c.StopRun():
                return self._stop(step, command)
            case c.AnswerApproval():
                return answering.answer(step, command)
            case c.Adopt():
                return self._adopt(step, command)
            case c.ReportChild():
                child = self.state.children.get(command.child)
                if child is not None:
                    told = e.ChildEnded(
                        command.child, child.session, command.outcome, command.reason
                    )
                    step.emit(told, child.parent)
                return c.Done(self.state.seq)
            case c.Look():
                return view(self.state, self.live, command.run, step.now)
            case c.Rest():
                rest(step)
                return c.Done(self.state.seq)
            case c.Check() | c.Lose():
                return c.Done(self.state.seq)
            case _:
                assert_never(command)

    def _create(self, step: Step, command: c.Create) -> c.Reply:
        if self.state.seq:
            raise TurnkeeperError(SESSION_EXISTS, f"session {self.state.id} exists")
        if self.policy.agent and command.agent != self.policy.agent:
            told = f"session {self.state.id} is being made with {self.policy.agent}"
            raise TurnkeeperError(SESSION_EXISTS, told)
        limits = check_patch(command.limits)
        step.emit(
            e.SessionCreated(
                command.agent, command.title, command.cwd, limits, command.labels, command.rules
            )
        )
        return c.Done(self.state.seq)

    def _stop(self, step: Step, command: c.StopRun) -> c.Reply:
        state, target = self.state, command.run
        while command.reason == "parent_ended" and target in state.successors:
            target = state.successors[target]
        queued, run = state.find_queued(target), state.active
        if queued is not None:
            self._trace_queued(s.Stop)
            seen = step.seen(None, by=command.by)
            end_queued(
                step, queued, Evidence(Kind.CANCELLED, command.reason, step.now.mono, "", seen)
            )
            return self._stopped(target, True)
        if run is not None and run.id == target:
            ending = perform(step, run, s.Stop(command.reason, command.by))
            self._commit(step, [ending] if ending is not None else [])
            return self._stopped(target, ending is not None)
        if target in state.ended:
            return self._stopped(target, False)
        raise TurnkeeperError(UNKNOWN_RUN, f"session {state.id} has no run {target}")

    def _stopped(self, run: str, in_time: bool) -> c.StopAnswer:
        ended, active = self.state.ended.get(run), self.state.active
        if ended is not None:
            return c.StopAnswer(run, "ended", in_time and ended.kind is Kind.CANCELLED)
        decided = active.decision if active is not None else None
        cancelled = decided is not None and decided.kind is Kind.CANCELLED
        return c.StopAnswer(run, "stopping", in_time and cancelled)

    def _adopt(self, step: Step, command: c.Adopt) -> c.Reply:
        state, run, policy = self.state, self.state.active, self.policy
        if run is None or run.id != command.parent or run.phase not in RUNNING:
            raise TurnkeeperError(CHILD_REFUSED, f"run {command.parent} is not running")
        if command.session == state.id:
            raise TurnkeeperError(CHILD_REFUSED, "a child runs in a session of its own")
        depth = (run.message.parent.depth if run.message.parent else 0) + 1
        if depth > policy.depth_max:
            raise TurnkeeperError(CHILD_REFUSED, f"{depth} levels are more than {policy.depth_max}")
        if len(state.children) >= policy.children_max:
            raise TurnkeeperError(CHILD_REFUSED, f"{len(state.children)} children run already")
        if command.child not in state.children:
            step.emit(e.ChildStarted(command.child, command.session), run.id)
        ends_at = min(step.clocks.deadline_at, step.clocks.ceiling_at)
        not_after = None if math.isinf(ends_at) else step.now.wall + ends_at - step.now.mono
        return c.Adopted(e.Parent(state.id, run.id, depth, not_after))

    # Clocks and turns ------------------------------------------------------------------------

    def _check(self, step: Step, *, seen: bool) -> Ending | None:
        """Which clocks are due. `seen`: the running run's end was observed in the same look."""
        now = step.now.mono
        for message in self.state.queued():
            self._trace_queued(s.Tick)
            if submit.is_expired(step, message):
                end_queued(step, message, submit.expired(step, message))
        run, dying = self.state.active, self.live.dying
        if dying is not None and dying.killed_at + REKILL_S <= now:
            self.live.dying = dying._replace(killed_at=now)
            step.do(f.Kill(step.process.name))
        if self.live.attaching_until is not None and self.live.attaching_until <= now:
            self.live.attaching_until = None
            self.live.dying = Dying("not heard of after a restart", now)
            step.do(f.Kill(step.process.name))
        if run is None:
            return None
        if not seen and run.phase is Phase.APPROVAL:
            expire(step, run)
        return perform(step, run, s.Tick())

    def _schedule(self, step: Step) -> None:
        """The next run, once nothing runs and nothing is being cleaned up."""
        if step.requeued:
            self._wind_requeued(step)
        live = self.live
        settled = live.dying is None and live.attaching_until is None
        if self.state.active is None and settled and not self.holding:
            queued = self.state.queued()
            if queued:
                self._trace_queued(s.Start)
                self._start(step, queued[0])

    def _wind_requeued(self, step: Step) -> None:
        """What came back to the queue has its dates there: its parent's, and its own if it never
        ran."""
        queue = self.live.queue
        for message in [m for m in self.state.queued() if m.run not in queue]:
            submit.wind_queue(self.live, self.policy, self.state, message, step.now)
            if submit.is_expired(step, message):
                end_queued(step, message, submit.expired(step, message))

    def _start(self, step: Step, message: Message) -> None:
        limits = submit.limits_for(self.policy, self.state, message)
        not_after = message.parent.not_after if message.parent is not None else None
        dates = step.live.queue.pop(message.run, [])
        step.emit(e.RunStarted(message.id, limits, not_after), message.run)
        run = self.state.active
        assert run is not None, "run.started makes its run the active one"
        ends_at = next((due.at for due in dates if due.clock is Clock.DEADLINE), math.inf)
        step.live.clocks = clocks_of(run, step.now, ends_at)
        begin(step, run)

    def _trace_queued(self, signal: type[s.Signal]) -> None:
        if self._trace is not None:
            self._trace(Phase.QUEUED, signal)
