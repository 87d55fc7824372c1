"""The handlers of the endpoints: from a checked call to an answer.

Decides the status of what was done. It must not know how requests are read or refused. Invariant:
whoever stays (watches, waits) can be ended, and is let go of when they leave.
"""

from __future__ import annotations

import asyncio
from typing import Any

from turnkeeper import api
from turnkeeper.core.errors import (
    NO_SUCH_PLACE,
    SHUTTING_DOWN,
    WRONG_METHOD,
    InvalidValue,
    TurnkeeperError,
)
from turnkeeper.core.outcome import Outcome
from turnkeeper.gateway import actions
from turnkeeper.gateway.answers import Answer, Refusal, answer
from turnkeeper.gateway.asked import Gone, header
from turnkeeper.gateway.reader import Reader
from turnkeeper.gateway.sse import Stream, until_gone
from turnkeeper.gateway.table import Call
from turnkeeper.observe import diagnosis

LAST = {
    "Last-Event-ID": (
        "the number of the last event you have; it goes before `after`",
        {"type": "string", "pattern": "^[0-9]{1,18}$"},
    )
}

METRICS = b"text/plain; version=0.0.4; charset=utf-8"


# Sessions ------------------------------------------------------------------------------------


async def create_session(call: Call) -> Answer:
    call.gate.check_work()
    made = await actions.create_session(call.gate, call.body, call.key)
    return answer(201, made, [(b"location", f"/v1/sessions/{made.id}".encode())])


async def list_sessions(call: Call) -> Answer:
    page = await call.gate.dispatcher.sessions(call.query.query())
    items = [api.session_out(record) for record in page.items]
    return answer(200, api.SessionsOut(items=items, next=page.next))


async def get_session(call: Call) -> Answer:
    return answer(200, api.session_out(await call.gate.dispatcher.session(call.id)))


async def send(call: Call) -> Answer:
    call.gate.check_work()
    return answer(202, await actions.send(call.gate, call.id, call.body, call.key))


def cursor_of(call: Call) -> int:
    """Where a stream is to go on from."""
    last = header(call.headers, b"last-event-id")
    if last is None:
        return int(call.query.after)
    if not last.isascii() or not last.isdigit() or len(last) > 18:
        raise InvalidValue("Last-Event-ID", last, "give the number of the last event you have")
    return int(last)


async def events(call: Call) -> None:
    after = cursor_of(call)
    with call.gate.watcher():
        reader = await Reader.open(call.gate, call.id, after)
        stream = Stream(reader, call.gate.keep_alive_s)
        try:
            with call.gate.guest(stream):
                await stream.run(call.receive, call.send)
        finally:
            reader.close()


# Runs ----------------------------------------------------------------------------------------


async def list_runs(call: Call) -> Answer:
    dispatcher = call.gate.dispatcher
    page = await dispatcher.runs(call.query.query())
    views = await dispatcher.look_over(page.items)
    items = [api.run_out(record, views.get(record.id)) for record in page.items]
    return answer(200, api.RunsOut(items=items, next=page.next))


async def get_run(call: Call) -> Answer:
    return answer(200, await actions.look(call.gate, call.id))


async def diagnose(call: Call) -> Answer:
    gate = call.gate
    return answer(200, await diagnosis.diagnose(gate.dispatcher, call.id, gate.probe))


async def wait(call: Call) -> Answer:
    """Somebody who has left, or must leave, does not wait any longer."""
    with call.gate.watcher():
        waiting = Waiting(
            asyncio.ensure_future(call.gate.dispatcher.wait(call.id, call.query.timeout_s))
        )
        left = asyncio.ensure_future(until_gone(call.receive))
        tasks: set[asyncio.Future[Any]] = {waiting.task, left}
        try:
            with call.gate.guest(waiting):
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            is_gone = left.done() and not waiting.task.done()
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
    if is_gone:
        raise Gone
    if waiting.task.cancelled():
        raise TurnkeeperError(SHUTTING_DOWN, "this server is shutting down; the run goes on")
    outcome = waiting.task.result()
    return answer(202 if outcome is None else 200, await actions.look(call.gate, call.id))


class Waiting:
    """Somebody who waits for a run."""

    def __init__(self, task: asyncio.Future[Outcome | None]) -> None:
        self.task = task

    def end(self) -> None:
        self.task.cancel()


async def stop(call: Call) -> Answer:
    return answer(200, await actions.stop(call.gate, call.id, call.body.by))


async def edit(call: Call) -> Answer:
    return answer(200, await actions.edit(call.gate, call.id, call.body))


async def steer(call: Call) -> Answer:
    return answer(200, await actions.steer(call.gate, call.id, call.body.by))


async def start_child(call: Call) -> Answer:
    call.gate.check_work()
    return answer(202, await actions.start_child(call.gate, call.id, call.body, call.key))


# Approvals and agents ------------------------------------------------------------------------


async def list_approvals(call: Call) -> Answer:
    page = await call.gate.dispatcher.approvals(call.query.query())
    items = [api.approval_out(record) for record in page.items]
    return answer(200, api.ApprovalsOut(items=items, next=page.next))


async def get_approval(call: Call) -> Answer:
    return answer(200, api.approval_out(await call.gate.dispatcher.approval(call.id)))


async def answer_approval(call: Call) -> Answer:
    return answer(200, await actions.answer_approval(call.gate, call.id, call.body))


async def list_agents(call: Call) -> Answer:
    gate = call.gate
    items = [
        api.agent_out(name, gate.drivers.get(name, ""), agent.abilities, agent.outlives_server)
        for name, agent in sorted(gate.agents.items())
    ]
    return answer(200, api.AgentsOut(items=items))


# About this server ---------------------------------------------------------------------------


async def healthz(call: Call) -> Answer:
    return answer(200, api.HealthOut(status="ok"))


async def readyz(call: Call) -> Answer:
    call.gate.check_ready()
    return answer(200, api.HealthOut(status="ready"))


async def metrics(call: Call) -> Answer:
    if call.gate.metrics is None:
        raise Refusal(NO_SUCH_PLACE, "this server keeps no metrics")
    return Answer(200, call.gate.metrics(), METRICS)


async def socket_wanted(call: Call) -> Answer:
    headers = [(b"upgrade", b"websocket")]
    raise Refusal(WRONG_METHOD, "/v1/ws is a WebSocket", status=426, headers=headers)
