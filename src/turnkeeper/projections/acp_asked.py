"""What an ACP client asks: the shapes of its requests, and a prompt as plain text.

Decides what can be read of a request. It must not know what is done with it. Invariants: what is
refused is named by its field; fields that we do not know are passed over, as the protocol wants it;
nothing of a prompt is left out silently.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from turnkeeper.core.errors import InvalidValue


class Asked(msgspec.Struct, rename="camel", kw_only=True):
    """The parameters of a request or a notification."""

    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")


class Initialize(Asked, kw_only=True):
    protocol_version: Any = 1


class NewSession(Asked, kw_only=True):
    cwd: str
    mcp_servers: list[Any] | None = None
    additional_directories: list[str] | None = None


class OldSession(NewSession, kw_only=True):
    """`session/load` and `session/resume`."""

    session_id: str


class OneSession(Asked, kw_only=True):
    """`session/cancel` and `session/close`."""

    session_id: str


class Prompt(Asked, kw_only=True):
    session_id: str
    prompt: list[dict[str, Any]]


class SetOption(Asked, kw_only=True):
    session_id: str
    config_id: str
    value: Any


class ListSessions(Asked, kw_only=True):
    cwd: str | None = None
    cursor: str | None = None


class CancelRequest(Asked, kw_only=True):
    request_id: int | str | None


class Chosen(msgspec.Struct, rename="camel"):
    outcome: str
    option_id: str | None = None


class Answered(msgspec.Struct):
    """The answer to `session/request_permission`."""

    outcome: Chosen


T = TypeVar("T", bound=msgspec.Struct)


def read(shape: type[T], params: object) -> T:
    """The parameters in their shape, or `InvalidValue` naming what is wrong."""
    try:
        return msgspec.convert({} if params is None else params, shape)
    except msgspec.ValidationError as wrong:
        told, _, where = str(wrong).partition(" - at ")
        field = "params" + where.strip("`").removeprefix("$")
        raise InvalidValue(field, _at(params, where), told) from None


def _at(params: object, where: str) -> object:
    name = where.strip("`").removeprefix("$.")
    return params.get(name, params) if isinstance(params, dict) else params


def agent_of(meta: dict[str, Any] | None) -> str | None:
    """Whom `_meta.turnkeeper.agent` names."""
    ours = (meta or {}).get("turnkeeper")
    named = ours.get("agent") if isinstance(ours, dict) else None
    if named is not None and not isinstance(named, str):
        raise InvalidValue("_meta.turnkeeper.agent", named, "give an agent's name")
    return named


def check_place(asked: NewSession) -> None:
    """The folder is named in full, and it is the only one."""
    if not asked.cwd.startswith("/"):
        raise InvalidValue("cwd", asked.cwd, "give the folder's full path")
    if asked.additional_directories:
        told = "sessions have one folder here (sessionCapabilities says so)"
        raise InvalidValue("additionalDirectories", asked.additional_directories, told)


# A prompt as text ----------------------------------------------------------------------------


def text_of(prompt: list[dict[str, Any]]) -> str:
    """The text of a prompt. Links stand where they are; what they lead to, if it came along,
    follows at the end."""
    said, context = "", list[str]()
    after_text = False
    for place, block in enumerate(prompt):
        piece, is_text = _piece(f"prompt[{place}]", block, context)
        if said and after_text and is_text:
            said += "\n\n"
        said, after_text = said + piece, is_text
    text = "\n\n".join([said, *context] if said.strip() else context)
    if not text.strip():
        raise InvalidValue("prompt", prompt, "say something")
    return text


def _piece(field: str, block: dict[str, Any], context: list[str]) -> tuple[str, bool]:
    match block:
        case {"type": "text", "text": str(text)}:
            return text, True
        case {"type": "resource_link", "uri": str(uri)}:
            return _link(uri, block.get("title") or block.get("name")), False
        case {"type": "resource", "resource": {"uri": str(uri), "text": str(text)}}:
            context.append(f'<context ref="{uri}">\n{text}\n</context>')
            return _link(uri, None), False
        case {"type": "resource"}:
            raise InvalidValue(field, "a resource", "only the text of a resource can be sent")
        case {"type": "image" | "audio" as kind}:
            told = "only text can be sent to agents here (promptCapabilities says so)"
            raise InvalidValue(f"{field}.type", kind, told)
        case _:
            told = "give a content block: text, resource or resource_link"
            raise InvalidValue(field, block, told)


def _link(uri: str, name: object) -> str:
    shown = name if isinstance(name, str) and name else uri.rstrip("/").rpartition("/")[2] or uri
    return f"[@{shown}]({uri})"
