"""What has to be remembered about a session, and how its parts are named.

Decides nothing: it is the shape of what `core.fold` makes of a log. It must not know events' order
or meaning. Invariant: nothing but `core.fold.apply` changes any of it.
"""

from __future__ import annotations

import msgspec

from turnkeeper.core import events as e
from turnkeeper.core.effects import Intent
from turnkeeper.core.limits import Limits, Phase
from turnkeeper.core.outcome import Evidence, Outcome
from turnkeeper.core.rules import Rules, What

PASSED_MAX = 20
"""A message that this many later ones went before is next: starvation is bounded."""

PRIORITIES: tuple[e.Priority, ...] = ("person", "agent", "background")


class Message(msgspec.Struct):
    """What somebody sent, as long as it is not done with."""

    id: str
    text: str
    priority: e.Priority
    limits: dict[str, float]
    parent: e.Parent | None
    place: int
    """Where it stands among all that wait: the number of the event that it, or whoever had this
    place before somebody moved them, was accepted with."""
    accepted_at: float
    run: str
    generation: int = 1
    ran: bool = False
    passed: int = 0
    """So many whose place is behind its own went before it."""
    preemptions: int = 0
    losses: int = 0


class Keyed(msgspec.Struct, frozen=True):
    """What was answered under an idempotency key, and a fingerprint of what was asked."""

    message: str
    run: str
    seq: int
    position: int
    fingerprint: str


def run_name(message: str, generation: int) -> str:
    """The name of a message's first, second… run: `m_8f2` leads to `r_8f2`, then `r_8f2-2`."""
    first = "r" + message.removeprefix("m")
    return first if generation <= 1 else f"{first}-{generation}"


def message_of(run: str) -> str:
    """The message that a run is of, by its name."""
    return "m" + run.removeprefix("r").partition("-")[0]


def run_before(run: str) -> str | None:
    """The run before this one that its message had, by its name; none if it is the first."""
    first, _, generation = run.rpartition("-")
    return run_name(message_of(run), int(generation) - 1) if first else None


def approval_name(run: str, number: int) -> str:
    """The name of a run's n-th question."""
    return f"a{run.removeprefix('r')}.{number}"


def run_of_approval(approval: str) -> str:
    """The run that an approval's name speaks of, whether it exists or not."""
    return "r" + approval.removeprefix("a").rpartition(".")[0]


class Approval(msgspec.Struct):
    """One question to a person. `decision` is none while it is open; `input`, which is JSON, is
    kept as long as that."""

    id: str
    run: str
    ref: str
    tool: str
    expires_at: float | None
    input: bytes = b"null"
    what: What = "tool"
    decision: e.Settlement | None = None


class Process(msgspec.Struct):
    """The agent's process: its name, how far its stream is consumed, what was written to it, and on
    which node it is, where that matters."""

    name: str
    pos: int = 0
    turn_pos: int = 0
    frames: int = 0
    node: str = ""


class Child(msgspec.Struct):
    """A run in another session that one of ours started and that has not ended."""

    session: str
    parent: str


class Run(msgspec.Struct):
    """One turn, from its start to the confirmed end of its clean-up."""

    id: str
    message: Message
    limits: Limits
    started_at: float
    not_after: float | None = None
    phase: Phase = Phase.STARTING
    attempt: int = 0
    observed: bool = False
    tools: dict[str, str] = {}
    open: dict[str, Approval] = {}
    asked: int = 0
    steers: dict[int, Message] = {}
    urgency: int = 2
    intents: dict[int, Intent] = {}
    decision: Evidence | None = None
    unwanted: bool = False
    last: str = ""

    def active_phase(self) -> Phase:
        """Where a run is whose agent has begun to answer."""
        if self.open:
            return Phase.APPROVAL
        return Phase.TOOL if self.tools else Phase.WORKING


class Session(msgspec.Struct):
    """Everything that has to be remembered about one conversation."""

    id: str
    agent: str = ""
    title: str = ""
    cwd: str = ""
    limits: dict[str, float] = {}
    labels: dict[str, str] = {}
    rules: Rules = Rules()
    seq: int = 0
    created_at: float = 0.0
    conversation: str | None = None
    process: Process | None = None
    active: Run | None = None
    queue: dict[e.Priority, list[Message]] = msgspec.field(
        default_factory=lambda: {p: [] for p in PRIORITIES}
    )
    ended: dict[str, Outcome] = {}
    successors: dict[str, str] = {}
    handed: dict[str, str] = {}
    """Runs that ended in the queue because their words were given to another, and to which."""
    parents: dict[str, str] = {}
    keys: dict[str, Keyed] = {}
    approvals: dict[str, Approval] = {}
    children: dict[str, Child] = {}

    @property
    def unfinished(self) -> bool:
        """Something here still has to happen."""
        return self.active is not None or bool(self.children) or any(self.queue.values())

    def queued(self) -> list[Message]:
        """Everything that waits, in the order in which it will run."""
        everything = [message for priority in PRIORITIES for message in self.queue[priority]]
        overdue = [message for message in everything if message.passed >= PASSED_MAX]
        if not overdue:
            return everything
        return overdue + [message for message in everything if message.passed < PASSED_MAX]

    def find_queued(self, run: str) -> Message | None:
        return next((m for m in self.queued() if m.run == run), None)

    def knows(self, run: str) -> bool:
        active = self.active is not None and self.active.id == run
        return active or run in self.ended or self.find_queued(run) is not None
