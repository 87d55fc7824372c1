"""The shapes of the network API: what is asked over HTTP and WebSocket, and what is answered.

Decides names and types on the wire, once, for the gateway, the client and the command line. It must
not know how anything is carried out. Invariant: a field that is not known is refused, not ignored;
what is here is what `/openapi.json` says.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from turnkeeper.core.commands import Abilities, NextClock, RunView
from turnkeeper.core.errors import ending_code
from turnkeeper.core.events import Priority, WhenBusy
from turnkeeper.core.limits import LIMIT_KEYS, LONGEST_S
from turnkeeper.core.outcome import Kind, Outcome, Seen
from turnkeeper.core.records import ApprovalRecord, ApprovalState, RunRecord, SessionRecord

Name = Annotated[str, Meta(max_length=128)]
Line = Annotated[str, Meta(max_length=500)]
Path = Annotated[str, Meta(max_length=4096)]
Note = Annotated[str, Meta(max_length=10_000)]
Key = Annotated[str, Meta(min_length=1, max_length=256, pattern="^[!-~]+$")]
Label = Annotated[str, Meta(min_length=1, max_length=64)]
Limits = Annotated[
    dict[str, float],
    Meta(
        extra_json_schema={
            "propertyNames": {"enum": list(LIMIT_KEYS)},
            "additionalProperties": {"type": "number", "minimum": 0, "maximum": LONGEST_S},
        }
    ),
]
Labels = Annotated[dict[Label, Annotated[str, Meta(max_length=256)]], Meta(max_length=32)]

# Asked ---------------------------------------------------------------------------------------


class Asked(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What somebody sends us."""


RuleList = Annotated[
    list[Annotated[str, Meta(min_length=1, max_length=1000)]], Meta(max_length=200)
]


class RulesIn(Asked, kw_only=True):
    """What the agent may do unasked here, by tool and pattern: `Read`, `Bash(git log*)`. `deny`
    beats `ask`, `ask` beats `allow`, the operator's rules among them."""

    allow: RuleList = []
    ask: RuleList = []
    deny: RuleList = []


class NewSession(Asked, kw_only=True):
    """`id` is a name of your own for it; without one it gets one."""

    agent: Name
    id: Name | None = None
    title: Line = ""
    cwd: Path = ""
    limits: Limits = {}
    labels: Labels = {}
    approvals: RulesIn = msgspec.field(default_factory=RulesIn)


class TextPart(Asked, kw_only=True):
    text: str
    type: Literal["text"] = "text"


class NewMessage(Asked, kw_only=True):
    """`text`, or `content` in parts. `deadline_s` is the same as `limits.deadline_s`."""

    text: str | None = None
    content: Annotated[list[TextPart], Meta(min_length=1, max_length=1000)] | None = None
    priority: Priority = "person"
    when_busy: WhenBusy = "queue"
    deadline_s: float | None = None
    limits: Limits = {}
    sender: Line = ""


class NewChild(NewMessage, kw_only=True):
    """What a run gives another to do: in `session`, or in a new one with `agent`."""

    session: Name | None = None
    agent: Name | None = None
    title: Line = ""
    cwd: Path = ""
    priority: Priority = "agent"


class Decision(Asked, kw_only=True):
    decision: Literal["allow", "deny"]
    note: Note = ""
    by: Line = ""


class Stop(Asked, kw_only=True):
    by: Line = ""


# Answered ------------------------------------------------------------------------------------


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


class ApprovalOut(msgspec.Struct, kw_only=True):
    """`input_is_cut`: in a list, a long `input` is the beginning of its JSON, as text."""

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


# WebSocket: asked ----------------------------------------------------------------------------


class Subscribe(Asked, tag="subscribe", kw_only=True):
    """Everything of that session after `after`, and on. Asking again moves the cursor."""

    session: str
    after: Annotated[int, Meta(ge=0)] = 0
    id: str | None = None


class Unsubscribe(Asked, tag="unsubscribe", kw_only=True):
    session: str
    id: str | None = None


class SendMessage(Asked, tag="send", kw_only=True):
    """A message, with the idempotency key that makes sending it again harmless."""

    id: str
    session: str
    message: NewMessage
    key: Key | None = None


class StopRun(Asked, tag="stop", kw_only=True):
    id: str
    run: str
    by: Line = ""


class Answer(Asked, tag="answer", kw_only=True):
    id: str
    approval: str
    decision: Literal["allow", "deny"]
    note: Note = ""
    by: Line = ""


class Ping(Asked, tag="ping", kw_only=True):
    id: str | None = None


Incoming = Subscribe | Unsubscribe | SendMessage | StopRun | Answer | Ping

# WebSocket: told. `Events` is written by hand where it is hot: {"type":"events","session":…,
# "events":[…]}; one frame may have several events, always of one session and in order.


class Events(msgspec.Struct, tag="events", kw_only=True):
    session: str
    events: list[msgspec.Raw]


class Subscribed(msgspec.Struct, tag="subscribed", kw_only=True):
    session: str
    after: int
    seq: int
    id: str | None = None


class Unsubscribed(msgspec.Struct, tag="unsubscribed", kw_only=True):
    """Nothing more of that session comes. Unasked, an `error` with the id of the subscription
    has said why."""

    session: str
    id: str | None = None


class Reply(msgspec.Struct, tag="reply", kw_only=True):
    """What the command of that id is answered: `AcceptedOut`, `StopOut` or `ApprovalOut`."""

    id: str
    answer: msgspec.Raw


class Refused(msgspec.Struct, tag="error", kw_only=True):
    """The command of that id, or (none) something that was not understood, is refused."""

    problem: Problem
    id: str | None = None


class Pong(msgspec.Struct, tag="pong", kw_only=True):
    id: str | None = None


class Goodbye(msgspec.Struct, tag="goodbye", kw_only=True):
    """The server goes: come back, and go on by cursor."""

    why: str


Outgoing = Events | Subscribed | Unsubscribed | Reply | Refused | Pong | Goodbye

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
    return ApprovalOut(**msgspec.structs.asdict(record))


def agent_out(name: str, driver: str, abilities: Abilities, outlives_server: bool) -> AgentOut:
    can = {field: bool(getattr(abilities, field)) for field in abilities.__struct_fields__}
    return AgentOut(name=name, driver=driver, abilities=can, outlives_server=outlives_server)
