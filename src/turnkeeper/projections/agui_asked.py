"""What an AG-UI client asks: the shape of its input, and the text in it that is new.

Decides what of a conversation is sent on. It must not know sessions. Invariant: only what people
have said since the agent last spoke is sent, for the session has the rest; what cannot be sent is
refused, not left out.
"""

from __future__ import annotations

import hashlib
import re
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from turnkeeper.core.errors import InvalidValue

Id = Annotated[str, Meta(min_length=1, max_length=1000)]

_SESSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
_KEY = re.compile(r"[\x21-\x7e]{1,240}")
KEY = "ag-ui:"

AFTER = ("assistant", "tool", "reasoning", "activity")
"""Whose messages come after those that the session has had."""


class AguiMessage(msgspec.Struct, kw_only=True, rename="camel"):
    id: str
    role: Literal["developer", "system", "assistant", "user", "tool", "activity", "reasoning"]
    content: Any = None


class AguiContext(msgspec.Struct, kw_only=True):
    description: str
    value: str


class AguiResume(msgspec.Struct, kw_only=True, rename="camel"):
    """The answer to a question. `payload.approved` allows it, if it is true."""

    interrupt_id: str
    status: Literal["resolved", "cancelled"]
    payload: Any = None


class RunAgentInput(msgspec.Struct, kw_only=True, rename="camel"):
    """AG-UI's input of a run. `threadId` is the session, and `runId` the key of the message."""

    thread_id: Id
    run_id: Id
    messages: list[AguiMessage]
    protocol_version: str | None = None
    parent_run_id: str | None = None
    state: Any = None
    tools: list[Any] | None = None
    context: list[AguiContext] | None = None
    forwarded_props: Any = None
    resume: list[AguiResume] | None = None


def session_of(thread: str) -> str:
    """The session of that thread: of the same name, if a session can have it."""
    if _SESSION.fullmatch(thread):
        return thread
    return "t_" + hashlib.sha256(thread.encode("utf-8", "replace")).hexdigest()[:24]


def key_of(run_id: str) -> str:
    """The idempotency key of that run's message."""
    if _KEY.fullmatch(run_id):
        return KEY + run_id
    return KEY + hashlib.sha256(run_id.encode("utf-8", "replace")).hexdigest()


def run_id_of(key: str | None, run: str) -> str:
    """What a run is called there: as whoever started it has called it, if that was there."""
    return key.removeprefix(KEY) if key is not None and key.startswith(KEY) else run


def agent_of(asked: RunAgentInput) -> str | None:
    """Whom `forwardedProps.agent` names."""
    given = asked.forwarded_props
    named = given.get("agent") if isinstance(given, dict) else None
    if named is not None and not isinstance(named, str):
        raise InvalidValue("forwardedProps.agent", named, "give an agent's name")
    return named


def text_of(asked: RunAgentInput) -> str:
    """What people have said since the agent last spoke, with the context that comes along."""
    said: list[str] = []
    for place in range(len(asked.messages) - 1, -1, -1):
        message = asked.messages[place]
        if message.role in AFTER:
            break
        if message.role == "user":
            said.insert(0, _content(f"messages[{place}].content", message.content))
    if not any(map(str.strip, said)):
        told = "the last messages have to be a person's, and say something"
        raise InvalidValue("messages", [m.role for m in asked.messages[-3:]], told)
    context = [f"{each.description}:\n{each.value}" for each in asked.context or []]
    return "\n\n".join([*context, *said])


def _content(field: str, content: object) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise InvalidValue(field, content, "give text, or a list of parts")
    texts: list[str] = []
    for place, part in enumerate(content):
        match part:
            case {"type": "text", "text": str(text)}:
                texts.append(text)
            case _:
                kind = part.get("type") if isinstance(part, dict) else part
                told = "only text can be sent to agents here"
                raise InvalidValue(f"{field}[{place}].type", kind, told)
    return "\n\n".join(texts)


def decision_of(answer: AguiResume) -> tuple[bool, str]:
    """Whether that allows what was asked for, and what is to be noted. What is not plainly allowed
    is denied."""
    if answer.status == "cancelled":
        return False, "dismissed"
    match answer.payload:
        case bool() as approved:
            return approved, ""
        case {"approved": bool() as approved, **rest}:
            note = rest.get("note")
            if "editedArgs" in rest:
                raise InvalidValue("resume.payload.editedArgs", "…", "a call cannot be changed")
            return approved, note if isinstance(note, str) else ""
        case _:
            told = 'give {"approved": true} or {"approved": false}'
            raise InvalidValue("resume.payload", answer.payload, told)
