"""What is answered over HTTP: the shapes of answers, and how they are made.

Decides names and types. It must not know who asked. Invariant: nothing is made up: an answer says
what a record or a view says.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from turnkeeper.core.commands import Abilities, Handed, NextClock, RunView
from turnkeeper.core.errors import ending_code
from turnkeeper.core.events import Priority
from turnkeeper.core.outcome import Kind, Outcome, Seen
from turnkeeper.core.proposal import in_a_line, rule_for
from turnkeeper.core.records import ApprovalRecord, ApprovalState, RunRecord, SessionRecord
from turnkeeper.core.rules import Question


class SessionOut(msgspec.Struct, kw_only=True):
    """`seq` is the number of its last event: the cursor to watch on from."""

    id: str
    agent: str
    title: str
    cwd: str
    limits: dict[str, float]
    labels: dict[str, str]
    created_at: float
    updated_at: float
    seq: int
    state: Literal["idle", "busy"]
    running: str | None
    queued: int


class AcceptedOut(msgspec.Struct, kw_only=True):
    """The message is durable. `position` counts the runs that go first; `duplicate`: this key was
    known, and this is the answer it had."""

    message_id: str
    run_id: str
    seq: int
    position: int
    duplicate: bool = False


class ChildOut(AcceptedOut, kw_only=True):
    """The child is durable, and ends no later than `parent`, the run that started it."""

    session: str
    parent: str


class OutcomeOut(msgspec.Struct, kw_only=True):
    """`code` is the page of the error catalogue, for what did not complete."""

    kind: Kind
    reason: str
    detail: str
    evidence: Seen
    at: float
    code: str | None = None


class RunOut(msgspec.Struct, kw_only=True):
    id: str
    session: str
    message: str
    agent: str
    state: Literal["queued", "running", "ended"]
    phase: str
    clocks: tuple[NextClock, ...] = ()
    parent: str | None = None
    position: int | None = None
    successor: str | None = None
    priority: Priority = "person"
    text: str = ""
    accepted_at: float = 0.0
    started_at: float | None = None
    ended_at: float | None = None
    outcome: OutcomeOut | None = None


class StopOut(msgspec.Struct, kw_only=True):
    """`changed` is false where there was nothing left to stop."""

    run: str
    state: Literal["stopping", "ended"]
    changed: bool


class HandedOut(msgspec.Struct, kw_only=True):
    """The words of `run`, which has ended, were given to `into`, which is running. `changed` is
    false where that was so before."""

    run: str
    message: str
    into: str
    changed: bool


class ApprovalOut(msgspec.Struct, kw_only=True):
    """`input_is_cut`: in a list, a long `input` is the beginning of its JSON, as text. `summary` is
    what it is about, in a line; `rule` is the one that `always` would keep, empty if none is
    proposed (or the input is cut)."""

    id: str
    session: str
    run: str
    tool: str
    input: Any
    input_is_cut: bool = False
    state: ApprovalState
    requested_at: float
    expires_at: float | None
    settled_at: float | None = None
    by: str = ""
    note: str = ""
    summary: str = ""
    rule: str = ""


class AgentOut(msgspec.Struct, kw_only=True):
    name: str
    driver: str = ""
    abilities: dict[str, bool] = {}
    outlives_server: bool = False


class HealthOut(msgspec.Struct, kw_only=True):
    status: Literal["ok", "ready"]


class SessionsOut(msgspec.Struct, kw_only=True):
    items: list[SessionOut]
    next: str | None


class RunsOut(msgspec.Struct, kw_only=True):
    items: list[RunOut]
    next: str | None


class ApprovalsOut(msgspec.Struct, kw_only=True):
    items: list[ApprovalOut]
    next: str | None


class AgentsOut(msgspec.Struct, kw_only=True):
    items: list[AgentOut]
    next: str | None = None


class EventOut(msgspec.Struct, kw_only=True):
    """One fact of a session's log. What `data` has depends on `kind`: docs/reference/events.md."""

    seq: int
    session: str
    run: str | None
    kind: str
    at: float
    data: dict[str, Any]
    v: int = 1
    pos: int = 0


class Problem(msgspec.Struct, kw_only=True, omit_defaults=True):
    """`application/problem+json` with a code of the catalogue; `todo` says what to do."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    todo: str = ""
    field: str | None = None
    extra: dict[str, Any] = {}


# From what the runtime knows -----------------------------------------------------------------


def session_out(record: SessionRecord) -> SessionOut:
    busy = record.running is not None or record.queued > 0
    return SessionOut(
        id=record.id, agent=record.agent, title=record.title, cwd=record.cwd,
        limits=record.limits, labels=record.labels, created_at=record.created_at,
        updated_at=record.updated_at, seq=record.head, state="busy" if busy else "idle",
        running=record.running, queued=record.queued,
    )  # fmt: skip


def outcome_out(outcome: Outcome | None) -> OutcomeOut | None:
    if outcome is None:
        return None
    entry = ending_code(outcome.kind, outcome.reason)
    return OutcomeOut(
        kind=outcome.kind, reason=outcome.reason, detail=outcome.detail, at=outcome.at,
        evidence=outcome.evidence, code=entry.code if entry is not None else None,
    )  # fmt: skip


def run_out(record: RunRecord, view: RunView | None = None) -> RunOut:
    """A run as its record has it; what is alive of it as `view` has it."""
    outcome = view.outcome if view is not None else record.outcome
    phase = "closed" if record.state == "ended" else record.state
    return RunOut(
        id=record.id, session=record.session, message=record.message, agent=record.agent,
        state=view.state if view is not None else record.state,
        phase=view.phase if view is not None else phase, parent=record.parent,
        clocks=view.clocks if view is not None else (),
        position=view.position if view is not None else None,
        successor=view.successor if view is not None else record.successor, text=record.text,
        priority=record.priority, accepted_at=record.accepted_at, started_at=record.started_at,
        ended_at=record.ended_at if outcome is None else outcome.at,
        outcome=outcome_out(outcome),
    )  # fmt: skip


def approval_out(record: ApprovalRecord) -> ApprovalOut:
    question = Question(record.tool, record.input)
    rule = "" if record.input_is_cut or record.state != "open" else rule_for(question)
    return ApprovalOut(**msgspec.structs.asdict(record), summary=in_a_line(question), rule=rule)


def agent_out(name: str, driver: str, abilities: Abilities, outlives_server: bool) -> AgentOut:
    can = {field: bool(getattr(abilities, field)) for field in abilities.__struct_fields__}
    return AgentOut(name=name, driver=driver, abilities=can, outlives_server=outlives_server)


def handed_out(answer: Handed) -> HandedOut:
    return HandedOut(**msgspec.structs.asdict(answer))
