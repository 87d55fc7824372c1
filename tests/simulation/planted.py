"""Bugs to be planted, one at a time: each breaks a promise in a way that real systems have.

The simulator has to find every one of them; that is the proof that it would find the next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from turnkeeper.core import (
    answering,
    ending,
    explain,
    fold,
    limits,
    outcome,
    records,
    restart,
    run,
    session,
    snapshot,
    state,
    step,
    submit,
    waiting,
)
from turnkeeper.core import commands as c
from turnkeeper.core import effects as f
from turnkeeper.core import events as e
from turnkeeper.core import signals as s
from turnkeeper.core.ending import Condition, Ending
from turnkeeper.core.limits import Clock, Clocks, Phase
from turnkeeper.core.outcome import Evidence, Kind, Seen
from turnkeeper.core.session import Machine
from turnkeeper.core.state import Run
from turnkeeper.core.step import Step
from turnkeeper.core.table import TABLE, Cell
from turnkeeper.ports import Batch, EventStore
from turnkeeper.runtime import journal, sessions, snapshots
from turnkeeper.runtime.actor import SessionActor
from turnkeeper.runtime.fanout import Fanout, Watcher
from turnkeeper.store.memory import MemoryStore

Patch = pytest.MonkeyPatch


@dataclass(frozen=True)
class Planted:
    """One bug: what it is, which promise it breaks, and how it is planted."""

    name: str
    promise: str
    plant: Callable[[Patch], None]


PLANTED: list[Planted] = []


def planted(promise: str) -> Callable[[Callable[[Patch], None]], Callable[[Patch], None]]:
    def note(plant: Callable[[Patch], None]) -> Callable[[Patch], None]:
        PLANTED.append(Planted(plant.__name__, promise, plant))
        return plant

    return note


def _nothing(*_: object, **__: object) -> None:
    return None


def _set(patch: Patch, table: dict[Any, Any], key: object, value: object) -> None:
    patch.setitem(table, key, value)


def _action(patch: Patch, name: str, action: Callable[[Step, Run, Any], Ending | None]) -> None:
    _set(patch, run.ACTIONS, name, action)


# P1: every turn ends, once -------------------------------------------------------------------


@planted("P1")
def a_stubborn_agent_prevents_the_end(patch: Patch) -> None:
    real = run.ACTIONS["climb"]

    def climb(at: Step, of: Run, signal: Any) -> Ending | None:
        return None if of.phase is Phase.DRAINING else real(at, of, signal)

    _action(patch, "climb", climb)


@planted("P1")
def a_second_ending_after_a_store_retry(patch: Patch) -> None:
    async def not_stored(*_: object) -> bool:
        return False

    def put(self: MemoryStore, batch: Batch) -> None:
        log = self._logs.setdefault(batch.session, [])
        log.extend(
            msgspec.structs.replace(x, seq=len(log) + 1 + i) for i, x in enumerate(batch.events)
        )
        self._shelf.put(records.changes(batch.events))
        if batch.unfinished:
            self._unfinished[batch.session] = None
        else:
            self._unfinished.pop(batch.session, None)

    patch.setattr(journal, "is_stored", not_stored)
    patch.setattr(MemoryStore, "put", put)


@planted("P1")
def what_waits_at_a_restart_is_not_started(patch: Patch) -> None:
    real = Machine.resume

    def resume(self: Machine, now: limits.Moment) -> Step:
        self.holding = True
        found = real(self, now)
        self.holding = False
        return found

    patch.setattr(Machine, "resume", resume)


# P2: the ending is true and sticks -----------------------------------------------------------


@planted("P2")
def a_late_completion_overwrites_a_cancel(patch: Patch) -> None:
    cell = Cell("finished", (Phase.CLOSED,))
    _set(patch, TABLE[Phase.DRAINING], s.Finished, cell)


@planted("P2")
def a_timeout_is_reported_as_a_cancel(patch: Patch) -> None:
    real = run.ACTIONS["judge"]

    def judge(at: Step, of: Run, signal: Any) -> Ending | None:
        found = real(at, of, signal)
        if found is None:
            return None
        fact = Evidence(Kind.CANCELLED, "stopped", found.fact.at, "", found.fact.seen)
        return found._replace(fact=fact)

    _action(patch, "judge", judge)


@planted("P2")
def exit_code_0_counts_as_success(patch: Patch) -> None:
    real = run.ACTIONS["exited"]

    def exited(at: Step, of: Run, signal: s.Exited) -> Ending | None:
        found = real(at, of, signal)
        if found is None or signal.code != 0:
            return found
        return found._replace(fact=Evidence(Kind.COMPLETED, "end_turn", at.now.mono), retry=False)

    _action(patch, "exited", exited)


@planted("P2")
def the_last_fact_wins(patch: Patch) -> None:
    def last(facts: Sequence[Evidence]) -> Evidence:
        return facts[-1]

    patch.setattr(session, "decide", last)


@planted("P2")
def an_answer_that_was_there_is_thrown_away_by_a_stop(patch: Patch) -> None:
    from turnkeeper.runtime.supervisor import Supervisor

    patch.setattr(Supervisor, "poll", _nothing)


@planted("P2")
def the_agents_own_error_counts_as_completed(patch: Patch) -> None:
    def failed(at: Step, of: Run, signal: s.Failed) -> Ending:
        fact = Evidence(Kind.COMPLETED, "end_turn", at.now.mono)
        return Ending(fact, Condition.BOUNDARY)

    _action(patch, "failed", failed)


# P3: stop always works, on the right turn ----------------------------------------------------


@planted("P3")
def a_stop_hits_the_next_run(patch: Patch) -> None:
    real = Machine._stop

    def stop(self: Machine, at: Step, command: c.StopRun) -> c.Reply:
        active = self.state.active
        if command.run in self.state.ended and active is not None:
            command = msgspec.structs.replace(command, run=active.id)
        return real(self, at, command)

    patch.setattr(Machine, "_stop", stop)


@planted("P3")
def a_stop_drops_the_queue(patch: Patch) -> None:
    real = ending.conclude

    def conclude(at: Step, of: Run, found: Ending) -> None:
        real(at, of, found)
        if found.fact.reason == "stopped":
            for message in at.state.queued():
                ending.end_queued(at, message, found.fact)

    patch.setattr(session, "conclude", conclude)


@planted("P3")
def term_is_never_followed_by_kill(patch: Patch) -> None:
    real = run.ACTIONS["climb"]

    def climb(at: Step, of: Run, signal: Any) -> Ending | None:
        due = at.clocks.due(at.now.mono)
        if due is not None and due.clock is Clock.TERM:
            at.clocks.enter(of.phase, at.now.mono)
            return None
        return real(at, of, signal)

    _action(patch, "climb", climb)


@planted("P3")
def output_prolongs_the_drain(patch: Patch) -> None:
    def progress(self: Clocks, now: float) -> None:
        self.since = now
        self.stalled = False
        self.nearer = True

    patch.setattr(Clocks, "progress", progress)


# P4: no accepted message is lost or run twice ------------------------------------------------


@planted("P4")
def acknowledged_before_stored(patch: Patch) -> None:
    real = SessionActor._settle

    async def settle(self: SessionActor, at: Step, asks: Sequence[Any]) -> None:
        for ask, reply in zip(asks, at.replies, strict=True):
            ask.settle(reply)
        await real(self, at, asks)

    patch.setattr(SessionActor, "_settle", settle)


@planted("P4")
def the_queue_is_lost_at_a_restart(patch: Patch) -> None:
    real = Machine.resume

    def resume(self: Machine, now: limits.Moment) -> Step:
        for queue in self.state.queue.values():
            queue.clear()
        return real(self, now)

    patch.setattr(Machine, "resume", resume)


@planted("P4")
def a_key_is_forgotten_when_its_run_ends(patch: Patch) -> None:
    real = fold._APPLY[e.RunEnded]

    def ended(of: state.Session, event: e.Event, data: e.RunEnded) -> None:
        real(of, event, data)
        of.keys = {k: v for k, v in of.keys.items() if v.run != event.run}

    _set(patch, fold._APPLY, e.RunEnded, ended)


@planted("P4")
def another_body_under_the_same_key_is_taken_for_the_same(patch: Patch) -> None:
    real = submit._known

    def known(of: state.Session, command: c.Send) -> c.Accepted | None:
        held = of.keys.get(command.key or "")
        if held is not None:
            command = msgspec.structs.replace(command, fingerprint=held.fingerprint)
        return real(of, command)

    patch.setattr(submit, "_known", known)


@planted("P4")
def a_try_that_made_progress_is_tried_again(patch: Patch) -> None:
    def may(at: Step, of: Run, fact: Evidence) -> bool:
        return fact.kind is Kind.FAILED and of.attempt < at.policy.attempts_max

    patch.setattr(ending, "_may_retry", may)


@planted("P4")
def a_lost_run_is_run_again_although_it_had_begun(patch: Patch) -> None:
    real = ending._give_back

    def give_back(at: Step, of: Run, fact: Evidence) -> None:
        if fact.kind is Kind.LOST:
            of.observed = False
        real(at, of, fact)

    patch.setattr(ending, "_give_back", give_back)


@planted("P4")
def a_steering_message_that_was_not_taken_is_dropped(patch: Patch) -> None:
    real = ending._requeue

    def requeue(at: Step, of: Run, message: state.Message, cause: e.Cause) -> None:
        if cause != "not_taken":
            real(at, of, message, cause)

    patch.setattr(ending, "_requeue", requeue)


# P5: nothing outlives its turn ---------------------------------------------------------------


@planted("P5")
def the_next_run_starts_before_the_tree_is_dead(patch: Patch) -> None:
    def end(
        at: Step, of: Run, fact: Evidence, condition: Condition, text: str | None = None
    ) -> None:
        name = at.process.name
        ending._give_back(at, of, fact)
        at.emit(e.AttemptEnded(of.attempt, "gone"), of.id)
        ending._end(at, of, fact, "none", text)
        at.do(f.Terminate(name))

    real = ending.finish

    def finish(
        at: Step, of: Run, fact: Evidence, condition: Condition, text: str | None = None
    ) -> None:
        early = condition in (Condition.BUSY, Condition.BROKEN, Condition.EXITED)
        (end if early else real)(at, of, fact, condition, text)

    patch.setattr(ending, "finish", finish)
    patch.setattr(run, "finish", finish)


@planted("P5")
def what_a_cancelled_turn_left_behind_is_not_swept(patch: Patch) -> None:
    real = ending.finish

    def finish(
        at: Step, of: Run, fact: Evidence, condition: Condition, text: str | None = None
    ) -> None:
        if condition is not Condition.BOUNDARY:
            real(at, of, fact, condition, text)
            return
        ending._give_back(at, of, fact)
        at.emit(e.AttemptEnded(of.attempt, "boundary"), of.id)
        ending._end(at, of, fact, "none", text)

    patch.setattr(ending, "finish", finish)
    patch.setattr(run, "finish", finish)


# P6: nothing leaks after the end -------------------------------------------------------------


@planted("P6")
def output_after_the_end_is_shown_as_an_answer(patch: Patch) -> None:
    real = run.note_late

    def note_late(at: Step, of: str | None, signal: s.Signal) -> None:
        if isinstance(signal, s.Text):
            at.emit(e.OutputText(signal.text), of)
        else:
            real(at, of, signal)

    _set(patch, fold._APPLY, e.OutputText, _shown)
    patch.setattr(run, "note_late", note_late)
    patch.setattr(session, "note_late", note_late)


def _shown(of: state.Session, event: e.Event, data: e.Fact) -> None:
    if of.active is not None and of.active.id == event.run and event.run not in of.ended:
        fold._progress(of, event, data)


@planted("P6")
def an_approval_is_left_open_after_a_cancel(patch: Patch) -> None:
    patch.setattr(ending, "_settle_all", _nothing)


@planted("P6")
def a_late_allow_is_passed_on_to_the_agent(patch: Patch) -> None:
    real = answering.answer

    def answer(at: Step, command: c.AnswerApproval) -> c.Done:
        approval, active = at.state.approvals.get(command.approval), at.state.active
        here = approval is not None and active is not None and approval.run == active.id
        if here and approval is not None and active is not None and approval.decision is not None:
            intent = f.Answer(active.id, approval.ref, command.allow, command.note)
            at.process.frames += 1
            active.intents[at.process.frames] = intent
            at.do(f.Write(at.process.name, at.process.frames, intent))
            return c.Done(at.state.seq)
        return real(at, command)

    patch.setattr(answering, "answer", answer)


# P7: a turn survives the gateway -------------------------------------------------------------


@planted("P7")
def after_a_restart_the_stream_is_read_again_from_the_start(patch: Patch) -> None:
    _reattach_at(patch, lambda pos: 0)


@planted("P7")
def after_a_restart_the_stream_is_read_from_too_far(patch: Patch) -> None:
    _reattach_at(patch, lambda pos: pos + 40 if pos else 0)


def _reattach_at(patch: Patch, where: Callable[[int], int]) -> None:
    real = Machine.resume

    def resume(self: Machine, now: limits.Moment) -> Step:
        found = real(self, now)
        found.effects = [
            msgspec.structs.replace(x, pos=where(x.pos)) if isinstance(x, f.Reattach) else x
            for x in found.effects
        ]
        return found

    patch.setattr(Machine, "resume", resume)


@planted("P7")
def a_restart_gives_up_a_run_whose_keeper_lives(patch: Patch) -> None:
    real = Machine.resume

    def resume(self: Machine, now: limits.Moment) -> Step:
        found = real(self, now)
        active = self.state.active
        if active is not None and active.phase in limits.RUNNING:
            lost = run.perform(found, active, s.Lost("server_lost"))
            if lost is not None:
                ending.conclude(found, active, lost)
        return found

    patch.setattr(Machine, "resume", resume)


@planted("P7")
def partial_text_is_dropped_on_failure(patch: Patch) -> None:
    real = Machine._hear

    def hear(
        self: Machine, at: Step, groups: Sequence[s.Group], endings: list[Ending]
    ) -> list[s.Group]:
        bad = any(isinstance(x, s.Exited | s.Broken) for group in groups for x in group.signals)
        if bad:
            groups = [
                s.Group(
                    g.process, g.run, tuple(x for x in g.signals if type(x) is not s.Text), g.pos
                )
                for g in groups
            ]
        return real(self, at, groups, endings)

    patch.setattr(Machine, "_hear", hear)


# P8: watchers miss nothing and see nothing twice ---------------------------------------------


@planted("P8")
def a_watchers_cursor_is_off_by_one(patch: Patch) -> None:
    real = Watcher.next

    async def following(self: Watcher) -> Sequence[e.Event]:
        found = await real(self)
        if len(found) > 1:
            self.cursor -= 1
        return found

    patch.setattr(Watcher, "next", following)


@planted("P8")
def a_slow_watcher_skips_without_a_word(patch: Patch) -> None:
    real = Watcher.woken

    def woken(self: Watcher, head: int, behind_max: int) -> None:
        real(self, head, behind_max)
        if self._cut_at is not None:
            self._cut_at = None
            self.cursor = self._head_when_read = head

    patch.setattr(Watcher, "woken", woken)


@planted("P8")
def watchers_are_shown_what_is_not_stored(patch: Patch) -> None:
    real = SessionActor._append

    async def append(self: SessionActor, events: list[e.Event], lines: list[bytes]) -> None:
        self._around.fanout.publish(self.machine.state.id, events, lines)
        await real(self, events, lines)

    patch.setattr(SessionActor, "_append", append)
    shown: dict[int, int] = {}
    publish = Fanout.publish

    def once(self: Fanout, name: str, events: Sequence[e.Event]) -> None:
        if shown.get(id(events)) != events[0].seq:
            shown[id(events)] = events[0].seq
            publish(self, name, events)

    patch.setattr(Fanout, "publish", once)


# P9: frames are whole ------------------------------------------------------------------------


@planted("P9")
def frames_get_new_numbers_after_a_restart(patch: Patch) -> None:
    right = restart.repeat

    def repeat(at: Step, of: Run) -> None:
        right(at, of)
        at.effects = [
            msgspec.structs.replace(x, frame=x.frame + 100) if isinstance(x, f.Write) else x
            for x in at.effects
        ]

    patch.setattr(restart, "repeat", repeat)


@planted("P9")
def a_stream_that_did_not_take_a_frame_is_used_again(patch: Patch) -> None:
    def polite(at: Step, of: Run, fact: Evidence) -> bool:
        can = at.policy.abilities.interrupt and of.limits.drain_s > 0
        return can and of.phase in (*ending.POLITE, Phase.DELIVERING)

    patch.setattr(ending, "_is_polite", polite)


# P10: silence is judged by phase, with evidence ----------------------------------------------


@planted("P10")
def a_heartbeat_resets_the_idle_clock(patch: Patch) -> None:
    def alive(at: Step, of: Run, signal: s.Heartbeat) -> None:
        at.clocks.progress(at.now.mono)

    _action(patch, "alive", alive)


@planted("P10")
def a_busy_tool_is_killed_for_being_quiet(patch: Patch) -> None:
    _action(patch, "sampled", _nothing)


@planted("P10")
def the_timer_is_armed_in_the_old_phase(patch: Patch) -> None:
    def enter(self: Clocks, phase: Phase, now: float) -> None:
        self.phase = phase
        if phase not in limits.SILENCE:
            self.since = now
        self.stalled = False
        self.nearer = True

    patch.setattr(Clocks, "enter", enter)


@planted("P10")
def waiting_for_a_person_counts_as_silence(patch: Patch) -> None:
    _set(patch, limits.SILENCE, Phase.APPROVAL, (Clock.IDLE, "idle_s"))


@planted("P10")
def progress_moves_the_deadline(patch: Patch) -> None:
    real = Clocks.progress

    def progress(self: Clocks, now: float) -> None:
        real(self, now)
        if self.limits.deadline_s:
            self.deadline_at = now + self.limits.deadline_s

    patch.setattr(Clocks, "progress", progress)


@planted("P10")
def the_deadline_begins_again_at_a_restart(patch: Patch) -> None:
    def clocks(of: Run, now: limits.Moment, ends_at: float) -> Clocks:
        return real(msgspec.structs.replace(of, started_at=now.wall), now, ends_at)

    real = restart.clocks_of
    patch.setattr(restart, "clocks_of", clocks)


@planted("P10")
def nobody_is_told_of_a_stall(patch: Patch) -> None:
    def never(self: Clocks, now: float) -> bool:
        self.stalled = True
        return False

    patch.setattr(Clocks, "stalling", never)


@planted("P10")
def a_childs_deadline_is_later_than_its_parents(patch: Patch) -> None:
    real = Machine._adopt

    def adopt(self: Machine, at: Step, command: c.Adopt) -> c.Reply:
        found = real(self, at, command)
        assert isinstance(found, c.Adopted)
        return c.Adopted(msgspec.structs.replace(found.parent, not_after=None))

    patch.setattr(Machine, "_adopt", adopt)


# P11: people come first ----------------------------------------------------------------------


@planted("P11")
def a_preempted_message_is_dropped(patch: Patch) -> None:
    real = ending._requeue

    def requeue(at: Step, of: Run, message: state.Message, cause: e.Cause) -> None:
        if cause != "preempted":
            real(at, of, message, cause)

    patch.setattr(ending, "_requeue", requeue)


@planted("P11")
def preempted_work_goes_to_the_end_of_the_queue(patch: Patch) -> None:
    def at_the_end(waiting: list[state.Message], *_: object, **__: object) -> int:
        return len(waiting)

    patch.setattr(fold, "bisect", at_the_end)


@planted("P11")
def preemption_is_not_bounded(patch: Patch) -> None:
    real = submit._make_way

    def make_way(at: Step, of: Run, command: c.Send) -> Ending | None:
        at.policy = msgspec.structs.replace(at.policy, preemptions_max=1000)
        return real(at, of, command)

    patch.setattr(submit, "_make_way", make_way)


@planted("P11")
def the_newest_message_runs_first(patch: Patch) -> None:
    def queued(self: state.Session) -> list[state.Message]:
        return [m for p in state.PRIORITIES for m in reversed(self.queue[p])]

    patch.setattr(state.Session, "queued", queued)


@planted("P11")
def background_work_goes_before_people(patch: Patch) -> None:
    def queued(self: state.Session) -> list[state.Message]:
        everything = [m for p in state.PRIORITIES for m in self.queue[p]]
        return sorted(everything, key=lambda m: m.place)

    patch.setattr(state.Session, "queued", queued)


# What somebody does to what waits -------------------------------------------------------------


@planted("P4")
def what_runs_already_is_edited(patch: Patch) -> None:
    real = waiting._waiting

    def careless(of: state.Session, name: str) -> state.Message:
        run = of.active
        return run.message if run is not None and run.id == name else real(of, name)

    def edited(of: state.Session, event: e.Event, data: e.MessageEdited) -> None:
        careless(of, event.run or "").text = data.text

    patch.setattr(waiting, "_waiting", careless)
    _set(patch, fold._APPLY, e.MessageEdited, edited)


@planted("P4")
def the_words_that_were_first_sent_are_told_to_the_agent(patch: Patch) -> None:
    def deaf(of: state.Session, event: e.Event, data: e.MessageEdited) -> None:
        """The log says it, and nobody listens."""

    _set(patch, fold._APPLY, e.MessageEdited, deaf)


@planted("P11")
def what_is_moved_goes_behind_the_run_that_was_named(patch: Patch) -> None:
    real = fold._APPLY[e.QueueMoved]

    def behind(of: state.Session, event: e.Event, data: e.QueueMoved) -> None:
        message = of.find_queued(event.run or "")
        assert message is not None
        queue = [m.run for m in of.queue[message.priority] if m.run != message.run]
        at = queue.index(data.before) + 1 if data.before is not None else len(queue)
        before = queue[at] if at < len(queue) else None
        real(of, event, msgspec.structs.replace(data, before=before))

    _set(patch, fold._APPLY, e.QueueMoved, behind)


@planted("P4")
def what_is_given_to_the_running_turn_waits_as_well(patch: Patch) -> None:
    patch.setattr(waiting, "end_queued", _nothing)


@planted("P4")
def what_was_given_to_a_turn_that_did_not_take_it_is_lost(patch: Patch) -> None:
    real = ending._requeue

    def forgetful(at: Step, of: Run, message: state.Message, cause: e.Cause) -> None:
        if cause == "not_taken" and message.run in at.state.handed:
            return
        real(at, of, message, cause)

    patch.setattr(ending, "_requeue", forgetful)


# P12: the cause is named ---------------------------------------------------------------------


@planted("P12")
def the_cause_is_not_named(patch: Patch) -> None:
    def silent(*_: object) -> str:
        return "something went wrong"

    patch.setattr(explain, "ending", silent)


@planted("P12")
def what_was_seen_is_forgotten(patch: Patch) -> None:
    def blind(*_: object, **__: object) -> Seen:
        return Seen()

    patch.setattr(step.Step, "seen", blind)


# Child runs ----------------------------------------------------------------------------------


@planted("P5")
def a_child_goes_on_when_its_parent_has_ended(patch: Patch) -> None:
    patch.setattr(ending, "_stop_children", _nothing)


@planted("P1")
def a_childs_ending_is_told_twice(patch: Patch) -> None:
    real = fold._APPLY[e.ChildEnded]

    def ended(of: state.Session, event: e.Event, data: e.ChildEnded) -> None:
        if data.child not in of.labels:
            of.labels[data.child] = "told"
        else:
            real(of, event, data)

    _set(patch, fold._APPLY, e.ChildEnded, ended)
    tell = ending._tell_parent

    def twice(at: Step, message: state.Message, found: outcome.Outcome) -> None:
        tell(at, message, found)
        tell(at, message, found)

    patch.setattr(ending, "_tell_parent", twice)


# Snapshots, and what is let go -----------------------------------------------------------------


@planted("P4")
def a_snapshot_forgets_the_idempotency_keys(patch: Patch) -> None:
    real = snapshot.freeze

    def forgetful(of: state.Session) -> bytes:
        return real(msgspec.structs.replace(of, keys={}))

    patch.setattr(snapshots, "freeze", forgetful)


@planted("P8")
def a_snapshot_is_older_than_it_says(patch: Patch) -> None:
    async def read_state(store: EventStore, of: str) -> state.Session:
        kept = await store.load(of)
        found = snapshot.thaw(kept.state) if kept is not None else None
        found = found if found is not None else state.Session(of)
        events = await store.read(of, found.seq + 1, 100_000)
        found.seq += 1 if events else 0
        return fold.fold(events, found) if events else found

    patch.setattr(sessions, "read_state", read_state)


@planted("P2")
def the_process_of_a_running_turn_is_let_go_as_idle(patch: Patch) -> None:
    def careless(at: Step) -> None:
        if at.state.process is not None:
            at.do(f.Kill(at.state.process.name))

    patch.setattr(session, "rest", careless)
    patch.setattr(SessionActor, "is_idle", property(lambda self: True))
