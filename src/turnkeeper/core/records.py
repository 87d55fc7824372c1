"""What can be listed: sessions, runs and approvals, each as one record made from a log.

Decides which events change which record, and how a record is asked for. It must not know where
records are kept. Invariant: a record says nothing that its session's log does not say, so it can be
made anew from the log at any time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from turnkeeper.core import events as e
from turnkeeper.core.errors import InvalidValue
from turnkeeper.core.outcome import Kind, Outcome
from turnkeeper.core.state import run_before

INPUT_CHARS = 2000
"""So much of what a question is about is in a list; all of it is in the question itself."""

PAGE_MAX = 500
"""The most that one page of a list may have."""

RunState = Literal["queued", "running", "ended"]
ApprovalState = Literal["open", "allowed", "denied", "expired", "withdrawn"]


class SessionRecord(msgspec.Struct, kw_only=True):
    """One session. `running` and `queued` are of its runs; `head` is its last event's number."""

    id: str
    agent: str
    title: str = ""
    cwd: str = ""
    limits: dict[str, float] = {}
    labels: dict[str, str] = {}
    created_at: float = 0.0
    updated_at: float = 0.0
    head: int = 0
    running: str | None = None
    queued: int = 0


class RunRecord(msgspec.Struct, kw_only=True):
    """One run, from the moment its message was accepted."""

    id: str
    session: str
    message: str
    agent: str = ""
    state: RunState = "queued"
    priority: e.Priority = "person"
    parent: str | None = None
    text: str = ""
    """How its message begins: enough to know it by."""
    accepted_at: float = 0.0
    started_at: float | None = None
    ended_at: float | None = None
    successor: str | None = None
    outcome: Outcome | None = None


class ApprovalRecord(msgspec.Struct, kw_only=True):
    """One question to a person."""

    id: str
    session: str
    run: str
    tool: str
    input: Any = None
    input_is_cut: bool = False
    """It was too long for a list: `input` is the beginning of its JSON, as text."""
    state: ApprovalState = "open"
    requested_at: float = 0.0
    expires_at: float | None = None
    settled_at: float | None = None
    by: str = ""
    note: str = ""


# What an event changes -----------------------------------------------------------------------


class NewSession(msgspec.Struct, frozen=True):
    record: SessionRecord


class NewRun(msgspec.Struct, frozen=True):
    """`previous` is the run that gave this one's message back; what it lacks is taken from it."""

    record: RunRecord
    previous: str | None = None
    steered: bool = False
    """The message was sent into the running turn, and came back: `previous` lives on. One that
    had waited as a run before is `previous` itself."""


class RunSaid(msgspec.Struct, frozen=True):
    """Its message has other words."""

    run: str
    text: str


class RunBegan(msgspec.Struct, frozen=True):
    run: str
    at: float


class RunOver(msgspec.Struct, frozen=True):
    run: str
    at: float
    outcome: Outcome


class NewApproval(msgspec.Struct, frozen=True):
    record: ApprovalRecord


class ApprovalOver(msgspec.Struct, frozen=True):
    approval: str
    state: ApprovalState
    at: float
    by: str
    note: str


Change = NewSession | NewRun | RunSaid | RunBegan | RunOver | NewApproval | ApprovalOver

TEXT_CHARS = 200

CHANGING = frozenset(
    {e.SessionCreated, e.MessageAccepted, e.MessageEdited, e.RunRequeued, e.RunStarted, e.RunEnded,
     e.ApprovalRequested, e.ApprovalSettled}
)  # fmt: skip
"""The facts that change a record. All others are only in the log."""


def changes(events: Iterable[e.Event]) -> list[Change]:
    """What these events change, in their order."""
    found: list[Change] = []
    for event in events:
        if type(event.data) in CHANGING:
            change = _change(event)
            if change is not None:
                found.append(change)
    return found


def _change(event: e.Event) -> Change | None:
    run, data = event.run or "", event.data
    match data:
        case e.SessionCreated():
            return NewSession(
                SessionRecord(
                    id=event.session, agent=data.agent, title=data.title, cwd=data.cwd,
                    limits=data.limits, labels=data.labels,
                    created_at=event.at, updated_at=event.at,
                )
            )  # fmt: skip
        case e.MessageAccepted(steered=True):
            return None
        case e.MessageAccepted():
            return NewRun(
                RunRecord(
                    id=data.run, session=event.session, message=data.message,
                    priority=data.priority, text=data.text[:TEXT_CHARS], accepted_at=event.at,
                    parent=data.parent.run if data.parent is not None else None,
                )
            )  # fmt: skip
        case e.RunRequeued():
            record = RunRecord(
                id=run, session=event.session, message=data.message, accepted_at=event.at
            )
            if data.cause != "not_taken":
                return NewRun(record, data.previous)
            before = run_before(run)
            return NewRun(record, before or data.previous, steered=before is None)
        case e.MessageEdited():
            return RunSaid(run, data.text[:TEXT_CHARS])
        case e.RunStarted():
            return RunBegan(run, event.at)
        case e.RunEnded():
            return RunOver(run, event.at, data.outcome)
        case e.ApprovalRequested():
            return NewApproval(
                ApprovalRecord(
                    id=data.approval, session=event.session, run=run, tool=data.tool,
                    input=data.input, requested_at=event.at, expires_at=data.expires_at,
                )
            )  # fmt: skip
        case e.ApprovalSettled():
            return ApprovalOver(data.approval, data.decision, event.at, data.by, data.note)
        case _:
            return None


# What can be asked ---------------------------------------------------------------------------


class Paged(msgspec.Struct, frozen=True, kw_only=True):
    """The newest first; `before` is the cursor that the page before ended with."""

    before: str | None = None
    limit: int = 50

    def __post_init__(self) -> None:
        if not 1 <= self.limit <= PAGE_MAX:
            raise InvalidValue("limit", self.limit, f"give 1 to {PAGE_MAX}")


class SessionQuery(Paged, frozen=True, kw_only=True):
    """`state` busy: something runs or waits there. `search` is found in the id or the title."""

    agent: str | None = None
    state: Literal["idle", "busy"] | None = None
    labels: dict[str, str] = {}
    search: str | None = None


class RunQuery(Paged, frozen=True, kw_only=True):
    session: str | None = None
    agent: str | None = None
    state: RunState | Literal["unfinished"] | None = None
    outcome: Kind | None = None
    reason: str | None = None
    parent: str | None = None


class ApprovalQuery(Paged, frozen=True, kw_only=True):
    session: str | None = None
    run: str | None = None
    state: ApprovalState | None = None


class SessionPage(msgspec.Struct, frozen=True):
    items: list[SessionRecord]
    next: str | None


class RunPage(msgspec.Struct, frozen=True):
    items: list[RunRecord]
    next: str | None


class ApprovalPage(msgspec.Struct, frozen=True):
    items: list[ApprovalRecord]
    next: str | None
