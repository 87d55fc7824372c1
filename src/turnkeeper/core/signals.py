"""What can be observed about a run, in neutral words.

Decides nothing: it is the vocabulary between drivers, people, clocks and the run's table. It must
not know any agent's protocol. Invariant: a closed set; the table in `core.run` names what each
signal means in each phase.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from turnkeeper.core.outcome import Sample
from turnkeeper.core.rules import What


class Signal(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Something that was observed."""


# From the agent's stream, through its driver ------------------------------------------------


class Ready(Signal, frozen=True, tag=True, gc=False):
    """The agent can take a message. `conversation` is its own id to resume by, if it has one."""

    conversation: str | None = None


class Conversation(Signal, frozen=True, tag=True, gc=False):
    """The agent's own id to resume by, from an agent that only tells it once it is at work."""

    id: str


class Taken(Signal, frozen=True, tag=True, gc=False):
    """The agent took frame `frame` whole."""

    frame: int


class Text(Signal, frozen=True, tag=True, gc=False):
    text: str


class Thinking(Signal, frozen=True, tag=True, gc=False):
    text: str


class ToolStarted(Signal, frozen=True, tag=True, gc=False):
    tool: str
    name: str
    input: Any = None


class ToolProgress(Signal, frozen=True, tag=True, gc=False):
    tool: str
    text: str = ""


class ToolEnded(Signal, frozen=True, tag=True, gc=False):
    tool: str
    ok: bool = True
    output: str = ""


class Asked(Signal, frozen=True, tag=True, gc=False):
    """The agent wants a person's leave, for a tool or for a plan. `ref` is the agent's own name for
    the question."""

    ref: str
    tool: str
    input: Any = None
    what: What = "tool"


class Withdrawn(Signal, frozen=True, tag=True, gc=False):
    """The agent no longer wants an answer to `ref`."""

    ref: str


class Heartbeat(Signal, frozen=True, tag=True, gc=False):
    """The agent lives. That is no progress."""


class ContextLost(Signal, frozen=True, tag=True, gc=False):
    """The agent refused the conversation it was asked to resume, and began a fresh one."""

    conversation: str


class Finished(Signal, frozen=True, tag=True, gc=False):
    """The agent says that its turn is over and how; `text` is its final word where it has one."""

    reason: Literal["end_turn", "max_tokens", "max_turns", "refused"] = "end_turn"
    text: str | None = None


class Failed(Signal, frozen=True, tag=True, gc=False):
    """The agent says that its turn failed; it is back at its boundary."""

    detail: str


class Aborted(Signal, frozen=True, tag=True, gc=False):
    """The agent says that its turn was interrupted; it is back at its boundary."""


# From its custody ---------------------------------------------------------------------------


class Sampled(Signal, frozen=True, tag=True, gc=False):
    """What its processes are doing."""

    sample: Sample


class Broken(Signal, frozen=True, tag=True, gc=False):
    """The stream to or from the agent is of no further use. `retry`: another try could help.
    `agent_error`: it says itself why it cannot work."""

    reason: Literal["protocol_error", "spawn_failed", "output_limit", "internal", "agent_error"]
    detail: str
    retry: bool = False


class Exited(Signal, frozen=True, tag=True, gc=False):
    """The agent's process ended, and all that it wrote has been read."""

    code: int | None
    detail: str = ""


class Swept(Signal, frozen=True, tag=True, gc=False):
    """Nothing that the turn started is left; the agent itself may live."""


class Gone(Signal, frozen=True, tag=True, gc=False):
    """Nothing of the agent's tree is left: confirmed."""


# From people, clocks and the runtime --------------------------------------------------------


class Start(Signal, frozen=True, tag=True, gc=False):
    """It is this run's turn."""


class Stop(Signal, frozen=True, tag=True, gc=False):
    reason: Literal["stopped", "superseded", "preempted", "parent_ended", "shutdown"] = "stopped"
    by: str = ""


class Steer(Signal, frozen=True, tag=True, gc=False):
    """A message for the turn that is running."""

    message: str
    text: str


class Answered(Signal, frozen=True, tag=True, gc=False):
    approval: str
    allow: bool
    by: str = ""
    note: str = ""


class Tick(Signal, frozen=True, tag=True, gc=False):
    """A timer fired: look at the clocks."""


class Lost(Signal, frozen=True, tag=True, gc=False):
    """Custody of the agent is lost for good, and nothing of it is left here."""

    reason: Literal["server_lost", "node_lost"] = "server_lost"
    detail: str = ""


AgentSignal = (
    Ready | Conversation | Taken | Text | Thinking | ToolStarted | ToolProgress | ToolEnded
    | Asked | Withdrawn | Heartbeat | ContextLost | Finished | Failed | Aborted | Sampled | Broken
    | Exited | Swept | Gone
)  # fmt: skip
"""What a driver may report. Encodable, so that a scripted agent can speak it on a wire."""

OUTPUT = (Text, Thinking, ToolStarted, ToolProgress, ToolEnded)
"""Progress: what proves that the model or a tool is getting on."""

WORDS = frozenset({Text, Thinking})
"""What there is most of, and nothing changes by."""

BOUNDARY = (Finished, Failed, Aborted)
"""The agent's own word that a turn is over."""


class Group(msgspec.Struct, frozen=True, gc=False):
    """Signals that were read together, and how far the agent's stream is consumed with them.

    `pos` is stored with the events that the group leads to, in one transaction: a group is never
    split, so after a restart the stream is read again from exactly there.
    """

    process: str
    run: str
    signals: tuple[AgentSignal, ...]
    pos: int = 0
