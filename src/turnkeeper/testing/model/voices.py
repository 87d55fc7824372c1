"""What every API's voice offers: a request read in neutral words, an answer put in the API's form.

Decides nothing. It must not know sockets or plans. Invariant: a voice keeps the state of one answer
and is used once, in the order begin, (thinking | text)*, tool?, end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

Json = dict[str, Any]
Event = tuple[str | None, Any]
"""One server-sent event: its name, if the API names them, and its data."""

SHELLS = (
    "Bash",
    "bash",
    "exec_command",
    "shell_command",
    "shell",
    "run_shell_command",
    "run_command",
)


@dataclass(frozen=True, slots=True)
class Tool:
    name: str
    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Asked:
    """A request in neutral words."""

    api: str
    model: str
    stream: bool
    texts: tuple[str, ...] = ()
    tool_result: str | None = None
    tools: tuple[Tool, ...] = field(default=(), repr=False)


class Voice(Protocol):
    """Speaks one API for one answer."""

    def begin(self) -> list[Event]: ...
    def thinking(self, text: str) -> list[Event]: ...
    def text(self, text: str) -> list[Event]: ...
    def tool(self, name: str, given: Json) -> list[Event]: ...
    def ping(self) -> list[Event]: ...
    def end(self) -> list[Event]: ...

    def whole(self) -> Json:
        """The answer so far as one JSON value, for a request that does not stream."""

    def error(self, status: int) -> Json: ...


def shell_call(tools: Iterable[Tool], command: str) -> tuple[str, Json]:
    """The client's own shell tool, and the command in the form that its schema asks for."""
    by_name = {tool.name: tool for tool in tools}
    tool = next((by_name[name] for name in SHELLS if name in by_name), Tool("bash", {}))
    properties: Mapping[str, Any] = tool.schema.get("properties", {})
    key = "cmd" if "cmd" in properties else "command"
    as_list = properties.get(key, {}).get("type") == "array"
    given: Json = {key: ["bash", "-lc", command] if as_list else command}
    if "description" in properties:
        given["description"] = "scripted"
    return tool.name, given


def texts_of(content: Any) -> tuple[str, ...]:
    """The texts of a message, whether it is a string or a list of parts."""
    if isinstance(content, str):
        return (content,)
    return tuple(part["text"] for part in content or () if isinstance(part.get("text"), str))
