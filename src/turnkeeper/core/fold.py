"""What a log means: the one place where a session's state changes.

Decides what each event does to the state: `fold(log)` is the state, and `apply` its single step. It
must not know why an event was written. Invariant: the state of a living session and the fold of its
log are the same, at every prefix.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from turnkeeper.core import events as e
from turnkeeper.core.effects import Answer, Intent, Interrupt, Say, SteerIn
from turnkeeper.core.limits import Phase
from turnkeeper.core.outcome import Evidence
from turnkeeper.core.state import PRIORITIES, Approval, Child, Keyed, Message, Process, Run, Session


class BrokenLog(ValueError):
    """The log says something that cannot follow from what it said before."""


def fold(log: Iterable[e.Event], session: Session | None = None) -> Session:
    """The state that a log leads to (from nothing, or from the state of an earlier prefix)."""
    for event in log:
        if session is None:
            session = Session(event.session)
        apply(session, event)
    if session is None:
        raise BrokenLog("an empty log has no state")
    return session


def apply(session: Session, event: e.Event) -> None:
    """One step of `fold`. Events come in order, without a gap."""
    if event.seq != session.seq + 1:
        raise BrokenLog(f"event {event.seq} follows event {session.seq} of session {session.id}")
    session.seq = event.seq
    if event.pos and session.process is not None:
        session.process.pos = event.pos
    _APPLY[type(event.data)](session, event, event.data)


def apply_words(session: Session, run: Run, events: Sequence[e.Event]) -> None:
    """`apply` for each of them: words of the active run while it is working."""
    last = events[-1]
    session.seq = last.seq
    if last.pos and session.process is not None:
        session.process.pos = last.pos
    run.observed = True
    run.last = last.kind


def _run(session: Session, event: e.Event) -> Run:
    run = session.active
    if run is None or run.id != event.run:
        raise BrokenLog(f"event {event.seq} ({event.kind}) is of {event.run}, which does not run")
    return run


def _intend(session: Session, run: Run, intent: Intent) -> None:
    """A frame to the agent follows from this event: number it, so that it can be sent again."""
    if session.process is None:
        raise BrokenLog(f"run {run.id} has something to write and no process")
    session.process.frames += 1
    run.intents[session.process.frames] = intent


def _created(session: Session, event: e.Event, data: e.SessionCreated) -> None:
    session.agent, session.title, session.cwd = data.agent, data.title, data.cwd
    session.limits, session.labels = dict(data.limits), dict(data.labels)
    session.rules = data.rules
    session.created_at = event.at


def _accepted(session: Session, event: e.Event, data: e.MessageAccepted) -> None:
    message = Message(
        data.message, data.text, data.priority, dict(data.limits), data.parent,
        event.seq, event.at, data.run,
    )  # fmt: skip
    if data.key is not None:
        session.keys[data.key] = Keyed(
            data.message, data.run, event.seq, data.position, data.fingerprint
        )
    if data.parent is not None and not data.steered:
        session.parents[data.run] = data.parent.run
    if data.steered:
        message.generation = 0
        _steer(session, _run(session, event), message)
    else:
        session.queue[data.priority].append(message)


def _queued(session: Session, event: e.Event, run: str | None) -> Message:
    message = session.find_queued(run or "")
    if message is None:
        raise BrokenLog(f"event {event.seq} ({event.kind}) is of {run}, which does not wait")
    return message


def _edited(session: Session, event: e.Event, data: e.MessageEdited) -> None:
    _queued(session, event, event.run).text = data.text


def _moved(session: Session, event: e.Event, data: e.QueueMoved) -> None:
    """The places stay, and whoever stands at one has been passed as often as that place was: what
    one class owes the others is the same whatever its own order."""
    message = _queued(session, event, event.run)
    waiting = session.queue[message.priority]
    places = [(other.place, other.passed) for other in waiting]
    waiting.remove(message)
    runs = [other.run for other in waiting]
    waiting.insert(len(runs) if data.before is None else runs.index(data.before), message)
    for other, (place, passed) in zip(waiting, places, strict=True):
        other.place, other.passed = place, passed


def _handed_over(session: Session, event: e.Event, data: e.MessageHandedOver) -> None:
    """Comes before the end of the run that it waited for, which takes it from the queue."""
    message = _queued(session, event, data.previous)
    run = _run(session, event)
    _steer(session, run, msgspec.structs.replace(message))
    session.handed[data.previous] = run.id


def _steer(session: Session, run: Run, message: Message) -> None:
    _intend(session, run, SteerIn(run.id, message.id, message.text))
    assert session.process is not None
    run.steers[session.process.frames] = message
    run.observed = True
    run.urgency = min(run.urgency, PRIORITIES.index(message.priority))


def _requeued(session: Session, event: e.Event, data: e.RunRequeued) -> None:
    """Comes before the end of the run that gives the message back."""
    assert event.run is not None
    run = session.active
    if run is None or run.id != data.previous:
        raise BrokenLog(f"event {event.seq}: {data.previous} does not run and gives nothing back")
    frame = next((f for f, m in run.steers.items() if m.id == data.message), None)
    message = run.message if frame is None else run.steers.pop(frame)
    again = msgspec.structs.replace(
        message,
        run=event.run,
        generation=message.generation + 1,
        preemptions=message.preemptions + (data.cause == "preempted"),
        losses=message.losses + (data.cause == "lost"),
    )
    waiting = session.queue[again.priority]
    waiting.insert(bisect(waiting, again.place, key=lambda m: m.place), again)
    if message.parent is not None:
        session.parents[event.run] = message.parent.run
    if frame is None or message.run in session.handed:
        session.successors[message.run] = event.run


def _started(session: Session, event: e.Event, data: e.RunStarted) -> None:
    message = session.find_queued(event.run or "")
    if message is None or session.active is not None:
        raise BrokenLog(f"event {event.seq}: run {event.run} cannot start now")
    session.queue[message.priority].remove(message)
    message.ran = True
    for waiting in session.queue.values():
        for other in waiting:
            other.passed += other.place < message.place
    session.active = Run(message.run, message, data.limits, event.at, data.not_after)
    session.active.urgency = PRIORITIES.index(message.priority)


def _attempt_started(session: Session, event: e.Event, data: e.AttemptStarted) -> None:
    run = _run(session, event)
    if data.fresh:
        session.process = Process(data.process, node=data.node)
    assert session.process is not None, "an attempt has a process"
    session.process.turn_pos = session.process.pos
    run.attempt = data.attempt
    run.intents = {}
    run.phase = Phase.STARTING
    run.last = ""


def _attempt_ready(session: Session, event: e.Event, data: e.AttemptReady) -> None:
    run = _run(session, event)
    session.conversation = data.conversation or session.conversation
    run.phase = Phase.DELIVERING
    run.last = "ready"
    _intend(session, run, Say(run.id, run.message.id, run.message.text))


def _delivered(session: Session, event: e.Event, data: e.MessageDelivered) -> None:
    run = _run(session, event)
    run.phase = Phase.WAITING
    run.last = "message taken"


def _steered(session: Session, event: e.Event, data: e.MessageSteered) -> None:
    _run(session, event).steers.pop(data.frame, None)


def _progress(session: Session, event: e.Event, data: e.Fact) -> None:
    run = _run(session, event)
    run.observed = True
    run.last = type(data).kind
    if run.phase is not Phase.DRAINING:
        run.phase = run.active_phase()


def _tool_started(session: Session, event: e.Event, data: e.ToolStartedFact) -> None:
    _run(session, event).tools[data.tool] = data.name
    _progress(session, event, data)


def _tool_ended(session: Session, event: e.Event, data: e.ToolEndedFact) -> None:
    _run(session, event).tools.pop(data.tool, None)
    _progress(session, event, data)


def _requested(session: Session, event: e.Event, data: e.ApprovalRequested) -> None:
    run = _run(session, event)
    run.asked += 1
    approval = Approval(
        data.approval, run.id, data.ref, data.tool, data.expires_at,
        msgspec.json.encode(data.input), data.what,
    )  # fmt: skip
    run.open[approval.id] = session.approvals[approval.id] = approval
    _progress(session, event, data)


def _settled(session: Session, event: e.Event, data: e.ApprovalSettled) -> None:
    run = _run(session, event)
    approval = run.open.pop(data.approval)
    approval.decision = data.decision
    approval.input = b"null"
    if data.answer:
        allow = data.decision == "allowed"
        _intend(session, run, Answer(run.id, approval.ref, allow, data.note))
    _progress(session, event, data)


def _attempt_failed(session: Session, event: e.Event, data: e.AttemptFailed) -> None:
    _run(session, event).phase = Phase.RETRYING


def _stopping(session: Session, event: e.Event, data: e.RunStopping) -> None:
    run = _run(session, event)
    run.decision = Evidence(data.outcome, data.reason, event.at, data.detail, data.seen)
    run.phase = Phase.DRAINING
    if data.interrupt:
        _intend(session, run, Interrupt(run.id))


_AFTER_END = {
    "sweep": Phase.SWEEPING, "term": Phase.TERMINATING, "kill": Phase.KILLING,
}  # fmt: skip


def _ended(session: Session, event: e.Event, data: e.RunEnded) -> None:
    assert event.run is not None
    if event.run in session.ended:
        raise BrokenLog(f"event {event.seq}: run {event.run} ended before")
    session.ended[event.run] = data.outcome
    queued = session.find_queued(event.run)
    if queued is not None:
        session.queue[queued.priority].remove(queued)
        return
    run = _run(session, event)
    if data.cleanup == "none":
        session.active = None
    else:
        run.phase = _AFTER_END[data.cleanup]


def _escalated(session: Session, event: e.Event, data: e.AttemptEscalated) -> None:
    _run(session, event).phase = Phase.KILLING


def _attempt_ended(session: Session, event: e.Event, data: e.AttemptEnded) -> None:
    run = _run(session, event)
    if data.how == "gone":
        session.process = None
    if run.id in session.ended:
        session.active = None


def _process_ended(session: Session, event: e.Event, data: e.ProcessEnded) -> None:
    session.process = None


def _late(session: Session, event: e.Event, data: e.Late) -> None:
    run = session.active
    if data.what == "stop" and run is not None and run.id == event.run:
        run.unwanted = True


def _conversation(session: Session, event: e.Event, data: e.ConversationFact) -> None:
    session.conversation = data.conversation


def _context_lost(session: Session, event: e.Event, data: e.ContextLostFact) -> None:
    session.conversation = None


def _rule_added(session: Session, event: e.Event, data: e.RuleAdded) -> None:
    rules = session.rules
    session.rules = msgspec.structs.replace(rules, allow=(*rules.allow, data.rule))


def _child_started(session: Session, event: e.Event, data: e.ChildStarted) -> None:
    assert event.run is not None
    session.children[data.child] = Child(data.session, event.run)


def _child_ended(session: Session, event: e.Event, data: e.ChildEnded) -> None:
    del session.children[data.child]


def _nothing(session: Session, event: e.Event, data: e.Fact) -> None:
    """Told to people; changes nothing that has to be remembered."""


_APPLY: dict[type[e.Fact], Callable[[Session, e.Event, Any], None]] = {
    e.SessionCreated: _created,
    e.MessageAccepted: _accepted,
    e.MessageEdited: _edited,
    e.QueueMoved: _moved,
    e.MessageHandedOver: _handed_over,
    e.MessageDelivered: _delivered,
    e.MessageSteered: _steered,
    e.RunRequeued: _requeued,
    e.RunStarted: _started,
    e.AttemptStarted: _attempt_started,
    e.AttemptReady: _attempt_ready,
    e.AttemptFailed: _attempt_failed,
    e.AttemptEscalated: _escalated,
    e.AttemptEnded: _attempt_ended,
    e.ProcessEnded: _process_ended,
    e.OutputText: _progress,
    e.OutputThinking: _progress,
    e.ToolStartedFact: _tool_started,
    e.ToolProgressFact: _progress,
    e.ToolEndedFact: _tool_ended,
    e.ApprovalRequested: _requested,
    e.ApprovalSettled: _settled,
    e.RunStalling: _nothing,
    e.RunStopping: _stopping,
    e.RunEnded: _ended,
    e.Late: _late,
    e.ConversationFact: _conversation,
    e.ContextLostFact: _context_lost,
    e.RuleAdded: _rule_added,
    e.ChildStarted: _child_started,
    e.ChildEnded: _child_ended,
}
