"""How a run ends: the decision, the end, and what its clean-up needs.

Decides whether a failed try is tried again, whether an agent is asked politely first, what goes
back to the queue, and which rung of the stop ladder comes next. It must not know which signal or
command brought the evidence. Invariant: `run.ended` is emitted once, by `finish` or
`end_queued`, after every open question of the run is settled.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple, assert_never

from turnkeeper.core import effects as f
from turnkeeper.core import events as e
from turnkeeper.core import explain
from turnkeeper.core.limits import Phase
from turnkeeper.core.outcome import Evidence, Kind, Outcome
from turnkeeper.core.state import Message, Run, run_name
from turnkeeper.core.step import Step


class Condition(StrEnum):
    """What the agent's process is good for, when a run is about to end."""

    BOUNDARY = "boundary"
    BUSY = "busy"
    BROKEN = "broken"
    EXITED = "exited"
    GONE = "gone"


class Ending(NamedTuple):
    """A fact that would end the run, and the condition its agent is in."""

    fact: Evidence
    condition: Condition
    text: str | None = None
    retry: bool = False


POLITE = frozenset({Phase.WAITING, Phase.WORKING, Phase.TOOL, Phase.APPROVAL})
"""The phases in which the agent is at work on a turn that it can be asked to end."""


def conclude(step: Step, run: Run, ending: Ending) -> None:
    """Commit the decision: try again, ask the agent to stop, or end at once."""
    fact = ending.fact
    if ending.retry and _may_retry(step, run, fact):
        step.unwrite()
        step.emit(e.AttemptFailed(run.attempt, fact.reason, fact.detail), run.id)
        step.do(f.Kill(step.process.name))
        return
    _settle_all(step, run)
    _stop_children(step, run.id)
    if ending.condition is Condition.BUSY and _is_polite(step, run, fact):
        told = explain.ending(step.state.agent, run.id, fact)
        step.emit(e.RunStopping(fact.kind, fact.reason, told, fact.seen, interrupt=True), run.id)
        step.write_last(run)
        return
    finish(step, run, fact, _condition(ending), ending.text)


def _condition(ending: Ending) -> Condition:
    """A stream that did not take a frame is never used again, also if its turn is over by now."""
    unused = ending.fact.kind is Kind.TIMED_OUT and ending.fact.reason == "write"
    at_boundary = ending.condition is Condition.BOUNDARY
    return Condition.BROKEN if unused and at_boundary else ending.condition


def _may_retry(step: Step, run: Run, fact: Evidence) -> bool:
    fresh = not run.observed and run.attempt < step.policy.attempts_max
    return fact.kind is Kind.FAILED and fresh


def _is_polite(step: Step, run: Run, fact: Evidence) -> bool:
    """A stream that did not take a frame is never used again, not even to ask."""
    can = step.policy.abilities.interrupt and run.limits.drain_s > 0
    return can and run.phase in POLITE and fact.reason != "write"


def finish(
    step: Step, run: Run, fact: Evidence, condition: Condition, text: str | None = None
) -> None:
    """The end, once; then whatever the tree still needs before the session is used again."""
    _give_back(step, run, fact)
    if condition is not Condition.BOUNDARY:
        step.unwrite()
    if condition is Condition.BOUNDARY and fact.reason == "parent_ended":
        condition = Condition.BUSY  # nobody will need its agent: it goes too
    match condition:
        case Condition.BOUNDARY if fact.kind in (Kind.COMPLETED, Kind.FAILED):
            step.emit(e.AttemptEnded(run.attempt, "boundary"), run.id)
            _end(step, run, fact, "none", text)
        case Condition.BOUNDARY:
            _end(step, run, fact, "sweep", text)
            step.do(f.Sweep(step.process.name))
        case Condition.BUSY | Condition.BROKEN if run.limits.term_s > 0:
            _end(step, run, fact, "term", text)
            step.do(f.Terminate(step.process.name))
        case Condition.BUSY | Condition.BROKEN | Condition.EXITED:
            _end(step, run, fact, "kill", text)
            step.do(f.Kill(step.process.name))
        case Condition.GONE:
            step.emit(e.AttemptEnded(run.attempt, "gone"), run.id)
            _end(step, run, fact, "none", text)
        case _:
            assert_never(condition)


def end_queued(step: Step, message: Message, fact: Evidence) -> None:
    """A run that never started ends."""
    told = explain.ending(step.state.agent, message.run, fact)
    outcome = Outcome(fact.kind, fact.reason, told, fact.seen, step.now.wall)
    step.emit(e.RunEnded(outcome), message.run)
    step.live.queue.pop(message.run, None)
    _tell_parent(step, message, outcome)


def escalate(step: Step, run: Run) -> None:
    """The last rung: kill, until it is confirmed."""
    step.emit(e.AttemptEscalated(run.attempt, "kill"), run.id)
    step.do(f.Kill(step.process.name))


def close(step: Step, run: Run, *, gone: bool) -> None:
    """The clean-up is confirmed: the session is free."""
    step.emit(e.AttemptEnded(run.attempt, "gone" if gone else "boundary"), run.id)
    step.live.clocks = None


def _end(step: Step, run: Run, fact: Evidence, cleanup: e.Cleanup, text: str | None) -> None:
    decided = run.decision is not None
    told = fact.detail if decided else explain.ending(step.state.agent, run.id, fact)
    outcome = Outcome(fact.kind, fact.reason, told, fact.seen, step.now.wall)
    step.emit(e.RunEnded(outcome, cleanup, text), run.id)
    if cleanup == "none":
        step.live.clocks = None
    if run.id not in step.state.successors:
        _tell_parent(step, run.message, outcome)


def _settle_all(step: Step, run: Run) -> None:
    """Nobody can answer a question of a run whose end is decided."""
    for approval in list(run.open):
        step.emit(e.ApprovalSettled(approval, "withdrawn", "the run's end", answer=False), run.id)
        step.live.approvals.pop(approval, None)


def _give_back(step: Step, run: Run, fact: Evidence) -> None:
    """What the run took from the queue and did not do goes back to the head of its class. What the
    run that started it said to it, and it did not take, ends with it."""
    message = run.message
    unseen = fact.kind is Kind.LOST and not run.observed
    if fact.reason == "preempted" and not run.unwanted:
        _requeue(step, run, message, "preempted")
    elif unseen and not run.unwanted and message.losses < step.policy.losses_max:
        _requeue(step, run, message, "lost")
    for steer in [steer for steer in run.steers.values() if steer.parent is None]:
        _requeue(step, run, steer, "not_taken")


def _requeue(step: Step, run: Run, message: Message, cause: e.Cause) -> None:
    name = run_name(message.id, message.generation + 1)
    step.emit(e.RunRequeued(message.id, run.id, cause), name)
    step.requeued = True


def _stop_children(step: Step, run: str) -> None:
    for child, entry in step.state.children.items():
        if entry.parent == run:
            step.do(f.StopChild(entry.session, child, run))


def _tell_parent(step: Step, message: Message, outcome: Outcome) -> None:
    parent = message.parent
    if parent is not None:
        first = run_name(message.id, 1)
        step.do(f.TellParent(parent.session, parent.run, first, outcome.kind, outcome.reason))
