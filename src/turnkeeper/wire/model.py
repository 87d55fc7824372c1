"""What every model API's stream comes to: the words that a driver with a tool loop understands.

Decides nothing but what may be tried again. It must not know any one API. Invariant: a closed set;
a stream that ends well gives exactly one `Stopped`, and every tool call comes whole and before it.
"""

from __future__ import annotations

from typing import Any, Literal, Protocol

import msgspec


class TextDelta(msgspec.Struct, frozen=True, gc=False):
    text: str


class ThinkingDelta(msgspec.Struct, frozen=True, gc=False):
    text: str


class ToolDelta(msgspec.Struct, frozen=True, gc=False):
    """A call's input is being written: progress, and nothing to act on."""

    id: str


class ToolCall(msgspec.Struct, frozen=True, gc=False):
    """The model wants a tool run. `input` is text where the model wrote no JSON."""

    id: str
    name: str
    input: Any


StopReason = Literal["end_turn", "tool_use", "max_tokens", "refused", "paused"]


class Stopped(msgspec.Struct, frozen=True, gc=False):
    """The model is done, for this request. `paused`: it wants to be asked to go on."""

    reason: StopReason


class ModelError(msgspec.Struct, frozen=True, gc=False):
    """`status` is HTTP's, 0 where the error came within a stream; `retryable` says that the same
    request may well succeed later, and has not been answered."""

    status: int
    type: str
    message: str
    retryable: bool


class Ping(msgspec.Struct, frozen=True, gc=False):
    """The other end lives. That is no progress."""


ModelEvent = TextDelta | ThinkingDelta | ToolDelta | ToolCall | Stopped | ModelError | Ping

PING = Ping()
RETRYABLE_STATUS = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
RETRYABLE_TYPES = frozenset(
    "overloaded_error rate_limit_error api_error timeout_error server_error rate_limit_exceeded"
    " internal_error server_is_overloaded slow_down".split()
)


class StreamDecoder(Protocol):
    """One response's decoder."""

    def feed(self, chunk: bytes) -> list[ModelEvent]:
        """Bytes of the response's body, in order, split anywhere. Never raises."""

    def end(self) -> list[ModelEvent]:
        """The body is over: an error, if the model had not stopped."""

    def turn(self) -> list[dict[str, Any]]:
        """What the model said, in its API's own shape, as the next request must repeat it."""


def truncated() -> ModelError:
    return ModelError(0, "truncated", "the stream ended before the model did", True)


class ErrorBody(msgspec.Struct, gc=False):
    """An error, in any of the shapes that these APIs give it."""

    message: str = ""
    type: str | None = None
    code: str | int | None = None

    def __str__(self) -> str:
        return self.message or self.type or "no reason given"

    @property
    def kind(self) -> str:
        return str(self.type or self.code or "error")


class _Envelope(msgspec.Struct, gc=False):
    error: ErrorBody | str | None = None
    message: str = ""


_envelope = msgspec.json.Decoder(_Envelope)
SHOWN_CHARS = 500


def http_error(status: int, body: bytes) -> ModelError:
    """What an answer other than 2xx says."""
    kind, message = f"http_{status}", body[:SHOWN_CHARS].decode("utf-8", "replace").strip()
    try:
        said = _envelope.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        said = _Envelope()
    if isinstance(said.error, ErrorBody):
        kind, message = said.error.kind, str(said.error)
    elif said.error or said.message:
        message = said.error or said.message
    return ModelError(status, kind, message or f"HTTP {status}", status in RETRYABLE_STATUS)


def stream_error(error: ErrorBody) -> ModelError:
    """An error within a stream. What was already said has been said: whoever retries must know."""
    known = {error.kind, str(error.code)}
    return ModelError(0, error.kind, str(error), bool(known & RETRYABLE_TYPES))


def arguments(text: str) -> Any:
    """A tool's input, as the model wrote it."""
    if not text.strip():
        return {}
    try:
        return msgspec.json.decode(text.encode())
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return text
