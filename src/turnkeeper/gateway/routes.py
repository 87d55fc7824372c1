"""Everything that is served over HTTP, in one table: it drives routing and the document alike.

Decides what each endpoint takes, needs and answers. It must not know how that is done. Invariant:
what is in the table is served and described; what is not in it is neither.
"""

from __future__ import annotations

from turnkeeper import api
from turnkeeper.core.diagnosis import Diagnosis
from turnkeeper.core.errors import (
    CHILD_REFUSED,
    KEY_CONFLICT,
    NO_SUCH_PLACE,
    NOT_QUEUED,
    NOT_STEERED,
    OTHER_CLASS,
    OVERRULED,
    QUEUE_FULL,
    SESSION_EXISTS,
    SETTLED,
    UNKNOWN_AGENT,
    UNKNOWN_APPROVAL,
    UNKNOWN_RUN,
    UNKNOWN_SESSION,
)  # fmt: skip
from turnkeeper.gateway import a2a, agui, known, mcp, page, responses
from turnkeeper.gateway import handlers as h
from turnkeeper.gateway import queries as q
from turnkeeper.gateway.table import Endpoint, Told

KEY = {
    "Idempotency-Key": (
        "makes asking again harmless: the same key with the same body is the same thing for ever",
        {"type": "string", "minLength": 1, "maxLength": 256, "pattern": "^[!-~]+$"},
    )
}

SESSION = {"get_session": "id", "send": "id", "events": "id"}
RUN = {
    "get_run": "run_id", "wait": "run_id", "diagnose": "run_id", "stop": "run_id",
    "edit": "run_id", "steer": "run_id", "start_child": "run_id",
}  # fmt: skip

SOCKET = "/v1/ws"

TABLE: tuple[Endpoint, ...] = (
    Endpoint(
        "POST", "/v1/sessions", h.create_session, "Begin a conversation with an agent", "operate",
        {201: Told(api.SessionOut, "it is there, or was made with this key before",
                   {"Location": "where it is"}, SESSION)},
        (UNKNOWN_AGENT, SESSION_EXISTS, KEY_CONFLICT), body=api.NewSession, headers=KEY,
    ),
    Endpoint(
        "GET", "/v1/sessions", h.list_sessions, "The sessions, the newest first", "read",
        {200: Told(api.SessionsOut, "a page of them")}, query=q.SessionsQuery,
    ),
    Endpoint(
        "GET", "/v1/sessions/{id}", h.get_session, "One session", "read",
        {200: Told(api.SessionOut, "the session")}, (UNKNOWN_SESSION,),
    ),
    Endpoint(
        "POST", "/v1/sessions/{id}/messages", h.send, "Send a message: it becomes a run", "operate",
        {202: Told(api.AcceptedOut, "the message is durable, and its run will end",
                   leads_to=RUN)},
        (UNKNOWN_SESSION, KEY_CONFLICT, QUEUE_FULL), body=api.NewMessage, headers=KEY,
    ),
    Endpoint(
        "GET", "/v1/sessions/{id}/events", h.events,
        "Everything that happens in a session, from a cursor on", "read",
        {200: Told("text/event-stream", "events, each with its `seq` as id and its JSON as data")},
        (UNKNOWN_SESSION,), query=q.EventsQuery, headers=h.LAST, stays=True,
    ),
    Endpoint(
        "GET", "/v1/runs", h.list_runs, "The runs, the newest first", "read",
        {200: Told(api.RunsOut, "a page of them")}, query=q.RunsQuery,
    ),
    Endpoint(
        "GET", "/v1/runs/{id}", h.get_run, "One run: its phase, its clocks, its outcome", "read",
        {200: Told(api.RunOut, "the run")}, (UNKNOWN_RUN,),
    ),
    Endpoint(
        "PATCH", "/v1/runs/{id}", h.edit,
        "Give a run that waits other words, or another place in its class", "operate",
        {200: Told(api.RunOut, "it is so, or was so before")},
        (UNKNOWN_RUN, NOT_QUEUED, OTHER_CLASS), body=api.EditRun,
    ),
    Endpoint(
        "POST", "/v1/runs/{id}/steer", h.steer,
        "Give the words of a run that waits to the turn that is running", "operate",
        {200: Told(api.HandedOut, "the running turn has them; this run has ended")},
        (UNKNOWN_RUN, NOT_QUEUED, NOT_STEERED), body=api.Steer, body_optional=True,
    ),
    Endpoint(
        "GET", "/v1/runs/{id}/wait", h.wait, "Wait for a run to end", "read",
        {200: Told(api.RunOut, "it has ended, and this is its outcome"),
         202: Told(api.RunOut, "it has not ended yet")},
        (UNKNOWN_RUN,), query=q.WaitQuery, stays=True,
    ),
    Endpoint(
        "GET", "/v1/runs/{id}/diagnosis", h.diagnose,
        "What a run is doing, what was last seen of it, and what happens next", "read",
        {200: Told(Diagnosis, "what can be said of it now")}, (UNKNOWN_RUN,),
    ),
    Endpoint(
        "POST", "/v1/runs/{id}/stop", h.stop, "Stop this run, and no other", "operate",
        {200: Told(api.StopOut, "it stops, or had ended")},
        (UNKNOWN_RUN,), body=api.Stop, body_optional=True,
    ),
    Endpoint(
        "POST", "/v1/runs/{id}/children", h.start_child,
        "Start a run below this one: it ends no later, and is stopped with it", "operate",
        {202: Told(api.ChildOut, "the child is durable, and will end", leads_to=RUN)},
        (UNKNOWN_RUN, UNKNOWN_SESSION, UNKNOWN_AGENT, CHILD_REFUSED, KEY_CONFLICT, QUEUE_FULL),
        body=api.NewChild, headers=KEY,
    ),
    Endpoint(
        "GET", "/v1/approvals", h.list_approvals, "Agents' questions, the newest first", "read",
        {200: Told(api.ApprovalsOut, "a page of them")}, query=q.ApprovalsQuery,
    ),
    Endpoint(
        "GET", "/v1/approvals/{id}", h.get_approval, "One question", "read",
        {200: Told(api.ApprovalOut, "the question")}, (UNKNOWN_APPROVAL,),
    ),
    Endpoint(
        "POST", "/v1/approvals/{id}", h.answer_approval,
        "Answer a question; the first answer wins", "operate",
        {200: Told(api.ApprovalOut, "your answer stands")}, (UNKNOWN_APPROVAL, SETTLED, OVERRULED),
        body=api.Decision,
    ),
    Endpoint(
        "GET", "/v1/agents", h.list_agents, "The agents that sessions can be with", "read",
        {200: Told(api.AgentsOut, "all of them")},
    ),
    *known.ENDPOINTS,
    Endpoint(
        "GET", SOCKET, h.socket_wanted, "A WebSocket: events of many sessions, and commands",
        "read",
        {101: Told("", "the WebSocket is open"),
         426: Told(api.Problem, "this was no WebSocket handshake", {"Upgrade": "websocket"})},
        query=None,
    ),
    Endpoint(
        "GET", "/healthz", h.healthz, "Whether the server lives", None,
        {200: Told(api.HealthOut, "it does")}, query=None,
    ),
    Endpoint(
        "GET", "/readyz", h.readyz, "Whether the server is ready for work", None,
        {200: Told(api.HealthOut, "it is")}, query=None,
    ),
    Endpoint(
        "GET", "/metrics", h.metrics, "Counts and times, for Prometheus", "read",
        {200: Told("text/plain", "in the text format of Prometheus")}, (NO_SUCH_PLACE,), query=None,
    ),
    *page.ENDPOINTS,
    *responses.ENDPOINTS,
    *a2a.ENDPOINTS,
    *mcp.ENDPOINTS,
    *agui.ENDPOINTS,
)  # fmt: skip
