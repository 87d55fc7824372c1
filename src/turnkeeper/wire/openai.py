"""OpenAI's two streams, Responses and Chat Completions, and whatever is compatible with them.

Decides what each event means. It must not know requests or connections. Invariant: a tool call is
given once, when it is whole, before `Stopped`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from turnkeeper.wire import model as m
from turnkeeper.wire.model import ErrorBody, ModelEvent
from turnkeeper.wire.sse import EVENT_MAX, Event, Events, TooLarge

DONE = b"[DONE]"


class _Decoder:
    """What both share: events out of chunks, and the one end."""

    def __init__(self, event_max: int = EVENT_MAX) -> None:
        self._events = Events(event_max)
        self._over = False

    def feed(self, chunk: bytes) -> list[ModelEvent]:
        out: list[ModelEvent] = []
        for item in self._events.feed(chunk):
            if self._over:
                break
            if isinstance(item, Event):
                self._data(item.data, out)
            elif isinstance(item, TooLarge):
                self._fail(f"an event of more than {item.event_max} bytes", out)
            else:
                out.append(m.PING)
        return out

    def _data(self, data: bytes, out: list[ModelEvent]) -> None:
        try:
            self._event(data, out)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as fault:
            self._fail(f"an event that cannot be read: {fault}", out)

    def _event(self, data: bytes, out: list[ModelEvent]) -> None:
        raise NotImplementedError

    def end(self) -> list[ModelEvent]:
        if self._over:
            return []
        self._over = True
        return [m.truncated()]

    def _stop(self, reason: m.StopReason, out: list[ModelEvent]) -> None:
        self._over = True
        out.append(m.Stopped(reason))

    def _fail(self, message: str, out: list[ModelEvent]) -> None:
        self._over = True
        out.append(m.ModelError(0, "invalid_stream", message, False))


# Responses ------------------------------------------------------------------------------------


class _Incomplete(msgspec.Struct, gc=False):
    reason: str | None = None


class _Response(msgspec.Struct, gc=False):
    error: ErrorBody | None = None
    incomplete_details: _Incomplete | None = None
    output: list[dict[str, Any]] = []


class _ResponsesEvent(msgspec.Struct, gc=False):
    type: str = ""
    delta: str | None = None
    item_id: str = ""
    item: dict[str, Any] = {}
    response: _Response | None = None
    error: ErrorBody | None = None
    message: str = ""
    code: str | int | None = None


_responses = msgspec.json.Decoder(_ResponsesEvent)

_TEXTS = ("response.output_text.delta", "response.refusal.delta")
_THOUGHTS = ("response.reasoning_summary_text.delta", "response.reasoning_text.delta")
_CALLS = ("function_call", "custom_tool_call")


class ResponsesDecoder(_Decoder):
    """One response of `POST /v1/responses` with `stream`."""

    def __init__(self, event_max: int = EVENT_MAX) -> None:
        super().__init__(event_max)
        self._items: list[dict[str, Any]] = []
        self._calls = 0
        self._refused = False

    def turn(self) -> list[dict[str, Any]]:
        return list(self._items)

    def _event(self, data: bytes, out: list[ModelEvent]) -> None:
        if data == DONE:
            return
        said = _responses.decode(data)
        match said.type:
            case kind if kind in _TEXTS and said.delta is not None:
                self._refused |= kind == "response.refusal.delta"
                out.append(m.TextDelta(said.delta))
            case kind if kind in _THOUGHTS and said.delta is not None:
                out.append(m.ThinkingDelta(said.delta))
            case "response.function_call_arguments.delta" | "response.custom_tool_call_input.delta":
                out.append(m.ToolDelta(said.item_id))
            case "response.output_item.done":
                self._item(said.item, out)
            case "response.completed":
                if not self._items and said.response is not None:
                    for item in said.response.output:
                        self._item(item, out)
                reason: m.StopReason = "refused" if self._refused else "end_turn"
                self._stop("tool_use" if self._calls else reason, out)
            case "response.incomplete":
                self._incomplete(said.response, out)
            case "response.failed" | "error":
                self._over = True
                out.append(m.stream_error(_error_of(said)))
            case _:
                out.append(m.PING)

    def _item(self, item: dict[str, Any], out: list[ModelEvent]) -> None:
        self._items.append(item)
        if item.get("type") not in _CALLS:
            out.append(m.PING)
            return
        self._calls += 1
        written = item.get("arguments")
        given = m.arguments(written) if isinstance(written, str) else item.get("input")
        out.append(m.ToolCall(str(item.get("call_id") or ""), str(item.get("name") or ""), given))

    def _incomplete(self, response: _Response | None, out: list[ModelEvent]) -> None:
        details = response.incomplete_details if response is not None else None
        filtered = details is not None and details.reason == "content_filter"
        self._stop("refused" if filtered else "max_tokens", out)


def _error_of(said: _ResponsesEvent) -> ErrorBody:
    if said.response is not None and said.response.error is not None:
        return said.response.error
    return said.error or ErrorBody(said.message, None, said.code)


# Chat Completions -----------------------------------------------------------------------------


class _Function(msgspec.Struct, gc=False):
    name: str | None = None
    arguments: str | None = None


class _CallDelta(msgspec.Struct, gc=False):
    index: int = 0
    id: str | None = None
    function: _Function | None = None


class _ChatDelta(msgspec.Struct, gc=False):
    content: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[_CallDelta] | None = None


class _Choice(msgspec.Struct, gc=False):
    delta: _ChatDelta | None = None
    finish_reason: str | None = None


class _Chunk(msgspec.Struct, gc=False):
    choices: list[_Choice] | None = None
    error: ErrorBody | None = None


_chunk = msgspec.json.Decoder(_Chunk)

FINISHES: dict[str, m.StopReason] = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "length": "max_tokens",
    "content_filter": "refused",
}


class _Call:
    """A tool call that is being written."""

    def __init__(self) -> None:
        self.id = self.name = ""
        self.written: list[str] = []


class ChatDecoder(_Decoder):
    """One response of `POST /v1/chat/completions` with `stream`. It is over with `[DONE]`; where a
    server forgets that, with the end of the body, if a finish reason was given."""

    def __init__(self, event_max: int = EVENT_MAX) -> None:
        super().__init__(event_max)
        self._text: list[str] = []
        self._calls: dict[int, _Call] = {}
        self._reason: m.StopReason | None = None
        self._refused = False

    def turn(self) -> list[dict[str, Any]]:
        message: dict[str, Any] = {"role": "assistant", "content": "".join(self._text) or None}
        if self._calls:
            message["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": "".join(call.written) or "{}"},
                }
                for _, call in sorted(self._calls.items())
            ]
        return [message] if self._text or self._calls else []

    def end(self) -> list[ModelEvent]:
        if self._over or self._reason is None:
            return super().end()
        out: list[ModelEvent] = []
        self._finish(out)
        return out

    def _event(self, data: bytes, out: list[ModelEvent]) -> None:
        if data == DONE:
            self._finish(out)
            return
        said = _chunk.decode(data)
        if said.error is not None:
            self._over = True
            out.append(m.stream_error(said.error))
            return
        before = len(out)
        for choice in said.choices or ():
            self._choice(choice, out)
        if len(out) == before:
            out.append(m.PING)

    def _choice(self, choice: _Choice, out: list[ModelEvent]) -> None:
        delta = choice.delta
        if delta is not None:
            self._refused |= bool(delta.refusal)
            if thought := delta.reasoning_content or delta.reasoning:
                out.append(m.ThinkingDelta(thought))
            if text := delta.content or delta.refusal:
                self._text.append(text)
                out.append(m.TextDelta(text))
            for call in delta.tool_calls or ():
                self._call(call, out)
        if choice.finish_reason is not None:
            self._reason = FINISHES.get(choice.finish_reason, "end_turn")

    def _call(self, delta: _CallDelta, out: list[ModelEvent]) -> None:
        call = self._calls.setdefault(delta.index, _Call())
        call.id = delta.id or call.id
        if delta.function is not None:
            call.name = delta.function.name or call.name
            call.written.append(delta.function.arguments or "")
        out.append(m.ToolDelta(call.id))

    def _finish(self, out: list[ModelEvent]) -> None:
        """Some servers say `stop` although they want a tool run."""
        for _, call in sorted(self._calls.items()):
            out.append(m.ToolCall(call.id, call.name, m.arguments("".join(call.written))))
        reason = self._reason or "end_turn"
        if self._calls and reason == "end_turn":
            reason = "tool_use"
        if self._refused and reason == "end_turn":
            reason = "refused"
        self._stop(reason, out)
