"""What can be said of a run while it runs: the shape in which everybody is told it.

Decides names only. It must not know who looked, or how. Invariant: what is not known is none or
empty, and never guessed.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from turnkeeper.core.outcome import Outcome, Sample


class ProcessSeen(msgspec.Struct, frozen=True, kw_only=True):
    pid: int
    parent: int
    command: str
    state: str
    cpu_s: float
    age_s: float
    waiting_in: str = ""


class ClockSeen(msgspec.Struct, frozen=True, kw_only=True):
    """A clock that counts now: when it runs out, and what happens then."""

    clock: str
    in_s: float
    budget_s: float
    then: str


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """What can be said of a run now. `clocks` are in the order in which they run out."""

    run: str
    session: str
    agent: str
    state: Literal["queued", "running", "ended"]
    phase: str
    running_s: float | None = None
    attempt: int = 0
    last: str = ""
    silent_s: float | None = None
    heartbeat_s: float | None = None
    stalling_in_s: float | None = None
    """When a warning comes (`run.stalling`); none if it has come, or none will."""
    clocks: tuple[ClockSeen, ...] = ()
    tools: tuple[str, ...] = ()
    approvals: tuple[str, ...] = ()
    position: int | None = None
    behind: str | None = None
    """The run that a queued one waits for."""
    process: str | None = None
    processes: tuple[ProcessSeen, ...] | None = None
    """None if nobody could look: the agent is no program in custody here."""
    sockets: tuple[str, ...] = ()
    sample: Sample | None = None
    """What the clocks know: the last look of the agent's custodian."""
    elsewhere: bool = False
    """Another node has it, and only what the log has is known here."""
    outcome: Outcome | None = None
    hints: tuple[str, ...] = ()
