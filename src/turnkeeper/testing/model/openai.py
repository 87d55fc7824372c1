"""The voices of OpenAI's Responses and Chat Completions. Know their forms; must not know plans."""

from __future__ import annotations

import json
from typing import Any

from turnkeeper.testing.model.voices import Asked, Event, Json, Tool, texts_of

USAGE = {
    "input_tokens": 10,
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens": 5,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 15,
}


def read_responses(body: Json) -> Asked:
    given = body.get("input", [])
    items: list[Json] = [{"role": "user", "content": given}] if isinstance(given, str) else given
    texts: tuple[str, ...] = ()
    result: str | None = None
    for item in reversed(items):
        if str(item.get("type", "")).endswith("call_output"):
            output = item.get("output")
            result = output if isinstance(output, str) else json.dumps(output)
            break
        if item.get("role") == "user":
            texts = texts_of(item.get("content"))
            break
    tools = [Tool(t.get("name", t["type"]), t.get("parameters", {})) for t in body.get("tools", [])]
    model, stream = body.get("model", ""), bool(body.get("stream"))
    return Asked("responses", model, stream, texts, result, tuple(tools))


class Responses:
    """One output item at a time: reasoning, a message, a function call."""

    def __init__(self, asked: Asked, number: int) -> None:
        self._number = number
        self._sequence = -1
        self._done: list[Json] = []
        self._item: Json | None = None
        self._response: Json = {
            "id": f"resp_{number}",
            "object": "response",
            "created_at": 0,
            "model": asked.model,
            "status": "in_progress",
            "output": [],
        }

    def begin(self) -> list[Event]:
        return [self._event("created", response=self._response)]

    def thinking(self, text: str) -> list[Event]:
        opened = self._open({"type": "reasoning", "id": f"rs_{self._number}", "summary": []})
        assert self._item is not None
        part = {"type": "summary_text", "text": ""}
        if not self._item["summary"]:
            self._item["summary"].append(dict(part))
            opened.append(self._at("reasoning_summary_part.added", summary_index=0, part=part))
        self._item["summary"][0]["text"] += text
        return [*opened, self._at("reasoning_summary_text.delta", summary_index=0, delta=text)]

    def text(self, text: str) -> list[Event]:
        item = {"type": "message", "id": f"msg_{self._number}", "role": "assistant"}
        opened = self._open({**item, "status": "in_progress", "content": []})
        assert self._item is not None
        part = {"type": "output_text", "text": "", "annotations": []}
        if not self._item["content"]:
            self._item["content"].append(dict(part))
            opened.append(self._at("content_part.added", content_index=0, part=part))
        self._item["content"][0]["text"] += text
        return [*opened, self._at("output_text.delta", content_index=0, delta=text)]

    def tool(self, name: str, given: Json) -> list[Event]:
        item = {"type": "function_call", "id": f"fc_{self._number}", "name": name}
        item |= {"call_id": f"call_{self._number}", "arguments": "", "status": "in_progress"}
        opened = self._open(item)
        assert self._item is not None
        arguments = self._item["arguments"] = json.dumps(given)
        delta = self._at("function_call_arguments.delta", delta=arguments)
        return [*opened, delta, self._at("function_call_arguments.done", arguments=arguments)]

    def ping(self) -> list[Event]:
        return [("keepalive", {"type": "keepalive"})]

    def end(self) -> list[Event]:
        closed = self._close()
        return [*closed, self._event("completed", response=self.whole())]

    def whole(self) -> Json:
        self._close()
        return {**self._response, "status": "completed", "output": self._done, "usage": USAGE}

    def error(self, status: int) -> Json:
        return _error(status)

    def _open(self, item: Json) -> list[Event]:
        if self._item is not None and self._item["type"] == item["type"]:
            return []
        closed = self._close()
        self._item = json.loads(json.dumps(item))
        return [*closed, self._at("output_item.added", item=item)]

    def _close(self) -> list[Event]:
        if self._item is None:
            return []
        item = self._item
        if "status" in item:
            item["status"] = "completed"
        closed = []
        if item["type"] == "message":
            text = item["content"][0]["text"]
            closed = [self._at("output_text.done", content_index=0, text=text)]
        closed.append(self._at("output_item.done", item=item))
        self._done.append(item)
        self._item = None
        return closed

    def _at(self, kind: str, **fields: Any) -> Event:
        assert self._item is not None
        where = {"output_index": len(self._done), "item_id": self._item["id"]}
        return self._event(kind, **where, **fields)

    def _event(self, kind: str, **fields: Any) -> Event:
        self._sequence += 1
        kind = f"response.{kind}"
        return kind, {"type": kind, "sequence_number": self._sequence, **fields}


def read_chat(body: Json) -> Asked:
    texts: tuple[str, ...] = ()
    result: str | None = None
    for message in reversed(body.get("messages", [])):
        if message.get("role") == "tool":
            result = "".join(texts_of(message.get("content")))
            break
        if message.get("role") == "user":
            texts = texts_of(message.get("content"))
            break
    functions = [t.get("function", {}) for t in body.get("tools") or []]
    tools = tuple(Tool(f.get("name", ""), f.get("parameters", {})) for f in functions)
    return Asked("chat", body.get("model", ""), bool(body.get("stream")), texts, result, tools)


class Chat:
    def __init__(self, asked: Asked, number: int) -> None:
        self._number = number
        self._model = asked.model
        self._message: Json = {"role": "assistant", "content": ""}

    def begin(self) -> list[Event]:
        return [self._chunk({"role": "assistant", "content": ""})]

    def thinking(self, text: str) -> list[Event]:
        return [self._chunk({"reasoning_content": text})]

    def text(self, text: str) -> list[Event]:
        self._message["content"] += text
        return [self._chunk({"content": text})]

    def tool(self, name: str, given: Json) -> list[Event]:
        function = {"name": name, "arguments": json.dumps(given)}
        call = {"id": f"call_{self._number}", "type": "function", "function": function}
        self._message["tool_calls"] = [call]
        return [self._chunk({"tool_calls": [{"index": 0, **call}]})]

    def ping(self) -> list[Event]:
        return [(None, None)]

    def end(self) -> list[Event]:
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        last: Json = {**self._head("chat.completion.chunk"), "choices": [], "usage": usage}
        return [self._chunk({}, self._reason()), (None, last), (None, "[DONE]")]

    def whole(self) -> Json:
        choice = {"index": 0, "message": self._message, "finish_reason": self._reason()}
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        return {**self._head("chat.completion"), "choices": [choice], "usage": usage}

    def error(self, status: int) -> Json:
        return _error(status)

    def _reason(self) -> str:
        return "tool_calls" if "tool_calls" in self._message else "stop"

    def _head(self, kind: str) -> Json:
        head = {"id": f"chatcmpl-{self._number}", "object": kind, "created": 0}
        return {**head, "model": self._model}

    def _chunk(self, delta: Json, reason: str | None = None) -> Event:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        return None, {**self._head("chat.completion.chunk"), "choices": [choice]}


def _error(status: int) -> Json:
    kind = {401: "invalid_request_error", 429: "rate_limit_error"}.get(status, "server_error")
    return {"error": {"type": kind, "message": f"scripted {status}", "code": None}}
