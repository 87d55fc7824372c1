"""MCP without its transports: what a message means, and the answer to it.

Decides versions, methods and errors. It must not know HTTP, pipes or runs: what has to be done is
given back as `Wanted`. Invariants: every request has one answer; whatever is wrong is answered with
the code that the protocol has for it; versions before 2026-07-28 are agreed on by `initialize`,
that one is said in every request.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

import msgspec

from turnkeeper.core.errors import TurnkeeperError
from turnkeeper.projections import mcp_tools as tools

HANDSHAKE = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN = ("2026-07-28",)
USUAL = "2025-03-26"
"""What is spoken by whoever does not say it."""

BATCHED = "2025-03-26"
"""This one alone wants several messages to be taken in one."""
BATCH_MAX = 100

STRUCTURED = frozenset({"2025-06-18", "2025-11-25", *MODERN})
"""These know structured content."""

PARSE_ERROR, INVALID_REQUEST, NO_METHOD, INVALID_PARAMS = -32700, -32600, -32601, -32602
INTERNAL_ERROR, MISMATCH, UNSUPPORTED, NO_RESOURCE = -32603, -32020, -32022, -32002

VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
SERVER_KEY = "io.modelcontextprotocol/serverInfo"

NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""Method -> the parameter that the header `Mcp-Name` repeats."""

CACHED = frozenset({"server/discover", "tools/list", "resources/list", "resources/templates/list",
                    "resources/read"})  # fmt: skip

CAPABILITIES: dict[str, Any] = {"tools": {}, "resources": {}}
INSTRUCTIONS = (
    "Runs of agents under supervision. start_run gives an agent something to do, and returns at"
    " once; wait_run waits for its end for a bounded time, and says that it is still running if it"
    " has not come; steer_run and stop_run act on that run alone. Every run ends once: completed,"
    " failed, cancelled, timed_out or lost, each with its reason."
)
EVENTS = "turnkeeper://sessions/{session}/events"
TEMPLATES = [{
    "uriTemplate": EVENTS, "name": "events", "title": "A session's events",
    "description": "The newest events of a session's log, one JSON object a line",
    "mimeType": "application/jsonl",
}]  # fmt: skip

Id = int | str
Json = dict[str, Any]


class Fault(msgspec.Struct, frozen=True):
    """What the protocol refuses."""

    code: int
    message: str
    data: Any = None


class Request(msgspec.Struct, frozen=True):
    id: Id
    method: str
    params: Json = {}


class Notice(msgspec.Struct, frozen=True):
    method: str
    params: Json = {}


class Reply(msgspec.Struct, frozen=True):
    """A client's answer; we ask nothing, so it answers nothing."""


class ReadEvents(msgspec.Struct, frozen=True):
    """The resource of a session's events."""

    session: str
    uri: str


class Wanted(msgspec.Struct, frozen=True):
    """What has to be done before the request can be answered."""

    request: Request
    what: tools.ToolCall | ReadEvents
    version: str


def read(raw: object) -> Request | Notice | Reply | Fault:
    """One message of JSON-RPC, from what was decoded."""
    if not isinstance(raw, dict) or raw.get("jsonrpc") != "2.0":
        return Fault(INVALID_REQUEST, "this is not one JSON-RPC 2.0 message")
    params = raw.get("params", {})
    params = {} if params is None else params
    method = raw.get("method")
    if method is None and ("result" in raw or "error" in raw):
        return Reply()
    if not isinstance(method, str) or not isinstance(params, dict):
        return Fault(INVALID_REQUEST, "method is text, and params is an object")
    if "id" not in raw:
        return Notice(method, params)
    id = raw["id"]
    if isinstance(id, bool) or not isinstance(id, int | str):
        return Fault(INVALID_REQUEST, "id is text or a whole number")
    return Request(id, method, params)


class Batch(msgspec.Struct, frozen=True):
    """Several messages in one: what can be answered at once, and what has to be done first."""

    notices: list[Notice]
    told: list[Json]
    wanted: list[Wanted]


def settle_batch(raw: list[Any], version: str, server: Json) -> Batch | Fault:
    if version != BATCHED:
        return Fault(INVALID_REQUEST, f"{version} has one message at a time")
    if not 0 < len(raw) <= BATCH_MAX:
        return Fault(INVALID_REQUEST, f"a batch has 1 to {BATCH_MAX} messages")
    batch = Batch([], [], [])
    for message in map(read, raw):
        match message:
            case Fault():
                batch.told.append(fault(None, message))
            case Notice():
                batch.notices.append(message)
            case Request(method="initialize"):
                wrong = Fault(INVALID_REQUEST, "initialize stands alone")
                batch.told.append(fault(message.id, wrong))
            case Request():
                told = settle(message, version, server)
                if isinstance(told, Wanted):
                    batch.wanted.append(told)
                else:
                    batch.told.append(told)
    return batch


def version_of(params: Mapping[str, Any]) -> object:
    """The version that a request says for itself; none where it was agreed on before."""
    meta = params.get("_meta")
    return meta.get(VERSION_KEY) if isinstance(meta, Mapping) else None


def is_modern(params: Mapping[str, Any]) -> bool:
    meta = params.get("_meta")
    return isinstance(meta, Mapping) and VERSION_KEY in meta


def check_modern(request: Request, headers: Mapping[str, str] | None) -> Fault | None:
    """What is wrong with what a request of 2026-07-28 says of itself; `headers` by their small
    names, or none where there are none."""
    meta = request.params.get("_meta")
    if not isinstance(meta, Mapping):
        return Fault(INVALID_PARAMS, f"params._meta has to have {VERSION_KEY}, {CAPABILITIES_KEY}")
    missing = [key for key in (VERSION_KEY, CAPABILITIES_KEY) if key not in meta]
    if missing:
        return Fault(INVALID_PARAMS, f"params._meta lacks {', '.join(missing)}")
    version = meta[VERSION_KEY]
    if headers is not None:
        if headers.get("mcp-protocol-version") != version:
            return Fault(MISMATCH, "mcp-protocol-version is not the version in params._meta")
        if headers.get("mcp-method") != request.method:
            return Fault(MISMATCH, "mcp-method is not the method of the body")
        field = NAMED.get(request.method)
        value = request.params.get(field) if field is not None else None
        if value is not None and header_text(headers.get("mcp-name")) != value:
            return Fault(MISMATCH, f"mcp-name is not the {field} of the body")
    if not isinstance(version, str):
        return Fault(INVALID_PARAMS, f"{VERSION_KEY} is text")
    return unsupported(version)


def unsupported(version: str) -> Fault | None:
    if version in MODERN:
        return None
    told = {"supported": [*HANDSHAKE, *MODERN], "requested": version}
    return Fault(UNSUPPORTED, "Unsupported protocol version", told)


def header_text(value: str | None) -> str | None:
    """A header's value; one that is no plain text is written as `=?base64?…?=`."""
    if value is None or not (value.startswith("=?base64?") and value.endswith("?=")):
        return value
    try:
        return base64.b64decode(value[9:-2], validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None


def agreed(params: Mapping[str, Any]) -> str:
    """The version to speak, for what a client proposes in `initialize`."""
    asked = params.get("protocolVersion")
    return asked if isinstance(asked, str) and asked in HANDSHAKE else HANDSHAKE[-1]


# Answers -----------------------------------------------------------------------------------------


def settle(request: Request, version: str, server: Json) -> Json | Wanted:
    """The answer, or what has to be done for it. `server` is how we are called."""
    params, modern = request.params, version in MODERN
    told: Json
    match request.method:
        case "initialize" if not modern:
            told = {"protocolVersion": version, "capabilities": CAPABILITIES,
                    "serverInfo": server, "instructions": INSTRUCTIONS}  # fmt: skip
        case "ping" if not modern:
            told = {}
        case "server/discover" if modern:
            told = {"supportedVersions": [*HANDSHAKE, *MODERN], "capabilities": CAPABILITIES,
                    "instructions": INSTRUCTIONS, "_meta": {SERVER_KEY: server}}  # fmt: skip
        case "tools/list":
            told = {"tools": [_for_version(tool, version) for tool in tools.TOOLS]}
        case "resources/list":
            told = {"resources": []}
        case "resources/templates/list":
            told = {"resourceTemplates": TEMPLATES}
        case "tools/call":
            return _call(request, params, version)
        case "resources/read":
            return _read(request, params, version)
        case _:
            return fault(request.id, Fault(NO_METHOD, "Method not found", request.method))
    return answer(request, told, version)


def _for_version(tool: Json, version: str) -> Json:
    if version in STRUCTURED:
        return tool
    return {key: told for key, told in tool.items() if key not in ("outputSchema", "title")}


def _call(request: Request, params: Json, version: str) -> Json | Wanted:
    name, arguments = params.get("name"), params.get("arguments") or {}
    if not isinstance(name, str) or name not in tools.NAMES:
        return fault(request.id, Fault(INVALID_PARAMS, f"Unknown tool: {str(name)[:80]}"))
    try:
        return Wanted(request, tools.read_call(name, arguments), version)
    except msgspec.ValidationError as wrong:
        told = {"content": [{"type": "text", "text": f"{name}: {wrong}"}], "isError": True}
        return answer(request, told, version)


def _read(request: Request, params: Json, version: str) -> Json | Wanted:
    uri = params.get("uri")
    before, _, after = EVENTS.partition("{session}")
    if isinstance(uri, str) and uri.startswith(before) and uri.endswith(after):
        session = uri[len(before) : len(uri) - len(after)]
        if session and "/" not in session:
            return Wanted(request, ReadEvents(session, uri), version)
    return fault(request.id, no_resource(uri, version))


def no_resource(uri: object, version: str) -> Fault:
    code = INVALID_PARAMS if version in MODERN else NO_RESOURCE
    return Fault(code, "Resource not found", {"uri": str(uri)[:1000]})


def called(wanted: Wanted, told: Json) -> Json:
    """The answer to a tool's call that was carried out."""
    assert not isinstance(wanted.what, ReadEvents)
    text = tools.sentence(wanted.what, told)
    result: Json = {"content": [{"type": "text", "text": text}]}
    if wanted.version in STRUCTURED:
        result["structuredContent"] = told
    return answer(wanted.request, result, wanted.version)


def refused(wanted: Wanted, why: TurnkeeperError) -> Json:
    """The answer to what was refused: a tool's caller reads it, whoever reads gets an error."""
    if isinstance(wanted.what, ReadEvents):
        return fault(wanted.request.id, no_resource(wanted.what.uri, wanted.version))
    return answer(wanted.request, tools.refusal(why), wanted.version)


def events_read(wanted: Wanted, lines: list[str]) -> Json:
    assert isinstance(wanted.what, ReadEvents)
    content = {"uri": wanted.what.uri, "mimeType": "application/jsonl", "text": "\n".join(lines)}
    return answer(wanted.request, {"contents": [content]}, wanted.version)


def answer(request: Request, result: Json, version: str) -> Json:
    if version in MODERN:
        result = {"resultType": "complete", **result}
        if request.method in CACHED:
            result = {"ttlMs": 0, "cacheScope": "private", **result}
    return {"jsonrpc": "2.0", "id": request.id, "result": result}


def fault(id: Id | None, wrong: Fault) -> Json:
    error: Json = {"code": wrong.code, "message": wrong.message}
    if wrong.data is not None:
        error["data"] = wrong.data
    return {"jsonrpc": "2.0", "id": id, "error": error}


def progress(token: object, gone_s: float, whole_s: float, message: str) -> Json:
    params = {"progressToken": token, "progress": gone_s, "total": whole_s, "message": message}
    return {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}
