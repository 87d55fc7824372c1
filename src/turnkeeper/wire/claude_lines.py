"""The lines that Claude Code prints in stream-json, as far as we read them.

Decides nothing. It must not know runs. Invariant: lenient in everything that we do not use, because
each version adds fields; `type` may stand anywhere in a line.
"""

from __future__ import annotations

from typing import Any

import msgspec


class _Any(msgspec.Struct, tag_field="type", gc=False):
    """Of a kind that carries no news."""


# The model's stream, within a `stream_event` -------------------------------------------------


class TextDelta(_Any, tag="text_delta", gc=False):
    text: str


class ThinkingDelta(_Any, tag="thinking_delta", gc=False):
    thinking: str


class InputDelta(_Any, tag="input_json_delta", gc=False):
    partial_json: str


class SignatureDelta(_Any, tag="signature_delta", gc=False):
    pass


class StartingBlock(msgspec.Struct, gc=False):
    type: str
    id: str = ""


class MessageStart(_Any, tag="message_start", gc=False):
    pass


class BlockStart(_Any, tag="content_block_start", gc=False):
    content_block: StartingBlock


class BlockDelta(_Any, tag="content_block_delta", gc=False):
    delta: TextDelta | ThinkingDelta | InputDelta | SignatureDelta


class BlockStop(_Any, tag="content_block_stop", gc=False):
    pass


class MessageDelta(_Any, tag="message_delta", gc=False):
    pass


class MessageStop(_Any, tag="message_stop", gc=False):
    pass


class Ping(_Any, tag="ping", gc=False):
    pass


StreamEventData = (
    BlockDelta | BlockStart | BlockStop | MessageStart | MessageDelta | MessageStop | Ping
)

# Whole lines ----------------------------------------------------------------------------------


class StreamEvent(_Any, tag="stream_event", gc=False):
    event: StreamEventData
    parent_tool_use_id: str | None = None


class Block(msgspec.Struct, gc=False):
    """A block of a whole message, of any kind."""

    type: str
    text: str = ""
    thinking: str = ""
    id: str = ""
    name: str = ""
    input: Any = None
    tool_use_id: str = ""
    content: Any = None
    is_error: bool | None = None


class Message(msgspec.Struct, gc=False):
    content: list[Block] | str = ""


class Assistant(_Any, tag="assistant", gc=False):
    """`error` is there where it is not the model who speaks."""

    message: Message
    parent_tool_use_id: str | None = None
    error: Any = None


class User(_Any, tag="user", gc=False):
    message: Message
    parent_tool_use_id: str | None = None
    is_replay: bool = msgspec.field(default=False, name="isReplay")


class System(_Any, tag="system", gc=False):
    subtype: str = ""
    session_id: str = ""


class Result(_Any, tag="result", gc=False):
    is_error: bool = False
    terminal_reason: str | None = None
    stop_reason: str | None = None
    num_turns: int = 0
    result: str | None = None
    errors: list[Any] | None = None
    api_error_status: Any = None


class Request(msgspec.Struct, gc=False):
    subtype: str
    tool_name: str = ""
    input: msgspec.Raw = msgspec.Raw(b"null")


class ControlRequest(_Any, tag="control_request", gc=False):
    request_id: str
    request: Request


class Response(msgspec.Struct, gc=False):
    request_id: str
    subtype: str = ""
    error: Any = None


class ControlResponse(_Any, tag="control_response", gc=False):
    response: Response


class ControlCancel(_Any, tag="control_cancel_request", gc=False):
    request_id: str


class ToolProgress(_Any, tag="tool_progress", gc=False):
    """A clock's tick, every 30 s of a long command: no evidence that the command gets on."""


class KeepAlive(_Any, tag="keep_alive", gc=False):
    pass


class CommandLifecycle(_Any, tag="command_lifecycle", gc=False):
    pass


Line = (
    StreamEvent | Assistant | User | System | Result | ControlRequest | ControlResponse
    | ControlCancel | ToolProgress | KeepAlive | CommandLifecycle
)  # fmt: skip

decoder: msgspec.json.Decoder[Line] = msgspec.json.Decoder(Line)


class Head(msgspec.Struct, gc=False):
    """Enough of any line to tell whether it may be passed over."""

    type: str = ""


head: msgspec.json.Decoder[Head] = msgspec.json.Decoder(Head)

ESSENTIAL = frozenset({"result", "control_request", "control_response"})
"""What must be understood: a turn ends or waits by it."""
