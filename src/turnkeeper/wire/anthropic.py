"""Anthropic's Messages API, streaming.

Decides what each event means. It must not know requests or connections. Invariant: a block is given
once, when it is whole; the turn to be sent back is what the stream said, signatures included.
"""

from __future__ import annotations

from typing import Any

import msgspec

from turnkeeper.wire import model as m
from turnkeeper.wire.model import ErrorBody, ModelEvent
from turnkeeper.wire.sse import EVENT_MAX, Event, Events, TooLarge

REASONS: dict[str, m.StopReason] = {
    "end_turn": "end_turn",
    "stop_sequence": "end_turn",
    "tool_use": "tool_use",
    "max_tokens": "max_tokens",
    "model_context_window_exceeded": "max_tokens",
    "refusal": "refused",
    "pause_turn": "paused",
}


class _Delta(msgspec.Struct, gc=False):
    type: str = ""
    text: str = ""
    thinking: str = ""
    partial_json: str = ""
    signature: str = ""
    stop_reason: str | None = None


class _Event(msgspec.Struct, gc=False):
    type: str = ""
    index: int = 0
    content_block: dict[str, Any] = {}
    delta: _Delta | None = None
    error: ErrorBody | None = None


_decoder = msgspec.json.Decoder(_Event)


class MessagesDecoder:
    """One response of `POST /v1/messages` with `stream`."""

    def __init__(self, event_max: int = EVENT_MAX) -> None:
        self._events = Events(event_max)
        self._blocks: dict[int, dict[str, Any]] = {}
        self._pieces: dict[tuple[int, str], list[str]] = {}
        self._reason: str | None = None
        self._over = False

    def feed(self, chunk: bytes) -> list[ModelEvent]:
        out: list[ModelEvent] = []
        for item in self._events.feed(chunk):
            if self._over:
                break
            if isinstance(item, Event):
                self._event(item.data, out)
            elif isinstance(item, TooLarge):
                self._fail(f"an event of more than {item.event_max} bytes", out)
            else:
                out.append(m.PING)
        return out

    def end(self) -> list[ModelEvent]:
        if self._over:
            return []
        self._over = True
        return [m.truncated()]

    def turn(self) -> list[dict[str, Any]]:
        content = [self._block(index) for index in sorted(self._blocks)]
        content = [block for block in content if not _is_empty(block)]
        return [{"role": "assistant", "content": content}] if content else []

    def _block(self, index: int) -> dict[str, Any]:
        """A block with all that was said of it since it began."""
        block = self._blocks.get(index, {})
        told = {
            key: str(block.get(key) or "") + "".join(self._pieces[index, key])
            for key in ("text", "thinking", "signature")
            if (index, key) in self._pieces
        }
        written = "".join(self._pieces.get((index, "input"), ()))
        if written and str(block.get("type", "")).endswith("tool_use"):
            return {**block, **told, "input": m.arguments(written)}
        return {**block, **told}

    def _fail(self, message: str, out: list[ModelEvent]) -> None:
        self._over = True
        out.append(m.ModelError(0, "invalid_stream", message, False))

    def _event(self, data: bytes, out: list[ModelEvent]) -> None:
        try:
            said = _decoder.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as fault:
            self._fail(f"an event that cannot be read: {fault}", out)
            return
        match said.type:
            case "content_block_start":
                self._blocks[said.index] = dict(said.content_block)
                out.append(m.PING)
            case "content_block_delta" if said.delta is not None:
                self._delta(said.index, said.delta, out)
            case "content_block_stop":
                self._stop_block(said.index, out)
            case "message_delta" if said.delta is not None:
                self._reason = said.delta.stop_reason or self._reason
                out.append(m.PING)
            case "message_stop":
                self._over = True
                out.append(m.Stopped(REASONS.get(self._reason or "", "end_turn")))
            case "error" if said.error is not None:
                self._over = True
                out.append(m.stream_error(said.error))
            case _:
                out.append(m.PING)

    def _delta(self, index: int, delta: _Delta, out: list[ModelEvent]) -> None:
        match delta.type:
            case "text_delta":
                self._add(index, "text", delta.text)
                out.append(m.TextDelta(delta.text))
            case "thinking_delta":
                self._add(index, "thinking", delta.thinking)
                out.append(m.ThinkingDelta(delta.thinking))
            case "signature_delta":
                self._add(index, "signature", delta.signature)
                out.append(m.PING)
            case "input_json_delta":
                self._add(index, "input", delta.partial_json)
                out.append(m.ToolDelta(str(self._blocks.get(index, {}).get("id") or "")))
            case _:
                out.append(m.PING)

    def _add(self, index: int, key: str, piece: str) -> None:
        self._pieces.setdefault((index, key), []).append(piece)

    def _stop_block(self, index: int, out: list[ModelEvent]) -> None:
        block = self._block(index)
        if block.get("type") == "tool_use":
            id, name = str(block.get("id") or ""), str(block.get("name") or "")
            out.append(m.ToolCall(id, name, block.get("input") or {}))
        else:
            out.append(m.PING)


def _is_empty(block: dict[str, Any]) -> bool:
    """The API refuses empty text that it is sent back."""
    return not block or (block.get("type") == "text" and not block.get("text"))
