"""What ACP agents send, as far as we read it.

Decides how a tool is named and what it was given. It must not know runs. Invariant: lenient in
everything that we do not use: agents differ in what they add and leave out.
"""

from __future__ import annotations

from typing import Any

import msgspec


class _Said(msgspec.Struct, rename="camel", frozen=True, gc=False):
    pass


class Capabilities(_Said, frozen=True, gc=False):
    load_session: bool = False


class Hello(_Said, frozen=True, gc=False):
    protocol_version: int
    agent_capabilities: Capabilities = Capabilities()


class Session(_Said, frozen=True, gc=False):
    session_id: str = ""


class Usage(_Said, frozen=True, gc=False):
    total_tokens: int | None = None


class Prompted(_Said, frozen=True, gc=False):
    stop_reason: str
    usage: Usage | None = None


class Entry(_Said, frozen=True, gc=False):
    content: str = ""


class Update(msgspec.Struct, rename="camel", gc=False):
    """One `session/update`, of any kind; or a tool call within a question."""

    kind: str = msgspec.field(default="", name="sessionUpdate")
    content: Any = None
    entries: list[Entry] = []
    tool_call_id: str = ""
    name: str | None = None
    title: str | None = None
    tool_kind: str | None = msgspec.field(default=None, name="kind")
    status: str | None = None
    raw_input: Any = None
    raw_output: Any = None
    meta: Any = msgspec.field(default=None, name="_meta")


class Params(_Said, frozen=True, gc=False):
    update: Update
    session_id: str = ""


class _Words(msgspec.Struct, gc=False):
    text: str = ""


class _Chunk(msgspec.Struct, gc=False):
    kind: str = msgspec.field(name="sessionUpdate")
    content: _Words


class _ChunkParams(_Said, frozen=True, gc=False):
    update: _Chunk
    session_id: str = ""


class ChunkLine(msgspec.Struct, gc=False):
    """A whole line that brings a piece of text: what there is most of, read in one go."""

    method: str
    params: _ChunkParams
    id: msgspec.Raw = msgspec.Raw(b"")


class Option(_Said, frozen=True, gc=False):
    option_id: str
    kind: str = ""


class Asking(_Said, frozen=True, gc=False):
    """`session/request_permission`."""

    tool_call: Update
    options: list[Option] = []

    def option(self, way: str) -> str | None:
        """The option that allows, or rejects: once, if that can be had."""
        for kind in (f"{way}_once", f"{way}_always"):
            for option in self.options:
                if option.kind == kind:
                    return option.option_id
        return None


class Cancelling(_Said, frozen=True, gc=False):
    """`$/cancel_request`."""

    request_id: msgspec.Raw


hello: msgspec.json.Decoder[Hello] = msgspec.json.Decoder(Hello)
session: msgspec.json.Decoder[Session] = msgspec.json.Decoder(Session)
prompted: msgspec.json.Decoder[Prompted] = msgspec.json.Decoder(Prompted)
params_of: msgspec.json.Decoder[Params] = msgspec.json.Decoder(Params)
chunk_line: msgspec.json.Decoder[ChunkLine] = msgspec.json.Decoder(ChunkLine)
asking: msgspec.json.Decoder[Asking] = msgspec.json.Decoder(Asking)
cancelling: msgspec.json.Decoder[Cancelling] = msgspec.json.Decoder(Cancelling)


class ToolCall:
    """What is known of a tool call so far: agents tell it in pieces."""

    __slots__ = ("ended", "id", "kind", "raw_input", "started", "title", "tool_name")

    def __init__(self, id: str) -> None:
        self.id = id
        self.tool_name = self.title = self.kind = ""
        self.raw_input: Any = None
        self.started = self.ended = False

    def learn(self, update: Update) -> None:
        self.tool_name = update.name or _claude_name(update.meta) or self.tool_name
        self.title = update.title or self.title
        self.kind = update.tool_kind or self.kind
        self.raw_input = update.raw_input or self.raw_input

    @property
    def name(self) -> str:
        kind = self.kind if self.kind != "other" else ""
        return self.tool_name or kind or self.title or "tool"

    @property
    def input(self) -> Any:
        return self.raw_input or ({"title": self.title} if self.title else None)


def _claude_name(meta: Any) -> str:
    found = meta.get("claudeCode") if isinstance(meta, dict) else None
    name = found.get("toolName") if isinstance(found, dict) else None
    return name if isinstance(name, str) else ""


def text_of(content: Any) -> str:
    """The text of one content block."""
    text = content.get("text") if isinstance(content, dict) else None
    return text if isinstance(text, str) else ""


def tool_text(update: Update) -> str:
    """What a tool gave back, as text."""
    if isinstance(update.raw_output, str):
        return update.raw_output
    blocks = update.content if isinstance(update.content, list) else []
    parts = [text_of(block.get("content")) for block in blocks if isinstance(block, dict)]
    told = "\n".join(part for part in parts if part)
    if told or update.raw_output is None:
        return told
    return msgspec.json.encode(update.raw_output).decode()
