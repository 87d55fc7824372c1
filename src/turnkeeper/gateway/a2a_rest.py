"""A2A over plain HTTP and JSON: a path and a method for each operation of version 1.0.

Decides how a path, a query and a body become the parameters of an operation. It must not know how
tasks come about. Invariant: whatever is asked of it is answered in A2A's form, errors too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from turnkeeper.core.errors import (
    QUEUE_FULL,
    TOO_LARGE,
    UNKNOWN_RUN,
    WRONG_MEDIA,
    TurnkeeperError,
)
from turnkeeper.gateway import a2a_do as do
from turnkeeper.gateway.a2a_do import Asked, Does, Streamed
from turnkeeper.gateway.answers import JSON, Answer, Headers, Refusal, answer
from turnkeeper.gateway.asked import read_body
from turnkeeper.gateway.gate import Scope
from turnkeeper.gateway.table import Call, Endpoint, Form, Told
from turnkeeper.projections import a2a_errors as x
from turnkeeper.projections.a2a_asked import in_camel_case
from turnkeeper.projections.a2a_shapes import Json

Params = Callable[[Call, Json], Json]


class A2AQuery(msgspec.Struct, kw_only=True):
    """What may be said in a query. Everything is text here; what is wrong is told by A2A."""

    version: str = msgspec.field(name="A2A-Version", default="")
    tenant: str = ""


class A2ATaskQuery(A2AQuery, kw_only=True):
    historyLength: str = ""


class A2ATasksQuery(A2ATaskQuery, kw_only=True):
    contextId: str = ""
    status: str = ""
    pageSize: str = ""
    pageToken: str = ""
    statusTimestampAfter: str = ""
    includeArtifacts: str = ""


class A2AErrorOut(msgspec.Struct, kw_only=True):
    """`error`: code, status, message, details."""

    error: dict[str, Any]


@dataclass(frozen=True)
class Operation:
    """One operation: how it is reached, and what it is."""

    name: str
    method: str
    path: str
    does: Does
    summary: str
    needs: Scope = "read"
    query: type[A2AQuery] = A2AQuery


CONFIGS = "/tasks/{id}/pushNotificationConfigs"

OPERATIONS: tuple[Operation, ...] = (
    Operation("send", "POST", "/message:send", do.send, "Send a message to an agent", "operate"),
    Operation("stream", "POST", "/message:stream", do.stream,
              "Send a message, and be told how it goes", "operate"),
    Operation("list", "GET", "/tasks", do.list_all, "The tasks, the latest change first",
              query=A2ATasksQuery),
    Operation("cancel", "POST", "/tasks/{id}:cancel", do.cancel, "Cancel a task", "operate"),
    Operation("subscribe", "GET", "/tasks/{id}:subscribe", do.subscribe,
              "Be told how a task goes on"),
    Operation("resubscribe", "POST", "/tasks/{id}:subscribe", do.subscribe,
              "Be told how a task goes on"),
    Operation("get", "GET", "/tasks/{id}", do.get, "One task", query=A2ATaskQuery),
    Operation("push_set", "POST", CONFIGS, do.push_set, "Have somebody told of a task", "operate"),
    Operation("push_list", "GET", CONFIGS, do.push_list, "Who is told of a task", "operate"),
    Operation("push_get", "GET", CONFIGS + "/{config}", do.push_get,
              "One of those who are told of a task", "operate"),
    Operation("push_delete", "DELETE", CONFIGS + "/{config}", do.push_delete,
              "Have somebody told no longer", "operate"),
    Operation("card", "GET", "/extendedAgentCard", do.extended_card,
              "What this server says of itself and its agents"),
)  # fmt: skip


def endpoints(base: str, prefix: str) -> list[Endpoint]:
    """All operations under that path."""
    return [_endpoint(operation, base, prefix) for operation in OPERATIONS]


def _endpoint(operation: Operation, base: str, prefix: str) -> Endpoint:
    async def handle(call: Call) -> Answer | None:
        return await _answered(call, operation)

    handle.__name__ = f"{prefix}_{operation.name}"
    streams = operation.does in (do.stream, do.subscribe)
    told = Told("text/event-stream" if streams else "application/json", "as A2A says")
    return Endpoint(
        operation.method, base + operation.path, handle, f"A2A: {operation.summary}",
        operation.needs, {200: told}, (UNKNOWN_RUN, QUEUE_FULL, TOO_LARGE, WRONG_MEDIA),
        query=operation.query, stays=streams or operation.does is do.send, form=FORM,
    )  # fmt: skip


async def _answered(call: Call, operation: Operation) -> Answer | None:
    try:
        if do.version_asked(call, call.query.version) == "0.3":
            told = "over HTTP+JSON this server speaks 1.0; 0.3 is spoken over JSON-RPC"
            raise x.Wrong(x.VERSION, told, supported="1.0")
        body = await _body(call) if operation.method == "POST" else {}
        params = _params(call, body, operation)
        result = await operation.does(Asked(call, params, "1.0", call.path.get("agent", "")))
        if isinstance(result, Streamed):
            await do.tell(call, result, "1.0", lambda said: said)
            return None
        return answer(200, result)
    except x.Wrong as wrong:
        return _wrong(wrong)


def _params(call: Call, body: Json, operation: Operation) -> Json:
    """Path and query go before the body: they are what was asked at that address."""
    query = {
        name: value
        for name, value in msgspec.to_builtins(call.query).items()
        if value and name != "A2A-Version"
    }
    for name in ("pageSize", "historyLength"):
        if name in query:
            query[name] = _number(name, query[name])
    if "includeArtifacts" in query:
        query["includeArtifacts"] = _flag("includeArtifacts", query["includeArtifacts"])
    pushes = operation.name.startswith("push_")
    named = {"taskId" if pushes else "id": call.path["id"]} if "id" in call.path else {}
    if "config" in call.path:
        named["id"] = call.path["config"]
    return {**in_camel_case(body), **query, **named}


def _number(name: str, given: str) -> int:
    try:
        return int(given)
    except ValueError:
        raise x.Wrong(x.PARAMS, f"{name} is {given[:40]!r}; give a number", field=name) from None


def _flag(name: str, given: str) -> bool:
    if given.lower() not in ("true", "false"):
        raise x.Wrong(x.PARAMS, f"{name} is {given[:40]!r}; give true or false", field=name)
    return given.lower() == "true"


async def _body(call: Call) -> Json:
    gate = call.gate
    raw = await read_body(call.headers, call.receive, gate.max_body_bytes, gate.body_s)
    if not raw:
        return {}
    do.check_media(call)
    found = do.decoded(raw)
    if not isinstance(found, dict):
        raise x.Wrong(x.REQUEST, "the body is not an object", field="body")
    return found


def _wrong(wrong: x.Wrong) -> Answer:
    return answer(wrong.kind.http, x.rest_error(wrong))


def _refused(refused: TurnkeeperError) -> Answer:
    wrong = x.wrong_of(refused)
    headers: Headers = ()
    if isinstance(refused, Refusal):
        wrong.kind = msgspec.structs.replace(wrong.kind, http=refused.status)
        headers = refused.headers
    return Answer(wrong.kind.http, msgspec.json.encode(x.rest_error(wrong)), JSON, headers)


FORM = Form(A2AErrorOut, _refused)
