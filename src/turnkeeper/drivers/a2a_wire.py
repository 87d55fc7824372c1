"""A2A's words, in both forms that are in use (0.3 and 1.0): cards, requests, and what comes back.

Decides what an answer means. It must not know connections or turns. Invariant: whatever a remote
agent sends is either one of these words or `Nonsense`; nothing else is raised.
"""

from __future__ import annotations

from typing import Any, Literal
from urllib.parse import parse_qs, quote, urlencode, urljoin

import msgspec

from turnkeeper.net.types import origin_of, shown

Json = dict[str, Any]
Version = Literal["0.3", "1.0"]
Method = Literal["stream", "send", "get", "cancel", "subscribe"]

METHODS: dict[Version, dict[Method, str]] = {
    "0.3": {
        "stream": "message/stream", "send": "message/send", "get": "tasks/get",
        "cancel": "tasks/cancel", "subscribe": "tasks/resubscribe",
    },
    "1.0": {
        "stream": "SendStreamingMessage", "send": "SendMessage", "get": "GetTask",
        "cancel": "CancelTask", "subscribe": "SubscribeToTask",
    },
}  # fmt: skip

NOT_FOUND = -32001
TERMINAL = frozenset({"completed", "failed", "canceled", "rejected"})


class Nonsense(Exception):
    """What came is not A2A."""


class Refusal(Exception):
    """The remote agent answered with an error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{message} ({code})")
        self.code = code


# The card -----------------------------------------------------------------------------------------


class Card(msgspec.Struct, frozen=True):
    """What of an agent's card matters here."""

    name: str
    endpoint: str
    version: Version
    streams: bool


def read_card(data: bytes, where: str, endpoint: str = "") -> Card:
    """The card found at `where`. An `endpoint` that the operator gave counts more than the card's,
    which must not lead to another host: what is secret here is not for whoever wrote the card."""
    card = _object(_decoded(data), "its card")
    found, version = _interface(card)
    url = urljoin(where, endpoint or found)
    if not endpoint and origin_of(url) != origin_of(where):
        raise Nonsense(
            f"its card at {shown(where)} leads to another host, {shown(url)}."
            " Give that address as endpoint, if it is right"
        )
    capabilities = card.get("capabilities")
    streams = isinstance(capabilities, dict) and capabilities.get("streaming") is True
    return Card(str(card.get("name") or ""), url, version, streams)


def _interface(card: Json) -> tuple[str, Version]:
    offered: list[str] = []
    for one in _list(card.get("supportedInterfaces")):
        binding, version = str(one.get("protocolBinding")), str(one.get("protocolVersion"))
        offered.append(f"{binding} {version}")
        if binding.upper() == "JSONRPC" and one.get("url"):
            if version.startswith("1."):
                return str(one["url"]), "1.0"
            if version.startswith("0.3"):
                return str(one["url"]), "0.3"
    url, transport = card.get("url"), str(card.get("preferredTransport") or "JSONRPC")
    version = str(card.get("protocolVersion") or "")
    if url and version.startswith("0."):
        others = [one for one in _list(card.get("additionalInterfaces")) if one.get("url")]
        for kind, address in [(transport, url), *((o.get("transport"), o["url"]) for o in others)]:
            offered.append(f"{kind} {version}")
            if str(kind).upper() == "JSONRPC":
                return str(address), "0.3"
    told = ", ".join(offered) or "nothing that is known"
    raise Nonsense(f"its card offers {told}; JSON-RPC in version 0.3 or 1.0 is needed")


# Requests -----------------------------------------------------------------------------------------


def request(version: Version, method: Method, params: Json) -> bytes:
    body = {"jsonrpc": "2.0", "id": 1, "method": METHODS[version][method], "params": params}
    return msgspec.json.encode(body)


def say(version: Version, id: str, text: str, context: str, task: str = "") -> Json:
    """The parameters of a message; with `task`, as a further word in that task."""
    message: Json = {"messageId": id}
    if version == "1.0":
        message |= {"role": "ROLE_USER", "parts": [{"text": text}]}
    else:
        message |= {"kind": "message", "role": "user", "parts": [{"kind": "text", "text": text}]}
    if context:
        message["contextId"] = context
    if task:
        message["taskId"] = task
    return {"message": message}


def not_waiting(version: Version) -> Json:
    """For an agent that does not stream: answer at once, and be asked how it goes."""
    return {"returnImmediately": True} if version == "1.0" else {"blocking": False}


# Answers ------------------------------------------------------------------------------------------


class Status(msgspec.Struct, frozen=True):
    """`state` in the words of 0.3: submitted, working, input-required, completed …"""

    state: str
    text: str = ""

    @property
    def is_terminal(self) -> bool:
        return self.state in TERMINAL


class Task(msgspec.Struct, frozen=True):
    """A whole task, as it is now; `artifacts` are their texts, by id, in order."""

    id: str
    context: str
    status: Status
    artifacts: dict[str, str]


class StatusUpdate(msgspec.Struct, frozen=True):
    task: str
    context: str
    status: Status


class ArtifactUpdate(msgspec.Struct, frozen=True):
    task: str
    context: str
    artifact: str
    text: str
    append: bool


class Said(msgspec.Struct, frozen=True):
    """An answer without a task."""

    context: str
    text: str


Word = Task | StatusUpdate | ArtifactUpdate | Said


def read_answer(data: bytes) -> Word:
    """One JSON-RPC answer. Raises `Refusal` if it is an error, `Nonsense` if it is neither."""
    answer = _object(_decoded(data), "an answer")
    error = answer.get("error")
    if error is not None:
        code = error.get("code") if isinstance(error, dict) else None
        message = error.get("message") if isinstance(error, dict) else error
        raise Refusal(code if isinstance(code, int) else 0, str(message or "no reason given"))
    result = _object(answer.get("result"), "an answer's result")
    for key, kind in KINDS.items():
        if isinstance(result.get(key), dict):
            return _read(kind, result[key])
    return _read(str(result.get("kind") or "task"), result)


KINDS = {
    "task": "task", "message": "message",
    "statusUpdate": "status-update", "artifactUpdate": "artifact-update",
}  # fmt: skip


def _read(kind: str, said: Json) -> Word:
    context = str(said.get("contextId") or "")
    match kind:
        case "message":
            return Said(context, text_of(said))
        case "status-update":
            return StatusUpdate(str(said.get("taskId") or ""), context, _status(said))
        case "artifact-update":
            artifact = _object(said.get("artifact"), "an artifact")
            id = str(artifact.get("artifactId") or "")
            more = said.get("append") is True
            return ArtifactUpdate(
                str(said.get("taskId") or ""), context, id, text_of(artifact), more
            )
        case "task" if said.get("id"):
            artifacts = {
                str(one.get("artifactId") or ""): text_of(one)
                for one in _list(said.get("artifacts"))
            }
            return Task(str(said["id"]), context, _status(said), artifacts)
        case _:
            raise Nonsense(f"an answer of a kind that is not known: {kind[:50]}")


def _status(said: Json) -> Status:
    status = _object(said.get("status"), "a status")
    state = str(status.get("state") or "unknown").removeprefix("TASK_STATE_")
    message = status.get("message")
    text = text_of(message) if isinstance(message, dict) else ""
    return Status(state.lower().replace("_", "-"), text)


def text_of(said: Json) -> str:
    """The words in the parts of a message or an artifact."""
    parts = _list(said.get("parts"))
    return "".join(part["text"] for part in parts if isinstance(part.get("text"), str))


def _decoded(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Nonsense("it sent what is not JSON") from None


def _object(value: Any, what: str) -> Json:
    if not isinstance(value, dict):
        raise Nonsense(f"{what} is not an object")
    return value


def _list(value: Any) -> list[Json]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


# What is remembered -------------------------------------------------------------------------------


class Thread(msgspec.Struct, frozen=True):
    """What a conversation's id says: the agent's own context, and which task is which run's."""

    context: str = ""
    task: str = ""
    run: str = ""

    def __str__(self) -> str:
        if not self.task:
            return quote(self.context, safe="")
        return f"{quote(self.context, safe='')}?{urlencode({'task': self.task, 'run': self.run})}"


def read_thread(text: str | None) -> Thread:
    context, _, rest = (text or "").partition("?")
    named = parse_qs(f"{rest}&context={context}")
    return Thread(*(named.get(key, [""])[0] for key in ("context", "task", "run")))
