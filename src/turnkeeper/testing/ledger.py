"""What the judge remembers: runs, processes and sessions, from what was really seen.

Decides nothing. It must not know the core's own state or rules. Invariant: it is filled from the
log, from the agents' machine and from what people were told, and each fact costs O(1).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from turnkeeper.core import events as e
from turnkeeper.core.effects import Intent
from turnkeeper.core.limits import LIMIT_KEYS, Limits
from turnkeeper.core.outcome import Outcome
from turnkeeper.core.signals import AgentSignal

EPS_S = 1e-5
"""Wall time as a float is no finer than this."""

SLACK_S = 0.06
"""What the machinery itself may take: reading, and a round of the loop."""

RANK = {"person": 0, "agent": 1, "background": 2}
PREEMPTIONS_MAX = 3
ATTEMPTS_MAX = 2


class Violation(Exception):
    """A promise was broken."""

    def __init__(self, promise: str, what: str, at: float = 0.0) -> None:
        super().__init__(f"{promise} at {at:.3f} s: {what}")
        self.promise = promise
        self.what = what
        self.at = at
        self.seed = -1
        self.transcript = ""

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (self.promise, self.what, self.at, self.seed, self.transcript)


def _rebuilt(promise: str, what: str, at: float, seed: int, transcript: str) -> Violation:
    found = Violation(promise, what, at)
    found.seed, found.transcript = seed, transcript
    return found


class Emission(NamedTuple):
    """Something with news in it that an agent wrote: when it was whole, for which run, what."""

    at: float
    run: str
    signal: AgentSignal


class Decision(NamedTuple):
    kind: str
    reason: str
    at: float


@dataclass
class Proc:
    """A process, as its machine knows it."""

    name: str
    session: str
    kill_s: float = 0.0
    """How long it takes to die of a kill: that is its machine's affair, not ours."""
    alive: bool = True
    children: int = 0
    died_at: float | None = None
    code: int | None = None
    cause: str = ""
    ready: bool = False
    emissions: list[Emission] = field(default_factory=list)
    consumed: int = 0
    """How many of its emissions the log speaks of, or were the end of a run."""
    readable: int | None = None
    """So many emissions come before what broke its stream."""
    broken: set[str] = field(default_factory=set)
    withdrawn: set[str] = field(default_factory=set)
    contexts_lost: int = 0
    conversations: set[str] = field(default_factory=set)
    written: dict[int, Intent] = field(default_factory=dict)
    taken: dict[int, Intent] = field(default_factory=dict)
    untaken_since: dict[int, float] = field(default_factory=dict)
    takings: list[tuple[float, float]] = field(default_factory=list)
    """When a frame that was taken was written, and when its taking was known."""
    banned: bool = False
    lost: bool = False
    """Its custodian is gone."""

    @property
    def is_gone(self) -> bool:
        return not self.alive and self.children == 0


@dataclass
class Asked:
    """A question. `answers` is what people said to it, whether it counted or not."""

    at: float
    ref: str
    run: str
    decision: str = ""
    settled_at: float = 0.0
    answers: list[bool] = field(default_factory=list)
    rules: list[str] = field(default_factory=list)
    """What people asked to allow from then on."""
    executed: int = 0


@dataclass
class RunRec:
    """A run, from the acceptance of its message."""

    id: str
    session: str
    message: str
    text: str
    rank: int
    place: int
    accepted_at: float
    patch: dict[str, float]
    parent: e.Parent | None = None
    generation: int = 1
    ran: bool = False
    """Its message had a turn before."""
    queued_at: float = 0.0
    """When it came (back) to the queue."""
    preemptions: int = 0
    limits: Limits = field(default_factory=Limits)
    started_at: float | None = None
    attempt: int = 0
    process: str = ""
    phase: str = "queued"
    since: float = 0.0
    stalled: bool = False
    tools: dict[str, None] = field(default_factory=dict)
    open: dict[str, Asked] = field(default_factory=dict)
    outputs: int = 0
    observed: bool = False
    stops: list[str] = field(default_factory=list)
    """Why it was asked to stop, and by whom: only true requests."""
    edits: list[str] = field(default_factory=list)
    """The words that people asked it to have."""
    moves: list[str | None] = field(default_factory=list)
    """The runs that people asked it to go before."""
    handings: int = 0
    """How often people asked to give its words to the running turn."""
    decision: Decision | None = None
    urgency: int = 9
    """The highest class that steered it."""
    acted_at: float = 0.0
    """When the decision was stored: only then it can be acted on."""
    outcome: Outcome | None = None
    ended_at: float = 0.0
    requeued: str = ""
    freed_at: float | None = None
    cleanup: str = "none"
    offspring: list[RunRec] = field(default_factory=list)

    def due_at(self) -> float:
        """The earlier of deadline and ceiling, by our own arithmetic."""
        assert self.started_at is not None
        dates = [self.started_at + x for x in (self.limits.deadline_s, self.limits.ceiling_s) if x]
        return min(dates, default=float("inf"))


@dataclass
class Book:
    """A session."""

    name: str
    agent: str
    base: Limits
    patch: dict[str, float]
    outlives: bool
    steers: bool
    log: list[e.Event] = field(default_factory=list)
    active: RunRec | None = None
    previous: RunRec | None = None
    waiting: dict[str, RunRec] = field(default_factory=dict)
    steered: dict[str, tuple[str, RunRec]] = field(default_factory=dict)
    """Steering messages that are neither taken nor requeued: the run that was to take them, and
    what they become if it does not."""
    words: dict[str, str] = field(default_factory=dict)
    """What each message says now."""
    rules: set[str] = field(default_factory=set)
    """What is allowed because somebody said so once for all."""
    keys: dict[str, tuple[str, str, int, int]] = field(default_factory=dict)
    children: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Child runs that are not reported as ended: the session they are in, and their parent."""
    child_ends: dict[str, e.ChildEnded] = field(default_factory=dict)
    process: str = ""
    trouble_until: float = 0.0
    closing: bool = False
    """Its server is being shut down, and its agent does not outlive that."""
    back_at: float = 0.0
    """When a server last took it up: what it was doing, it does again from there."""
    must_make_way: RunRec | None = None
    must_end: RunRec | None = None

    def limits_for(self, patch: dict[str, float]) -> Limits:
        """The limits of a message here: of the operator, the session and the message, in turn. Only
        the operator may raise or switch off the ceiling."""
        values: dict[str, float] = {key: getattr(self.base, key) for key in LIMIT_KEYS}
        for level in (self.patch, patch):
            before = values["ceiling_s"]
            values.update(level)
            if before and (not values["ceiling_s"] or values["ceiling_s"] > before):
                values["ceiling_s"] = before
        return Limits(**values)


class Case:
    """Everything that is known, and the first promise that was seen broken."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self.books: dict[str, Book] = {}
        self.runs: dict[str, RunRec] = {}
        self.procs: dict[str, Proc] = {}
        self.questions: dict[str, Asked] = {}
        self.violation: Violation | None = None
        self.on_violation: Callable[[], None] = lambda: None
        self.long_outage = False
        self.lost_nodes: set[str] = set()
        """Processes whose machine is gone."""
        self.raised: set[str] = set()
        """Runs whose driver raised on purpose."""

    def blame(self, promise: str, what: str) -> None:
        """A promise is broken. Only the first one counts: the rest may follow from it."""
        if self.violation is None:
            self.violation = Violation(promise, what, self.now())
            self.on_violation()

    def expect(self, promise: str, holds: bool, what: str) -> bool:
        if not holds:
            self.blame(promise, what)
        return holds

    def proc(self, run: RunRec) -> Proc | None:
        return self.procs.get(run.process)

    def on_time(self, promise: str, book: Book, due: float, at: float, what: str) -> None:
        """It happened not much later than it was due, unless the store or the server was away."""
        latest = max(due, book.trouble_until) + SLACK_S
        if at > latest:
            self.blame(promise, f"{what} at {at:.3f} s, due at {due:.3f} s")
