"""What every fact in a log has, and the facts about a session's beginning, its messages and
their queue.

Decides the shape of each. It must not know who writes or reads it. Invariant: `core.events`, which
has all other facts and the one encoding, knows every one of these.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import msgspec

from turnkeeper.core.rules import Rules

Priority = Literal["person", "agent", "background"]
WhenBusy = Literal["queue", "steer", "interrupt"]
Cause = Literal["preempted", "lost", "not_taken"]


class Fact(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The data of one kind of event; `version` is that of its shape.

    Facts are trees of plain data and never part of a cycle, so the collector may pass them by.
    """

    kind: ClassVar[str]
    version: ClassVar[int] = 1


class Parent(msgspec.Struct, frozen=True):
    """The run that started a child run: where it is, how deep, and when its time is up (wall)."""

    session: str
    run: str
    depth: int
    not_after: float | None = None


class SessionCreated(Fact, frozen=True, gc=False):
    kind = "session.created"
    agent: str
    title: str = ""
    cwd: str = ""
    limits: dict[str, float] = {}
    labels: dict[str, str] = {}
    rules: Rules = Rules()


class MessageAccepted(Fact, frozen=True, gc=False):
    """A message is ours. `run` is the run it leads to: its own, or (`steered`) the running one."""

    kind = "message.accepted"
    message: str
    run: str
    text: str
    priority: Priority = "person"
    when_busy: WhenBusy = "queue"
    limits: dict[str, float] = {}
    key: str | None = None
    fingerprint: str = ""
    parent: Parent | None = None
    sender: str = ""
    position: int = 0
    steered: bool = False
    labels: dict[str, str] = {}


class MessageEdited(Fact, frozen=True, gc=False):
    """A message that waits has other words from now on. The event's `run` is its run."""

    kind = "message.edited"
    message: str
    text: str
    by: str = ""


class QueueMoved(Fact, frozen=True, gc=False):
    """A waiting message, whose run is the event's `run`, goes right before the run `before` of its
    class; without one, to the end of its class."""

    kind = "queue.moved"
    message: str
    before: str | None = None
    by: str = ""


class MessageHandedOver(Fact, frozen=True, gc=False):
    """The words of a waiting message are given to the running turn, the event's `run`. The end of
    `previous`, the run that it waited for, is in the same append."""

    kind = "message.handed_over"
    message: str
    previous: str
    text: str
    by: str = ""


class MessageDelivered(Fact, frozen=True, gc=False):
    """The agent took the run's message whole."""

    kind = "message.delivered"
    frame: int


class MessageSteered(Fact, frozen=True, gc=False):
    """The running turn took this further message."""

    kind = "message.steered"
    message: str
    frame: int


class RunRequeued(Fact, frozen=True, gc=False):
    """A message goes back to the head of its class, as a new run: the event's `run`."""

    kind = "run.requeued"
    message: str
    previous: str
    cause: Cause
