"""The voice of Anthropic's Messages API. Knows its form; must not know plans or sockets."""

from __future__ import annotations

import json
from typing import Any

from turnkeeper.testing.model.voices import Asked, Event, Json, Tool, texts_of

ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    404: "not_found_error",
    429: "rate_limit_error",
    529: "overloaded_error",
}


def read(body: Json) -> Asked:
    turns = [m for m in body.get("messages", []) if m.get("role") == "user"]
    content = turns[-1]["content"] if turns else ""
    results = [] if isinstance(content, str) else [p for p in content if p["type"] == "tool_result"]
    return Asked(
        "anthropic",
        body.get("model", ""),
        bool(body.get("stream")),
        texts_of(content),
        "".join(texts_of(results[-1].get("content"))) if results else None,
        tuple(Tool(t["name"], t.get("input_schema", {})) for t in body.get("tools", [])),
    )


class Anthropic:
    def __init__(self, asked: Asked, number: int) -> None:
        self._id = f"{number}"
        self._blocks: list[Json] = []
        self._message: Json = {
            "id": f"msg_{number}",
            "type": "message",
            "role": "assistant",
            "model": asked.model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": 10, "output_tokens": 1},
        }

    def begin(self) -> list[Event]:
        return [_event("message_start", message=self._message)]

    def thinking(self, text: str) -> list[Event]:
        opened = self._open({"type": "thinking", "thinking": "", "signature": ""})
        self._blocks[-1]["thinking"] += text
        return [*opened, self._delta({"type": "thinking_delta", "thinking": text})]

    def text(self, text: str) -> list[Event]:
        opened = self._open({"type": "text", "text": ""})
        self._blocks[-1]["text"] += text
        return [*opened, self._delta({"type": "text_delta", "text": text})]

    def tool(self, name: str, given: Json) -> list[Event]:
        block = {"type": "tool_use", "id": f"toolu_{self._id}", "name": name, "input": {}}
        opened = self._open(block)
        self._blocks[-1]["input"] = given
        delta = {"type": "input_json_delta", "partial_json": json.dumps(given)}
        return [*opened, self._delta(delta)]

    def ping(self) -> list[Event]:
        return [_event("ping")]

    def end(self) -> list[Event]:
        delta = {"stop_reason": self._stop_reason(), "stop_sequence": None}
        ended = [_event("message_delta", delta=delta, usage={"output_tokens": 7})]
        return [*self._close(), *ended, _event("message_stop")]

    def whole(self) -> Json:
        return {**self._message, "content": self._blocks, "stop_reason": self._stop_reason()}

    def error(self, status: int) -> Json:
        kind = ERRORS.get(status, "api_error")
        return {"type": "error", "error": {"type": kind, "message": f"scripted {status}"}}

    def _stop_reason(self) -> str:
        is_tool = bool(self._blocks) and self._blocks[-1]["type"] == "tool_use"
        return "tool_use" if is_tool else "end_turn"

    def _open(self, block: Json) -> list[Event]:
        if self._blocks and self._blocks[-1]["type"] == block["type"]:
            return []
        closed = self._close()
        self._blocks.append(dict(block))
        index = len(self._blocks) - 1
        return [*closed, _event("content_block_start", index=index, content_block=block)]

    def _delta(self, delta: Json) -> Event:
        return _event("content_block_delta", index=len(self._blocks) - 1, delta=delta)

    def _close(self) -> list[Event]:
        if not self._blocks:
            return []
        index = len(self._blocks) - 1
        sign = {"type": "signature_delta", "signature": "c2NyaXB0ZWQ="}
        signed = [self._delta(sign)] if self._blocks[-1]["type"] == "thinking" else []
        return [*signed, _event("content_block_stop", index=index)]


def _event(kind: str, **fields: Any) -> Event:
    return kind, {"type": kind, **fields}
