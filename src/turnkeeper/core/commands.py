"""What people, programs and other sessions ask of a session, and what they are answered.

Decides nothing. It must not know where a command came from. Invariant: an answer is given only
after the events it speaks of are stored.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from turnkeeper.core.events import Parent, Priority, WhenBusy
from turnkeeper.core.limits import Limits
from turnkeeper.core.outcome import Kind, Outcome
from turnkeeper.core.rules import Rules


class Abilities(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent can do, as its driver declares it."""

    steer: bool = False
    interrupt: bool = False
    resume: bool = False
    approvals: bool = False
    thinking: bool = False
    images: bool = False
    remote: bool = False
    """Its turns run where every node can reach them."""


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """What the operator lays down for a session: the base limits, the agent's abilities, bounds."""

    agent: str = ""
    node: str = ""
    """The node that this is laid down for, where there may be several."""
    limits: Limits = Limits()
    abilities: Abilities = Abilities()
    rules: Rules = Rules()
    queue_max: int = 100
    preemptions_max: int = 3
    losses_max: int = 3
    attempts_max: int = 2
    children_max: int = 32
    depth_max: int = 5
    warm_s: float = 600.0
    """So long an agent's process stands by for the next message; then it is ended. 0: for ever."""


class Create(msgspec.Struct, frozen=True, kw_only=True):
    agent: str
    title: str = ""
    cwd: str = ""
    limits: dict[str, float] = {}
    labels: dict[str, str] = {}
    rules: Rules = Rules()


class Send(msgspec.Struct, frozen=True, kw_only=True):
    """A message. `message` is the id it gets if it is new; its run is named after it."""

    message: str
    text: str
    priority: Priority = "person"
    when_busy: WhenBusy = "queue"
    limits: dict[str, float] = {}
    key: str | None = None
    fingerprint: str = ""
    parent: Parent | None = None
    sender: str = ""
    labels: dict[str, str] = {}
    into: str = ""
    """Steer it into this run, or refuse it: it never becomes a run of its own."""


class StopRun(msgspec.Struct, frozen=True, kw_only=True):
    run: str
    reason: Literal["stopped", "parent_ended", "shutdown"] = "stopped"
    by: str = ""


class EditRun(msgspec.Struct, frozen=True, kw_only=True):
    """Other words for a run that waits, or another place in its class: right before the run
    `before`, or (none) at the end."""

    run: str
    text: str | None = None
    before: str | UnsetType | None = UNSET
    by: str = ""


class HandOver(msgspec.Struct, frozen=True, kw_only=True):
    """The words of a run that waits are for the turn that is running now."""

    run: str
    by: str = ""


class AnswerApproval(msgspec.Struct, frozen=True, kw_only=True):
    """`remember`: allow from now on in this session what this rule fits; empty: the rule that
    would be proposed."""

    approval: str
    allow: bool
    by: str = ""
    note: str = ""
    remember: str | None = None


class Adopt(msgspec.Struct, frozen=True, kw_only=True):
    """A run wants to start a child run in another session."""

    parent: str
    child: str
    session: str


class ReportChild(msgspec.Struct, frozen=True, kw_only=True):
    """A child run ended; said at least once, counted once."""

    child: str
    outcome: Kind
    reason: str


class Check(msgspec.Struct, frozen=True):
    """A timer fired: look at the clocks."""


class Rest(msgspec.Struct, frozen=True):
    """Nobody has needed this session for some time: let its idle process go."""


class Lose(msgspec.Struct, frozen=True, kw_only=True):
    """The custody of that process is gone for good (its node was lost). Without a name it is
    whichever the session uses now, which may be another one than was lost."""

    process: str = ""
    reason: Literal["server_lost", "node_lost"] = "server_lost"
    detail: str = ""


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """How is a run doing?"""

    run: str


Command = (
    Create | Send | EditRun | HandOver | StopRun | AnswerApproval | Adopt | ReportChild | Check
    | Rest | Lose | Look
)  # fmt: skip


class Accepted(msgspec.Struct, frozen=True):
    """`position` counts the runs that go first; `duplicate` says that the key was known."""

    message: str
    run: str
    seq: int
    position: int
    duplicate: bool = False


class StopAnswer(msgspec.Struct, frozen=True):
    """`changed` is false where there was nothing left to stop."""

    run: str
    state: Literal["stopping", "ended"]
    changed: bool


class Handed(msgspec.Struct, frozen=True):
    """The words of `run` were given to `into`; `changed` is false where that was so before."""

    run: str
    message: str
    into: str
    changed: bool


class Adopted(msgspec.Struct, frozen=True):
    """What the child's message has to carry."""

    parent: Parent


class Done(msgspec.Struct, frozen=True):
    """It is stored."""

    seq: int


class NextClock(msgspec.Struct, frozen=True):
    """What will run out next, and in how many seconds."""

    clock: str
    in_s: float
    budget_s: float


class RunView(msgspec.Struct, frozen=True):
    """A run as people are shown it."""

    id: str
    session: str
    message: str
    agent: str
    state: Literal["queued", "running", "ended"]
    phase: str
    clocks: tuple[NextClock, ...] = ()
    parent: str | None = None
    position: int | None = None
    successor: str | None = None
    outcome: Outcome | None = None


Reply = RunView | Accepted | Handed | StopAnswer | Adopted | Done
