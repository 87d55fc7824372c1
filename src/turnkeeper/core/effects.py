"""What the shell must do because of an event, once that event is stored.

Decides nothing. It must not know how any of it is done. Invariant: effects are done in order, after
the append and never before; each may be done again after a restart without harm, because frames
are numbered and the rest is idempotent.
"""

from __future__ import annotations

import msgspec

from turnkeeper.core.outcome import Kind


class Say(msgspec.Struct, frozen=True, tag=True):
    """The message that this run is about."""

    run: str
    message: str
    text: str


class SteerIn(msgspec.Struct, frozen=True, tag=True):
    """A further message for the turn that is running."""

    run: str
    message: str
    text: str


class Answer(msgspec.Struct, frozen=True, tag=True):
    """A decision for the question that the agent calls `ref`."""

    run: str
    ref: str
    allow: bool
    note: str = ""


class Interrupt(msgspec.Struct, frozen=True, tag=True):
    """End the turn of `run`, politely."""

    run: str


Intent = Say | SteerIn | Answer | Interrupt
"""What is to be written to an agent, in neutral words; its driver makes it a frame."""


class Open(msgspec.Struct, frozen=True):
    """Have the process ready for a run: a `fresh` one, or the living one of that name."""

    process: str
    run: str
    conversation: str | None
    fresh: bool


class Reattach(msgspec.Struct, frozen=True):
    """After a restart: take up the process again, reading its stream from `pos`."""

    process: str
    run: str
    pos: int


class Write(msgspec.Struct, frozen=True):
    """Frame number `frame` to that process. A frame it has already had is dropped there."""

    process: str
    frame: int
    intent: Intent


class Sweep(msgspec.Struct, frozen=True):
    """End whatever the turn left behind, but not the agent; then report `Swept` or `Gone`."""

    process: str


class Terminate(msgspec.Struct, frozen=True):
    """Ask the whole tree to go; report `Gone`."""

    process: str


class Kill(msgspec.Struct, frozen=True):
    """Kill the whole tree until none is left; report `Gone`."""

    process: str


class StopChild(msgspec.Struct, frozen=True):
    """The parent's run is over: stop the child's."""

    session: str
    run: str
    parent: str


class TellParent(msgspec.Struct, frozen=True):
    """A child run ended: tell the session of the run that started it."""

    session: str
    parent: str
    child: str
    kind: Kind
    reason: str


class AskChild(msgspec.Struct, frozen=True):
    """Find out how a child is doing, and report its ending if it has one. `again`: its parent, who
    runs on after a restart, may be about to ask for it once more."""

    session: str
    run: str
    parent: str
    again: bool = False


Effect = Open | Reattach | Write | Sweep | Terminate | Kill | StopChild | TellParent | AskChild
