"""What an A2A client asks, in both versions: from JSON to one shape.

Decides what of a request is meant, and what is wrong with it. It must not know tasks or sessions.
Invariant: what is wrong is refused with the name of its field; fields that are not known are passed
over, as the protocol says.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from turnkeeper.projections import a2a_errors as x
from turnkeeper.projections.a2a_push import PushConfig
from turnkeeper.projections.a2a_shapes import OTHER_STATES, STATES, Version

Json = dict[str, Any]
_T = TypeVar("_T", bound=msgspec.Struct)

PAGE = 50
PAGE_MAX = 100
KINDS = ("text", "data", "file")
FREE = ("metadata", "data")
"""Fields in which people may say what they like."""
DEPTH = 8
"""Nothing of the protocol's own is deeper."""
USERS = ("user", "ROLE_USER", 1)

_TEXT_MEDIA = re.compile(r"text/.+|application/json|text")
_AT = re.compile(r"(.*) - at `\$\.?(.*)`", re.S)
_FIELD = re.compile(r"Object missing required field `(.*?)`(?: - at `\$\.?(.*?)`)?", re.S)
_ANSWER = re.compile(
    r"(?P<word>[a-z]+)(?:\s+(?P<name>a_[\w.-]*\w))?\s*[.!]?\s*(?:\n(?P<note>.*))?", re.I | re.S
)
ALLOW = frozenset("allow allowed approve approved yes y ok".split())
DENY = frozenset("deny denied reject rejected refuse no n".split())


class _Camel(msgspec.Struct, rename="camel", kw_only=True):
    """Unknown fields are passed over."""


class _Part(_Camel, kw_only=True):
    text: str | None = None
    data: Any = None
    raw: Any = None
    url: Any = None
    file: Any = None
    kind: str | None = None
    media_type: str | None = None


class _Message(_Camel, kw_only=True):
    message_id: str
    role: str | int
    parts: list[_Part]
    context_id: str | None = None
    task_id: str | None = None
    metadata: Json | None = None


class _Login(_Camel, kw_only=True):
    scheme: str | None = None
    schemes: list[str] | None = None
    credentials: str | None = None


class _Push(_Camel, kw_only=True):
    url: str
    id: str | None = None
    task_id: str | None = None
    token: str | None = None
    authentication: _Login | None = None


class _Configuration(_Camel, kw_only=True):
    history_length: int | None = None
    blocking: bool | None = None
    return_immediately: bool | None = None
    push_notification_config: _Push | None = None
    task_push_notification_config: _Push | None = None


class _Send(_Camel, kw_only=True):
    message: _Message
    configuration: _Configuration | None = None
    metadata: Json | None = None
    tenant: str | None = None


class _Named(_Camel, kw_only=True):
    id: str
    history_length: int | None = None
    tenant: str | None = None


class _List(_Camel, kw_only=True):
    context_id: str | None = None
    status: str | int | None = None
    page_size: int | None = None
    page_token: str | None = None
    history_length: int | None = None
    status_timestamp_after: str | None = None
    include_artifacts: bool | None = None
    tenant: str | None = None


# What is meant -------------------------------------------------------------------------------


class Sent(msgspec.Struct, frozen=True, kw_only=True):
    """A message. `task` and `context` are empty where it names none; `agent` likewise."""

    id: str
    text: str
    data: tuple[Any, ...] = ()
    context: str = ""
    task: str = ""
    agent: str = ""
    push: PushConfig | None = None
    history: int | None = None
    waits: bool = True


class Named(msgspec.Struct, frozen=True):
    """A task that is asked for."""

    task: str
    history: int | None = None
    agent: str = ""


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Which tasks are to be listed."""

    context: str = ""
    state: str = ""
    limit: int = PAGE
    token: str = ""
    history: int = 0
    since: float | None = None
    artifacts: bool = False
    agent: str = ""


class Decision(msgspec.Struct, frozen=True):
    """An answer to a question; `approval` is empty where it names none."""

    allow: bool
    approval: str = ""
    note: str = ""


def read_sent(params: Json, version: Version) -> Sent:
    said = _read(params, _Send)
    message, how = said.message, said.configuration or _Configuration()
    if not message.message_id.strip():
        raise x.Wrong(x.PARAMS, "message.messageId is empty", field="message.messageId")
    if message.role not in USERS:
        told = f"message.role is {message.role!r}; a client speaks as the user"
        raise x.Wrong(x.PARAMS, told, field="message.role")
    push = how.push_notification_config or how.task_push_notification_config
    named = (said.metadata or {}).get("agent") or (message.metadata or {}).get("agent") or ""
    return Sent(
        id=message.message_id,
        text=_text(message.parts, version),
        data=tuple(part.data for part in message.parts if part.data is not None),
        context=message.context_id or "",
        task=message.task_id or "",
        agent=said.tenant or str(named),
        push=None if push is None else _push(push, "", version),
        history=_history(how.history_length),
        waits=how.blocking is not False if version == "0.3" else not how.return_immediately,
    )


def read_named(params: Json) -> Named:
    named = _read(params, _Named)
    return Named(_id(named.id, "id"), _history(named.history_length), named.tenant or "")


def read_wanted(params: Json) -> Wanted:
    asked = _read(params, _List)
    size = PAGE if asked.page_size is None else asked.page_size
    if not 1 <= size <= PAGE_MAX:
        told = f"pageSize is {size}; give 1 to {PAGE_MAX}"
        raise x.Wrong(x.PARAMS, told, field="pageSize")
    return Wanted(
        context=asked.context_id or "",
        state=_state(asked.status),
        limit=size,
        token=asked.page_token or "",
        history=_history(asked.history_length) or 0,
        since=_since(asked.status_timestamp_after),
        artifacts=bool(asked.include_artifacts),
        agent=asked.tenant or "",
    )


def read_push(params: Json, version: Version) -> PushConfig:
    """A configuration that is to be made."""
    if version == "0.3":
        inner = params.get("pushNotificationConfig")
        if not isinstance(inner, dict):
            told = "pushNotificationConfig is missing"
            raise x.Wrong(x.PARAMS, told, field="pushNotificationConfig")
        params = {**inner, "taskId": params.get("taskId")}
    push = _read(params, _Push)
    return _push(push, _id(push.task_id or "", "taskId"), version)


def read_push_name(params: Json, version: Version) -> tuple[str, str]:
    """The task and the configuration that are asked for; the latter may be empty."""
    names = ("id", "pushNotificationConfigId") if version == "0.3" else ("taskId", "id")
    task, config = (params.get(name) for name in names)
    if config is not None and not isinstance(config, str):
        raise x.Wrong(x.PARAMS, f"{names[1]} is not text", field=names[1])
    return _id(task, names[0]), config or ""


def read_decision(sent: Sent) -> Decision | None:
    """What an answer to a question means; none if that is not clear. Words are taken only if they
    can mean nothing else."""
    for data in sent.data:
        if isinstance(data, dict) and data.get("decision") in ("allow", "deny"):
            name, note = data.get("approval"), data.get("note")
            return Decision(
                data["decision"] == "allow",
                name if isinstance(name, str) else "",
                note if isinstance(note, str) else "",
            )
    found = _ANSWER.fullmatch(sent.text.strip())
    word = found["word"].lower() if found else ""
    if found is None or word not in ALLOW | DENY:
        return None
    return Decision(word in ALLOW, found["name"] or "", (found["note"] or "").strip())


def in_camel_case(params: Json, depth: int = 0) -> Json:
    """The same with the usual names: in ProtoJSON a field may have the name of its definition, too
    (`task_id` for `taskId`). What is not of the protocol is left as it is."""
    return {_camel(name): _inside(name, value, depth) for name, value in params.items()}


def _inside(name: str, value: Any, depth: int) -> Any:
    if name in FREE or depth >= DEPTH:
        return value
    if isinstance(value, dict):
        return in_camel_case(value, depth + 1)
    if isinstance(value, list):
        return [in_camel_case(one, depth + 1) if isinstance(one, dict) else one for one in value]
    return value


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest) if first else name


# How it is read ------------------------------------------------------------------------------


def _read(params: Json, shape: type[_T]) -> _T:
    try:
        return msgspec.convert(params, shape)
    except msgspec.ValidationError as refused:
        told = str(refused)
    missing, placed = _FIELD.fullmatch(told), _AT.fullmatch(told)
    if missing:
        field = ".".join(part for part in (missing[2], missing[1]) if part)
        raise x.Wrong(x.PARAMS, f"{field} is missing", field=field)
    field, what = (placed[2], placed[1]) if placed else ("params", told)
    raise x.Wrong(x.PARAMS, f"{field} is not allowed: {what}", field=field)


def _id(given: object, field: str) -> str:
    if not isinstance(given, str) or not given:
        raise x.Wrong(x.PARAMS, f"{field} is missing, or is not text", field=field)
    return given


def _text(parts: list[_Part], version: Version) -> str:
    """What the agent is told: text as it is, data as JSON. It cannot be given files."""
    if not parts:
        raise x.Wrong(x.PARAMS, "message.parts is empty", field="message.parts")
    told = []
    for i, part in enumerate(parts):
        field = f"message.parts[{i}]"
        media = (part.media_type or "text").partition(";")[0].strip().lower()
        if part.kind not in (KINDS if version == "0.3" else (None, *KINDS)):
            what = f"{field}.kind is {part.kind!r:.40}; give text or data"
            raise x.Wrong(x.PARAMS, what, field=f"{field}.kind")
        if part.raw is not None or part.url is not None or part.file is not None:
            raise x.Wrong(x.CONTENT, f"{field} is a file; send text or data", field=field)
        if not _TEXT_MEDIA.fullmatch(media):
            raise x.Wrong(x.CONTENT, f"{field} is {media}; send text or data", field=field)
        if part.text is not None:
            told.append(part.text)
        elif part.data is not None:
            told.append(msgspec.json.encode(part.data).decode())
        else:
            raise x.Wrong(x.PARAMS, f"{field} has neither text nor data", field=field)
    return "\n\n".join(told)


def _history(given: int | None) -> int | None:
    if given is not None and given < 0:
        told = f"historyLength is {given}; give 0 or more"
        raise x.Wrong(x.PARAMS, told, field="historyLength")
    return given


def _state(given: str | int | None) -> str:
    if given in (None, "", 0, "TASK_STATE_UNSPECIFIED"):
        return ""
    for word, name in STATES.items():
        if given in (word, name):
            return word
    if given in OTHER_STATES:
        return "auth-required"
    told = f"status is {given!r}; give one of {', '.join(STATES.values())}"
    raise x.Wrong(x.PARAMS, told, field="status")


def _since(given: str | None) -> float | None:
    if not given:
        return None
    try:
        return datetime.fromisoformat(given.replace("Z", "+00:00")).timestamp()
    except ValueError:
        told = f"statusTimestampAfter is {given!r}; give ISO 8601 with Z"
        raise x.Wrong(x.PARAMS, told, field="statusTimestampAfter") from None


def _push(push: _Push, task: str, version: Version) -> PushConfig:
    login = push.authentication or _Login()
    scheme = login.scheme or next(iter(login.schemes or ()), "")
    for name, value in (("token", push.token), ("credentials", login.credentials),
                        ("scheme", scheme), ("id", push.id)):  # fmt: skip
        if value and not re.fullmatch(r"[ -~]{1,4096}", value):
            told = f"{name} goes into a header: give up to 4096 ASCII characters on one line"
            raise x.Wrong(x.PARAMS, told, field=name)
    return PushConfig(
        task=task, id=push.id or "", url=push.url, token=push.token or "", scheme=scheme,
        credentials=login.credentials or "", version=version,
    )  # fmt: skip
