"""A2A's errors: their codes in both bindings, and which of them a refusal of ours is.

Decides what a client is told when something is refused. It must not know who asked, or how.
Invariant: every refusal is one of the protocol's own errors; ours is named inside it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from turnkeeper.core.errors import (
    INTERNAL,
    INVALID,
    NO_SUCH_PLACE,
    UNKNOWN_AGENT,
    UNKNOWN_APPROVAL,
    UNKNOWN_RUN,
    UNKNOWN_SESSION,
    Code,
    TurnkeeperError,
)

Json = dict[str, Any]

DOMAIN = "a2a-protocol.org"
ERROR_INFO = "type.googleapis.com/google.rpc.ErrorInfo"
BAD_REQUEST = "type.googleapis.com/google.rpc.BadRequest"


class Kind(msgspec.Struct, frozen=True):
    """One kind of error: its name, its JSON-RPC code, its HTTP status, and gRPC's word for that."""

    reason: str
    rpc: int
    http: int
    status: str


PARSE = Kind("JSON_PARSE", -32700, 400, "INVALID_ARGUMENT")
REQUEST = Kind("INVALID_REQUEST", -32600, 400, "INVALID_ARGUMENT")
NO_METHOD = Kind("METHOD_NOT_FOUND", -32601, 404, "NOT_FOUND")
PARAMS = Kind("INVALID_PARAMS", -32602, 400, "INVALID_ARGUMENT")
MISTAKE = Kind("INTERNAL_ERROR", -32603, 500, "INTERNAL")
NOT_FOUND = Kind("TASK_NOT_FOUND", -32001, 404, "NOT_FOUND")
NOT_CANCELABLE = Kind("TASK_NOT_CANCELABLE", -32002, 400, "FAILED_PRECONDITION")
NO_PUSH = Kind("PUSH_NOTIFICATION_NOT_SUPPORTED", -32003, 400, "FAILED_PRECONDITION")
UNSUPPORTED = Kind("UNSUPPORTED_OPERATION", -32004, 400, "FAILED_PRECONDITION")
CONTENT = Kind("CONTENT_TYPE_NOT_SUPPORTED", -32005, 400, "INVALID_ARGUMENT")
MEDIA = Kind("CONTENT_TYPE_NOT_SUPPORTED", -32005, 415, "INVALID_ARGUMENT")
NO_CARD = Kind("EXTENDED_AGENT_CARD_NOT_CONFIGURED", -32007, 400, "FAILED_PRECONDITION")
VERSION = Kind("VERSION_NOT_SUPPORTED", -32009, 400, "FAILED_PRECONDITION")

_OURS: dict[Code, Kind] = {
    INVALID: PARAMS, UNKNOWN_AGENT: PARAMS, UNKNOWN_SESSION: NOT_FOUND, UNKNOWN_RUN: NOT_FOUND,
    UNKNOWN_APPROVAL: PARAMS, NO_SUCH_PLACE: NO_METHOD, INTERNAL: MISTAKE,
}  # fmt: skip
_BY_HTTP = {400: PARAMS, 409: PARAMS, 413: REQUEST, 415: MEDIA}
_STATUS = {
    401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 408: "DEADLINE_EXCEEDED",
    429: "RESOURCE_EXHAUSTED", 503: "UNAVAILABLE",
}  # fmt: skip


class Wrong(Exception):
    """A refusal in A2A's words. `field` is the part of the request that it is about."""

    def __init__(
        self, kind: Kind, what: str, *, field: str = "", code: str = "", **info: str
    ) -> None:
        super().__init__(what)
        self.kind = kind
        self.what = what
        self.field = field
        self.info = {**info, **({"code": code} if code else {})}


def wrong_of(refused: TurnkeeperError) -> Wrong:
    """A refusal of ours in A2A's words; its own code and what to do are in it."""
    entry = refused.entry
    kind = _OURS.get(entry) or _BY_HTTP.get(entry.http)
    if kind is None:
        kind = Kind(MISTAKE.reason, MISTAKE.rpc, entry.http, _STATUS.get(entry.http, "INTERNAL"))
    field = refused.fields.get("field")
    told = f"{refused.what}. {entry.todo[0].upper()}{entry.todo[1:]}."
    return Wrong(kind, told, field=field if isinstance(field, str) else "", code=entry.code)


def details(wrong: Wrong) -> list[Json]:
    info: Json = {"@type": ERROR_INFO, "reason": wrong.kind.reason, "domain": DOMAIN}
    if wrong.info:
        info["metadata"] = wrong.info
    if not wrong.field:
        return [info]
    violation = {"field": wrong.field, "description": wrong.what}
    return [info, {"@type": BAD_REQUEST, "fieldViolations": [violation]}]


def rpc_error(id: str | int | None, wrong: Wrong) -> Json:
    error = {"code": wrong.kind.rpc, "message": wrong.what, "data": details(wrong)}
    return {"jsonrpc": "2.0", "id": id, "error": error}


def rest_error(wrong: Wrong) -> Json:
    kind = wrong.kind
    error = {"code": kind.http, "status": kind.status, "message": wrong.what}
    return {"error": {**error, "details": details(wrong)}}
