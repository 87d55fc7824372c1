"""What is done to a message while it waits: other words, another place, or into the running turn.

Decides what may still be changed, and by whose order a queue goes. It must not know how a run goes
on. Invariant: what runs or has ended is not changed; an order that somebody makes holds within one
class of priority; words leave the queue for the running turn in one step, or stay.
"""

from __future__ import annotations

from msgspec import UNSET

from turnkeeper.core import commands as c
from turnkeeper.core import events as e
from turnkeeper.core import signals as s
from turnkeeper.core.ending import end_queued
from turnkeeper.core.errors import (
    NOT_QUEUED,
    NOT_STEERED,
    OTHER_CLASS,
    UNKNOWN_RUN,
    InvalidValue,
    TurnkeeperError,
)
from turnkeeper.core.outcome import Evidence, Kind
from turnkeeper.core.run import perform
from turnkeeper.core.state import Message, Session, message_of
from turnkeeper.core.step import Step
from turnkeeper.core.table import TABLE
from turnkeeper.core.view import view


def edit(step: Step, command: c.EditRun) -> c.RunView:
    """All of it, or nothing; what is so already is no news."""
    message = _waiting(step.state, command.run)
    if command.text is not None and not command.text.strip():
        raise InvalidValue("text", command.text, "say something")
    moves = command.before is not UNSET and _moves(step.state, message, command.before)
    if command.text is not None and command.text != message.text:
        step.emit(e.MessageEdited(message.id, command.text, command.by), message.run)
    if moves:
        before = command.before or None
        step.emit(e.QueueMoved(message.id, before, command.by), message.run)
    return view(step.state, step.live, message.run, step.now)


def _waiting(state: Session, run: str) -> Message:
    message = state.find_queued(run)
    if message is not None:
        return message
    if not state.knows(run):
        raise TurnkeeperError(UNKNOWN_RUN, f"session {state.id} has no run {run}")
    now = "has ended" if run in state.ended else "is running"
    raise TurnkeeperError(NOT_QUEUED, f"run {run} {now}", run=run)


def _moves(state: Session, message: Message, before: str | None) -> bool:
    """Whether that place is another one than it has."""
    waiting = state.queue[message.priority]
    at = waiting.index(message)
    if before is None:
        return at + 1 < len(waiting)
    if before == message.run:
        raise InvalidValue("before", before, "name another run than the one that is moved")
    other = _waiting(state, before)
    if other.priority != message.priority:
        told = f"run {message.run} is {message.priority} and run {before} is {other.priority}"
        raise TurnkeeperError(OTHER_CLASS, told)
    return waiting.index(other) != at + 1


def hand_over(step: Step, command: c.HandOver) -> c.Handed:
    """The running turn gets the words, and the run that they waited for ends, in one step."""
    state, run = step.state, step.state.active
    known = state.handed.get(command.run)
    if known is not None:
        message = message_of(command.run)
        return c.Handed(command.run, message, known, changed=False)
    waiting = _waiting(state, command.run)
    if run is None or s.Steer not in TABLE[run.phase]:
        raise TurnkeeperError(NOT_STEERED, f"nothing runs in session {state.id} that could take it")
    if not step.policy.abilities.steer:
        told = f"{state.agent} takes nothing more while run {run.id} is running"
        raise TurnkeeperError(NOT_STEERED, told)
    if waiting.parent is not None:
        told = f"run {waiting.parent.run} started run {waiting.run}, and waits for how it ends"
        raise TurnkeeperError(NOT_STEERED, told)
    name, message, text = waiting.run, waiting.id, waiting.text
    step.emit(e.MessageHandedOver(message, name, text, command.by), run.id)
    perform(step, run, s.Steer(message, text))
    seen = step.seen(None, by=command.by)
    told = f"its words were given to run {run.id}"
    end_queued(step, waiting, Evidence(Kind.CANCELLED, "superseded", step.now.mono, told, seen))
    return c.Handed(name, message, run.id, changed=True)
