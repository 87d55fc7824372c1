"""A2A over JSON-RPC: one address, the methods of both versions.

Decides which method is meant, and in which version it is answered. It must not know how tasks come
about. Invariant: whatever is asked of it is answered in JSON-RPC's form, with the id
that was given.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from turnkeeper.core.errors import FORBIDDEN, TurnkeeperError
from turnkeeper.gateway import a2a_do as do
from turnkeeper.gateway.a2a_do import Asked, Does, Streamed
from turnkeeper.gateway.answers import Answer, Refusal, answer
from turnkeeper.gateway.asked import read_body
from turnkeeper.gateway.table import Call
from turnkeeper.projections import a2a_errors as x
from turnkeeper.projections.a2a_asked import in_camel_case
from turnkeeper.projections.a2a_shapes import Json, Version

METHODS: dict[str, tuple[Version, Does]] = {
    "SendMessage": ("1.0", do.send),
    "SendStreamingMessage": ("1.0", do.stream),
    "GetTask": ("1.0", do.get),
    "ListTasks": ("1.0", do.list_all),
    "CancelTask": ("1.0", do.cancel),
    "SubscribeToTask": ("1.0", do.subscribe),
    "CreateTaskPushNotificationConfig": ("1.0", do.push_set),
    "GetTaskPushNotificationConfig": ("1.0", do.push_get),
    "ListTaskPushNotificationConfigs": ("1.0", do.push_list),
    "DeleteTaskPushNotificationConfig": ("1.0", do.push_delete),
    "GetExtendedAgentCard": ("1.0", do.extended_card),
    "message/send": ("0.3", do.send),
    "message/stream": ("0.3", do.stream),
    "tasks/get": ("0.3", do.get),
    "tasks/cancel": ("0.3", do.cancel),
    "tasks/resubscribe": ("0.3", do.subscribe),
    "tasks/pushNotificationConfig/set": ("0.3", do.push_set),
    "tasks/pushNotificationConfig/get": ("0.3", do.push_get),
    "tasks/pushNotificationConfig/list": ("0.3", do.push_list),
    "tasks/pushNotificationConfig/delete": ("0.3", do.push_delete),
    "agent/getAuthenticatedExtendedCard": ("0.3", do.extended_card),
}


OLD_STREAMS = ("message/stream", "tasks/resubscribe")
EVENTS = b"text/event-stream; charset=utf-8"


@dataclass(frozen=True)
class _Request:
    id: str | int | None
    method: str
    params: Json


async def speak(call: Call, agent: str) -> Answer | None:
    """One request, answered; none if it was answered with a stream."""
    id: str | int | None = None
    whole: Any = None
    try:
        gate = call.gate
        body = await read_body(call.headers, call.receive, gate.max_body_bytes, gate.body_s)
        do.check_media(call)
        whole = do.decoded(body)
        id = _id(whole)
        return await _answered(call, _request(whole), agent)
    except x.Wrong as wrong:
        return _refused(id, wrong, whole)
    except TurnkeeperError as refused:
        if refused.entry is FORBIDDEN or isinstance(refused, Refusal):
            raise  # what the door and HTTP itself refuse has a status of its own
        return _refused(id, x.wrong_of(refused), whole)


def _refused(id: str | int | None, wrong: x.Wrong, whole: Any) -> Answer:
    """In 0.3 whoever asks for a stream is answered with one, be it for an error alone."""
    told = answer(200, x.rpc_error(id, wrong))
    if isinstance(whole, dict) and whole.get("method") in OLD_STREAMS:
        return Answer(200, b"data: %b\n\n" % told.body, EVENTS)
    return told


async def _answered(call: Call, request: _Request, agent: str) -> Answer | None:
    version, does = _method(request.method, do.version_asked(call, call.query.version))
    params = in_camel_case(request.params) if version == "1.0" else request.params
    result = await does(Asked(call, params, version, agent))

    def wrap(said: Any) -> Json:
        return {"jsonrpc": "2.0", "id": request.id, "result": said}

    if isinstance(result, Streamed):
        await do.tell(call, result, version, wrap)
        return None
    return answer(200, wrap(result))


def _method(name: str, asked: Version | None) -> tuple[Version, Does]:
    """A request without a version is one of 0.3; but only 1.0 has the names of 1.0."""
    found = METHODS.get(name)
    if found is None:
        raise x.Wrong(x.NO_METHOD, f"there is no method {name[:80]!r}")
    if asked is not None and found[0] != asked:
        raise x.Wrong(x.NO_METHOD, f"{name} is not a method of version {asked}")
    return found


def _id(whole: Any) -> str | int | None:
    given = whole.get("id") if isinstance(whole, dict) else None
    is_id = isinstance(given, str | int) and not isinstance(given, bool)
    return given if is_id else None


def _request(whole: Any) -> _Request:
    """One without an id is answered like any other, under the id null."""
    if not isinstance(whole, dict):
        raise x.Wrong(x.REQUEST, "the body is not one JSON-RPC request")
    if whole.get("jsonrpc") != "2.0":
        raise x.Wrong(x.REQUEST, "jsonrpc is not “2.0”", field="jsonrpc")
    id, method, params = _id(whole), whole.get("method"), whole.get("params")
    if id is None and whole.get("id") is not None:
        raise x.Wrong(x.REQUEST, "id is neither text nor an integer", field="id")
    if not isinstance(method, str) or not method:
        raise x.Wrong(x.REQUEST, "method is missing, or is not text", field="method")
    if params is not None and not isinstance(params, dict):
        raise x.Wrong(x.PARAMS, "params is not an object", field="params")
    return _Request(id, method, params or {})
