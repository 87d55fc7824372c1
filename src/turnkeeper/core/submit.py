"""Sending a message: is it new, where does it go, and whom does it interrupt.

Decides idempotency, queueing, steering, superseding and preemption. It must not know what happens
to a run once it is decided. Invariant: within a class of priority the queue is in the order of
acceptance, or in the one that somebody made of it since (`core.waiting`); a message is accepted
once for ever under its key; a background run is preempted at most `preemptions_max` times, and then
goes on to its own end; one that took a person's steering is a person's, and is not preempted.
"""

from __future__ import annotations

from turnkeeper.core import commands as c
from turnkeeper.core import events as e
from turnkeeper.core import signals as s
from turnkeeper.core.ending import Ending
from turnkeeper.core.errors import (
    KEY_CONFLICT,
    NOT_STEERED,
    QUEUE_FULL,
    InvalidValue,
    TurnkeeperError,
)
from turnkeeper.core.limits import RUNNING, Clock, Due, Limits, Moment, check_patch, overlay
from turnkeeper.core.outcome import Evidence, Kind
from turnkeeper.core.run import perform
from turnkeeper.core.state import PASSED_MAX, PRIORITIES, Message, Run, Session, run_name
from turnkeeper.core.step import Live, Step
from turnkeeper.core.table import TABLE

KEY_CHARS_MAX = 256


def send(step: Step, command: c.Send) -> tuple[c.Accepted, Ending | None]:
    """The message's answer, and evidence against the running run if it has to make way."""
    known = _known(step.state, command)
    if known is not None:
        return known, None
    if not command.text.strip():
        raise InvalidValue("text", command.text, "say something")
    limits = check_patch(command.limits)
    run = step.state.active
    if run is not None and _takes_steering(step, run, command):
        return _steer(step, run, command, limits), None
    if command.into:
        told = f"run {command.into} does not run, or its agent takes nothing more in its turn"
        raise TurnkeeperError(NOT_STEERED, told)
    waiting = len(step.state.queue[command.priority])
    if waiting >= step.policy.queue_max:
        told = f"session {step.state.id} has {waiting} {command.priority} messages waiting"
        raise TurnkeeperError(QUEUE_FULL, told, position=waiting + 1)
    accepted = _enqueue(step, command, limits)
    return accepted, _make_way(step, run, command) if run is not None else None


def _known(state: Session, command: c.Send) -> c.Accepted | None:
    key = command.key
    if key is None:
        return None
    if not 0 < len(key) <= KEY_CHARS_MAX:
        raise InvalidValue("key", key, f"give 1 to {KEY_CHARS_MAX} characters")
    known = state.keys.get(key)
    if known is None:
        return None
    if known.fingerprint != command.fingerprint:
        raise TurnkeeperError(KEY_CONFLICT, f"key {key!r} is that of {known.message}", key=key)
    return c.Accepted(known.message, known.run, known.seq, known.position, duplicate=True)


def _rank(priority: e.Priority) -> int:
    return PRIORITIES.index(priority)


def _takes_steering(step: Step, run: Run, command: c.Send) -> bool:
    asked = command.when_busy == "steer" and step.policy.abilities.steer
    may = _rank(command.priority) <= run.urgency and command.into in ("", run.id)
    return asked and may and s.Steer in TABLE[run.phase]


def _steer(step: Step, run: Run, command: c.Send, limits: dict[str, float]) -> c.Accepted:
    event = step.emit(_accepted(command, run.id, limits, position=0, steered=True), run.id)
    perform(step, run, s.Steer(command.message, command.text))
    return c.Accepted(command.message, run.id, event.seq, 0)


def _enqueue(step: Step, command: c.Send, limits: dict[str, float]) -> c.Accepted:
    state = step.state
    name = run_name(command.message, 1)
    ahead = sum(_rank(m.priority) <= _rank(command.priority) for m in state.queued())
    position = ahead + (state.active is not None)
    event = step.emit(_accepted(command, name, limits, position=position), name)
    message = state.find_queued(name)
    assert message is not None, "message.accepted puts it into the queue"
    wind_queue(step.live, step.policy, state, message, step.now)
    return c.Accepted(command.message, name, event.seq, position)


def _accepted(
    command: c.Send, run: str, limits: dict[str, float], *, position: int, steered: bool = False
) -> e.MessageAccepted:
    return e.MessageAccepted(
        command.message, run, command.text, command.priority, command.when_busy, limits,
        command.key, command.fingerprint, command.parent, command.sender, position, steered,
        command.labels,
    )  # fmt: skip


def _make_way(step: Step, run: Run, command: c.Send) -> Ending | None:
    """Whether the running run has to end for this message, and why."""
    if run.phase not in RUNNING:
        return None
    theirs, ours = run.urgency, _rank(command.priority)
    if theirs == _rank("background") and command.priority == "person":
        fresh = run.message.passed < PASSED_MAX
        may = fresh and run.message.preemptions < step.policy.preemptions_max
        return perform(step, run, s.Stop("preempted", command.sender)) if may else None
    if command.when_busy == "interrupt" and ours <= theirs:
        return perform(step, run, s.Stop("superseded", command.sender))
    return None


# The queue's clock ---------------------------------------------------------------------------


def limits_for(policy: c.Policy, state: Session, message: Message) -> Limits:
    """The operator's limits, the session's on top, the message's on top of that."""
    return overlay(overlay(policy.limits, state.limits), message.limits)


def wind_queue(live: Live, policy: c.Policy, state: Session, message: Message, now: Moment) -> None:
    """When a waiting message has waited too long: by its own clock, or by its parent's end."""
    limits = limits_for(policy, state, message)
    dates: list[Due] = []
    if limits.queue_s and not message.ran:
        left_s = limits.queue_s - (now.wall - message.accepted_at)
        dates.append(Due(Clock.QUEUE, now.mono + left_s, limits.queue_s))
    if message.parent is not None and message.parent.not_after is not None:
        left_s = message.parent.not_after - now.wall
        dates.append(Due(Clock.DEADLINE, now.mono + left_s, 0.0))
    if dates:
        live.queue[message.run] = sorted(dates, key=lambda due: due.at)


def is_expired(step: Step, message: Message) -> bool:
    dates = step.live.queue.get(message.run)
    return dates is not None and dates[0].at <= step.now.mono


def expired(step: Step, message: Message) -> Evidence:
    """Why a waiting message's time is up."""
    due = step.live.queue[message.run][0]
    seen = step.seen(None, clock=due.clock.value, budget_s=due.budget_s)
    return Evidence(Kind.TIMED_OUT, due.clock.value, step.now.mono, "", seen)
