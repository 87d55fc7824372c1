"""What a simulated world is made of and what befalls it, as plain data.

Decides nothing. It must not know the runtime. Invariant: a plan holds everything that is left to
chance; the same plan gives the same world, to the last event, so it can be shortened and printed.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from turnkeeper.core.events import Priority, WhenBusy
from turnkeeper.core.limits import Limits
from turnkeeper.testing.faults import StoreFault
from turnkeeper.testing.script import Script


class After(msgspec.Struct, frozen=True, omit_defaults=True):
    """When: so long after the n-th event of that kind in that session."""

    session: str
    kind: str
    nth: int = 1


class Action(msgspec.Struct, frozen=True, tag=True, omit_defaults=True, kw_only=True):
    """Something that happens at `at` seconds, or that long after an event."""

    at: float = 0.0
    after: After | None = None


class Send(Action, frozen=True, tag=True):
    """A person sends. `text` names the scripts that the agent will follow. With a key, it is sent
    again until it is answered, and once more at each of `again` seconds after that;
    `conflict` tries the key with another text."""

    session: str
    text: str
    priority: Priority = "person"
    when_busy: WhenBusy = "queue"
    limits: dict[str, float] = {}
    key: str | None = None
    again: tuple[float, ...] = ()
    conflict: bool = False


class Stop(Action, frozen=True, tag=True):
    """Somebody stops the run of that text (its newest), or one that does not exist."""

    text: str = ""


class Edit(Action, frozen=True, tag=True):
    """Somebody gives the run of that text (its newest) other words."""

    text: str
    words: str


class Move(Action, frozen=True, tag=True):
    """Somebody moves the run of that text before that of another; or to the end."""

    text: str
    before: str | None = None


class HandOver(Action, frozen=True, tag=True):
    """Somebody gives the words of the run of that text to the running turn."""

    text: str


class Reply(Action, frozen=True, tag=True):
    """Somebody answers the n-th question of that session (0: one that does not exist)."""

    session: str
    nth: int
    allow: bool
    twice: bool = False
    rule: str | None = None
    """What is to be allowed from then on, too."""


class LoseNode(Action, frozen=True, tag=True):
    """The machine under that session's process is gone for good, and that is known."""

    session: str


class Kill(Action, frozen=True, tag=True):
    """The server is killed, and comes back."""

    keepers_live: bool = True
    down_s: float = 0.5


class Close(Action, frozen=True, tag=True):
    """The server is shut down in good order, and comes back."""

    down_s: float = 0.5


class Tidy(Action, frozen=True, tag=True):
    """The server lets go of what stands idle, at once: processes, then sessions."""


class Watch(Action, frozen=True, tag=True):
    """Somebody watches: reads a number of times, then stalls or leaves for so long, and so on."""

    session: str
    cursor: int = 0
    reads: int = 1000
    stall_s: float = 0.0
    leave_s: float = 0.0


AnyAction = Send | Stop | Edit | Move | HandOver | Reply | LoseNode | Kill | Close | Tidy | Watch


class AgentPlan(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    name: str
    outlives_server: bool = True
    interrupt: bool = True
    steer: bool = True
    resume: bool = True


class SessionPlan(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    name: str
    agent: str
    limits: dict[str, float] = {}


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One world."""

    seed: int
    profile: str
    limits: Limits
    agents: tuple[AgentPlan, ...]
    sessions: tuple[SessionPlan, ...]
    scripts: dict[str, tuple[Script, ...]]
    """By the message's text: one for each try, the last for all further ones."""
    actions: tuple[AnyAction, ...]
    faults: tuple[StoreFault, ...] = ()
    latency_s: float = 0.0
    behind_max: int = 8192
    queue_max: int = 100
    snapshot_every: int = 2048
    output_max_bytes: int = 20_000
    ending: Literal["close", "kill"] = "close"
