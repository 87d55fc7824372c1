"""OpenAI's Responses API: create, retrieve, cancel, and what was asked.

Decides which session a request goes to, and how refusals look there. It must not know how events
become a response. Invariant: the answer to a message that was accepted never invites to send it
again; what was refused was neither stored nor run.
"""

from __future__ import annotations

from typing import Any

import msgspec

from turnkeeper import api
from turnkeeper.core import records as r
from turnkeeper.core.errors import (
    FOLLOWED,
    KEY_CONFLICT,
    NOT_DELETED,
    NOT_OFFERED,
    QUEUE_FULL,
    SETTLED,
    UNKNOWN_AGENT,
    UNKNOWN_APPROVAL,
    UNKNOWN_RESPONSE,
    UNKNOWN_SESSION,
    InvalidValue,
    TurnkeeperError,
)
from turnkeeper.core.events import MessageAccepted
from turnkeeper.core.state import run_of_approval
from turnkeeper.gateway import actions
from turnkeeper.gateway.answers import JSON, Answer, Refusal, answer, problem_of, refusal
from turnkeeper.gateway.gate import Gate
from turnkeeper.gateway.queries import NoQuery
from turnkeeper.gateway.reader import Reader
from turnkeeper.gateway.responses_place import Spot, find, story_now
from turnkeeper.gateway.responses_telling import stream, wait
from turnkeeper.gateway.table import Call, Endpoint, Form, Told
from turnkeeper.projections.responses import Story, response_id
from turnkeeper.projections.responses_asked import (
    NewResponse,
    check,
    labels_of,
    limits_of,
    not_offered,
)
from turnkeeper.projections.responses_input import Answer as Decision
from turnkeeper.projections.responses_input import Said, read

CANCEL_S = 60.0
"""So long whoever cancels waits for the end; it comes `drain_s` after the stop at the latest."""
BY = "the Responses API"
CONVERSATION = "conv_"

_encode = msgspec.json.Encoder().encode


# The form of refusals ------------------------------------------------------------------------


class ErrorOut(msgspec.Struct, kw_only=True):
    """`code` is that of the catalogue, `param` the field that is not allowed."""

    message: str
    type: str
    param: str | None
    code: str


class OpenAIError(msgspec.Struct, kw_only=True):
    error: ErrorOut


TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
NO_RETRY = (b"x-should-retry", b"false")
"""Clients of OpenAI send again by themselves what was answered 409 or 5xx; here that is no help."""


def in_form(refused: TurnkeeperError) -> Answer:
    """A refusal as OpenAI's clients know it."""
    problem = problem_of(refused)
    usual = "server_error" if problem.status >= 500 else "invalid_request_error"
    told = OpenAIError(
        error=ErrorOut(
            message=str(refused), type=TYPES.get(problem.status, usual), param=problem.field,
            code=problem.code,
        )
    )  # fmt: skip
    headers = list(refusal(refused).headers)
    if problem.status == 409:
        headers.append(NO_RETRY)
    return Answer(problem.status, _encode(told), JSON, headers)


FORM = Form(OpenAIError, in_form)


# Create --------------------------------------------------------------------------------------


async def create_response(call: Call) -> Answer | None:
    asked: NewResponse = call.body
    call.gate.check_work()
    check(asked)
    said = read(asked.input, asked.instructions)
    key = call.key
    with call.gate.watcher():
        if said.answers:
            spot = await _answered(call.gate, asked, said)
        else:
            spot = await _sent(call.gate, asked, said, key)
        try:
            return await _tell(call, asked, spot)
        except TurnkeeperError as refused:
            raise goes_on(refused, spot, may_ask_again=key is not None) from None


async def _tell(call: Call, asked: NewResponse, spot: Spot) -> Answer | None:
    """What becomes of a message that was accepted."""
    stop_if_left = asked.options.on_disconnect == "cancel" and not asked.background
    if asked.stream:
        await stream(call, spot, stop_if_left=stop_if_left)
        return None
    if asked.background:
        return _told(await story_now(call.gate, spot))
    return _told(await wait(call, spot, stop_if_left=stop_if_left))


def goes_on(refused: TurnkeeperError, spot: Spot, *, may_ask_again: bool) -> Refusal:
    """A refusal to tell what was accepted. Without a key, asking again would run it twice."""
    told = f"{refused.what}; {spot.response} was accepted and goes on: retrieve it"
    return Refusal(refused.entry, told, headers=[] if may_ask_again else [NO_RETRY])


def _told(story: Story) -> Answer:
    return answer(200, story.resource())


async def _sent(gate: Gate, asked: NewResponse, said: Said, key: str | None) -> Spot:
    """The message is durable when this returns."""
    limits, labels = limits_of(asked), labels_of(asked)
    session, agent = await _session(gate, asked, key)
    accepted = await gate.dispatcher.send(
        session, said.text, when_busy=asked.options.when_busy, limits=limits, key=key,
        sender=asked.user or "", labels=labels,
    )  # fmt: skip
    message, seq = accepted.message, accepted.seq
    return Spot(agent, session, message, seq, response_id(message, seq))


async def _session(gate: Gate, asked: NewResponse, key: str | None) -> tuple[str, str]:
    """Where the message goes, and who is there."""
    if asked.previous_response_id is not None:
        before = await find(gate, asked.previous_response_id, "previous_response_id")
        _check_agent(asked.model, before.agent)
        await _check_last(gate, before, key)
        return before.session, before.agent
    conversation = asked.conversation_id
    if conversation is not None:
        agent = await _agent_of(gate, conversation)
        _check_agent(asked.model, agent)
        return conversation.removeprefix(CONVERSATION), agent
    if asked.model is None:
        raise InvalidValue("model", None, "give the name of an agent; GET /v1/agents has them")
    if asked.model not in gate.agents:
        names = ", ".join(sorted(gate.agents)) or "none"
        told = f"there is no agent {asked.model!r}; there are: {names}"
        raise TurnkeeperError(UNKNOWN_AGENT, told, field="model")
    new = api.NewSession(agent=asked.model, cwd=asked.options.cwd)
    made = await actions.create_session(gate, new, f"responses {key}" if key else None)
    return made.id, asked.model


async def _agent_of(gate: Gate, conversation: str) -> str:
    session = conversation.removeprefix(CONVERSATION)
    try:
        if session == conversation:
            raise TurnkeeperError(UNKNOWN_SESSION, f"{conversation[:200]!r} is not conv_…")
        return (await gate.dispatcher.session(session)).agent
    except TurnkeeperError as refused:
        if refused.entry is not UNKNOWN_SESSION:
            raise
        raise TurnkeeperError(UNKNOWN_SESSION, refused.what, field="conversation") from None


def _check_agent(model: str | None, agent: str) -> None:
    if model is not None and model != agent:
        told = f"this conversation is with {agent!r}, and stays with it"
        raise InvalidValue("model", model, told)


async def _check_last(gate: Gate, before: Spot, key: str | None) -> None:
    """A conversation goes on at its end. Whoever asks the same again is answered the same."""
    newest = await gate.dispatcher.runs(r.RunQuery(session=before.session, limit=1))
    if newest.items[0].message == before.message:
        return
    if key is not None and await _is_known(gate, before, key):
        return
    told = f"{before.response} is not the last response of session {before.session}"
    raise TurnkeeperError(FOLLOWED, told, field="previous_response_id")


async def _is_known(gate: Gate, before: Spot, key: str) -> bool:
    """Whether a message after that one had this key."""
    reader = await Reader.open(gate, before.session, before.seq or 0)
    try:
        head = reader.head
        while reader.cursor < head and (events := await reader.next_events()):
            for event in events:
                if isinstance(event.data, MessageAccepted) and event.data.key == key:
                    return True
        return False
    finally:
        reader.close()


async def _answered(gate: Gate, asked: NewResponse, said: Said) -> Spot:
    """Questions are answered, and their run goes on: it is the same response."""
    spot = await _asking(gate, asked, said.answers)
    for decision in said.answers:
        await gate.dispatcher.answer(
            decision.approval, allow=decision.allow, by=asked.user or BY, note=decision.note
        )
    return spot


async def _asking(gate: Gate, asked: NewResponse, answers: tuple[Decision, ...]) -> Spot:
    """The response whose questions these are; all of one, and of the one that is named."""
    runs = {run_of_approval(decision.approval) for decision in answers}
    if len(runs) > 1:
        raise InvalidValue("input", f"{len(runs)} runs", "answer the questions of one response")
    try:
        record = await gate.dispatcher.run(runs.pop())
    except TurnkeeperError:
        told = f"there is no question {answers[0].approval}"
        raise TurnkeeperError(UNKNOWN_APPROVAL, told, field="input") from None
    named = asked.previous_response_id or f"resp_{record.message.removeprefix('m_')}"
    spot = await find(gate, named, "previous_response_id")
    if spot.message != record.message:
        told = "the question is of another response"
        raise InvalidValue("previous_response_id", named, told)
    return spot


# Retrieve, cancel, delete --------------------------------------------------------------------


class RetrieveQuery(NoQuery, forbid_unknown_fields=True, kw_only=True):
    """`starting_after` is the `sequence_number` of the last event that you have."""

    stream: bool = False
    starting_after: int = -1
    include_obfuscation: bool = False
    include: list[str] = msgspec.field(default_factory=list, name="include[]")


async def get_response(call: Call) -> Answer | None:
    spot = await find(call.gate, call.id)
    if call.query.stream:
        with call.gate.watcher():
            await stream(call, spot, call.query.starting_after)
        return None
    with call.gate.request():
        return _told(await story_now(call.gate, spot))


async def cancel_response(call: Call) -> Answer:
    """Cancelling what is over changes nothing."""
    gate = call.gate
    spot = await find(gate, call.id)
    story = await story_now(gate, spot)
    if not story.is_over:
        with gate.watcher():
            await gate.dispatcher.stop(story.run, BY)
            await gate.dispatcher.wait(story.run, CANCEL_S)
        story = await story_now(gate, spot)
    return _told(story)


async def delete_response(call: Call) -> Answer:
    await find(call.gate, call.id)
    told = f"response {call.id} stays as long as its session"
    raise Refusal(NOT_DELETED, told, headers=[(b"allow", b"GET")])


async def compact_response(call: Call) -> Answer:
    raise not_offered("compact", "an agent keeps its own context, and compacts it by itself")


class ItemsQuery(NoQuery, forbid_unknown_fields=True, kw_only=True):
    limit: int = 20
    order: str = "desc"
    after: str = ""
    include: list[str] = msgspec.field(default_factory=list, name="include[]")


async def list_input_items(call: Call) -> Answer:
    """What the agent was given."""
    story = await story_now(call.gate, await find(call.gate, call.id))
    items: list[dict[str, Any]] = story.input_items()
    if call.query.after == items[-1]["id"]:
        items = []
    first = items[0]["id"] if items else None
    page = {
        "object": "list", "data": items, "has_more": False,
        "first_id": first, "last_id": items[-1]["id"] if items else None,
    }  # fmt: skip
    return answer(200, page)


KEY = {
    "Idempotency-Key": (
        "makes asking again harmless: the same key with the same body is the same response",
        {"type": "string", "minLength": 1, "maxLength": 256, "pattern": "^[!-~]+$"},
    )
}
STREAM = ("text/event-stream",)
LEADS_TO = {"get_response": "id", "cancel_response": "id", "list_input_items": "id"}

ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(
        "POST", "/v1/responses", create_response, "Create a response (OpenAI)", "operate",
        {200: Told("application/json", "the response: over, in the background, or asking",
                   leads_to=LEADS_TO, or_else=STREAM)},
        (UNKNOWN_AGENT, UNKNOWN_RESPONSE, UNKNOWN_SESSION, UNKNOWN_APPROVAL, FOLLOWED, SETTLED,
         KEY_CONFLICT, QUEUE_FULL, NOT_OFFERED),
        body=NewResponse, headers=KEY, stays=True, form=FORM,
    ),
    Endpoint(
        "POST", "/v1/responses/compact", compact_response, "Refused: agents do that themselves",
        "operate", {}, (NOT_OFFERED,), query=None, form=FORM,
    ),
    Endpoint(
        "GET", "/v1/responses/{id}", get_response, "A response, or the stream of it (OpenAI)",
        "read", {200: Told("application/json", "the response as it is now", or_else=STREAM)},
        (UNKNOWN_RESPONSE,), query=RetrieveQuery, stays=True, form=FORM,
    ),
    Endpoint(
        "DELETE", "/v1/responses/{id}", delete_response, "Refused: a log keeps what happened",
        "operate", {}, (UNKNOWN_RESPONSE, NOT_DELETED), query=None, form=FORM,
    ),
    Endpoint(
        "POST", "/v1/responses/{id}/cancel", cancel_response, "Stop a response's run (OpenAI)",
        "operate", {200: Told("application/json", "the response, which is over now")},
        (UNKNOWN_RESPONSE,), stays=True, form=FORM,
    ),
    Endpoint(
        "GET", "/v1/responses/{id}/input_items", list_input_items, "What an agent was given",
        "read", {200: Told("application/json", "one message")},
        (UNKNOWN_RESPONSE,), query=ItemsQuery, form=FORM,
    ),
)  # fmt: skip
