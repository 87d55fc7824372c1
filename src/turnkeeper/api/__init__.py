"""The shapes of the network API: what is asked over HTTP and WebSocket, and what is answered.

Decides names and types on the wire, once, for the gateway, the client and the command line. It must
not know how anything is carried out. Invariant: a field that is not known is refused, not ignored;
what is here is what `/openapi.json` says.
"""

from __future__ import annotations

from turnkeeper.api.asked import (
    Asked,
    Content,
    Decision,
    EditRun,
    Key,
    Label,
    Labels,
    Limits,
    Line,
    Name,
    NewChild,
    NewMessage,
    NewSession,
    Note,
    Path,
    Rule,
    RuleList,
    RulesIn,
    Steer,
    Stop,
    TextPart,
)
from turnkeeper.api.socket import (
    Answer,
    Events,
    Goodbye,
    Incoming,
    Outgoing,
    Ping,
    Pong,
    Refused,
    Reply,
    SendMessage,
    Sessions,
    StopRun,
    Subscribe,
    Subscribed,
    Unsubscribe,
    Unsubscribed,
    UnwatchSessions,
    WatchSessions,
)
from turnkeeper.api.told import (
    AcceptedOut,
    AgentOut,
    AgentsOut,
    ApprovalOut,
    ApprovalsOut,
    ChildOut,
    EventOut,
    HandedOut,
    HealthOut,
    OutcomeOut,
    Problem,
    RunOut,
    RunsOut,
    SessionOut,
    SessionsOut,
    StopOut,
    agent_out,
    approval_out,
    handed_out,
    outcome_out,
    run_out,
    session_out,
)

__all__ = [
    "AcceptedOut", "AgentOut", "AgentsOut", "Answer", "ApprovalOut", "ApprovalsOut", "Asked",
    "ChildOut", "Content", "Decision", "EditRun", "EventOut", "Events", "Goodbye", "HandedOut",
    "HealthOut", "Incoming", "Key", "Label", "Labels", "Limits", "Line", "Name", "NewChild",
    "NewMessage", "NewSession", "Note", "OutcomeOut", "Outgoing", "Path", "Ping", "Pong", "Problem",
    "Refused", "Reply", "Rule", "RuleList", "RulesIn", "RunOut", "RunsOut", "SendMessage",
    "SessionOut", "Sessions", "SessionsOut", "Steer", "Stop", "StopOut", "StopRun", "Subscribe",
    "Subscribed", "TextPart", "Unsubscribe", "Unsubscribed", "UnwatchSessions", "WatchSessions",
    "agent_out", "approval_out", "handed_out", "outcome_out", "run_out", "session_out",
]  # fmt: skip
