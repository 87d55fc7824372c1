"""What is served: every endpoint, with what it takes and what it answers.

Decides nothing that `actions` or the dispatcher decide. It must not know sockets. Invariant: every
status that a handler can answer is listed with it.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from turnkeeper import api
from turnkeeper.core import records as r
from turnkeeper.core.errors import (
    KEY_CONFLICT, QUEUE_FULL, SESSION_EXISTS, SETTLED, UNKNOWN_AGENT, UNKNOWN_APPROVAL,
    UNKNOWN_RUN, UNKNOWN_SESSION, InvalidValue,
)  # fmt: skip
from turnkeeper.core.outcome import Kind
from turnkeeper.gateway import actions
from turnkeeper.gateway.answers import TEXT, Answer, answer
from turnkeeper.gateway.asked import header
from turnkeeper.gateway.sse import Stream
from turnkeeper.gateway.table import Call, Endpoint

SEQ_MAX = (1 << 63) - 1

KEY = {"Idempotency-Key": "makes asking again harmless: the same key and body is the same thing"}


class Query(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What can be said after the question mark."""


class Page(Query, kw_only=True):
    limit: Annotated[int, Meta(ge=1, le=r.PAGE_MAX)] = 50
    before: str | None = None


class SessionsQuery(Page, kw_only=True):
    agent: str | None = None
    state: Any = None
    label: list[str] = []
    search: str | None = None


class WaitQuery(Query, kw_only=True):
    timeout_s: Annotated[float, Meta(ge=0, le=300)] = 30.0


class EventsQuery(Query, kw_only=True):
    after: Annotated[int, Meta(ge=0, le=SEQ_MAX)] | None = None


# Sessions ------------------------------------------------------------------------------------


async def create_session(call: Call) -> Answer:
    made = await actions.create_session(call.gate, call.body, call.key)
    return answer(201, made, [(b"location", f"/v1/sessions/{made.id}".encode())])


async def get_session(call: Call) -> Answer:
    return answer(200, api.session_out(await call.gate.dispatcher.session(call.path["id"])))


async def send(call: Call) -> Answer:
    return answer(202, await actions.send(call.gate, call.path["id"], call.body, call.key))


async def events(call: Call) -> None:
    after = call.query.after
    last = header(call.headers, b"last-event-id")
    if last is not None:
        if not last.isascii() or not last.isdigit() or len(last) > 18:
            raise InvalidValue("Last-Event-ID", last, "give the number of the last event you have")
        after = int(last)
    call.gate.take_watcher()
    try:
        watcher = await actions.watch(call.gate, call.path["id"], after or 0)
        stream = Stream(call.gate, call.path["id"], watcher)
        with call.gate.living(stream):
            await stream.run(call.receive, call.send)
    finally:
        call.gate.leave_watcher()


# Runs ----------------------------------------------------------------------------------------


async def get_run(call: Call) -> Answer:
    return answer(200, await actions.look(call.gate, call.path["id"]))


async def wait(call: Call) -> Answer:
    run = call.path["id"]
    outcome = await call.gate.dispatcher.wait(run, call.query.timeout_s)
    return answer(202 if outcome is None else 200, await actions.look(call.gate, run))


async def stop(call: Call) -> Answer:
    return answer(200, await actions.stop(call.gate, call.path["id"], call.body.by))


# About this server ---------------------------------------------------------------------------


async def healthz(call: Call) -> Answer:
    return Answer(200, b"ok\n", TEXT)


async def readyz(call: Call) -> Answer:
    why = call.gate.not_ready()
    return Answer(200, b"ready\n", TEXT) if why is None else Answer(503, f"{why}\n".encode(), TEXT)


TABLE: tuple[Endpoint, ...] = (
    Endpoint("POST", "/v1/sessions", create_session, "A new session", "operate",
             {201: (api.SessionOut, "made")}, (UNKNOWN_AGENT, SESSION_EXISTS, KEY_CONFLICT),
             body=api.NewSession, headers=KEY),
    Endpoint("GET", "/v1/sessions/{id}", get_session, "One session", "read",
             {200: (api.SessionOut, "")}, (UNKNOWN_SESSION,)),
    Endpoint("POST", "/v1/sessions/{id}/messages", send, "Send a message", "operate",
             {202: (api.AcceptedOut, "")}, (UNKNOWN_SESSION, KEY_CONFLICT, QUEUE_FULL),
             body=api.NewMessage, headers=KEY),
    Endpoint("GET", "/v1/sessions/{id}/events", events, "Its events, and on", "read",
             {200: ("text/event-stream", "")}, (UNKNOWN_SESSION,), query=EventsQuery),
    Endpoint("GET", "/v1/runs/{id}", get_run, "One run", "read", {200: (api.RunOut, "")},
             (UNKNOWN_RUN,)),
    Endpoint("GET", "/v1/runs/{id}/wait", wait, "Wait for its end", "read",
             {200: (api.RunOut, ""), 202: (api.RunOut, "")}, (UNKNOWN_RUN,), query=WaitQuery),
    Endpoint("POST", "/v1/runs/{id}/stop", stop, "Stop it", "operate", {200: (api.StopOut, "")},
             (UNKNOWN_RUN,), body=api.Stop, body_optional=True),
    Endpoint("GET", "/healthz", healthz, "It lives", None, {200: ("text/plain", "")}),
    Endpoint("GET", "/readyz", readyz, "It is ready", None,
             {200: ("text/plain", ""), 503: ("text/plain", "")}),
)  # fmt: skip
