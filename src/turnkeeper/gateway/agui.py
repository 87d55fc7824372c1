"""AG-UI: a run that is asked for with one request and told as a stream of its events.

Decides which run a request means: a new one, one that it has asked for before, or the rest of one
that waited for an answer. It must not know how a run is told. Invariants: the same `runId` is the
same message for ever; a client that leaves ends nothing; what is refused is a RUN_ERROR.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
from starlette.types import Send

from turnkeeper import api
from turnkeeper.core import events as e
from turnkeeper.core import records as r
from turnkeeper.core.errors import (
    OPEN_QUESTION,
    SESSION_EXISTS,
    SETTLED,
    UNKNOWN_APPROVAL,
    UNKNOWN_SESSION,
    InvalidValue,
    TurnkeeperError,
)  # fmt: skip
from turnkeeper.gateway import actions
from turnkeeper.gateway.gate import Gate
from turnkeeper.gateway.handlers import LAST, cursor_of
from turnkeeper.gateway.queries import EventsQuery
from turnkeeper.gateway.reader import Reader
from turnkeeper.gateway.sse import HEADERS, Stream, send_part
from turnkeeper.gateway.table import Call, Endpoint, Told
from turnkeeper.projections import agui_asked as asked
from turnkeeper.projections.agui import Json, Story, Telling, refusal_of
from turnkeeper.projections.agui_asked import RunAgentInput
from turnkeeper.projections.agui_thread import Thread
from turnkeeper.runtime.finding import before_run

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True)
class Begun:
    """A run to be told, from the event after `after` on."""

    session: str
    run: str
    message: str
    after: int
    answered: Sequence[str] = ()


async def run_ag_ui(call: Call) -> None:
    await _run(call, None)


async def run_ag_ui_with(call: Call) -> None:
    await _run(call, call.id)


async def _run(call: Call, agent: str | None) -> None:
    wanted: RunAgentInput = call.body
    gate = call.gate
    try:
        begun = await _begin(gate, wanted, agent or asked.agent_of(wanted))
        with gate.watcher():
            await _tell(call, wanted, begun)
    except TurnkeeperError as refused:
        await send_whole(call.send, [refusal_of(refused)])


async def _tell(call: Call, wanted: RunAgentInput, begun: Begun) -> None:
    reader = await Reader.open(call.gate, begun.session, begun.after)
    telling = Telling(wanted.thread_id, wanted.run_id, begun.run)
    stream = RunStream(reader, telling, Story(telling, begun.message, begun.answered), call.gate)
    try:
        with call.gate.guest(stream):
            await stream.run(call.receive, call.send)
    finally:
        reader.close()


class RunStream(Stream):
    """One run, to one reader, to its end or to a question."""

    opening = b""

    def __init__(self, reader: Reader, telling: Telling, story: Story, gate: Gate) -> None:
        super().__init__(reader, gate.keep_alive_s)
        self._begin = telling.begin
        self._story = story

    async def _pump(self, send: Send) -> None:
        reader, story = self._reader, self._story
        begun = False
        while not story.is_over and (events := await reader.next_events()):
            told = [] if begun else self._begin(events[0].at)
            begun = True
            told += story.feed(events, more=reader.cursor < reader.head)
            if told:
                self._sending = True
                await send_part(send, frames(told))
                self._sending = False
            if reader.cursor < reader.head:
                await asyncio.sleep(0)


class ThreadStream(Stream):
    """A session, to one reader, for as long as they read. Each event of the log that is told has
    its number as the id of the last of its frames."""

    def __init__(self, reader: Reader, after: int, gate: Gate) -> None:
        super().__init__(reader, gate.keep_alive_s)
        self._after = after
        self._thread = Thread(reader.session)

    async def _pump(self, send: Send) -> None:
        reader = self._reader
        while events := await reader.next_events():
            told = b"".join([self._frames(event) for event in events])
            if told:
                self._sending = True
                await send_part(send, told)
                self._sending = False
            if reader.cursor < reader.head:
                await asyncio.sleep(0)

    def _frames(self, event: e.Event) -> bytes:
        if event.seq <= self._after:
            self._thread.tell(event)
            if event.seq < self._after:
                return b""
            return frames(self._thread.prelude(event.at))
        told = self._thread.tell(event)
        if not told:
            return b""
        return frames(told[:-1]) + b"id: %d\n" % event.seq + frames(told[-1:])


def frames(told: Sequence[Json]) -> bytes:
    return b"".join([b"data: %b\n\n" % _encode(one) for one in told])


async def send_whole(send: Send, told: Sequence[Json]) -> None:
    """All there is to be told, at once."""
    await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
    await send({"type": "http.response.body", "body": frames(told)})


async def ag_ui_thread(call: Call) -> None:
    """From the beginning the log is read, and from the cursor on it is told: whoever comes in the
    middle has to be told what is open there, and in which run."""
    after = cursor_of(call)
    with call.gate.watcher():
        reader = await Reader.open(call.gate, call.id, 0)
        try:
            if after > reader.head:
                told = f"the log of session {call.id} ends at {reader.head}; begin again after 0"
                raise InvalidValue("after", after, told)
            stream = ThreadStream(reader, after, call.gate)
            with call.gate.guest(stream):
                await stream.run(call.receive, call.send)
        finally:
            reader.close()


# What is asked for ---------------------------------------------------------------------------


async def _begin(gate: Gate, wanted: RunAgentInput, agent: str | None) -> Begun:
    session = asked.session_of(wanted.thread_id)
    if wanted.resume:
        return await _resume(gate, wanted, session)
    text, key = asked.text_of(wanted), asked.key_of(wanted.run_id)
    gate.check_work()
    await _session(gate, session, wanted.thread_id, agent)
    open_ones = await gate.dispatcher.approvals(
        r.ApprovalQuery(session=session, state="open", limit=1)
    )
    if open_ones.items:
        return await _attach(gate, session, key, open_ones.items[0])
    message = api.NewMessage(text=text, sender="ag-ui")
    accepted = await actions.send(gate, session, message, key)
    return Begun(session, accepted.run_id, accepted.message_id, accepted.seq - 1)


async def _session(gate: Gate, session: str, thread: str, agent: str | None) -> None:
    """The session of the thread, made if this is its first run."""
    try:
        record = await gate.dispatcher.session(session)
    except TurnkeeperError as refused:
        if refused.entry is not UNKNOWN_SESSION:
            raise
        new = api.NewSession(agent=agent or _sole(gate), id=session, labels=_labels(thread))
        try:
            await actions.create_session(gate, new, None)
        except TurnkeeperError as taken:
            if taken.entry is not SESSION_EXISTS:
                raise
        record = await gate.dispatcher.session(session)
    if agent is not None and record.agent != agent:
        told = f"thread {thread} is with {record.agent}; use another thread"
        raise InvalidValue("agent", agent, told)


def _labels(thread: str) -> dict[str, str]:
    """A thread that cannot be a session's name is kept where it can be found."""
    return {} if asked.session_of(thread) == thread else {"ag-ui.thread": thread[:256]}


def _sole(gate: Gate) -> str:
    if len(gate.agents) == 1:
        return next(iter(gate.agents))
    told = f"a new thread needs its agent, in the path or in forwardedProps.agent; there are: \
{', '.join(sorted(gate.agents))}"
    raise InvalidValue("agent", None, told)


async def _attach(gate: Gate, session: str, key: str, asked_for: r.ApprovalRecord) -> Begun:
    """While a question is open nothing new can be asked: only what was asked before, as a rule in
    the run that asks."""
    likely = await before_run(gate.dispatcher, await gate.dispatcher.run(asked_for.run))
    for after in dict.fromkeys((likely, 0)):
        found = await _find(gate, session, key, after)
        if found is not None:
            return found
    told = f"approval {asked_for.id} of thread {session} is open, and nothing in resume answers it"
    raise TurnkeeperError(OPEN_QUESTION, told, field="resume")


async def _find(gate: Gate, session: str, key: str, after: int) -> Begun | None:
    """What a message with that key has led to."""
    reader = await Reader.open(gate, session, after)
    try:
        head = reader.head
        while reader.cursor < head and (events := await reader.next_events()):
            for event in events:
                data = event.data
                if isinstance(data, e.MessageAccepted) and data.key == key:
                    return Begun(session, data.run, data.message, event.seq - 1)
    finally:
        reader.close()
    return None


async def _resume(gate: Gate, wanted: RunAgentInput, session: str) -> Begun:
    """The answers, and then the rest of the run that waited for them."""
    assert wanted.resume
    decisions = [(one.interrupt_id, *asked.decision_of(one)) for one in wanted.resume]
    records = [await gate.dispatcher.approval(name) for name, _, _ in decisions]
    for record in records:
        if record.session != session or record.run != records[0].run:
            told = f"there is no approval {record.id} in this run of thread {session}"
            raise TurnkeeperError(UNKNOWN_APPROVAL, told, field="resume")
    for name, allow, note in decisions:
        try:
            await gate.dispatcher.answer(name, allow=allow, by="ag-ui", note=note)
        except TurnkeeperError as refused:
            if refused.entry is not SETTLED:
                raise
            settled = await gate.dispatcher.approval(name)
            if settled.state != ("allowed" if allow else "denied"):
                raise
    run = await gate.dispatcher.run(records[0].run)
    after = await before_run(gate.dispatcher, run)
    return Begun(session, run.id, run.message, after, [name for name, _, _ in decisions])


STREAM = {200: Told("text/event-stream", "AG-UI events, to RUN_FINISHED or RUN_ERROR")}

ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(
        "POST", "/v1/ag-ui", run_ag_ui, "AG-UI: a run, told as its events", "operate", STREAM,
        body=RunAgentInput, stays=True,
    ),
    Endpoint(
        "POST", "/v1/ag-ui/{id}", run_ag_ui_with, "AG-UI: a run with the agent that is named",
        "operate", STREAM, body=RunAgentInput, stays=True,
    ),
    Endpoint(
        "GET", "/v1/sessions/{id}/ag-ui/events", ag_ui_thread,
        "AG-UI: everything that happens in a session, from a cursor on", "read",
        {200: Told("text/event-stream", "AG-UI events; an `id` is a cursor to go on from")},
        (UNKNOWN_SESSION,), query=EventsQuery, headers=LAST, stays=True,
    ),
)  # fmt: skip
