"""The phases of a run, the limits on them, and the arithmetic of every clock.

Decides which clock is due, and when to look again. It must not know what a due clock leads to,
nor read any clock itself: `now` is always given, in monotonic seconds.
Invariant: deadline and ceiling are fixed when the run starts, and nothing moves them; only
progress moves a silence clock; a heartbeat moves none. Every operation is O(1) an event.
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from turnkeeper.core.errors import InvalidValue


class Moment(NamedTuple):
    """One instant, told twice: `mono` for clocks, `wall` (Unix seconds) for what people read."""

    mono: float
    wall: float


class Phase(StrEnum):
    """Where a run is. The last four come after `run.ended`, or hold a place for its clean-up."""

    QUEUED = "queued"
    STARTING = "starting"
    DELIVERING = "delivering"
    WAITING = "waiting"
    WORKING = "working"
    TOOL = "tool"
    APPROVAL = "approval"
    RETRYING = "retrying"
    DRAINING = "draining"
    SWEEPING = "sweeping"
    TERMINATING = "terminating"
    KILLING = "killing"
    CLOSED = "closed"


class Clock(StrEnum):
    """What can run out. The names that end a run are the reasons of `timed_out`."""

    STARTUP = "startup"
    WRITE = "write"
    FIRST_OUTPUT = "first_output"
    IDLE = "idle"
    TOOL = "tool"
    DEADLINE = "deadline"
    CEILING = "ceiling"
    QUEUE = "queue"
    APPROVAL = "approval"
    DRAIN = "drain"
    TERM = "term"
    KILL = "kill"


LONGEST_S = 366 * 24 * 3600.0
"""No limit may be longer than a year: a larger number is a unit mistake."""


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Every budget of a run, in seconds; 0 switches a clock off (for `drain_s` and `term_s`: skips
    that rung of the stop ladder)."""

    startup_s: float = 60.0
    write_s: float = 30.0
    first_output_s: float = 300.0
    idle_s: float = 900.0
    tool_s: float = 3600.0
    approval_s: float = 1800.0
    deadline_s: float = 0.0
    queue_s: float = 0.0
    ceiling_s: float = 14400.0
    drain_s: float = 5.0
    term_s: float = 5.0
    orphan_s: float = 60.0


LIMIT_KEYS: tuple[str, ...] = Limits.__struct_fields__

OPERATORS_RUNGS = ("drain_s", "term_s", "orphan_s")
"""How long a stop may take is the operator's word: a session or a message may only shorten it."""

Patch = dict[str, float]
"""Some limits by name: what one level (server, agent, session, message) says of its own."""


def check_patch(given: Any, where: str = "limits") -> Patch:
    """The patch, or `InvalidValue` naming the key, the value and what is allowed."""
    if not isinstance(given, dict):
        raise InvalidValue(where, given, "give a table of limits by name")
    patch: Patch = {}
    for key, value in given.items():
        name = f"{where}.{key}"
        if key not in LIMIT_KEYS:
            raise InvalidValue(
                name, value, f"there is no such limit; the limits are {', '.join(LIMIT_KEYS)}"
            )
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InvalidValue(name, value, "give a number of seconds (0 switches it off)")
        if not 0 <= value <= LONGEST_S:
            raise InvalidValue(name, value, f"give 0 (off) to {LONGEST_S:.0f} seconds")
        patch[key] = float(value)
    return patch


def overlay(base: Limits, patch: Patch, *, operator: bool = False) -> Limits:
    """`base` with `patch` on top. Only the operator (server, agent) may raise the ceiling
    or make a stop take longer."""
    if not patch:
        return base
    values: dict[str, float] = {**{k: getattr(base, k) for k in LIMIT_KEYS}, **patch}
    if not operator:
        if base.ceiling_s:
            values["ceiling_s"] = min(values["ceiling_s"] or base.ceiling_s, base.ceiling_s)
        for rung in OPERATORS_RUNGS:
            values[rung] = min(values[rung], getattr(base, rung))
    return Limits(**values)


SILENCE: dict[Phase, tuple[Clock, str]] = {
    Phase.STARTING: (Clock.STARTUP, "startup_s"),
    Phase.DELIVERING: (Clock.WRITE, "write_s"),
    Phase.WAITING: (Clock.FIRST_OUTPUT, "first_output_s"),
    Phase.WORKING: (Clock.IDLE, "idle_s"),
    Phase.TOOL: (Clock.TOOL, "tool_s"),
}
"""How long each phase may be silent. A phase that waits for a person is not here: it is paused."""

LADDER: dict[Phase, tuple[Clock, str]] = {
    Phase.DRAINING: (Clock.DRAIN, "drain_s"),
    Phase.SWEEPING: (Clock.TERM, "term_s"),
    Phase.TERMINATING: (Clock.TERM, "term_s"),
}
"""How long each rung of the stop ladder may take before the next one."""

REKILL_S = 1.0
"""A kill that is not yet confirmed is sent again this often; the session waits for the truth."""

OURS = frozenset({Phase.STARTING, Phase.DELIVERING})
"""The phases that begin with our own doing, which waits for the store."""

RUNNING = frozenset({*SILENCE, Phase.APPROVAL, Phase.RETRYING})
"""The phases in which deadline and ceiling count: nothing is decided yet."""

ENDED = frozenset({Phase.SWEEPING, Phase.TERMINATING, Phase.KILLING, Phase.CLOSED})
"""The phases after `run.ended`."""


class Due(NamedTuple):
    """A clock that has run out."""

    clock: Clock
    at: float
    budget_s: float


class Clocks:
    """The clocks of one run. Volatile: after a restart they are wound again from the log."""

    __slots__ = (
        "ceiling_at", "deadline_at", "limits", "nearer", "phase", "since", "stalled", "writes",
    )  # fmt: skip

    def __init__(self, limits: Limits, now: float) -> None:
        self.limits = limits
        self.phase = Phase.STARTING
        self.since = now
        self.stalled = False
        self.nearer = True
        """Something may now be due earlier than when the timer was armed. Progress only delays."""
        self.writes: dict[int, float] = {}
        self.deadline_at = now + limits.deadline_s if limits.deadline_s else math.inf
        self.ceiling_at = now + limits.ceiling_s if limits.ceiling_s else math.inf

    def enter(self, phase: Phase, now: float) -> None:
        self.phase = phase
        self.since = now
        self.stalled = False
        self.nearer = True

    def progress(self, now: float) -> None:
        """Something got on. It moves silence clocks only: no rung of the ladder takes longer."""
        if self.phase in SILENCE:
            self.since = now
            if self.stalled:
                self.stalled = False
                self.nearer = True

    def wrote(self, frame: int, now: float) -> None:
        self.writes[frame] = now
        self.nearer = True

    def done(self, decided_at: float, now: float) -> None:
        """What was decided then is done only now: what the agent is given time for counts now."""
        for frame, at in self.writes.items():
            if at == decided_at:
                self.writes[frame] = now
        if self.since == decided_at and self.phase in OURS:
            self.since = now

    def taken(self, frame: int) -> None:
        self.writes.pop(frame, None)

    def silence(self) -> tuple[str, float]:
        """The silence clock of this phase and its budget; 0 if it has none."""
        rule = SILENCE.get(self.phase)
        return (rule[0].value, float(getattr(self.limits, rule[1]))) if rule else ("", 0.0)

    def stalling(self, now: float) -> bool:
        """Half of the silence budget is gone, and nobody has been told."""
        half = self.silence()[1] / 2
        return bool(half) and not self.stalled and now >= self.since + half

    def due(self, now: float) -> Due | None:
        """The clock that ran out first, if any."""
        candidates = [due for due in self.running() if due.at <= now]
        return min(candidates, key=lambda due: due.at) if candidates else None

    def next_at(self) -> float:
        """When to look again, at the earliest; infinity for never."""
        nearest = min((due.at for due in self.running()), default=math.inf)
        half = self.silence()[1] / 2
        if half and not self.stalled:
            nearest = min(nearest, self.since + half)
        return nearest

    def running(self) -> list[Due]:
        """Every clock that counts in this phase, and when it runs out."""
        found: list[Due] = []
        phase, limits = self.phase, self.limits
        if phase in RUNNING:
            found.append(Due(Clock.DEADLINE, self.deadline_at, limits.deadline_s))
            found.append(Due(Clock.CEILING, self.ceiling_at, limits.ceiling_s))
            if self.writes and limits.write_s and phase is not Phase.RETRYING:
                oldest = next(iter(self.writes.values()))
                found.append(Due(Clock.WRITE, oldest + limits.write_s, limits.write_s))
        rule = SILENCE.get(phase) or LADDER.get(phase)
        if rule:
            budget = float(getattr(limits, rule[1]))
            if budget or phase in LADDER:
                found.append(Due(rule[0], self.since + budget, budget))
        elif phase is Phase.KILLING or phase is Phase.RETRYING:
            found.append(Due(Clock.KILL, self.since + REKILL_S, REKILL_S))
        return found
