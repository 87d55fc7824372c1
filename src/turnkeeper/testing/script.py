"""What a scripted agent does, as plain data: it can be printed, compared, shortened and stored.

Decides nothing. It must not know the runtime or the event loop. Invariant: a script holds no
chance and no clock; whoever makes one has put all of its chance into it.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from turnkeeper.core.effects import Intent
from turnkeeper.core.signals import AgentSignal


class Step(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """One thing that an agent does in a turn."""


class Emit(Step, frozen=True, tag=True):
    """One line on its stream. With `split_s` it is half a line first, and the rest so much later
    (or never)."""

    signals: tuple[AgentSignal, ...]
    split_s: float | Literal["never"] | None = None


class Pause(Step, frozen=True, tag=True):
    """Nothing, for so long."""

    s: float


class Hang(Step, frozen=True, tag=True):
    """Nothing, for ever."""


class Ask(Step, frozen=True, tag=True):
    """A question for a person; with `wait` nothing else is done before the answer. What is allowed
    is executed, and witnessed."""

    ref: str
    tool: str = "bash"
    wait: bool = True


class Observe(Step, frozen=True, tag=True):
    """Its custodian looks at its processes: are they at work?"""

    busy: bool


class Exit(Step, frozen=True, tag=True):
    """The process ends by itself; what it left behind lives on."""

    code: int = 0


class Garbage(Step, frozen=True, tag=True):
    """A line that is not of its protocol."""


class Freeze(Step, frozen=True, tag=True):
    """From now on it takes nothing from its stdin."""


class Leave(Step, frozen=True, tag=True):
    """Starts a process of its own and leaves it behind."""


class Spawn(Step, frozen=True, tag=True):
    """Starts a child run: whoever made the agent is asked to (`Witness.wants_child`)."""

    session: str
    text: str


AnyStep = (
    Emit | Pause | Hang | Ask | Observe | Exit | Garbage | Freeze | Leave | Spawn
)  # fmt: skip


class Body(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """How a process behaves apart from what it says. A delay of none is never."""

    spawn: Literal["ok", "fails", "fails_once", "raises"] = "ok"
    ready_s: float | None = 0.01
    before_ready: tuple[AnyStep, ...] = ()
    stale: bool = False
    """It refuses to resume a conversation, says so, and begins a fresh one."""
    read_s: float = 0.002
    """How long after its writing the server reads it."""
    exit_on_term_s: float | None = 0.02
    killed_after_s: float = 0.02
    sweep_s: float | None = 0.01
    dies_idle_s: float | None = None
    """So long after a turn it exits."""


class Script(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One turn, and the body of the process if one is started for it."""

    steps: tuple[AnyStep, ...] = ()
    body: Body = Body()
    take_s: float | None = 0.001
    """How long it needs to take a frame."""
    report_s: float = 0.0
    """How much later the taking is known to the server."""
    freeze_after: int | None = None
    """It takes so many frames of this turn and no more."""
    on_interrupt: Literal["abort", "finish", "fail", "exit", "ignore"] = "abort"
    interrupt_s: float = 0.01
    after_interrupt: tuple[AnyStep, ...] = ()
    """What it does first when it is interrupted."""
    after_all: tuple[AnyStep, ...] = ()
    """What it does when it should be done with being interrupted."""


class Witness:
    """Sees all that really happens on the agent's machine. By itself it looks away."""

    def born(self, process: str, session: str, body: Body) -> None:
        """A process was started."""

    def died(self, process: str, code: int | None, cause: str) -> None:
        """The agent's own process ended: by itself, by `term`, `kill`, or with its `keeper`."""

    def abandoned(self, process: str) -> None:
        """Its custodian is gone: its stream cannot be read any more, and it will be dead soon."""

    def left_behind(self, process: str, children: int) -> None:
        """So many processes of its tree live besides the agent."""

    def wrote(self, process: str, run: str, signals: tuple[AgentSignal, ...]) -> None:
        """A line is whole in the stream."""

    def wrote_garbage(self, process: str) -> None:
        """A line of nonsense is whole in the stream."""

    def was_written(self, process: str, frame: int, intent: Intent) -> None:
        """A frame was written to its stdin by a living server."""

    def took(self, process: str, frame: int, intent: Intent) -> None:
        """The process took a frame, for the first time."""

    def executed(self, process: str, run: str, ref: str) -> None:
        """It did what it had asked leave for."""

    def reported(self, process: str, run: str, signal: AgentSignal) -> None:
        """A living server was told something about the process beside its stream."""

    def wants_child(self, run: str, spawn: Spawn) -> None:
        """A turn wants to start a child run."""
