"""A2A's shapes in both versions that are in use, 0.3 and 1.0: from a task to JSON.

Decides how each thing is written in each version. It must not know where tasks come from.
Invariant: both versions say the same; what has no value is left out.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Literal, assert_never

from turnkeeper.projections.a2a_push import PushConfig
from turnkeeper.projections.a2a_task import (
    ANSWER,
    ArtifactUpdate,
    Said,
    Status,
    StatusUpdate,
    Task,
    Update,
)

Json = dict[str, Any]
Version = Literal["0.3", "1.0"]

STATES = {
    word: f"TASK_STATE_{word.upper().replace('-', '_')}"
    for word in (
        "submitted", "working", "input-required", "completed", "canceled", "failed", "rejected",
    )
}  # fmt: skip
OTHER_STATES = ("TASK_STATE_AUTH_REQUIRED", "TASK_STATE_UNSPECIFIED")
"""States of the protocol in which no task is ever here."""


def time_of(at: float) -> str:
    """ISO 8601 in UTC, with milliseconds."""
    told = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
    return told.replace("+00:00", "Z")


def task_of(
    task: Task, version: Version, history: int | None = None, *, artifacts: bool = True
) -> Json:
    """The task as it is now, with no more than so many messages of its history."""
    found: Json = {
        "id": task.id, "contextId": task.context,
        "status": status_of(task.status, task, version),
    }  # fmt: skip
    if artifacts and task.text:
        found["artifacts"] = [_artifact(task.text, version)]
    said = task.history if history is None else task.history[len(task.history) - history :]
    if history != 0 and said:
        found["history"] = [message_of(one, task, version) for one in said]
    if task.metadata:
        found["metadata"] = task.metadata
    return {"kind": "task", **found} if version == "0.3" else found


def status_of(status: Status, task: Task, version: Version) -> Json:
    state = status.state if version == "0.3" else STATES[status.state]
    found: Json = {"state": state, "timestamp": time_of(status.at)}
    if status.message is not None:
        found["message"] = message_of(status.message, task, version)
    return found


def message_of(said: Said, task: Task, version: Version) -> Json:
    parts = [_text(said.text, version)]
    if said.data is not None:
        parts.append(_data(said.data, version))
    found: Json = {
        "messageId": said.id, "taskId": task.id, "contextId": task.context,
        "role": said.role if version == "0.3" else f"ROLE_{said.role.upper()}", "parts": parts,
    }  # fmt: skip
    if said.metadata is not None:
        found["metadata"] = said.metadata
    return {"kind": "message", **found} if version == "0.3" else found


def update_of(update: Update, task: Task, version: Version, *, final: bool) -> Json:
    """What is new; `final` says that the stream ends with it."""
    named: Json = {"taskId": task.id, "contextId": task.context}
    match update:
        case StatusUpdate():
            named["status"] = status_of(update.status, task, version)
            if update.metadata is not None:
                named["metadata"] = update.metadata
            if version == "0.3":
                return {"kind": "status-update", **named, "final": final}
            return {"statusUpdate": named}
        case ArtifactUpdate():
            named["artifact"] = _artifact(update.text, version)
            if update.append:
                named["append"] = True
            if version == "0.3":
                return {"kind": "artifact-update", **named}
            return {"artifactUpdate": named}
        case _:
            assert_never(update)


def whole(task: Json, version: Version) -> Json:
    """A task as the first word of a stream, or as the answer to a message."""
    return task if version == "0.3" else {"task": task}


def push_of(config: PushConfig, version: Version) -> Json:
    """A push configuration as whoever made it sees it."""
    found: Json = {"id": config.id, "url": config.url}
    if config.token:
        found["token"] = config.token
    if version == "0.3":
        if config.scheme:
            found["authentication"] = _login("schemes", [config.scheme], config.credentials)
        return {"taskId": config.task, "pushNotificationConfig": found}
    if config.scheme:
        found["authentication"] = _login("scheme", config.scheme, config.credentials)
    return {"taskId": config.task, **found}


def pushed(task: Task, version: Version) -> Json:
    """What is sent to a client that is to be told."""
    return whole(task_of(task, version), version)


def _login(name: str, scheme: object, credentials: str) -> Json:
    return {name: scheme, **({"credentials": credentials} if credentials else {})}


def _artifact(text: str, version: Version) -> Json:
    return {"artifactId": ANSWER, "name": "answer", "parts": [_text(text, version)]}


def _text(text: str, version: Version) -> Json:
    return {"kind": "text", "text": text} if version == "0.3" else {"text": text}


def _data(data: Json, version: Version) -> Json:
    if version == "0.3":
        return {"kind": "data", "data": data}
    return {"data": data, "mediaType": "application/json"}
