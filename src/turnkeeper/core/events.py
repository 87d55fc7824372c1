"""Durable facts: their kinds, their versions, and their one encoding.

Decides what a stored event looks like and how an old one is read. It must not know who writes or
reads it. Invariant: whatever was ever written can be read: a changed shape gets a new version and
an upcaster from the one before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec

from turnkeeper.core.facts import (
    Cause,
    Fact,
    MessageAccepted,
    MessageDelivered,
    MessageEdited,
    MessageHandedOver,
    MessageSteered,
    Parent,
    Priority,
    QueueMoved,
    RunRequeued,
    SessionCreated,
    WhenBusy,
)
from turnkeeper.core.limits import Limits
from turnkeeper.core.outcome import Kind, Outcome, Seen
from turnkeeper.core.rules import What

__all__ = [
    "FACTS", "KINDS", "ApprovalRequested", "ApprovalSettled", "AttemptEnded", "AttemptEscalated",
    "AttemptFailed", "AttemptReady", "AttemptStarted", "Cause", "ChildEnded", "ChildStarted",
    "Cleanup", "ContextLostFact", "ConversationFact", "Event", "Fact", "Late", "MessageAccepted",
    "MessageDelivered", "MessageEdited", "MessageHandedOver", "MessageSteered", "OutputText",
    "OutputThinking", "Parent", "Priority", "ProcessEnded", "QueueMoved", "RuleAdded", "RunEnded",
    "RunRequeued", "RunStalling", "RunStarted", "RunStopping", "SessionCreated", "Settlement",
    "ToolEndedFact", "ToolProgressFact", "ToolStartedFact", "UnreadableEvent", "WhenBusy", "decode",
    "encode",
]  # fmt: skip

Cleanup = Literal["none", "sweep", "term", "kill"]
Settlement = Literal["allowed", "denied", "expired", "withdrawn"]


class RuleAdded(Fact, frozen=True, gc=False):
    """What this rule fits is allowed in this session from now on: somebody said so when they
    answered a question."""

    kind = "session.rule_added"
    rule: str
    approval: str = ""
    by: str = ""


class RunStarted(Fact, frozen=True, gc=False):
    kind = "run.started"
    message: str
    limits: Limits
    not_after: float | None = None


class AttemptStarted(Fact, frozen=True, gc=False):
    """One try. `process` names the agent's process; `fresh` says that it is a new one. `node` has
    it, where there are several and it matters."""

    kind = "attempt.started"
    attempt: int
    process: str
    fresh: bool
    conversation: str | None = None
    node: str = ""


class AttemptReady(Fact, frozen=True, gc=False):
    kind = "attempt.ready"
    conversation: str | None = None


class AttemptFailed(Fact, frozen=True, gc=False):
    """This try failed before any progress; its tree is ended, and then there is another try."""

    kind = "attempt.failed"
    attempt: int
    reason: str
    detail: str = ""


class AttemptEscalated(Fact, frozen=True, gc=False):
    """The next rung of the stop ladder."""

    kind = "attempt.escalated"
    attempt: int
    to: Literal["kill"]


class AttemptEnded(Fact, frozen=True, gc=False):
    """`boundary`: the agent is free for the next run. `gone`: nothing of its tree is left."""

    kind = "attempt.ended"
    attempt: int
    how: Literal["boundary", "gone"]


class ProcessEnded(Fact, frozen=True, gc=False):
    """The agent's process ended between two runs."""

    kind = "process.ended"
    process: str
    detail: str = ""


class OutputText(Fact, frozen=True, gc=False):
    kind = "output.text"
    text: str


class OutputThinking(Fact, frozen=True, gc=False):
    kind = "output.thinking"
    text: str


class ToolStartedFact(Fact, frozen=True, gc=False):
    kind = "tool.started"
    tool: str
    name: str
    input: Any = None


class ToolProgressFact(Fact, frozen=True, gc=False):
    kind = "tool.progress"
    tool: str
    text: str = ""


class ToolEndedFact(Fact, frozen=True, gc=False):
    kind = "tool.ended"
    tool: str
    ok: bool = True
    output: str = ""


class ApprovalRequested(Fact, frozen=True, gc=False):
    kind = "approval.requested"
    approval: str
    ref: str
    tool: str
    input: Any = None
    expires_at: float | None = None
    what: What = "tool"


class ApprovalSettled(Fact, frozen=True, gc=False):
    """`answer`: whether the agent is owed the answer (it did not withdraw the question itself)."""

    kind = "approval.settled"
    approval: str
    decision: Settlement
    by: str = ""
    note: str = ""
    answer: bool = True


class RunStalling(Fact, frozen=True, gc=False):
    """Half of a silence budget is gone. Not an ending."""

    kind = "run.stalling"
    clock: str
    silent_s: float
    budget_s: float
    diagnosis: str
    seen: Seen


class RunStopping(Fact, frozen=True, gc=False):
    """The decision: how this run will have ended. `interrupt`: politely first."""

    kind = "run.stopping"
    outcome: Kind
    reason: str
    detail: str
    seen: Seen
    interrupt: bool = False


class RunEnded(Fact, frozen=True, gc=False):
    """The end, once. `text` is the agent's final word; `cleanup` what its tree still needs."""

    kind = "run.ended"
    outcome: Outcome
    cleanup: Cleanup = "none"
    text: str | None = None


class Late(Fact, frozen=True, gc=False):
    """Something that came too late to count. Kept as evidence, shown to nobody as an answer."""

    kind = "late"
    what: str
    data: Any = None


class ConversationFact(Fact, frozen=True, gc=False):
    """What the agent calls this conversation: the id to resume it by."""

    kind = "session.conversation"
    conversation: str


class ContextLostFact(Fact, frozen=True, gc=False):
    kind = "session.context_lost"
    conversation: str


class ChildStarted(Fact, frozen=True, gc=False):
    kind = "child.started"
    child: str
    session: str


class ChildEnded(Fact, frozen=True, gc=False):
    kind = "child.ended"
    child: str
    session: str
    outcome: Kind
    reason: str


FACTS: tuple[type[Fact], ...] = (
    SessionCreated, MessageAccepted, MessageEdited, QueueMoved, MessageHandedOver,
    MessageDelivered, MessageSteered, RunRequeued, RunStarted,
    AttemptStarted, AttemptReady, AttemptFailed, AttemptEscalated, AttemptEnded, ProcessEnded,
    OutputText, OutputThinking, ToolStartedFact, ToolProgressFact, ToolEndedFact,
    ApprovalRequested, ApprovalSettled, RunStalling, RunStopping, RunEnded, Late, ConversationFact,
    ContextLostFact, RuleAdded, ChildStarted, ChildEnded,
)  # fmt: skip

KINDS: dict[str, type[Fact]] = {fact.kind: fact for fact in FACTS}


class Event(msgspec.Struct, frozen=True, gc=False):
    """One fact in a session's log. `pos` is how far the agent's stream is consumed with it."""

    seq: int
    session: str
    run: str | None
    at: float
    data: Fact
    pos: int = 0

    @property
    def kind(self) -> str:
        return type(self.data).kind


class _Stored(msgspec.Struct, omit_defaults=True, gc=False):
    seq: int
    session: str
    run: str | None
    kind: str
    at: float
    data: Any
    v: int = 1
    pos: int = 0


class _Read(msgspec.Struct):
    seq: int
    session: str
    run: str | None
    kind: str
    at: float
    data: msgspec.Raw
    v: int = 1
    pos: int = 0


Upcaster = Callable[[dict[str, Any]], dict[str, Any]]

UPCASTERS: dict[tuple[str, int], Upcaster] = {}
"""From (kind, version) to the shape of the version after it."""

FEW = 4
_ZERO = b'{"seq":0'
_encoder = msgspec.json.Encoder()
_reader = msgspec.json.Decoder(_Read)
_decoders: dict[str, msgspec.json.Decoder[Any]] = {
    kind: msgspec.json.Decoder(fact) for kind, fact in KINDS.items()
}


class UnreadableEvent(ValueError):
    """A stored event of a kind or version that this program does not know."""


def encode(event: Event) -> bytes:
    """One line of JSON, without the line's end."""
    fact = type(event.data)
    return _encoder.encode(
        _Stored(event.seq, event.session, event.run, fact.kind, event.at, event.data,
                fact.version, event.pos)
    )  # fmt: skip


def encode_all(events: Sequence[Event]) -> list[bytes]:
    """`encode` for each of them. Words that were read together differ in their number and text
    alone, and are what there is most of: the rest of their line is made once."""
    if len(events) < FEW:
        return [encode(event) for event in events]
    lines: list[bytes] = []
    alike: tuple[str, str | None, float, int] | None = None
    before = after = b""
    text = _encoder.encode
    for event in events:
        data = event.data
        if type(data) is not OutputText:
            lines.append(encode(event))
            continue
        own = (event.session, event.run, event.at, event.pos)
        if own != alike:
            alike = own
            line = encode(Event(0, *own[:3], OutputText(""), own[3]))
            before, _, after = line.removeprefix(_ZERO).rpartition(b'""')
        lines.append(b'{"seq":%d%b%b%b' % (event.seq, before, text(data.text), after))
    return lines


def decode(line: bytes | str) -> Event:
    """The event, whatever version it was written in."""
    read = _reader.decode(line)
    kind = KINDS.get(read.kind)
    if kind is None or read.v > kind.version:
        raise UnreadableEvent(
            f"event {read.seq} of session {read.session} is a {read.kind} of version {read.v}, "
            f"which this program does not know; use the newer program that wrote it"
        )
    if read.v == kind.version:
        data = _decoders[read.kind].decode(read.data)
    else:
        data = msgspec.convert(upcast(read.kind, read.v, msgspec.json.decode(read.data)), kind)
    return Event(read.seq, read.session, read.run, read.at, data, read.pos)


def upcast(kind: str, version: int, data: dict[str, Any]) -> dict[str, Any]:
    """The data in the newest shape, one version at a time."""
    for v in range(version, KINDS[kind].version):
        data = UPCASTERS[kind, v](data)
    return data
