"""One run: what to do about a signal, by the table.

Decides the events and effects of each action that `core.table` names. It must not know queues,
commands or other runs. Invariant: an action either notes something, or moves the run along the
table, or returns an `Ending`; it never ends the run by itself while something else may still be
observed in the same look.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import msgspec

from turnkeeper.core import effects as f
from turnkeeper.core import events as e
from turnkeeper.core import explain
from turnkeeper.core import signals as s
from turnkeeper.core.ending import Condition, Ending, close, escalate, finish
from turnkeeper.core.limits import Clock, Phase
from turnkeeper.core.outcome import Evidence, Kind
from turnkeeper.core.rules import Question, judge
from turnkeeper.core.state import Run, approval_name
from turnkeeper.core.step import Step
from turnkeeper.core.table import TABLE

Action = Callable[[Step, Run, Any], Ending | None]


def perform(step: Step, run: Run, signal: s.Signal) -> Ending | None:
    """Do what the table says for this signal here; tell if it would end the run."""
    kind = type(signal)
    cell = TABLE[run.phase].get(kind)
    if cell is None:
        note_late(step, run.id, signal)
        return None
    if step.trace is not None:
        step.trace(run.phase, kind)
    return ACTIONS[cell.action](step, run, signal)


def note_late(step: Step, run: str | None, signal: s.Signal) -> None:
    """Too late, or out of place: progress and results are kept as evidence, the rest is no news."""
    if isinstance(signal, (*s.OUTPUT, *s.BOUNDARY, s.Asked)):
        step.emit(e.Late(type(signal).__name__, msgspec.to_builtins(signal)), run)


def _late(step: Step, run: Run, signal: s.Signal) -> None:
    note_late(step, run.id, signal)


def begin(step: Step, run: Run) -> None:
    """A try: on the living process, or on a new one."""
    state = step.state
    fresh = state.process is None
    attempt = run.attempt + 1
    name = f"{run.id}.{attempt}" if state.process is None else state.process.name
    conversation = state.conversation if step.policy.abilities.resume else None
    node = "" if step.policy.abilities.remote else step.policy.node
    step.emit(e.AttemptStarted(attempt, name, fresh, conversation, node), run.id)
    step.live.sample = step.live.beat_at = None
    step.clocks.writes.clear()
    step.clocks.enter(Phase.STARTING, step.now.mono)
    step.do(f.Open(name, run.id, conversation, fresh))


# Getting under way ---------------------------------------------------------------------------


def _ready(step: Step, run: Run, signal: s.Ready) -> None:
    step.emit(e.AttemptReady(signal.conversation), run.id)
    step.write_last(run)


def _delivered(step: Step, run: Run, signal: s.Taken) -> None:
    step.clocks.taken(signal.frame)
    if isinstance(run.intents.get(signal.frame), f.Say):
        step.emit(e.MessageDelivered(signal.frame), run.id)


def _taken(step: Step, run: Run, signal: s.Taken) -> None:
    step.clocks.taken(signal.frame)
    steer = run.steers.get(signal.frame)
    if steer is not None:
        step.emit(e.MessageSteered(steer.id, signal.frame), run.id)


def _conversation(step: Step, run: Run, signal: s.Conversation) -> None:
    """Agents repeat it every turn; only a new one is a fact."""
    if signal.id != step.state.conversation:
        step.emit(e.ConversationFact(signal.id), run.id)


def _context_lost(step: Step, run: Run, signal: s.ContextLost) -> None:
    step.emit(e.ContextLostFact(signal.conversation), run.id)


# Progress ------------------------------------------------------------------------------------


def _progress(step: Step, run: Run, data: e.Fact) -> None:
    clocks = step.clocks
    if run.phase is Phase.DELIVERING:
        clocks.writes.clear()
    clocks.progress(step.now.mono)
    step.emit(data, run.id)


def _text(step: Step, run: Run, signal: s.Text) -> None:
    _progress(step, run, e.OutputText(signal.text))


def say_all(step: Step, run: Run, signals: Sequence[s.Signal], first: int) -> int:
    """All the words in a row from `first` on, of an agent that is working; how many there are. The
    same as one after the other, at a third of the cost: this is what there is most of."""
    said: list[e.Fact] = []
    for signal in islice(signals, first, None):
        if type(signal) is not s.Text:
            break
        said.append(e.OutputText(signal.text))
    if step.trace is not None:
        step.trace(run.phase, s.Text)
    step.clocks.progress(step.now.mono)
    step.emit_words(run, said)
    return len(said)


def _thinking(step: Step, run: Run, signal: s.Thinking) -> None:
    _progress(step, run, e.OutputThinking(signal.text))


def _tool_started(step: Step, run: Run, signal: s.ToolStarted) -> None:
    _progress(step, run, e.ToolStartedFact(signal.tool, signal.name, signal.input))


def _tool_progress(step: Step, run: Run, signal: s.ToolProgress) -> None:
    _progress(step, run, e.ToolProgressFact(signal.tool, signal.text))


def _tool_ended(step: Step, run: Run, signal: s.ToolEnded) -> None:
    _progress(step, run, e.ToolEndedFact(signal.tool, signal.ok, signal.output))


def _alive(step: Step, run: Run, signal: s.Heartbeat) -> None:
    """Proves life, not progress: no clock moves."""
    step.live.beat_at = step.now.mono


def _sampled(step: Step, run: Run, signal: s.Sampled) -> None:
    """Work that can be seen keeps a quiet tool alive, and nothing else."""
    step.live.sample = signal.sample
    if run.phase is Phase.TOOL and signal.sample.busy:
        step.clocks.progress(step.now.mono)
        step.live.worked_at = step.now.mono


def _steer(step: Step, run: Run, signal: s.Steer) -> None:
    """The message is accepted already; its frame follows."""
    step.write_last(run)


# Questions -----------------------------------------------------------------------------------


def _ask(step: Step, run: Run, signal: s.Asked) -> None:
    name = approval_name(run.id, run.asked + 1)
    budget_s = run.limits.approval_s
    expires_at = step.now.wall + budget_s if budget_s else None
    if budget_s:
        step.live.approvals[name] = step.now.mono + budget_s
    asked = e.ApprovalRequested(
        name, signal.ref, signal.tool, signal.input, expires_at, signal.what
    )
    _progress(step, run, asked)


def _asked(step: Step, run: Run, signal: s.Asked) -> None:
    """A rule may answer it; else somebody has to."""
    _ask(step, run, signal)
    question = Question(signal.tool, signal.input, signal.what)
    judged = judge(question, step.policy.rules, step.state.rules)
    if judged.verdict != "ask":
        step.judged.append((approval_name(run.id, run.asked), judged))


def settle_judged(step: Step) -> None:
    """What rules answer is answered when all that was read is taken in: an agent that has ended its
    turn meanwhile waits for no answer any more."""
    for approval, judged in step.judged:
        run = step.state.active
        if run is not None and approval in run.open:
            decision: e.Settlement = "allowed" if judged.verdict == "allow" else "denied"
            settle(step, run, approval, decision, "a rule", f"{judged.verdict} {judged.rule}")


def settle(step: Step, run: Run, approval: str, decision: e.Settlement, by: str, note: str) -> None:
    """The first answer: stored, then told to the agent."""
    step.live.approvals.pop(approval, None)
    answer = decision != "withdrawn"
    step.emit(e.ApprovalSettled(approval, decision, by, note, answer), run.id)
    step.clocks.progress(step.now.mono)
    if answer:
        step.write_last(run)


def _answered(step: Step, run: Run, signal: s.Answered) -> None:
    decision: e.Settlement = "allowed" if signal.allow else "denied"
    settle(step, run, signal.approval, decision, signal.by, signal.note)


def expire(step: Step, run: Run) -> None:
    """Nobody answered in time: denied. Not for a run whose end was seen in the same look: its
    agent waits for no answer any more."""
    now = step.now.mono
    for approval in [a for a in run.open if step.live.approvals.get(a, now + 1) <= now]:
        settle(step, run, approval, "expired", "the clock", "nobody answered in time")


def _withdrawn(step: Step, run: Run, signal: s.Withdrawn) -> None:
    for approval in [a for a in run.open.values() if a.ref == signal.ref]:
        settle(step, run, approval.id, "withdrawn", "the agent", "")


def _refuse(step: Step, run: Run, signal: s.Asked) -> None:
    """A question that comes while the run is being stopped is answered with no."""
    _ask(step, run, signal)
    settle(step, run, approval_name(run.id, run.asked), "denied", "the run's end", "")


# Evidence ------------------------------------------------------------------------------------


def _ending(
    step: Step, run: Run, kind: Kind, reason: str, condition: Condition, *, detail: str = "",
    text: str | None = None, retry: bool = False, code: int | None = None, by: str = "",
) -> Ending:  # fmt: skip
    seen = step.seen(run, exit_code=code, by=by)
    return Ending(Evidence(kind, reason, step.now.mono, detail, seen), condition, text, retry)


def _finished(step: Step, run: Run, signal: s.Finished) -> Ending:
    return _ending(step, run, Kind.COMPLETED, signal.reason, Condition.BOUNDARY, text=signal.text)


def _failed(step: Step, run: Run, signal: s.Failed) -> Ending:
    return _ending(step, run, Kind.FAILED, "agent_error", Condition.BOUNDARY, detail=signal.detail)


def _aborted(step: Step, run: Run, signal: s.Aborted) -> Ending:
    detail = "it said that its turn was interrupted, and nobody here had asked for that"
    return _ending(step, run, Kind.FAILED, "agent_error", Condition.BOUNDARY, detail=detail)


def _broken(step: Step, run: Run, signal: s.Broken) -> Ending:
    return _ending(
        step, run, Kind.FAILED, signal.reason, Condition.BROKEN,
        detail=signal.detail, retry=signal.retry,
    )  # fmt: skip


def _exited(step: Step, run: Run, signal: s.Exited) -> Ending:
    return _ending(
        step, run, Kind.FAILED, "agent_exited", Condition.EXITED,
        detail=signal.detail, retry=True, code=signal.code,
    )  # fmt: skip


def _gone(step: Step, run: Run, signal: s.Gone) -> Ending:
    detail = "its processes are gone and left no word of how they ended"
    return _ending(step, run, Kind.LOST, "server_lost", Condition.GONE, detail=detail)


def _lost(step: Step, run: Run, signal: s.Lost) -> Ending:
    return _ending(step, run, Kind.LOST, signal.reason, Condition.GONE, detail=signal.detail)


def _stop(step: Step, run: Run, signal: s.Stop) -> Ending:
    condition = Condition.EXITED if run.phase is Phase.RETRYING else Condition.BUSY
    return _ending(step, run, Kind.CANCELLED, signal.reason, condition, by=signal.by)


def _judge(step: Step, run: Run, signal: s.Tick) -> Ending | None:
    """Which clock is due, while nothing is decided."""
    clocks, now = step.clocks, step.now.mono
    due = clocks.due(now)
    if due is not None and due.clock is Clock.KILL:
        step.do(f.Kill(step.process.name))
        clocks.enter(run.phase, now)
        due = clocks.due(now)
    if due is not None:
        condition = Condition.EXITED if run.phase is Phase.RETRYING else Condition.BUSY
        seen = step.seen(run, clock=due.clock.value, budget_s=due.budget_s)
        return Ending(Evidence(Kind.TIMED_OUT, due.clock.value, now, "", seen), condition)
    if clocks.stalling(now):
        clocks.stalled = True
        clock, budget_s = clocks.silence()
        seen = step.seen(run, clock=clock, budget_s=budget_s)
        told = explain.stall(seen)
        step.emit(e.RunStalling(clock, seen.silent_s, budget_s, told, seen), run.id)
    return None


# After the decision --------------------------------------------------------------------------


def _decided(run: Run) -> Evidence:
    assert run.decision is not None, "a run that drains is decided"
    return run.decision


def _boundary(step: Step, run: Run, signal: s.Signal) -> None:
    text = signal.text if isinstance(signal, s.Finished) else None
    if isinstance(signal, s.Failed):
        _keep(step, run, signal)
    finish(step, run, _decided(run), Condition.BOUNDARY, text)


def _keep(step: Step, run: Run, signal: s.Signal) -> None:
    """What came after the decision and would have told of another end."""
    step.emit(e.Late(type(signal).__name__, msgspec.to_builtins(signal)), run.id)


def _broken_draining(step: Step, run: Run, signal: s.Broken) -> None:
    _keep(step, run, signal)
    finish(step, run, _decided(run), Condition.BROKEN)


def _exited_draining(step: Step, run: Run, signal: s.Exited) -> None:
    _keep(step, run, signal)
    finish(step, run, _decided(run), Condition.EXITED)


def _gone_draining(step: Step, run: Run, signal: s.Signal) -> None:
    finish(step, run, _decided(run), Condition.GONE)


def _stop_again(step: Step, run: Run, signal: s.Stop) -> None:
    """The decision stands; but work that somebody stops is not to come back."""
    if signal.reason != "preempted" and not run.unwanted:
        step.emit(e.Late("stop", {"reason": signal.reason, "by": signal.by}), run.id)


def _climb(step: Step, run: Run, signal: s.Tick) -> None:
    """The next rung of the stop ladder, when this one's time is up."""
    due = step.clocks.due(step.now.mono)
    if due is None:
        return
    if due.clock is Clock.DRAIN:
        finish(step, run, _decided(run), Condition.BUSY)
    elif due.clock is Clock.TERM:
        escalate(step, run)
    else:
        step.do(f.Kill(step.process.name))
        step.clocks.enter(run.phase, step.now.mono)


def _escalate(step: Step, run: Run, signal: s.Signal) -> None:
    escalate(step, run)


def _cleaned(step: Step, run: Run, signal: s.Signal) -> None:
    close(step, run, gone=True)


def _swept(step: Step, run: Run, signal: s.Swept) -> None:
    close(step, run, gone=False)


def _again(step: Step, run: Run, signal: s.Gone) -> None:
    step.emit(e.AttemptEnded(run.attempt, "gone"), run.id)
    begin(step, run)


ACTIONS: dict[str, Action] = {
    "ready": _ready, "delivered": _delivered, "taken": _taken, "context_lost": _context_lost,
    "conversation": _conversation,
    "text": _text, "thinking": _thinking, "tool_started": _tool_started,
    "tool_progress": _tool_progress, "tool_ended": _tool_ended, "alive": _alive,
    "sampled": _sampled, "steer": _steer, "asked": _asked, "answered": _answered,
    "withdrawn": _withdrawn, "refuse": _refuse, "finished": _finished, "failed": _failed,
    "aborted": _aborted, "broken": _broken, "exited": _exited, "gone": _gone, "lost": _lost,
    "stop": _stop, "judge": _judge, "boundary": _boundary, "broken_draining": _broken_draining,
    "exited_draining": _exited_draining, "gone_draining": _gone_draining,
    "stop_again": _stop_again, "climb": _climb, "escalate": _escalate, "cleaned": _cleaned,
    "swept": _swept, "again": _again, "late": _late,
}  # fmt: skip
"""Every action of the table but those of a queued run, which are `core.session`'s."""
